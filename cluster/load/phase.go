// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// outcome is how a phase of publishing ended.
type outcome struct {
	seconds     float64
	missing     int64 // messages, or deliveries, that were never told of
	unsent      int64 // messages of the schedule that were not sent in time
	interrupted bool
	err         error // it ended before its time
}

// phase publishes messages (without bound when 0) for a time (without bound when 0), and waits until all have come to
// their end.
func (r *run) phase(ctx context.Context, name string, messages int64, d time.Duration, looks ...func()) outcome {
	r.answered.Store(0)
	r.delivered.Store(0)
	r.errors.Store(0)
	r.first.Store(nil)

	calls, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	sends, stop := context.WithCancelCause(calls)
	defer stop(nil)
	r.endBy(ends{sending: stop, all: giveUp})
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()

	q := &quota{left: math.MaxInt64, begin: r.clock.now(), until: math.MaxInt64}
	if messages > 0 {
		q.left = messages
	}
	if d > 0 {
		q.until = q.begin + int64(d)
		if r.spec.Rate > 0 {
			d += overtime
		}
		defer time.AfterFunc(d, func() { stop(errOver) }).Stop()
	}
	counted := &r.answered
	if r.spec.receivers() > 0 {
		counted = &r.delivered
	}
	watched := r.watch(ctx, watching{name, counted, r.under, looks}, giveUp)
	var all sync.WaitGroup
	for _, c := range r.clients {
		all.Go(func() { c.run(sends, calls, q) })
	}
	all.Wait()
	for _, w := range r.windows {
		w.drain(calls)
	}
	out := outcome{seconds: float64(r.clock.now()-q.begin) / 1e9, interrupted: ctx.Err() != nil}
	watched()
	r.account(&out)
	switch cause := context.Cause(sends); {
	case calls.Err() != nil:
		out.err = context.Cause(calls)
	case errors.Is(cause, errTooMany):
		out.err = cause
	}
	return out
}

// account finds out what is missing, and makes the windows whole again.
func (r *run) account(out *outcome) {
	var sent int64
	for _, c := range r.clients {
		sent += c.sent
		out.unsent += c.unsent
	}
	for _, w := range r.windows {
		w.refill()
	}
	sent -= r.errors.Load()
	if n := r.spec.receivers(); n > 0 {
		// A message whose publisher was told of a failure may have been delivered all the same.
		out.missing = max(0, sent*int64(n)-r.delivered.Load())
		return
	}
	out.missing = max(0, sent-r.answered.Load())
}

// under says whether messages are under way.
func (r *run) under() bool {
	for _, w := range r.windows {
		if w.under() > 0 {
			return true
		}
	}
	return false
}

// watching is what is watched of a phase.
type watching struct {
	name    string
	counted *atomic.Int64 // what progress shows
	under   func() bool   // something is under way
	looks   []func()
}

// watch shows progress, and gives up when something is under way and nothing moves any more. Call what it returns once the
// phase is over.
func (r *run) watch(ctx context.Context, w watching, giveUp context.CancelCauseFunc) (over func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		begin := time.Now()
		ticks := time.NewTicker(tick)
		defer ticks.Stop()
		var last int64
		moved := begin
		for {
			var now time.Time
			select {
			case <-quit:
				return
			case now = <-ticks.C:
			}
			answered, delivered, failed := r.answered.Load(), r.delivered.Load(), r.errors.Load()
			if sum := answered + delivered + failed; sum != last || !w.under() {
				last, moved = sum, now
			}
			grace := r.o.Grace
			if ctx.Err() != nil {
				grace = min(grace, hurriedGrace)
			}
			if now.Sub(moved) >= grace {
				giveUp(fmt.Errorf("%w for %v", errStalled, grace))
			}
			for _, look := range w.looks {
				look()
			}
			r.o.Progress(Progress{Phase: w.name, Messages: w.counted.Load(), Errors: failed, Elapsed: now.Sub(begin)})
		}
	})
	return sync.OnceFunc(func() {
		close(quit)
		done.Wait()
	})
}

// fail counts messages that failed. A run that only fails is ended.
func (r *run) fail(n int, err error) {
	r.first.CompareAndSwap(nil, &err)
	total := r.errors.Add(int64(n))
	if e := r.ends.Load(); e != nil && total >= maxErrors && r.answered.Load() < total {
		e.sending(fmt.Errorf("%w: %d", errTooMany, total))
	}
}

// ruin ends the run: there is no result to be had any more.
func (r *run) ruin(err error) {
	r.fatal.CompareAndSwap(nil, &err)
	if e := r.ends.Load(); e != nil {
		e.all(err)
	}
}

// ends are how to end a phase early: no more is sent, or nothing more is waited for.
type ends struct{ sending, all context.CancelCauseFunc }

func (r *run) endBy(e ends) {
	r.ends.Store(&e)
	if err := r.fatal.Load(); err != nil {
		e.all(*err) // it came between two phases
	}
}
