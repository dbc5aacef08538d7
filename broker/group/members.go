// SPDX-License-Identifier: Apache-2.0

package group

import (
	"cmp"
	"slices"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Join makes a consumer one of a group.
func (s *Groups) Join(name string, c *Consumer) (*Joined, *code.Error) {
	g, err := s.named(name)
	if err != nil {
		return nil, err
	}
	if g.work != nil && len(g.work.consumers) >= MaxConsumers {
		return nil, code.New(code.TooMany, "group %q has %d consumers, as many as it may", name, MaxConsumers).With(code.DetailLimit, MaxConsumers)
	}
	s.begin(g)
	c.group = g
	g.work.consumers = append(g.work.consumers, c)
	s.dirty = true
	return &Joined{ID: g.id, Resets: g.resets, AckWait: int64(g.settings.AckWait)}, nil
}

// begin makes a group know what is outstanding.
func (s *Groups) begin(g *Group) {
	if g.work != nil {
		return
	}
	g.work = newWork()
	g.work.handedAt = s.asOf
	s.taking = append(s.taking, g)
	s.again(g)
}

// rest lets go of what is only needed while somebody consumes.
func (s *Groups) rest(g *Group) {
	if w := g.work; w == nil || len(w.consumers) > 0 || w.lookedAt != 0 && s.asOf < w.lookedAt+LookKept {
		return
	}
	g.work = nil
	s.taking = slices.DeleteFunc(s.taking, func(x *Group) bool { return x == g })
}

// CreditBack says that a consumer that had none may have credit again.
func (s *Groups) CreditBack(c *Consumer) {
	c.starved = false
	s.dirty = true
}

// leave ends what a consumer has out. An orderly one gives it back. Of another one those attempts count that it may have
// been at: what it said that it had begun, and besides, in the order in which it was handed them, as many as it works on at a
// time. What was not sent to it, or lay behind that, was not tried.
func (s *Groups) leave(c *Consumer, orderly bool, delivered, begun uint64) {
	g := c.group
	if g == nil || g.work == nil {
		return
	}
	c.group = nil
	w := g.work
	w.consumers = slices.DeleteFunc(w.consumers, func(x *Consumer) bool { return x == c })
	type held struct {
		offset uint64
		claim  claim
	}
	var out []held
	for o, x := range w.claims {
		if x.to == c {
			out = append(out, held{o, x})
		}
	}
	slices.SortFunc(out, func(a, b held) int { return cmp.Compare(a.claim.handOut, b.claim.handOut) })
	working := 0
	for _, h := range out {
		if !orderly && h.claim.handOut <= delivered && (h.claim.handOut <= begun || working < max(c.Concurrency, 1)) {
			working++
			s.fail(g, h.offset, h.claim, s.asOf, batch.DeadAttempts, "its consumer was lost")
		}
	}
	for _, h := range slices.Backward(out) { // so that the first is in front again
		if x, ok := w.claims[h.offset]; ok && x.to == c {
			s.back(g, h.offset, x)
		}
	}
	s.rest(g)
	s.dirty = true
}

// timeOut ends the claims whose deadline has passed, some of them: the rest has its turn.
func (s *Groups) timeOut(g *Group) {
	w := g.work
	for n := 0; n < parkAtOnce; {
		at := w.next()
		if at == 0 || at > s.asOf {
			return
		}
		r, other := w.deadlines.first()
		offset := r.offset
		c := w.claims[offset]
		if r.count--; r.count == 0 {
			w.deadlines.drop(other)
		} else {
			r.handOut, r.offset = r.handOut+1, r.offset+1
		}
		s.fail(g, offset, c, s.asOf, batch.DeadAttempts, "its claim timed out")
		n++
	}
}

// parkAtOnce bounds the entries of one control batch that have texts.
const parkAtOnce = 4096
