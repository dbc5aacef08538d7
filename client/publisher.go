// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/router/hash"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// Publisher publishes to one stream. Records of one key keep the order in which they were given to it, and a retry is
// stored once. Use one publisher for all goroutines.
type Publisher struct {
	c    *Client
	name string
	cfg  publisherConfig
	bad  *Error // the options make no sense

	ctx    context.Context //nolint:containedctx // the lifetime of the publisher, ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	route  atomic.Pointer[route]
	failed atomic.Pointer[flight] // one that failed and that Flush has not told of
	// spoiled ends a publisher with a name.
	spoiled atomic.Pointer[Error]
	gate    chan struct{} // holds one lookup at a time
	mu      sync.Mutex
	closed  bool
	routes  []*route // every one there was: flushed and closed together
}

// route is what the name stands for, with the lanes to its shards.
type route struct {
	info     *wire.LogInfo
	lanes    []*lane
	builders *builders
	limits   limits
	// sticky is the shard for records without a key: one batch, then the next shard.
	sticky atomic.Uint32
}

// Publisher returns a publisher. It does not connect: the first record does.
func (c *Client) Publisher(name string, opts ...PublisherOption) *Publisher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newPublisher(name, opts...)
}

// newPublisher is called with mu held.
func (c *Client) newPublisher(name string, opts ...PublisherOption) *Publisher {
	p := &Publisher{c: c, name: name, cfg: c.cfg.publisher, gate: make(chan struct{}, 1)}
	for _, o := range opts {
		o.applyPublisher(&p.cfg)
	}
	p.bad = p.cfg.check()
	p.ctx, p.cancel = context.WithCancel(c.ctx)
	if c.closed {
		p.closed = true
	}
	c.publishers[p] = struct{}{}
	return p
}

// Publish stores a record and returns once it is acknowledged. When ctx ends while the record is under way, it returns
// at once with an error of class unknown, and the record goes on without its caller.
func (p *Publisher) Publish(ctx context.Context, rec Record, opts ...RecordOption) (Ack, error) {
	if len(opts) > 0 {
		rec = rec.With(opts...)
	}
	f, err := p.add(ctx, &rec)
	if err != nil {
		return Ack{}, err
	}
	return f.Wait(ctx)
}

// PublishAsync hands a record over and returns its future. It waits only for room in the client's buffer, and the first
// time for the stream's lookup; ctx bounds that wait and nothing else. The record's bytes may be reused after it.
func (p *Publisher) PublishAsync(ctx context.Context, rec Record, opts ...RecordOption) Future {
	if len(opts) > 0 {
		rec = rec.With(opts...)
	}
	f, err := p.add(ctx, &rec)
	if err != nil {
		return Future{err: code.From(err)}
	}
	return f
}

func (p *Publisher) add(ctx context.Context, rec *Record) (Future, error) {
	if err := p.spoiled.Load(); err != nil {
		return Future{}, err
	}
	f, err := p.accept(ctx, rec)
	if err != nil && p.cfg.producer != 0 && rec.options.sequenced {
		p.spoil(rec, err)
	}
	return f, err
}

// spoil ends a named publisher with the first record that it does not take. Its sequence may not be passed over; whose
// caller does not look is told by Flush.
func (p *Publisher) spoil(rec *Record, err error) {
	p.spoiled.CompareAndSwap(nil, code.New(code.Closed, "publish to %s: the record of sequence %d was not taken, and none may pass it over: %s",
		p.name, rec.options.sequence, code.From(err).Message))
}

func (p *Publisher) accept(ctx context.Context, rec *Record) (Future, error) {
	for {
		r, err := p.resolve(ctx)
		if err != nil {
			return Future{}, err
		}
		if err := rec.check(&r.limits); err != nil {
			return Future{}, err
		}
		if err := p.checkOptions(rec); err != nil {
			return Future{}, err
		}
		size := rec.size()
		if err := p.charge(ctx, size); err != nil {
			return Future{}, err
		}
		f, addErr := r.laneOf(rec).add(rec, size)
		if addErr == nil {
			return f, nil
		}
		p.c.budget.Release(size)
		if !errors.Is(addErr, errLaneEnded) {
			return Future{}, addErr
		}
		p.drop(r)
	}
}

// charge takes room in the client's buffer.
func (p *Publisher) charge(ctx context.Context, size int64) *Error {
	if p.c.budget.TryAcquire(size) {
		return nil
	}
	if size > p.c.cfg.bufferBytes {
		return code.New(code.TooLarge, "publish to %s: %d bytes, and the client's whole buffer has %d", p.name, size, p.c.cfg.bufferBytes).
			With(code.DetailLimit, uint64(p.c.cfg.bufferBytes))
	}
	if p.cfg.failWhenFull {
		return code.New(code.BufferFull, "publish to %s: %d bytes wait for acknowledgement", p.name, p.c.cfg.bufferBytes).
			With(code.DetailLimit, uint64(p.c.cfg.bufferBytes))
	}
	ctx, cancel := joinContexts(ctx, p.ctx)
	defer cancel()
	if err := p.c.budget.Acquire(ctx, size); err != nil {
		if p.ctx.Err() != nil {
			return errClosed("publisher of " + p.name)
		}
		return ended(ctx, Refused, "publish to %s: waiting for room in the buffer", p.name)
	}
	return nil
}

// joinContexts ends with the first of the two.
func joinContexts(ctx, other context.Context) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(other.Err()) })
	return joined, func() { stop(); cancel(context.Canceled) }
}

// resolve returns what the name stands for, asking the first time and after the log was deleted.
func (p *Publisher) resolve(ctx context.Context) (*route, error) {
	if r := p.route.Load(); r != nil && ctx.Err() == nil {
		return r, nil
	}
	if p.bad != nil {
		return nil, p.bad
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, Refused, "publish to %s", p.name)
	}
	ctx, cancel := joinContexts(ctx, p.ctx)
	defer cancel()
	select {
	case p.gate <- struct{}{}:
		defer func() { <-p.gate }()
	case <-ctx.Done():
	}
	if p.ctx.Err() != nil {
		return nil, errClosed("publisher of " + p.name)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, Refused, "publish to %s: waiting for its lookup", p.name)
	}
	if r := p.route.Load(); r != nil {
		return r, nil
	}
	ctx, stop := withDefaultTimeout(ctx, p.cfg.deliveryTimeout)
	defer stop()
	info, err := p.c.lookup(ctx, p.name)
	if err != nil {
		return nil, err
	}
	return p.adopt(info)
}

func (p *Publisher) adopt(info *wire.LogInfo) (*route, error) {
	r := &route{info: info, limits: p.c.limits()}
	r.builders = newBuilders(r.limits)
	r.lanes = make([]*lane, len(info.Shards))
	for i := range r.lanes {
		r.lanes[i] = newLane(p, r, uint32(i))
	}
	r.sticky.Store(uint32(p.c.rng.IntN(len(r.lanes))))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed("publisher of " + p.name)
	}
	p.routes = append(p.routes, r)
	p.route.Store(r)
	return r, nil
}

// drop forgets a route whose log is gone; the next record looks the name up again.
func (p *Publisher) drop(r *route) { p.route.CompareAndSwap(r, nil) }

func (r *route) laneOf(rec *Record) *lane {
	key, bound := rec.binding()
	switch {
	case bound:
		return r.lanes[hash.Shard(key, len(r.lanes))]
	case rec.options.sequenced:
		return r.lanes[rec.options.sequence%uint64(len(r.lanes))]
	}
	return r.lanes[r.sticky.Load()]
}

// passOn moves records without a key to the next shard once a batch of them is closed.
func (r *route) passOn(from uint32) {
	r.sticky.CompareAndSwap(from, (from+1)%uint32(len(r.lanes)))
}

// retryWait is the wait after the n-th refusal in a row, with full jitter. A record must get more than one try in its
// life, however short that is.
func (p *Publisher) retryWait(n int) time.Duration {
	return p.c.rng.UpTo(min(retryBase<<min(n-1, 10), retryCap, p.cfg.deliveryTimeout/8))
}

// remember keeps a failure for Flush, unless there is one that nobody has heard of yet.
func (p *Publisher) remember(f *flight) {
	if old := p.failed.Load(); old == nil || old.heard.Load() {
		p.failed.CompareAndSwap(old, f)
	}
}

// Flush waits until everything that was accepted before it has come to its end. It returns the first error among that,
// or that of a record before it whose failure nobody has heard of, or ctx's when it ends first: who ignores futures
// hears of a loss here.
func (p *Publisher) Flush(ctx context.Context) error {
	var first error
	if f := p.failed.Swap(nil); f != nil && !f.heard.Load() {
		first = f.err
	}
	for _, f := range p.flights() {
		if _, err := f.wait(ctx, 0); err != nil {
			if first == nil {
				first = err
			}
			if ctx.Err() != nil {
				break
			}
		}
	}
	if e := p.spoiled.Load(); first == nil && e != nil {
		return e
	}
	return first
}

func (p *Publisher) flights() []*flight {
	p.mu.Lock()
	routes := p.routes
	p.mu.Unlock()
	var all []*flight
	for _, r := range routes {
		for _, l := range r.lanes {
			all = l.flights(all)
		}
	}
	return all
}

// Close takes no more records, waits until those accepted have come to their end, and lets the publisher's goroutines
// go. What is left when ctx ends fails: unknown if it may be stored. It returns the first error of a record it waited for.
func (p *Publisher) Close(ctx context.Context) error {
	p.refuse()
	err := p.Flush(ctx)
	p.stop()
	return err
}

// refuse lets the publisher take no more records; what it has goes on.
func (p *Publisher) refuse() {
	p.mu.Lock()
	p.closed = true
	routes := p.routes
	p.mu.Unlock()
	p.route.Store(nil)
	for _, r := range routes {
		for _, l := range r.lanes {
			l.end(nil)
		}
	}
}

// stop ends the publisher at once and waits for its goroutines.
func (p *Publisher) stop() {
	p.refuse()
	p.cancel()
	p.wg.Wait()
	p.c.mu.Lock()
	delete(p.c.publishers, p)
	p.c.mu.Unlock()
}
