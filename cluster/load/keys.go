// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// keys are those of a run. Puts go round them, whichever client they are of; gets, and random puts, draw from them.
type keys struct {
	names []string
	next  atomic.Uint64
}

func newKeys(n, size int) *keys {
	k := &keys{names: make([]string, n)}
	for i := range k.names {
		k.names[i] = Key(i, size)
	}
	return k
}

func (k *keys) draw(r *rand.Rand) string { return k.names[r.IntN(len(k.names))] }

func (k *keys) turn() string { return k.names[(k.next.Add(1)-1)%uint64(len(k.names))] }

// publisher opens what a client hands its messages to.
func (r *run) publisher(ctx context.Context, c *client) (Publisher, error) {
	switch {
	case r.queue != nil:
		return r.pusher(ctx, c)
	case r.kv == nil:
		return r.sys.Publisher(ctx, c.i, c.done)
	}
	if r.spec.Workload == Get && !r.preparing {
		g, err := r.kv.Getter(ctx, c.i, c.done)
		if err != nil {
			return nil, err
		}
		return withFlush(&getting{g, r.keys, drawing(c)}, g), nil
	}
	p, err := r.kv.Putter(ctx, c.i, c.done)
	if err != nil {
		return nil, err
	}
	put := &putting{Putter: p, keys: r.keys, revisions: r.revisions}
	if r.spec.Random {
		put.rand = drawing(c)
	}
	return withFlush(put, p), nil
}

// pusher opens what a client of a queue hands its messages to.
func (r *run) pusher(ctx context.Context, c *client) (Publisher, error) {
	p, err := r.queue.Pusher(ctx, c.i, c.done)
	if err != nil {
		return nil, err
	}
	push := &putting{Putter: p, keys: r.keys}
	if r.keys != nil {
		push.rand = drawing(c)
	}
	return withFlush(push, p), nil
}

// drawing is the same in every run.
func drawing(c *client) *rand.Rand { return rand.New(rand.NewPCG(uint64(c.i), 1)) }

// flushing is a publisher whose adapter has a buffer.
type flushing struct {
	Publisher
	Flusher
}

// withFlush has a client see the adapter's buffer, if there is one, through what is wrapped around it.
func withFlush(p Publisher, adapter any) Publisher {
	if f, ok := adapter.(Flusher); ok {
		return flushing{p, f}
	}
	return p
}

// putting puts a client's messages as values.
type putting struct {
	Putter
	keys      *keys      // nil when messages have none
	rand      *rand.Rand // nil unless keys are random
	revisions *revisions // nil unless watchers are counted
}

func (p *putting) Publish(ctx context.Context, msg []byte, at int64) error {
	key := p.key()
	if p.revisions == nil {
		return p.Put(ctx, key, msg, at)
	}
	slot, err := p.revisions.begin(msg)
	if err != nil {
		return err
	}
	if err := p.Put(ctx, key, msg, at); err != nil {
		p.revisions.cancel(slot)
		return err
	}
	return nil
}

func (p *putting) key() string {
	switch {
	case p.keys == nil:
		return ""
	case p.rand != nil:
		return p.keys.draw(p.rand)
	}
	return p.keys.turn()
}

// getting gets a key for each message that a client would send.
type getting struct {
	Getter
	keys *keys
	rand *rand.Rand
}

func (g *getting) Publish(ctx context.Context, _ []byte, at int64) error {
	return g.Get(ctx, g.keys.draw(g.rand), at)
}

// get is Get: all keys are put once, and then read.
func (r *run) get(ctx context.Context) (*Result, error) {
	r.windows = append(r.windows, newWindow(max(r.spec.Clients*r.spec.InFlight, fillWindow)))
	if err := r.fill(ctx, int64(r.spec.Keys)); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return r.publish(ctx)
}

// fillWindow is how many puts of keys are under way before they are read, at least.
const fillWindow = 64

// put is Put, beside watchers that are slow, if there are any.
func (r *run) put(ctx context.Context) (*Result, error) {
	over := make(chan struct{})
	defer close(over) // before the watches are closed, which wait for whom they have called
	for i := range r.spec.Watchers {
		if err := r.watchKeys(ctx, i, KeyPrefix, true, func([]byte) { pause(r.spec.Pace, over) }); err != nil {
			return nil, err
		}
	}
	return r.publish(ctx)
}

// pause waits for a while, or until the run is over.
func pause(d time.Duration, over <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-over:
	}
}

func (r *run) watchKeys(ctx context.Context, i int, key string, prefix bool, each func([]byte)) error {
	w, err := r.kv.Watch(ctx, Watcher{
		Index: i, Connection: i % r.spec.Connections, Key: key, Prefix: prefix, Each: each,
		Fail: func(err error) { r.ruin(fmt.Errorf("watcher %d: %w", i, err)) },
	})
	if err != nil {
		return fmt.Errorf("open watcher %d: %w", i, err)
	}
	r.subscriptions = append(r.subscriptions, w)
	return nil
}

// watching is Watch: puts, each of which is under way until all watchers have it.
func (r *run) watchAll(ctx context.Context) (*Result, error) {
	shared := newWindow(r.spec.Clients * r.spec.InFlight)
	r.windows = []*window{shared}
	r.deliveries = newRecorders(r.spec.Clients)
	r.revisions = newRevisions(int(shared.size), r.spec.Watchers)
	key, prefix := Key(0, r.spec.KeySize), false
	if r.spec.Watch == WatchPrefix {
		key, prefix = KeyPrefix, true
	}
	all := int64(r.spec.Watchers)
	for i := range r.spec.Watchers {
		tally := &r.revisions.tallies[i]
		if err := r.watchKeys(ctx, i, key, prefix, func(value []byte) {
			switch last, err := r.revisions.seen(value, tally); {
			case err != nil:
				r.ruin(fmt.Errorf("watcher %d: %w", i, err))
			case last:
				r.deliveries.of(i).record(r.clock.now()-Stamp(value), 1)
				r.delivered.Add(all)
				shared.give(1)
			}
		}); err != nil {
			return nil, err
		}
	}
	if err := r.openClients(ctx); err != nil {
		return nil, err
	}
	of := AllSent
	if r.spec.Rate > 0 {
		of = AllScheduled
	}
	res, err := r.measure(ctx, func() (int64, *Quantiles) { return r.delivered.Load(), r.deliveries.quantiles(of) }, r.deliveries)
	if err != nil || res.Interrupted || res.Errors > 0 || res.Missing > 0 {
		return res, err
	}
	return res, r.revisions.even()
}

var errPrepare = errors.New("not all messages were stored")

// fill publishes, or puts, so many messages before what is measured.
func (r *run) fill(ctx context.Context, n int64) error {
	r.preparing = true
	if err := r.openClients(ctx); err != nil {
		return err
	}
	out := r.phase(ctx, "preparing", n, 0)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case out.err != nil:
		return r.because(out.err)
	case r.errors.Load() > 0 || out.missing > 0:
		return r.because(errPrepare)
	}
	err := r.closeClients()
	r.windows, r.preparing = nil, false
	return err
}
