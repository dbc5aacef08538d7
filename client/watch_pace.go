// SPDX-License-Identifier: Apache-2.0

package client

import "time"

const (
	// easeWithin is how long the lane waits for readers of whom none comes far enough, easeAtMost how long for any.
	easeWithin = 5 * time.Millisecond
	easeAtMost = 100 * time.Millisecond
)

// crowd takes note of a watch that is about to fall behind. A burst can be more than a watch holds, though its reader is
// quick: hundreds of watches that are then caught up from the log, each for itself, are a hundred times the work of the burst.
// So the lane stops for a moment, which the broker feels as one slow lane; who does not read costs that moment once.
// Called with both mu held.
func (l *watchLane) crowd(w *Watch) {
	if w.crowded || w.slow || w.closed || !w.fold.Crowded() {
		return
	}
	w.crowded = true
	l.waited.Add(1)
	l.crowded = append(l.crowded, w)
}

// ease ends the wait for a watch whose reader has come far enough, or has gone. Called with mu held.
func (w *Watch) ease(gone bool) {
	if !w.crowded && !w.slow || !gone && !w.fold.Eased() {
		return
	}
	w.slow = false
	if w.crowded {
		w.crowded = false
		if w.lane.waited.Add(-1) == 0 {
			poke(w.lane.eased)
		}
	}
}

// relieve waits for the readers of crowded watches as long as they come on. Called with mu held, which it gives up meanwhile.
func (l *watchLane) relieve() {
	if len(l.crowded) == 0 {
		return
	}
	l.wake()
	l.mu.Unlock()
	select {
	case <-l.eased: // of another time
	default:
	}
	end := time.Now().Add(easeAtMost)
	timer := time.NewTimer(easeWithin)
	for last := l.waited.Load(); last > 0 && l.ctx.Err() == nil; {
		select {
		case <-l.eased:
			last = l.waited.Load()
			continue
		case <-l.ctx.Done():
			continue
		case <-timer.C:
		}
		now := l.waited.Load()
		if now == last || time.Now().After(end) {
			break
		}
		last = now
		timer.Reset(easeWithin)
	}
	timer.Stop()
	l.mu.Lock()
	for i, w := range l.crowded {
		w.mu.Lock()
		if w.crowded {
			w.crowded, w.slow = false, true
			l.waited.Add(-1)
		}
		w.mu.Unlock()
		l.crowded[i] = nil
	}
	l.crowded = l.crowded[:0]
}
