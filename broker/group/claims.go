// SPDX-License-Identifier: Apache-2.0

package group

import (
	"container/heap"

	"margay.dev/wire/batch"
)

// claim is a message that somebody works on.
type claim struct {
	to       *Consumer
	handOut  uint64
	deadline int64
	at       int64 // since when it was ready
	appended int64 // append time of the record
	expires  int64
	key      uint64
	attempts uint32 // that have ended
	level    uint8
	parked   bool
}

func (c *claim) item(offset uint64) item {
	return item{
		offset: offset, to: offset + 1, key: c.key, at: c.at, appended: c.appended, expires: c.expires, level: c.level, parked: c.parked,
	}
}

// deadlines knows when claims end. Those that were never extended end in the order in which they were handed out.
type deadlines struct {
	runs  []run
	head  int
	other runHeap // that do not follow the last
}

// run is claims of consecutive hand-outs and offsets that end together.
type run struct {
	deadline        int64
	handOut, offset uint64
	count           uint32
}

type runHeap []run

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return h[i].deadline < h[j].deadline }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *runHeap) Push(x any) { *h = append(*h, x.(run)) }

// Pop is for container/heap.
func (h *runHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (d *deadlines) add(r run) {
	if n := len(d.runs); n > d.head {
		last := &d.runs[n-1]
		if r.deadline < last.deadline {
			heap.Push(&d.other, r)
			return
		}
		if r.deadline == last.deadline && r.handOut == last.handOut+uint64(last.count) && r.offset == last.offset+uint64(last.count) {
			last.count += r.count
			return
		}
	}
	d.runs = append(d.runs, r)
}

// first is the run that ends first.
func (d *deadlines) first() (r *run, other bool) {
	if d.head < len(d.runs) {
		r = &d.runs[d.head]
	}
	if len(d.other) > 0 && (r == nil || d.other[0].deadline < r.deadline) {
		return &d.other[0], true
	}
	return r, false
}

func (d *deadlines) drop(other bool) {
	if other {
		heap.Pop(&d.other)
		return
	}
	if d.head++; d.head == len(d.runs) {
		d.runs, d.head = d.runs[:0], 0
	} else if d.head >= 1024 && d.head >= len(d.runs)/2 {
		n := copy(d.runs, d.runs[d.head:])
		d.runs, d.head = d.runs[:n], 0
	}
}

// next is when the next claim ends, or might; 0 when none does. What is settled goes on the way.
func (w *work) next() int64 {
	d := &w.deadlines
	for {
		r, other := d.first()
		if r == nil {
			return 0
		}
		if w.live(r) {
			return r.deadline
		}
		d.drop(other)
	}
}

// live says whether a run has claims that still end with it, and leaves out those before the first that does.
func (w *work) live(r *run) bool {
	for r.count > 0 {
		if c, ok := w.claims[r.offset]; ok && c.handOut == r.handOut && c.deadline == r.deadline {
			return true
		}
		r.handOut, r.offset, r.count = r.handOut+1, r.offset+1, r.count-1
	}
	return false
}

// tidy keeps what is remembered of deadlines in proportion to the claims there are: one that is worked on for long keeps all
// behind it.
func (w *work) tidy() {
	d := &w.deadlines
	if n := len(d.runs) - d.head + len(d.other); n < 1024 || n < 4*len(w.claims) {
		return
	}
	runs := d.runs[d.head:]
	rest := make([]run, 0, len(w.claims))
	for _, r := range runs {
		if w.live(&r) {
			rest = append(rest, r)
		}
	}
	other := d.other[:0]
	for _, r := range d.other {
		if w.live(&r) {
			other = append(other, r)
		}
	}
	d.runs, d.head, d.other = rest, 0, other
	heap.Init(&d.other)
}

// claim hands a message to a consumer.
func (g *Group) claim(to *Consumer, it *item, now int64) Handed {
	g.handOut++
	c := claim{
		to: to, handOut: g.handOut, deadline: now + int64(g.settings.AckWait), at: it.at, appended: it.appended, expires: it.expires,
		key: it.key, level: it.level, parked: it.parked,
	}
	if it.parked {
		c.attempts = g.parked[it.offset].Attempts
	}
	if !g.holds(it) {
		g.hold(it.key)
	}
	g.work.claims[it.offset] = c
	g.work.deadlines.add(run{c.deadline, c.handOut, it.offset, 1})
	to.out++
	return Handed{HandOut: c.handOut, Offset: it.offset, Attempt: c.attempts + 1, At: it.at}
}

// endClaim takes a claim away, and gives its consumer its credit back.
func (s *Groups) endClaim(g *Group, offset uint64, c claim) {
	delete(g.work.claims, offset)
	c.to.out--
	c.to.starved = false
	c.to.Credit.Give(1)
	s.dirty = true
}

// ended is a claim that an entry under way ends.
type ended struct {
	offset uint64
	claim  claim
}

// endWith ends a claim because of the entry under way: it is there again if that is cut off.
func (s *Groups) endWith(g *Group, offset uint64, c claim) {
	if s.undo.on {
		s.ended = append(s.ended, ended{offset, c})
	}
	s.endClaim(g, offset, c)
}

// keepEnded has the claims that ended with the entries so far be there again if they are cut off, as far as their consumers
// are, and have the credit.
func (s *Groups) keepEnded(g *Group) {
	if len(s.ended) == 0 {
		return
	}
	list := s.ended
	s.ended = nil
	s.undo.note(g, func() {
		for _, e := range list {
			c := e.claim
			if g.work == nil || c.to.group != g {
				continue
			}
			if s.claimed(g, e.offset) || c.to.Credit.Take(1) == 0 { // it was handed out again: there is one holder (S8)
				continue
			}
			c.to.out++
			g.work.claims[e.offset] = c
			g.work.deadlines.add(run{c.deadline, c.handOut, e.offset, 1})
		}
	})
}

// takeBack ends the claim of a message, if there is one.
func (s *Groups) takeBack(g *Group, offset uint64) {
	if s.claimed(g, offset) {
		s.endClaim(g, offset, g.work.claims[offset])
	}
}

// back makes a message ready that was handed out and not tried. Another one of its key goes on holding that.
func (s *Groups) back(g *Group, offset uint64, c claim) {
	s.endClaim(g, offset, c)
	it := c.item(offset)
	if g.holds(&it) {
		g.work.held++
		g.work.ready[it.level].pushFront(it)
		return
	}
	if it.key != 0 && g.keyed() {
		g.put(it)
		g.free(it.key)
		return
	}
	g.work.held++
	g.work.ready[it.level].pushFront(it)
}

// fail ends the attempt of a message: it is tried again at a time, or it is dead.
func (s *Groups) fail(g *Group, offset uint64, c claim, due int64, reason batch.DeadReason, why string) {
	attempts := c.attempts + 1
	limit := g.settings.MaxAttempts
	s.endWith(g, offset, c)
	s.keepEnded(g)
	if reason == batch.DeadRejected || limit > 0 && attempts >= limit {
		s.freeLater(g, c.key)
		s.add(batch.Dead{
			Group: g.id, Offset: offset, Attempts: attempts, Reason: reason, At: s.asOf, AppendTime: c.appended, Key: c.key,
			Priority: c.level, Error: why,
		})
		return
	}
	a := batch.Attempt{
		Group: g.id, Offset: offset, Attempts: attempts, Due: due, Expires: c.expires, AppendTime: c.appended, Key: c.key,
		Priority: c.level, Retry: true, Count: 1, Error: why,
	}
	s.add(a)
	s.takeParked(g, a)
}
