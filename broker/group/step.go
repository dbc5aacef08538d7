// SPDX-License-Identifier: Apache-2.0

package group

import (
	"math"
	"slices"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const retryCommand = time.Second

// Begin begins a step, at the shard's time (us): what is appended in it gets this sequence, and those behind it. The caller
// has made room for it.
func (s *Groups) Begin(at int64, sequence uint64) {
	s.asOf = max(s.asOf, at)
	s.fx = &Effects{}
	s.undo.on, s.undo.sequence = true, sequence
}

// End ends a step, and says what it has led to.
func (s *Groups) End() *Effects {
	s.undo.on = false
	fx := s.fx
	s.fx = nil
	return fx
}

// SettleTokens settles, within a step.
func (s *Groups) SettleTokens(x *Settlement) ([]Failed, *code.Error) { return s.settle(x) }

// Extend lets claims last longer, within a step.
func (s *Groups) Extend(x *Extension) ([]Failed, *code.Error) { return s.extend(x) }

// Leave ends what a consumer has out, within a step.
func (s *Groups) Leave(c *Consumer, orderly bool, delivered, begun uint64) {
	s.leave(c, orderly, delivered, begun)
}

// Command applies a command, within a step.
func (s *Groups) Command(x *Command) (*Done, *code.Error) { return s.command(x) }

// Scanned takes what a Scan asked for, within a step.
func (s *Groups) Scanned(x *Scanned) { s.scanned(x) }

// Due says whether something is to be appended at a time: claims have ended, or messages.
func (s *Groups) Due(at int64) bool {
	if len(s.expired) > 0 {
		return true
	}
	for _, g := range s.taking {
		if next := g.work.next(); next != 0 && next <= at {
			return true
		}
	}
	return false
}

// Wants says whether Turn would do something at a time.
func (s *Groups) Wants(at int64) bool { return s.dirty || s.wake != 0 && s.wake <= at }

// Turn does what time and what has come have brought about, within a step. Nothing is appended unless it may be.
func (s *Groups) Turn(mayAppend bool) {
	if mayAppend {
		for _, g := range s.taking {
			s.timeOut(g)
		}
		s.settleExpired()
	}
	s.sweepDue()
	for i := 0; i < len(s.taking); i++ {
		g := s.taking[i]
		s.wantScan(g)
		s.dispatch(g)
		s.wantScan(g)
		g.work.tidy()
		if g.handed.len() > maxHanded {
			g.handed.add(0, g.passed.low)
		}
		if s.rest(g); g.work == nil {
			i--
		}
	}
	s.dirty = false
	s.wake = s.next()
}

// Next is when Turn has something to do, if nothing comes (us); 0 for never.
func (s *Groups) Next() int64 { return s.wake }

func (s *Groups) next() int64 {
	at := int64(math.MaxInt64)
	soonest := func(t int64) {
		if t != 0 {
			at = min(at, t)
		}
	}
	soonest(s.sweep.at)
	if len(s.expired) > 0 {
		soonest(1)
	}
	for _, g := range s.taking {
		w := g.work
		soonest(w.later.due())
		soonest(w.next())
		if w.scanOff > s.asOf {
			soonest(w.scanOff)
		}
		if len(w.consumers) == 0 {
			soonest(w.lookedAt + LookKept)
		}
	}
	if at == math.MaxInt64 {
		return 0
	}
	return at
}

// Commit says up to where batches are committed.
func (s *Groups) Commit(mark uint64) {
	s.undo.commit(mark)
	s.mark = mark
	waiting := s.freeing
	s.freeing = nil
	for _, g := range waiting {
		n := 0
		for n < len(g.freed) && g.freed[n].sequence < mark {
			g.free(g.freed[n].key)
			n++
		}
		s.dirty = s.dirty || n > 0
		rest := g.freed[n:]
		g.freed = nil
		s.addFreed(g, rest...)
	}
}

// Cut takes back what the batches from sequence at on said, and before that what was handed out and has not left the shard.
func (s *Groups) Cut(at uint64, hands []Hand) {
	s.recall(hands)
	s.expired = nil
	touched := s.undo.cut(at)
	s.disband()
	for _, g := range s.inOrder() {
		for n := len(g.freed); n > 0 && g.freed[n-1].sequence >= at; n-- {
			g.freed = g.freed[:n-1]
		}
		if touched[g] {
			s.again(g)
		}
	}
	s.sweep.see(s.asOf)
	s.dirty = true
}

// recall takes back what nobody has got, the last first, so that the first is in front again.
func (s *Groups) recall(hands []Hand) {
	for _, h := range slices.Backward(hands) {
		g := h.To.group
		if g == nil || g.work == nil {
			continue
		}
		for _, it := range slices.Backward(h.Items) {
			if c, ok := g.work.claims[it.Offset]; ok && c.handOut == it.HandOut {
				s.back(g, it.Offset, c)
			}
		}
	}
}

// disband lets go of the groups whose creation was cut off. Who has joined one is told so by the answer, which rested on that.
func (s *Groups) disband() {
	s.taking = slices.DeleteFunc(s.taking, func(g *Group) bool {
		if s.byID[g.id] == g {
			return false
		}
		s.dissolve(g)
		g.work = nil
		return true
	})
}

// Bounds says what the log holds for readers: from start up to end, exclusive.
func (s *Groups) Bounds(start, end uint64) {
	s.start, s.end = start, max(s.end, end)
}

// first is where a group can begin: where the log does, or will once that is committed. What lies before is lost to the
// groups that there are, and one that begins anew would wait for it for ever.
func (s *Groups) first() uint64 { return max(s.start, s.gone) }

// Open begins the leading of the shard, at its time.
func (s *Groups) Open(at int64) {
	s.asOf = max(s.asOf, at)
	if len(s.byID) > 0 {
		s.sweep.see(s.asOf)
	}
	s.dirty = true
}

// Lose gives up what the log gives up: all below an offset but what is kept elsewhere, within a step. Nobody is handed any
// of it any more, and it is counted.
func (s *Groups) Lose(below uint64, kept func(offset uint64) bool) {
	was := s.gone
	s.gone = max(s.gone, below)
	s.undo.note(nil, func() { s.gone = was })
	var carried []uint64
	if s.carried != nil {
		s.carried.Below(below, func(m Message) bool {
			if kept(m.Offset) {
				carried = append(carried, m.Offset)
			}
			return true
		})
	}
	for _, g := range s.inOrder() {
		var lost []batch.OffsetRange
		for gap := range g.passed.gaps(0, below) {
			lost = notKept(lost, gap, carried)
		}
		for _, o := range sortedKeys(g.parked) {
			if o < below && !kept(o) {
				lost = append(lost, batch.OffsetRange{From: o, To: o + 1})
				if a := g.parked[o]; a.Retry && !s.claimed(g, o) {
					s.freeLater(g, a.Key)
				}
			}
		}
		for _, o := range sortedKeys(g.dead) {
			if o < below && !kept(o) {
				s.bury(g.dead[o], batch.DeadLost)
			}
		}
		if len(lost) == 0 {
			continue
		}
		lost = joined(lost)
		s.add(batch.Settled{Group: g.id, How: batch.SettledLost, Ranges: lost})
		if g.work == nil {
			continue
		}
		for _, o := range sortedKeys(g.work.claims) {
			if !g.outstanding(o) {
				c := g.work.claims[o]
				s.freeLater(g, c.key)
				s.endClaim(g, o, c)
			}
		}
		g.dropLater()
	}
}

// notKept appends what of a gap is not kept elsewhere; carried is what is, rising.
func notKept(lost []batch.OffsetRange, gap span, carried []uint64) []batch.OffsetRange {
	at := gap.from
	i, _ := slices.BinarySearch(carried, gap.from)
	for ; i < len(carried) && carried[i] < gap.to; i++ {
		if carried[i] > at {
			lost = append(lost, batch.OffsetRange{From: at, To: carried[i]})
		}
		at = carried[i] + 1
	}
	if at < gap.to {
		lost = append(lost, batch.OffsetRange{From: at, To: gap.to})
	}
	return lost
}
