// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"

	"margay.dev/wire"
)

// write writes what there is to say, until the lane ends.
func (l *consumeLane) write(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var w laneWriter
	for {
		at := w.gather(l, time.Now())
		if w.encode(); len(w.buf) > 0 {
			if l.lane.Write(w.buf) != nil {
				return
			}
			continue
		}
		resetTimer(timer, at)
		select {
		case <-l.wake:
		case <-timer.C:
		case <-l.down:
			return
		case <-ctx.Done():
			return
		}
		if l.overdue(time.Now()) {
			return // the broker does not answer to Leave: it takes back what was out when the lane ends
		}
	}
}

// laneWriter is what a writer writes next, kept for the time after.
type laneWriter struct {
	buf     []byte
	settles []settleFrame
	leave   bool
}

// settleFrame is a settlement to be written: what an answer, which may end it at any time, does not touch.
type settleFrame struct {
	ticket uint64
	frame  wire.Settle
}

// gather takes what is to be written now, and says when to look again without being woken.
func (w *laneWriter) gather(l *consumeLane, now time.Time) (at time.Time) {
	g := l.g
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	w.buf, w.settles, w.leave = w.buf[:0], w.settles[:0], false
	g.mu.Lock()
	defer g.mu.Unlock()
	l.awake = false
	idle := true
	for _, s := range l.shards {
		for !l.leaveOut { // behind it, settlements are for the next lane
			f := g.book.Take(s.id, now)
			if f == nil {
				break
			}
			w.settles = append(w.settles, settleFrame{f.Ticket, wire.Settle{
				GroupID: f.Group, Shard: f.Shard, Resets: f.Resets, Generation: f.Generation, Runs: f.Runs(),
			}})
		}
		sooner(g.book.Wake(s.id, now))
		idle = idle && g.book.Idle(s.id)
	}
	limit := l.limitNow()
	due := l.notedAt.Add(notePause)
	switch {
	case l.leaveOut:
	case limit != l.limit, l.begun && (len(w.settles) > 0 || !now.Before(due)):
		w.buf = l.appendFlow(w.buf, limit)
		l.notedAt = now
	case l.begun:
		sooner(due)
	}
	w.buf = l.appendExtensions(w.buf, now)
	if l.leaving {
		if w.leave = !l.leaveOut && (idle || !now.Before(l.leaveBy)); w.leave {
			l.leaveOut, l.leaveBy = true, now.Add(closeWait)
		}
		sooner(l.leaveBy)
	}
	return at
}

// appendFlow tells how much may be in flight, and what was begun. Called with mu held.
func (l *consumeLane) appendFlow(buf []byte, limit uint32) []byte {
	f := wire.Flow{MaxInFlight: limit}
	for _, s := range l.shards {
		if s.begun != s.told {
			s.told = s.begun
			f.Begun = append(f.Begun, wire.Begun{Shard: s.id, HandOut: s.begun})
		}
	}
	l.limit, l.begun = limit, false
	return wire.AppendFrame(buf, 0, &f)
}

// encode makes frames of what was taken.
func (w *laneWriter) encode() {
	for i := range w.settles {
		w.buf = wire.AppendFrame(w.buf, w.settles[i].ticket, &w.settles[i].frame)
	}
	clear(w.settles)
	if w.leave {
		w.buf = wire.AppendFrame(w.buf, corrLeave, &wire.Leave{})
	}
}

// overdue reports whether the broker owes the answer to Leave.
func (l *consumeLane) overdue(now time.Time) bool {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return l.leaveOut && !now.Before(l.leaveBy)
}
