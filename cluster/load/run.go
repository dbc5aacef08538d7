// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	// defaultGrace is how long nothing may move before the run gives up what is under way. A system may recover, flush or
	// elect meanwhile; a bench that waits for ever says nothing.
	defaultGrace = 30 * time.Second
	// hurriedGrace is the same once the run was interrupted.
	hurriedGrace = 3 * time.Second
	// overtime is how long a schedule may be behind at its end and still be sent to the last message: a busy machine is not
	// a system that does not keep up.
	overtime = time.Second
	tick     = 250 * time.Millisecond
	// maxErrors ends a run that only fails.
	maxErrors = 1000
)

var (
	errStalled = errors.New("nothing moved any more")
	errTooMany = errors.New("too many errors")
	errTwice   = errors.New("the adapter told of messages more than once")
	errOver    = errors.New("the phase is over")
)

// Options of a run that do not change what is measured.
type Options struct {
	// ServerPID is the process to account for; 0 for none.
	ServerPID int
	// Progress is called about four times a second, from a goroutine of the run's own.
	Progress func(Progress)
	// Grace is how long nothing may move before what is under way is given up. Default 30 s.
	Grace time.Duration

	sleeper func(context.Context) sleeper // for tests in virtual time
}

// run is one run. What it counts begins anew with each phase, between which nothing is under way.
type run struct {
	sys   System
	kv    KV    // nil for one without keys
	queue Queue // nil for one that hands nothing out
	spec  Spec
	o     Options
	clock clock

	windows []*window // one for each client, or one for all of them
	clients []*client
	acks    recorders // nil while acknowledgements are not timed

	subscriptions []io.Closer
	deliveries    recorders

	keys      *keys
	revisions *revisions // of Watch
	preparing bool       // as fast as it goes, what Sub and Get will read, or Work work off

	delivered atomic.Int64

	answered atomic.Int64 // acknowledged, in this phase
	errors   atomic.Int64
	told     atomic.Int64 // acknowledged or failed, in all phases: a watcher may have a message before its publisher is told
	handed   int64        // by publishers that are closed
	first    atomic.Pointer[error]
	fatal    atomic.Pointer[error] // a subscription ended
	ends     atomic.Pointer[ends]
}

// Run drives the system and measures it. The spec is filled in and validated first. When ctx ends, so does the run: it returns
// what it has, marked as interrupted, and no error. An error means that there is no result worth having.
func Run(ctx context.Context, sys System, spec Spec, o Options) (*Result, error) {
	spec.Fill()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.sleeper == nil {
		o.sleeper = newSleeper
	}
	r := &run{sys: sys, spec: spec, o: o, clock: newClock()}
	if err := r.takeKeys(); err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Workload, err)
	}
	defer r.close()
	var res *Result
	var err error
	switch spec.Workload {
	case Sub:
		res, err = r.replay(ctx)
	case Fanout:
		res, err = r.fanout(ctx)
	case Pub, Latency:
		res, err = r.publish(ctx)
	case Put:
		res, err = r.put(ctx)
	case Get:
		res, err = r.get(ctx)
	case Watch:
		res, err = r.watchAll(ctx)
	case Work:
		res, err = r.work(ctx)
	case Handle:
		res, err = r.handle(ctx)
	}
	if err == nil {
		err = r.closeClients()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Workload, err)
	}
	res.Spec = spec
	return res, nil
}

// takeKeys finds out whether the system has what the workload needs.
func (r *run) takeKeys() error {
	switch s := r.sys.(type) {
	case keyed:
		r.kv = s.KV
	case queued:
		r.queue = s.Queue
	}
	w := r.spec.Workload
	switch {
	case w.HasKeys() && r.kv == nil:
		return errNeedsKV
	case w.HasQueue() && r.queue == nil:
		return errNeedsQueue
	case !w.HasKeys() && r.kv != nil, !w.HasQueue() && r.queue != nil:
		return errNeedsStream
	case r.spec.Keys > 0:
		r.keys = newKeys(r.spec.Keys, r.spec.KeySize)
	}
	return nil
}

func (r *run) close() {
	for _, s := range r.subscriptions {
		_ = s.Close() // it has done its work
	}
	_ = r.closeClients()
}

// closeClients closes the publishers, after which all they were handed has been told of, and counts.
func (r *run) closeClients() error {
	for _, c := range r.clients {
		_ = c.publisher.Close() // it has done its work
		r.handed += c.before + c.sent
	}
	r.clients = nil
	if told := r.told.Load(); told > r.handed {
		return fmt.Errorf("%w: %d handed over, %d told of", errTwice, r.handed, told)
	}
	return nil
}

// publish is Pub and Latency, and what is measured of Put and Get.
func (r *run) publish(ctx context.Context) (*Result, error) {
	if err := r.openClients(ctx); err != nil {
		return nil, err
	}
	r.acks = newRecorders(len(r.clients))
	of := map[bool]LatencyOf{false: AckSent, true: AckScheduled}
	if r.spec.Workload == Get {
		of = map[bool]LatencyOf{false: AnswerSent, true: AnswerScheduled}
	}
	return r.measure(ctx, func() (int64, *Quantiles) { return r.answered.Load(), r.acks.quantiles(of[r.spec.Rate > 0]) }, r.acks)
}

// fanout publishes while subscribers receive. A message is under way until all of them have it: no system is driven into
// dropping, and none hides a backlog.
func (r *run) fanout(ctx context.Context) (*Result, error) {
	shared := newWindow(r.spec.Clients * r.spec.InFlight)
	r.windows = []*window{shared}
	r.deliveries = newRecorders(r.spec.Subscribers)
	each := int64(r.spec.Subscribers)
	for i := range r.spec.Subscribers {
		rec := &receiver{clock: r.clock, recorder: r.deliveries.of(i)}
		if err := r.subscribe(ctx, i, false, func(msg []byte) {
			rec.receive(msg)
			// Deliveries to all of them count as one message, in whatever order they come.
			if r.delivered.Add(1)%each == 0 {
				shared.give(1)
			}
		}); err != nil {
			return nil, err
		}
	}
	if err := r.openClients(ctx); err != nil {
		return nil, err
	}
	of := DeliverySent
	if r.spec.Rate > 0 {
		of = DeliveryScheduled
	}
	return r.measure(ctx, func() (int64, *Quantiles) { return r.delivered.Load(), r.deliveries.quantiles(of) }, r.deliveries)
}

// measure warms up, and then measures; counted says what came of it.
func (r *run) measure(ctx context.Context, counted func() (int64, *Quantiles), recs recorders) (*Result, error) {
	if r.spec.Warmup > 0 {
		out := r.phase(ctx, "warming up", 0, r.spec.Warmup)
		if out.err != nil {
			return nil, fmt.Errorf("warming up: %w", out.err)
		}
		if n := r.errors.Load(); n > 0 && r.answered.Load() == 0 {
			return nil, fmt.Errorf("warming up: all of %d messages failed: %w", n, *r.first.Load())
		}
		recs.reset()
	}
	m := newMeter(r.o.ServerPID)
	out := r.phase(ctx, "measuring", r.spec.Messages, r.spec.Duration, m.look)
	res := &Result{Seconds: out.seconds, Missing: out.missing, Unsent: out.unsent, Interrupted: out.interrupted}
	res.Messages, res.Latency = counted()
	r.finish(res, m)
	if out.err != nil {
		if res.Messages == 0 || r.fatal.Load() != nil {
			return nil, r.because(out.err)
		}
		if res.FirstError == "" {
			res.FirstError = out.err.Error()
		}
	}
	return res, nil
}

// finish fills in what all workloads have.
func (r *run) finish(res *Result, m *meter) {
	m.stop(res)
	res.Bytes = res.Messages * int64(r.spec.Size)
	if res.Seconds > 0 {
		res.Rate = float64(res.Messages) / res.Seconds
	}
	res.Errors = r.errors.Load()
	if first := r.first.Load(); first != nil {
		res.FirstError = (*first).Error()
	}
}

// because adds the first error of a message to what ended the run.
func (r *run) because(err error) error {
	if f := r.fatal.Load(); f != nil {
		return *f
	}
	if f := r.first.Load(); f != nil {
		return fmt.Errorf("%w; the first of %d errors: %w", err, r.errors.Load(), *f)
	}
	return err
}
