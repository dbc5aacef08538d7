// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"

	"margay.dev/wire"
)

// keepWriteBuffer is the largest buffer that a lane writes from again.
const keepWriteBuffer = 256 << 10

// write writes what there is to say, until the lane ends.
func (l *consumeLane) write(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var buf []byte
	for {
		var at time.Time
		if buf, at = l.gather(buf[:0], time.Now()); len(buf) > 0 {
			if l.lane.Write(buf) != nil {
				return
			}
			if cap(buf) > keepWriteBuffer {
				buf = nil
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

// gather appends what is to be written now, and says when to look again without being woken. What was settled comes before more
// is asked for.
func (l *consumeLane) gather(buf []byte, now time.Time) (_ []byte, at time.Time) {
	g := l.g
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
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
			buf = wire.AppendFrame(buf, f.Ticket, &wire.Settle{
				GroupID: f.Group, Shard: f.Shard, Resets: f.Resets, Generation: f.Generation, Runs: f.Runs(),
			})
		}
		sooner(g.book.Wake(s.id, now))
		idle = idle && g.book.Idle(s.id)
	}
	limit := l.limitNow()
	due := l.notedAt.Add(notePause)
	switch {
	case l.leaveOut:
	case limit != l.limit, l.begun && (len(buf) > 0 || !now.Before(due)):
		buf = l.appendFlow(buf, limit)
		l.notedAt = now
	case l.begun:
		sooner(due)
	}
	buf = l.appendExtensions(buf, now)
	if l.leaving {
		if !l.leaveOut && (idle || !now.Before(l.leaveBy)) {
			l.leaveOut, l.leaveBy = true, now.Add(closeWait)
			buf = wire.AppendFrame(buf, corrLeave, &wire.Leave{})
		}
		sooner(l.leaveBy)
	}
	return buf, at
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

// overdue reports whether the broker owes the answer to Leave.
func (l *consumeLane) overdue(now time.Time) bool {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return l.leaveOut && !now.Before(l.leaveBy)
}
