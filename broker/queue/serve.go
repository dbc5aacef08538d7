// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	coalesce  = 64 << 10  // small frames are joined up to this size
	stepBytes = 256 << 10 // that one step writes, about: answers do not wait for longer
)

// Serve writes what there is until the consumer leaves, the lane breaks or ctx is done, and returns the end to tell the
// consumer; nil when the lane is broken.
func (l *Lane) Serve(ctx context.Context) *wire.ConsumeEnd {
	progress := time.NewTicker(ProgressEvery)
	defer progress.Stop()
	for {
		more, over, end := l.Step(ctx)
		if over {
			return end
		}
		if more {
			select {
			case <-progress.C:
				l.Progress()
			default:
			}
			continue
		}
		later, stop := l.later()
		select {
		case <-l.wake:
		case <-later:
		case <-ctx.Done():
		case <-progress.C:
			l.Progress()
		}
		stop()
	}
}

// later is when a shard that had too much to do is told again.
func (l *Lane) later() (<-chan time.Time, func()) {
	if !l.owing {
		return nil, func() {}
	}
	t := time.NewTimer(retryPost)
	return t.C, func() { t.Stop() }
}

// Step writes some of what there is, without waiting for more, and says whether there may be more at once. Once it is over,
// the consumer has left its groups, and end is what to tell it; nil when the lane is broken.
func (l *Lane) Step(ctx context.Context) (more, over bool, end *wire.ConsumeEnd) {
	leaving := l.takeNotes()
	l.owing = l.pool.again()
	if leaving {
		l.owing = l.leaveAll() || l.owing
	}
	more, err := l.writeHands()
	if len(l.failing) > 0 {
		l.owing = l.leaveFailed() || l.owing
	}
	if e := l.flush(); err == nil {
		err = e
	}
	why, told := errors.AsType[*code.Error](context.Cause(ctx)) // what the broker ends is nobody's attempt
	switch {
	case err != nil:
		l.end(told)
		return false, true, nil
	case ctx.Err() != nil:
		l.end(told)
		end = &wire.ConsumeEnd{Shard: wire.AllShards}
		if told {
			end.Code, end.Message = why.Code, why.Message
		}
		return false, true, end
	case leaving && l.hasLeft():
		l.end(true)
		return false, true, &wire.ConsumeEnd{Shard: wire.AllShards}
	}
	return more, false, nil
}

func (l *Lane) end(orderly bool) {
	l.close()
	l.depart(orderly)
	l.cfg.Stats.Lanes.Add(-1)
}

// hasLeft says whether nothing is out any more, and nothing is to be written.
func (l *Lane) hasLeft() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.staying == 0 && l.asking == 0 && len(l.notes) == 0 && len(l.ends) == 0
}

// takeNotes puts the answers and ends that are there before the next messages: who settles may be waiting.
func (l *Lane) takeNotes() (leaving bool) {
	l.mu.Lock()
	l.out = append(l.out, l.notes...)
	if cap(l.notes) > 2*coalesce {
		l.notes = nil
	}
	l.notes = l.notes[:0]
	noted := l.noted
	l.noted = 0
	ends := l.ends
	l.ends = nil
	leaving = l.leaving
	l.mu.Unlock()
	if noted > 0 {
		l.room.Release(noted)
	}
	for i := range ends {
		l.out = wire.AppendFrame(l.out, 0, &ends[i])
	}
	return leaving
}

// nextHand is the oldest hand that is not written; over says that it will not be.
func (l *Lane) nextHand() (h *hand, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.hands) == 0 {
		return nil, false
	}
	return l.hands[0], l.hands[0].m.over
}

func (l *Lane) popHand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.hands) > 0 { // else the lane is closed
		l.hands[0] = nil
		l.hands = l.hands[1:]
	}
}

// writeHands writes messages, and says whether there are more.
func (l *Lane) writeHands() (more bool, err error) {
	for written := 0; ; {
		h, over := l.nextHand()
		switch {
		case h == nil:
			return false, nil
		case over:
			l.pool.handed(-len(h.Items))
			l.popHand()
			continue
		case written >= stepBytes:
			return true, nil
		}
		n, err := l.writeRun(h)
		if err != nil {
			return false, err
		}
		written += n
		if len(h.Items) == 0 {
			l.popHand()
		}
	}
}

// write sends bytes of frames in order, joining small ones.
func (l *Lane) write(head, body []byte) error {
	if len(l.out)+len(head)+len(body) > coalesce && len(l.out) > 0 && len(body) <= coalesce/4 {
		if err := l.flush(); err != nil {
			return err
		}
	}
	l.out = append(l.out, head...)
	if len(l.out)+len(body) <= coalesce {
		l.out = append(l.out, body...)
		return nil
	}
	err := l.w.Write(l.out, body)
	l.out = l.out[:0]
	l.pool.written()
	return err
}

func (l *Lane) flush() error {
	if len(l.out) == 0 {
		return nil
	}
	err := l.w.Write(l.out)
	l.out = l.out[:0]
	if cap(l.out) > 2*coalesce {
		l.out = nil
	}
	l.pool.written()
	return err
}
