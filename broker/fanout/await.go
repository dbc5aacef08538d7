// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"container/heap"
	"context"
)

// Await waits until everything below offset is committed. It polls nothing: what was committed wakes who waits for it. It
// returns why the hub ended, if it does before.
func (h *Hub) Await(ctx context.Context, offset uint64) error {
	w := &awaiting{offset: offset, reached: make(chan struct{})}
	h.mu.Lock()
	switch {
	case h.pos.Offset >= offset:
		h.mu.Unlock()
		return nil
	case h.ended != nil:
		defer h.mu.Unlock()
		return h.ended.Err
	}
	heap.Push(&h.waiting, w)
	h.mu.Unlock()
	select {
	case <-w.reached:
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.pos.Offset >= offset:
		h.unwait(w)
		return nil
	case h.ended != nil:
		return h.ended.Err
	}
	h.unwait(w)
	return context.Cause(ctx)
}

// Awaited counts those who wait.
func (h *Hub) Awaited() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.waiting)
}

// unwait takes a waiter out that nobody has woken. Called with mu held.
func (h *Hub) unwait(w *awaiting) {
	if w.at >= 0 {
		heap.Remove(&h.waiting, w.at)
	}
}

// wakeReached wakes those whose offset is committed. Called with mu held.
func (h *Hub) wakeReached() {
	for len(h.waiting) > 0 && h.waiting[0].offset <= h.pos.Offset {
		close(heap.Pop(&h.waiting).(*awaiting).reached)
	}
}

// awaiting is one who waits for an offset.
type awaiting struct {
	offset  uint64
	reached chan struct{}
	at      int // its place in the heap; -1 outside
}

// waiters is a heap, the lowest offset first: a commit that reaches nobody looks at one.
type waiters []*awaiting

func (w waiters) Len() int           { return len(w) }
func (w waiters) Less(i, j int) bool { return w[i].offset < w[j].offset }
func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].at, w[j].at = i, j
}

// Push implements heap.Interface.
func (w *waiters) Push(x any) {
	a := x.(*awaiting)
	a.at = len(*w)
	*w = append(*w, a)
}

// Pop implements heap.Interface.
func (w *waiters) Pop() any {
	last := len(*w) - 1
	a := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	a.at = -1
	return a
}
