// SPDX-License-Identifier: Apache-2.0

package group

import (
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// backoff is when an attempt is followed by the next (us).
func (g *Group) backoff(now int64, attempts uint32, after int64) int64 {
	if after > 0 {
		return now + after
	}
	b := g.settings.Backoff
	if len(b) == 0 {
		return now
	}
	return now + int64(b[min(int(attempts)-1, len(b)-1)])
}

func errNoGroup() *code.Error {
	return code.New(code.NotFound, "the log has no group of that id: it was deleted")
}

// settle does what is said of each token, and lists those that are refused: nothing is changed for them.
func (s *Groups) settle(x *Settlement) ([]Failed, *code.Error) {
	g := s.byID[x.Group]
	if g == nil {
		return nil, errNoGroup()
	}
	var (
		failed []Failed
		acked  []batch.OffsetRange
	)
	for i := range x.Tokens {
		t := &x.Tokens[i]
		for sub := range max(t.Count, 1) {
			offset := t.Offset + uint64(sub)
			c, ok := s.holder(g, x, offset, t.HandOut+uint64(sub), t.Op == Ack)
			if !ok {
				failed = append(failed, Failed{Index: i, Sub: int(sub), Code: code.NoLongerOwner})
				continue
			}
			if t.Op == Ack {
				s.done(g, offset, c)
				acked = appendOffset(acked, offset)
				continue
			}
			s.notDone(g, t, offset, c)
		}
	}
	if len(acked) > 0 {
		s.keepEnded(g)
		s.add(batch.Settled{Group: g.id, How: batch.SettledAcked, Ranges: joined(acked)})
		if s.parkedOld {
			g.dropLater()
			s.parkedOld = false
		}
	}
	return failed, nil
}

func appendOffset(rs []batch.OffsetRange, offset uint64) []batch.OffsetRange {
	if n := len(rs); n > 0 && rs[n-1].To == offset {
		rs[n-1].To++
		return rs
	}
	return append(rs, batch.OffsetRange{From: offset, To: offset + 1})
}

// done ends the claim of a message that is settled.
func (s *Groups) done(g *Group, offset uint64, c claim) {
	s.freeLater(g, c.key)
	if c.to != nil {
		s.endWith(g, offset, c)
	}
}

// notDone does with a claim what is not an ack.
func (s *Groups) notDone(g *Group, t *Token, offset uint64, c claim) {
	switch t.Op {
	case Nack:
		s.fail(g, offset, c, g.backoff(s.asOf, c.attempts+1, t.After), batch.DeadAttempts, t.Reason)
	case Reject:
		s.fail(g, offset, c, 0, batch.DeadRejected, t.Reason)
	default:
		s.back(g, offset, c)
	}
}

// holder is the claim that a token names. An ack of an earlier generation counts as long as the message is outstanding and
// nobody was handed it since: the claim went with the leader's memory, and the work was done.
func (s *Groups) holder(g *Group, x *Settlement, offset, handOut uint64, ack bool) (c claim, ok bool) {
	switch {
	case x.Resets != g.resets || x.Generation > s.generation || offset >= s.end:
		return c, false
	case x.Generation == s.generation:
		if g.work == nil {
			return c, false
		}
		c, ok = g.work.claims[offset]
		return c, ok && c.handOut == handOut
	case !ack || g.handed.has(offset) || !g.outstanding(offset):
		return c, false
	}
	g.handed.add(offset, offset+1) // it is nobody else's any more
	s.undo.note(g, func() { g.handed.remove(offset, offset+1) })
	if a, parked := g.parked[offset]; parked {
		s.parkedOld = true
		if a.Retry {
			c.key = a.Key
		}
	}
	return c, true
}

// Holds says whether every token of a settlement that comes with records holds: they are stored together, or not at all.
func (s *Groups) Holds(x *batch.Settlement) *code.Error {
	g := s.byID[x.Group]
	if g == nil {
		return errNoGroup()
	}
	seen := make(map[uint64]bool, len(x.Tokens))
	for i := range x.Tokens {
		t := &x.Tokens[i]
		ok := x.Resets == g.resets && x.Generation == s.generation && g.work != nil && !seen[t.Offset]
		if ok {
			c, claimed := g.work.claims[t.Offset]
			ok = claimed && c.handOut == t.HandOut
		}
		seen[t.Offset] = true
		if !ok {
			return code.New(code.NoLongerOwner, "the claim of message %d has ended: nothing was stored", t.Offset).
				With(code.DetailIndex, uint64(i))
		}
	}
	return nil
}

// Settle makes true what the batch of this sequence, which is being appended, says of messages.
func (s *Groups) Settle(sequence uint64, x *batch.Settlement) {
	s.undo.on, s.undo.sequence = true, sequence
	g := s.byID[x.Group]
	for i := range x.Tokens {
		if c, ok := g.work.claims[x.Tokens[i].Offset]; ok {
			s.done(g, x.Tokens[i].Offset, c)
		}
	}
	s.keepEnded(g)
	s.applySettled(g, settledBy(x), false)
	s.undo.on = false
}

// settledBy is what a settlement that came with records says, as an entry.
func settledBy(x *batch.Settlement) batch.Settled {
	var rs []batch.OffsetRange
	for i := range x.Tokens {
		rs = appendOffset(rs, x.Tokens[i].Offset)
	}
	return batch.Settled{Group: x.Group, How: batch.SettledAcked, Ranges: joined(rs)}
}

// ReplaySettlement takes a settlement that came with records, of a batch of the log, which is committed.
func (s *Groups) ReplaySettlement(x *batch.Settlement) { s.apply(settledBy(x), false) }

// extend lets claims last longer.
func (s *Groups) extend(x *Extension) ([]Failed, *code.Error) {
	g := s.byID[x.Group]
	if g == nil {
		return nil, errNoGroup()
	}
	span := x.For
	if span <= 0 {
		span = int64(g.settings.AckWait)
	}
	var failed []Failed
	of := Settlement{Group: x.Group, Resets: x.Resets, Generation: x.Generation}
	for i := range x.Tokens {
		t := &x.Tokens[i]
		for sub := range max(t.Count, 1) {
			offset, handOut := t.Offset+uint64(sub), t.HandOut+uint64(sub)
			c, ok := s.holder(g, &of, offset, handOut, false)
			if !ok {
				failed = append(failed, Failed{Index: i, Sub: int(sub), Code: code.NoLongerOwner})
				continue
			}
			c.deadline = s.asOf + span
			g.work.claims[offset] = c
			g.work.deadlines.add(run{c.deadline, handOut, offset, 1})
		}
	}
	return failed, nil
}
