// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"time"
)

// clock gives Unix nanoseconds that never go back: the wall clock is read once.
type clock struct {
	base time.Time
	unix int64
}

func newClock() clock {
	base := time.Now()
	return clock{base: base, unix: base.UnixNano()}
}

func (c clock) now() int64 { return c.unix + int64(time.Since(c.base)) }

// sleeper waits for moments, for one goroutine.
type sleeper interface {
	// sleep waits this long, or until the context ends that it was made with.
	sleep(d time.Duration)
	close()
}

// timer is a sleeper whose precision is the scheduler's: about a millisecond when the process is idle.
type timer struct {
	ctx   context.Context //nolint:containedctx // one for all of its waits: a sleep must cost as little as it can
	timer *time.Timer
}

func newTimer(ctx context.Context) sleeper {
	return &timer{ctx: ctx, timer: time.NewTimer(time.Hour)}
}

func (t *timer) sleep(d time.Duration) {
	t.timer.Reset(d)
	select {
	case <-t.timer.C:
	case <-t.ctx.Done():
	}
}

func (t *timer) close() { t.timer.Stop() }
