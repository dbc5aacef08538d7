// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"sync/atomic"
)

// window bounds what is under way. Permits are taken and given back in groups, without a lock and, while there are some,
// without a wake-up: at a million messages a second each costs.
type window struct {
	size int64
	free atomic.Int64
	wake chan struct{} // capacity 1
}

func newWindow(size int) *window {
	w := &window{size: int64(size), wake: make(chan struct{}, 1)}
	w.free.Store(w.size)
	return w
}

// take waits for a permit, and returns with up to most of them; with none when ctx ends first.
func (w *window) take(ctx context.Context, most int) int {
	for {
		if n := w.try(most); n > 0 {
			return n
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return 0
		}
	}
}

// try takes up to most of the permits that are there.
func (w *window) try(most int) int {
	for {
		free := w.free.Load()
		if free <= 0 {
			return 0
		}
		n := min(free, int64(most))
		if w.free.CompareAndSwap(free, free-n) {
			if free > n {
				w.signal() // the one wake-up there was may have been meant for another client too
			}
			return int(n)
		}
	}
}

// give gives permits back. Only who finds none waits, so only the first to come back must wake.
func (w *window) give(n int) {
	if n > 0 && w.free.Add(int64(n)) == int64(n) {
		w.signal()
	}
}

func (w *window) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// drain waits until all permits are back, or ctx ends.
func (w *window) drain(ctx context.Context) {
	for left := int(w.size); left > 0; {
		n := w.take(ctx, left)
		if n == 0 {
			return
		}
		left -= n
	}
}

// refill makes the window whole again after drain.
func (w *window) refill() { w.free.Store(w.size) }

// under is how many permits are out.
func (w *window) under() int64 { return w.size - w.free.Load() }
