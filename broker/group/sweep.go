// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"

	"margay.dev/wire/batch"
)

// sweep looks for messages that expire while nobody takes them, now and then, for all groups at once. It reads what is
// outstanding of the log, and nothing while no record there has a time to live that could have ended.
type sweep struct {
	at      int64  // when to look again (us); 0: there is nothing to be looked for
	running uint64 // id of the scan under way; 0: none
	next    int64  // the earliest time that is to be looked at again, of those that this pass has seen; 0: none
}

// see learns of records that may expire.
func (w *sweep) see(now int64) {
	if again := now + SweepEvery; w.at == 0 || w.at > again {
		w.at = again
	}
}

// sweepFrom begins a pass, or goes on with one.
func (s *Groups) sweepFrom(offset uint64) {
	s.scans++
	s.sweep.running = s.scans
	s.fx.Scans = append(s.fx.Scans, Scan{From: offset, id: s.scans})
}

// sweepDue begins a pass when it is time.
func (s *Groups) sweepDue() {
	w := &s.sweep
	if w.at == 0 || s.asOf < w.at || w.running != 0 || s.carried != nil && !s.carried.Ready() {
		return
	}
	w.at, w.next = 0, 0
	if len(s.byID) == 0 {
		return
	}
	s.sweepCarried()
	for _, g := range s.inOrder() {
		for _, o := range sortedKeys(g.parked) {
			s.sweepOne(g, g.itemOfParked(g.parked[o]))
		}
	}
	from := s.end
	for _, g := range s.byID {
		from = min(from, max(g.passed.gap(0), s.start))
	}
	if from >= s.end {
		s.sweepOver()
		return
	}
	s.sweepFrom(from)
}

// sweepCarried looks at what lies below the beginning of the log.
func (s *Groups) sweepCarried() {
	if s.carried == nil {
		return
	}
	s.carried.Below(s.start, func(m Message) bool {
		s.sweepMessage(m)
		return true
	})
}

func (s *Groups) sweepMessage(m Message) {
	if m.Expires == 0 {
		return
	}
	for _, g := range s.inOrder() {
		if !g.passed.has(m.Offset) {
			s.sweepOne(g, itemOf(m, g.keyed()))
		}
	}
}

// sweepOne settles a message that has expired, or remembers when it will.
func (s *Groups) sweepOne(g *Group, it item) {
	switch {
	case it.expires == 0:
	case it.expires > s.asOf:
		if w := &s.sweep; w.next == 0 || it.expires < w.next {
			w.next = it.expires
		}
	case g.work != nil && s.claimed(g, it.offset): // once it comes back
		s.sweep.next = s.asOf
	default:
		s.expired = append(s.expired, expiredMessage{g, it})
		s.dirty = true
	}
}

// swept looks through what was read.
func (s *Groups) swept(x *Scanned) {
	if s.sweep.running != x.Scan.id {
		return
	}
	s.sweep.running = 0
	if x.Err != nil || x.Next <= x.Scan.From {
		s.sweep.see(s.asOf)
		return
	}
	var m batch.Meta
	for _, b := range x.Batches {
		if !b.HasOffsets() || !b.Scheduled() {
			continue
		}
		for metas := b.Metas(); ; {
			if ok, err := metas.Next(&m); !ok || err != nil {
				break
			}
			if m.TTL > 0 && metas.Offset() >= s.start {
				s.sweepMessage(MessageOf(&m, metas.Offset(), b.AppendTime()))
			}
		}
	}
	if x.Next < s.end {
		s.sweepFrom(x.Next)
		return
	}
	s.sweepOver()
}

// sweepOver plans the next pass.
func (s *Groups) sweepOver() {
	w := &s.sweep
	if w.next == 0 {
		return
	}
	if again := max(s.asOf+SweepEvery, w.next); w.at == 0 || again < w.at {
		w.at = again
	}
}

// inOrder are the groups, in the order of their ids: what is decided does not depend on how a map is walked.
func (s *Groups) inOrder() []*Group {
	out := make([]*Group, 0, len(s.byID))
	for _, g := range s.byID {
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b *Group) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return out
}
