// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// workWindow is how many pushes are under way, at least, while the messages are put there that will be worked off.
const workWindow = 2000

var errLeft = errors.New("messages were left after all of them had been settled")

// consume opens consumer i.
func (r *run) consume(ctx context.Context, i int, handle func([]byte), settled func(int)) error {
	c, err := r.queue.Consume(ctx, Consumer{
		Index: i, Connection: i % r.spec.Connections, MaxInFlight: r.spec.MaxInFlight, Handle: handle, Settled: settled,
		Fail: func(err error) { r.ruin(fmt.Errorf("consumer %d: %w", i, err)) },
	})
	if err != nil {
		return fmt.Errorf("open consumer %d: %w", i, err)
	}
	r.subscriptions = append(r.subscriptions, c)
	return nil
}

// work is Work: messages are pushed, and then worked off, which is what is measured: from before the first consumer is there
// until the last acknowledgement is confirmed.
func (r *run) work(ctx context.Context) (*Result, error) {
	r.windows = append(r.windows, newWindow(max(r.spec.Clients*r.spec.InFlight, workWindow)))
	if err := r.fill(ctx, r.spec.Messages); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	r.answered.Store(0)
	working, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r.endBy(ends{sending: giveUp, all: giveUp})
	done := make(chan struct{})
	m := newMeter(r.o.ServerPID)
	begin := r.clock.now()
	watched := r.watch(ctx, watching{"working off", &r.delivered, func() bool { return true }, []func(){m.look}}, giveUp)
	defer watched()
	for i := range r.spec.Consumers {
		if err := r.consume(working, i, func([]byte) {}, func(n int) {
			if all := r.delivered.Add(int64(n)); all >= r.spec.Messages && all-int64(n) < r.spec.Messages {
				close(done)
			}
		}); err != nil {
			return nil, r.because(err)
		}
	}
	var ended error
	select {
	case <-done:
	case <-working.Done():
		ended = context.Cause(working)
	}
	res := &Result{Seconds: float64(r.clock.now()-begin) / 1e9, Messages: r.delivered.Load(), Interrupted: ctx.Err() != nil}
	watched()
	if !res.Interrupted {
		res.Missing = max(0, r.spec.Messages-res.Messages)
	}
	r.finish(res, m)
	switch {
	case ended != nil && ctx.Err() == nil && (res.Messages == 0 || r.fatal.Load() != nil):
		return nil, r.because(ended)
	case ended != nil:
		return res, nil
	case res.Messages > r.spec.Messages:
		return nil, fmt.Errorf("%d messages were settled: there are %d", res.Messages, r.spec.Messages)
	}
	return res, r.nothingLeft(ctx)
}

// nothingLeft demands that the system agrees: what was counted may have been sent and not yet read by it.
func (r *run) nothingLeft(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Grace)
	defer cancel()
	ticks := time.NewTicker(tick / 5)
	defer ticks.Stop()
	for {
		left, err := r.queue.Left(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("ask what is left: %w", err)
		case left == 0:
			return nil
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d", errLeft, left)
		}
	}
}

// handle is Handle: a message is under way until its acknowledgement is confirmed, and what is timed ends where it is handed to
// a handler.
func (r *run) handle(ctx context.Context) (*Result, error) {
	shared := newWindow(r.spec.Clients * r.spec.InFlight)
	r.windows = []*window{shared}
	r.deliveries = newRecorders(r.spec.Consumers)
	for i := range r.spec.Consumers {
		rec := &receiver{clock: r.clock, recorder: r.deliveries.of(i)}
		if err := r.consume(ctx, i, func(msg []byte) {
			rec.receive(msg)
			r.delivered.Add(1)
		}, shared.give); err != nil {
			return nil, err
		}
	}
	if err := r.openClients(ctx); err != nil {
		return nil, err
	}
	of := HandlerSent
	if r.spec.Rate > 0 {
		of = HandlerScheduled
	}
	return r.measure(ctx, func() (int64, *Quantiles) { return r.delivered.Load(), r.deliveries.quantiles(of) }, r.deliveries)
}
