// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"time"

	"margay.dev/wire/code"
)

const (
	roomFree   = 4 << 10          // of a body that is read before it takes any of the broker's room
	roomStep   = 256 << 10        // of the broker's room that is taken ahead of the bytes, at most
	roomWithin = 5 * time.Second  // that a body which has begun waits for more room
	bodyWithin = 60 * time.Second // that a body may take to arrive
	bodySmall  = 16 << 10         // below this nobody counts the time
)

// errNoRoomLeft means that a body had begun and the broker has no room for the rest of it.
var errNoRoomLeft = errors.New("no room for the rest of the body")

// receive reads the body of a publish into a buffer that the broker owns from here to the disk and the
// subscribers. Its connection's share is taken at once; the broker's follows the bytes, so that headers alone,
// or bodies that never come, hold up nobody else. What it takes is given back by release, or here on an error.
func (l *lane) receive(ctx context.Context, n int64) (_ []byte, err error) {
	if err := l.conn.inflight.Acquire(ctx, n); err != nil {
		return nil, err
	}
	var held int64
	defer func() {
		if err != nil {
			l.conn.inflight.Release(n)
			l.conn.srv.inflight.Release(held)
			l.conn.srv.held.Add(-held)
		}
	}()
	if n > bodySmall {
		late := time.AfterFunc(bodyWithin, func() { l.lane.Reset(code.Timeout) })
		defer late.Stop()
	}
	take := func(total int64) error {
		if total == held {
			return nil
		}
		if err := l.room(ctx, total-held, held > 0); err != nil {
			return err
		}
		l.conn.srv.held.Add(total - held)
		held = total
		return nil
	}
	var buf []byte
	for come := int64(0); come < n; come = int64(len(buf)) {
		// What is taken ahead is a multiple of what has come: bytes hold room, and headers do not, however many.
		to := come + min(n-come, max(15*come, roomFree), roomStep)
		if come > 0 {
			if err := take(to); err != nil {
				return nil, err
			}
		}
		if int64(cap(buf)) < to {
			grown := make([]byte, come, min(n, max(to, 4*come)))
			copy(grown, buf)
			buf = grown
		}
		buf = buf[:to]
		if err := l.lane.ReadBody(buf[come:]); err != nil {
			return nil, err
		}
	}
	return buf, take(n) // a small one has come whole and holds nothing yet
}

// room takes a part of the broker's room. A body that has begun waits for more only for a while: many of them,
// each waiting for what the others hold, would wait for ever.
func (l *lane) room(ctx context.Context, n int64, begun bool) error {
	if l.conn.srv.inflight.TryAcquire(n) {
		return nil
	}
	if !begun {
		return l.conn.srv.inflight.Acquire(ctx, n)
	}
	ctx, cancel := context.WithTimeout(ctx, roomWithin)
	defer cancel()
	if err := l.conn.srv.inflight.Acquire(ctx, n); err != nil {
		return errNoRoomLeft
	}
	return nil
}

// release gives back what a publish of n bytes holds.
func (l *lane) release(n int64) {
	l.conn.inflight.Release(n)
	l.conn.srv.inflight.Release(n)
	l.conn.srv.held.Add(-n)
}
