// SPDX-License-Identifier: Apache-2.0

// Package fanout hands committed batches to a shard's live subscribers through bounded queues; it shares
// one encoded frame among all of them and refuses to make a publisher wait for any.
package fanout

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"

	"margay.dev/wire/batch"
)

// Hub is the live end of one shard: what was committed below its position has been offered to its queues.
type Hub struct {
	shard uint32

	mu       sync.Mutex
	pos      Position
	plain    group             // queues that take everything
	filtered map[string]*group // by the name of their selection
	index    *Index[*group]    // over filtered
	touched  []*group
	ended    *End
	ends     ends
	waiting  waiters // for an offset to be committed

	position atomic.Uint64 // pos.Sequence, for a reader that is catching up
}

// Position is a place in a shard in both spaces.
type Position struct{ Sequence, Offset uint64 }

// End says why a shard's live end is gone.
type End struct{ Err error }

// NewHub starts the live end of a shard at pos, the first batch and record that are not committed.
func NewHub(shard uint32, pos Position) *Hub {
	h := &Hub{shard: shard, pos: pos, filtered: map[string]*group{}, index: NewIndex[*group]()}
	h.position.Store(pos.Sequence)
	return h
}

// Sequence is the hub's position: everything below it is committed and may be read from the log.
func (h *Hub) Sequence() uint64 { return h.position.Load() }

// Position returns the hub's position in both spaces.
func (h *Hub) Position() Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pos
}

// Subscribers counts the queues that are live here.
func (h *Hub) Subscribers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.plain.queues)
	for _, g := range h.filtered {
		n += len(g.queues)
	}
	return n
}

// Publish offers what was just committed to every live queue that selects it and moves the hub to next. Now
// (us) is what expiry is measured by.
func (h *Hub) Publish(envs []*Envelope, next Position, now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range envs {
		h.sort(e, now)
	}
	h.hand(&h.plain)
	for i, g := range h.touched {
		h.hand(g)
		h.touched[i] = nil
		if len(g.queues) == 0 {
			h.forget(g)
		}
	}
	h.touched = h.touched[:0]
	h.pos = next
	h.position.Store(next.Sequence)
	h.wakeReached()
}

// sort adds e, or what is cut of it, to the items of every group that selects some of it. Each record is
// looked up once, however many selections there are.
func (h *Hub) sort(e *Envelope, now int64) {
	scheduled := e.Batch.Scheduled()
	parts := scheduled || e.Batch.HasSettlement() // who takes everything does not take all of this
	if !parts && len(h.plain.queues) > 0 {
		h.plain.items = append(h.plain.items, item{envelope: e})
	}
	if !parts && len(h.filtered) == 0 {
		return
	}
	first := len(h.touched)
	n := 0
	hit := func(g *group) {
		if k := len(g.keep); k > 0 && g.keep[k-1] == n {
			return // by another of its filters
		}
		if len(g.keep) == 0 {
			h.touched = append(h.touched, g)
		}
		g.keep = append(g.keep, n)
	}
	var m batch.Meta
	for metas := e.Batch.Metas(); ; n++ {
		ok, err := metas.Next(&m)
		if !ok || err != nil {
			break // the batch was checked when it came
		}
		if scheduled && expired(e.Batch, &m, now) {
			continue
		}
		if parts && len(h.plain.queues) > 0 {
			h.plain.keep = append(h.plain.keep, n)
		}
		if m.Key != nil && len(h.filtered) > 0 {
			h.index.Match(m.Key, hit)
		}
	}
	if parts {
		h.plain.take(e)
	}
	// A group touched by an earlier batch of this round stands in the list already.
	rest := h.touched[:first]
	for _, g := range h.touched[first:] {
		if len(g.items) == 0 {
			rest = append(rest, g)
		}
		g.take(e)
	}
	h.touched = rest
}

// hand offers a group's items to its queues.
func (h *Hub) hand(g *group) {
	if len(g.items) == 0 {
		return
	}
	stay := g.queues[:0]
	for _, q := range g.queues {
		if q.offer(h.shard, g.items) {
			stay = append(stay, q)
		}
	}
	clear(g.queues[len(stay):])
	g.queues = stay
	clear(g.items)
	g.items = g.items[:0]
}

// join registers q. Called with mu held.
func (h *Hub) join(q *Queue) {
	if q.selection == nil {
		h.plain.queues = append(h.plain.queues, q)
		return
	}
	g := h.filtered[q.selection.name]
	if g == nil {
		g = &group{selection: q.selection}
		h.filtered[q.selection.name] = g
		h.index.Add(g, g.selection.filters)
	}
	g.queues = append(g.queues, q)
}

// forget drops a group without queues. Called with mu held.
func (h *Hub) forget(g *group) {
	if h.filtered[g.selection.name] == g {
		delete(h.filtered, g.selection.name)
		h.index.Remove(g, g.selection.filters)
	}
}

// Join makes q live if it has read the log up to exactly the hub's position, which is returned. The
// comparison and the registration are one step: a batch committed in between would be missed or repeated
// (SB-04).
func (h *Hub) Join(q *Queue, at uint64) (Position, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil || at != h.pos.Sequence {
		return Position{}, false
	}
	h.join(q)
	return h.pos, true
}

// JoinLatest makes q live at the hub's position and returns it.
func (h *Hub) JoinLatest(q *Queue) (Position, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return Position{}, h.ended.Err
	}
	h.join(q)
	return h.pos, nil
}

// Caught returns the hub's position if q is live and holds nothing: then everything below it has been taken,
// was not selected, or was dropped. What was dropped and not told yet is handed over: who moves a subscriber
// past it must state it.
func (h *Hub) Caught(q *Queue) (pos Position, lost Range, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost, ok = q.caught(h.shard)
	return h.pos, lost, ok
}

// Leave takes q out.
func (h *Hub) Leave(q *Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leave(q)
}

// leave takes q out and says whether it was in. Called with mu held.
func (h *Hub) leave(q *Queue) bool {
	g := &h.plain
	if q.selection != nil {
		if g = h.filtered[q.selection.name]; g == nil {
			return false
		}
	}
	i := slices.Index(g.queues, q)
	if i < 0 {
		return false
	}
	g.queues = slices.Delete(g.queues, i, i+1)
	if q.selection != nil && len(g.queues) == 0 {
		h.forget(g)
	}
	return true
}

// Close ends the hub: live queues are told why, later joins are refused.
func (h *Hub) Close(err error) {
	told := h.shut(err)
	told.tell(err)
}

// shut returns who is to be told besides.
func (h *Hub) shut(err error) (told ends) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return ends{}
	}
	told, h.ends = h.ends, ends{}
	h.ended = &End{Err: err}
	for _, q := range h.plain.queues {
		q.end(h.shard, err)
	}
	for _, g := range h.filtered {
		for _, q := range g.queues {
			q.end(h.shard, err)
		}
	}
	h.plain.queues, h.filtered, h.index = nil, map[string]*group{}, NewIndex[*group]()
	for len(h.waiting) > 0 {
		close(heap.Pop(&h.waiting).(*awaiting).reached)
	}
	return told
}

// Err is why the hub ended, nil while it is live.
func (h *Hub) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		return nil
	}
	return h.ended.Err
}
