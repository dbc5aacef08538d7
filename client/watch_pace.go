// SPDX-License-Identifier: Apache-2.0

package client

import "time"

const (
	// easeWithin is how long the lane waits for readers of whom none takes anything, easeAtMost how long for any. For a
	// minority it waits one easeShare-th of its time.
	easeWithin = 20 * time.Millisecond
	easeAtMost = 200 * time.Millisecond
	easeShare  = 10
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
	if w.crowded {
		w.lane.eases.Add(1)
	}
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

// patience is how long to wait for the readers of crowded watches: those of a minority must not hold up the others by more
// than a part of their time. Called with mu held.
func (l *watchLane) patience(now time.Time) time.Duration {
	l.credit = min(l.credit+now.Sub(l.creditAt)/easeShare, easeAtMost)
	l.creditAt = now
	if 2*int(l.waited.Load()) > len(l.watches) {
		return easeAtMost
	}
	return l.credit
}

// relieve waits for the readers of crowded watches as long as they come on. Called with mu held, which it gives up meanwhile.
func (l *watchLane) relieve() {
	if len(l.crowded) == 0 {
		return
	}
	l.wake()
	begun := time.Now()
	patience := l.patience(begun)
	l.mu.Unlock()
	select {
	case <-l.eased: // of another time
	default:
	}
	end := begun.Add(patience)
	timer := time.NewTimer(min(easeWithin, patience))
	for last := l.eases.Load(); l.waited.Load() > 0 && l.ctx.Err() == nil; {
		select {
		case <-l.eased:
			continue
		case <-l.ctx.Done():
			continue
		case <-timer.C:
		}
		now, left := l.eases.Load(), time.Until(end)
		if now == last || left <= 0 {
			break
		}
		last = now
		timer.Reset(min(easeWithin, left))
	}
	timer.Stop()
	l.mu.Lock()
	if patience < easeAtMost {
		l.credit -= min(time.Since(begun), l.credit)
	}
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
