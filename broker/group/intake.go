// SPDX-License-Identifier: Apache-2.0

package group

import (
	"github.com/cespare/xxhash/v2"

	"margay.dev/wire/batch"
)

// scanAgain is when to read on what could not be read (us).
const scanAgain = 1_000_000

// HashKey is what stands for a key; never 0.
func HashKey(key []byte) uint64 {
	if key == nil {
		return 0
	}
	return max(xxhash.Sum64(key), 1)
}

// MessageOf is what a group has to know of a record.
func MessageOf(m *batch.Meta, offset uint64, appendTime int64) Message {
	x := Message{Offset: offset, AppendTime: appendTime, Key: HashKey(m.Key), Priority: m.Priority}
	if m.Delay > 0 {
		x.Due = appendTime + m.Delay.Microseconds()
	}
	if m.TTL > 0 {
		x.Expires = appendTime + m.TTL.Microseconds()
	}
	return x
}

// Committed takes in a batch of records that is committed, which every group can have from now on.
func (s *Groups) Committed(b batch.Batch) {
	if b.Scheduled() {
		s.sweep.see(s.asOf)
	}
	s.end = b.NextOffset()
	for _, g := range s.taking {
		if w := g.work; w.loaded && w.scan == b.BaseOffset() && w.held < LookAhead {
			s.takeBatch(g, b, b.BaseOffset())
			s.dirty = true
		}
	}
}

// takeBatch takes in the records of a batch from an offset on.
func (s *Groups) takeBatch(g *Group, b batch.Batch, from uint64) {
	w := g.work
	to := b.NextOffset()
	from = max(from, b.BaseOffset())
	w.scan = to
	if !g.keyed() && !b.Scheduled() {
		s.takeRange(g, from, to, b.AppendTime())
		return
	}
	var m batch.Meta
	for metas := b.Metas(); ; {
		if ok, err := metas.Next(&m); !ok || err != nil { // it was walked when it came
			return
		}
		if o := metas.Offset(); o >= from && !g.passed.has(o) {
			s.takeIn(g, MessageOf(&m, o, b.AppendTime()))
		}
	}
}

// takeRange takes in messages that differ in nothing.
func (s *Groups) takeRange(g *Group, from, to uint64, at int64) {
	w := g.work
	for gap := range g.passed.gaps(from, to) {
		if len(w.claims) == 0 {
			g.put(item{offset: gap.from, to: gap.to, at: at, appended: at})
			continue
		}
		for o := gap.from; o < gap.to; {
			if s.claimed(g, o) {
				o++
				continue
			}
			end := o + 1
			for end < gap.to && !s.claimed(g, end) {
				end++
			}
			g.put(item{offset: o, to: end, at: at, appended: at})
			o = end
		}
	}
}

// wantScan asks for what a group has not taken in.
func (s *Groups) wantScan(g *Group) {
	w := g.work
	if !w.loaded {
		if s.carried != nil && !s.carried.Ready() {
			return
		}
		s.again(g)
	}
	s.followStart(g)
	if w.scanning != 0 || w.scan >= s.end || s.asOf < w.scanOff || w.held >= LookAhead/2 {
		return
	}
	if next := g.passed.gap(w.scan); next > w.scan { // nothing there is outstanding
		if w.scan = min(next, s.end); w.scan == s.end {
			return
		}
	}
	s.scans++
	w.scanning = s.scans
	s.fx.Scans = append(s.fx.Scans, Scan{Group: g, From: w.scan, id: w.scanning})
}

// followStart goes on from the beginning of the log where that has come to lie above what was taken in: what is needed of what
// lies between was carried.
func (s *Groups) followStart(g *Group) {
	w := g.work
	if w.scan >= s.start {
		return
	}
	if s.carried != nil {
		s.carried.Below(s.start, func(m Message) bool {
			if m.Offset >= w.scan && !g.passed.has(m.Offset) {
				s.takeIn(g, m)
			}
			return true
		})
	}
	w.scan = s.start
}

// scanned takes in what was read.
func (s *Groups) scanned(x *Scanned) {
	if x.Scan.Group == nil {
		s.swept(x)
		return
	}
	g := x.Scan.Group
	w := g.work
	if w == nil || w.scanning != x.Scan.id {
		return
	}
	w.scanning = 0
	s.dirty = true
	if x.Err != nil || x.Next <= x.Scan.From {
		w.scanOff = s.asOf + scanAgain
		return
	}
	s.followStart(g)
	for _, b := range x.Batches {
		if b.HasOffsets() && b.NextOffset() > w.scan {
			s.takeBatch(g, b, w.scan)
		}
	}
	w.scan = max(w.scan, x.Next)
	var lost []batch.OffsetRange
	for _, l := range x.Lost {
		for gap := range g.passed.gaps(l.From, l.To) {
			lost = append(lost, batch.OffsetRange{From: gap.from, To: gap.to})
		}
	}
	if len(lost) > 0 {
		s.add(batch.Settled{Group: g.id, How: batch.SettledLost, Ranges: joined(lost)})
	}
}
