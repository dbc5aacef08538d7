// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"time"
)

// event is one thing to happen.
type event struct {
	at    time.Duration
	tie   uint64 // drawn: what happens first of what is due at one time
	order uint64
	kind  string
	// may says whether it may happen now, within another step that waits for the disk; nil stands for no.
	may func() bool
	run func()
}

// always is for what another goroutine, or another machine, would do.
func always() bool { return true }

type queue struct {
	h     eventHeap
	count uint64
}

func (q *queue) len() int      { return len(q.h) }
func (q *queue) first() *event { return q.h[0] }
func (q *queue) pop() *event   { return heap.Pop(&q.h).(*event) }

func (q *queue) push(e *event) {
	q.count++
	e.order = q.count
	heap.Push(&q.h, e)
}

type eventHeap []*event

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.tie != b.tie:
		return a.tie < b.tie
	}
	return a.order < b.order
}

func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(*event)) }

func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}

// after lets something happen a while from now.
func (w *world) after(d time.Duration, kind string, may func() bool, run func()) {
	w.queue.push(&event{at: w.now + max(d, 0), tie: w.rng.Uint64(), kind: kind, may: may, run: run})
}

const maxDepth = 3 // of steps within steps

// wait lets a while pass within a step: others do meanwhile what they could while this one's goroutine waits for the disk.
// What could not is kept until it is over.
func (w *world) wait(d time.Duration) {
	end := w.now + d
	if w.depth >= maxDepth {
		w.now = max(w.now, end)
		return
	}
	w.depth++
	defer func() { w.depth-- }()
	var kept []*event
	for len(w.found) == 0 && w.queue.len() > 0 && w.queue.first().at <= end && w.steps < maxSteps {
		e := w.queue.pop()
		if e.may == nil || !e.may() {
			kept = append(kept, e)
			continue
		}
		w.fire(e)
	}
	w.now = max(w.now, end)
	for _, e := range kept {
		w.queue.push(e)
	}
}

// between draws a duration.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

// chance is true one time in n.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }
