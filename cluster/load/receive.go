// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"math"
	"time"
)

// reuse is for how many messages with the same stamp one reading of the clock serves.
const reuse = 16

// receiver times what one subscriber gets.
type receiver struct {
	clock    clock
	recorder *recorder
	last     int64 // the stamp before
	now      int64
	used     int
}

func (r *receiver) receive(msg []byte) {
	if len(msg) < StampSize {
		return // not one of ours: it counts, and nobody knows when it was sent
	}
	at := Stamp(msg)
	if at != r.last || r.used == reuse {
		r.last, r.now, r.used = at, r.clock.now(), 0
	}
	r.used++
	r.recorder.record(r.now-at, 1)
}

func (r *run) subscribe(ctx context.Context, i int, replay bool, each func([]byte)) error {
	s, err := r.sys.Subscribe(ctx, Subscription{
		Index: i, Connection: i % r.spec.Connections, Replay: replay, Each: each,
		Fail: func(err error) {
			r.ruin(fmt.Errorf("subscriber %d: %w", i, err))
		},
	})
	if err != nil {
		return fmt.Errorf("open subscriber %d: %w", i, err)
	}
	r.subscriptions = append(r.subscriptions, s)
	return nil
}

// replay is Sub.
func (r *run) replay(ctx context.Context) (*Result, error) {
	if !r.spec.Prepared {
		if err := r.fill(ctx, r.spec.Messages); err != nil {
			return nil, fmt.Errorf("prepare: %w", err)
		}
	}
	r.answered.Store(0)
	reading, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r.endBy(ends{sending: giveUp, all: giveUp})
	done := make(chan struct{}, r.spec.Subscribers)
	m := newMeter(r.o.ServerPID)
	begin := r.clock.now()
	watched := r.watch(ctx, watching{"replaying", &r.delivered, func() bool { return true }, []func(){m.look}}, giveUp)
	defer watched()
	for i := range r.spec.Subscribers {
		left := r.spec.Messages
		if err := r.subscribe(reading, i, true, func([]byte) {
			if left--; left < 0 {
				return // more than was asked for is there
			}
			r.delivered.Add(1)
			if left == 0 {
				done <- struct{}{}
			}
		}); err != nil {
			return nil, r.because(err)
		}
	}
	var ended error
	for range r.spec.Subscribers {
		select {
		case <-done:
			continue
		case <-reading.Done():
			ended = context.Cause(reading)
		}
		break
	}
	res := &Result{Seconds: float64(r.clock.now()-begin) / 1e9, Messages: r.delivered.Load(), Interrupted: ctx.Err() != nil}
	watched()
	if !res.Interrupted {
		res.Missing = r.spec.Messages*int64(r.spec.Subscribers) - res.Messages
	}
	r.finish(res, m)
	if ended != nil && ctx.Err() == nil && (res.Messages == 0 || r.fatal.Load() != nil) {
		return nil, r.because(ended)
	}
	return res, nil
}

// durationOf saves a schedule from the end of time.
func durationOf(ns int64) time.Duration { return time.Duration(min(ns, math.MaxInt64/2)) }
