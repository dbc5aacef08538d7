// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"sync"
	"time"

	"margay.dev/broker/fanout"
	"margay.dev/broker/host"
	"margay.dev/broker/stream"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// feed is what the watches of one lane get of one shard: one subscription, which selects what any of them lets through, and
// before that what each of them begins with.
type feed struct {
	w     *Watcher
	id    uint32
	shard *host.Shard
	slots chan struct{} // one taken by each request that waits
	wake  chan struct{}

	mu       sync.Mutex
	requests []request
	closed   *code.Error // why it takes no more of them

	// Owned by run.
	sub       *stream.Subscription // nil before the first watch
	served    func()               // what is to be called at its end
	watches   map[*watch]struct{}
	counts    map[wire.Filter]int // how many watches have a filter
	touched   map[wire.Filter]int // of those that changed since the selection did: how many it was then
	selection *fanout.Selection   // of those filters, without FilterAll
	catching  []catchUp           // taken in turns
	idleUntil time.Time           // no turn before that: the shard still learns its keys
	lister    lister
}

func newFeed(w *Watcher, id uint32, s *host.Shard) *feed {
	return &feed{
		w: w, id: id, shard: s, slots: make(chan struct{}, maxRequests), wake: make(chan struct{}, 1),
		watches: map[*watch]struct{}{}, counts: map[wire.Filter]int{}, touched: map[wire.Filter]int{},
	}
}

// ask gives the feed a request, and waits while it has too many.
func (f *feed) ask(r request) *code.Error {
	select {
	case f.slots <- struct{}{}:
	case <-f.w.over:
		return errLaneClosed()
	}
	r.slot = true
	return f.put(r)
}

// put gives the feed a request, or says why it takes none.
func (f *feed) put(r request) *code.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		if r.slot {
			<-f.slots
		}
		return f.closed
	}
	f.requests = append(f.requests, r)
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return nil
}

// take takes the requests that wait.
func (f *feed) take() []request {
	f.mu.Lock()
	rs := f.requests
	f.requests = nil
	f.mu.Unlock()
	for i := range rs {
		if rs[i].slot {
			<-f.slots
		}
	}
	return rs
}

// run serves the feed until its shard, its lane or ctx ends.
func (f *feed) run(ctx context.Context) {
	f.w.stats.Feeds.Add(1)
	defer f.w.stats.Feeds.Add(-1)
	f.finish(f.serve(ctx))
}

// serve returns the end to tell; nil when the lane is broken.
func (f *feed) serve(ctx context.Context) *wire.End {
	progress := time.NewTicker(stream.ProgressEvery)
	defer progress.Stop()
	for {
		more, over, end := f.step(ctx)
		if over {
			return end
		}
		if more {
			select {
			case <-progress.C:
				f.tellProgress()
			default:
			}
			continue
		}
		if f.retire() {
			return nil
		}
		f.rest()
		later, stop := f.later()
		select {
		case <-f.ready():
		case <-f.wake:
		case <-later:
		case <-ctx.Done():
		case <-progress.C:
			f.tellProgress()
		}
		stop()
	}
}

// step does some of what there is to do, without waiting for more.
func (f *feed) step(ctx context.Context) (more, over bool, end *wire.End) {
	if err := f.admit(ctx); err != nil {
		return false, true, endOf(err)
	}
	if f.sub == nil {
		if ctx.Err() != nil {
			return false, true, endOf(context.Cause(ctx))
		}
		return false, false, nil
	}
	live, over, end := f.sub.Step(ctx)
	if over {
		return false, true, end
	}
	busy, err := f.catchUp(ctx)
	if err != nil {
		return false, true, nil // the lane is broken
	}
	return live || busy, false, nil
}

func endOf(err error) *wire.End {
	e := code.From(err)
	return &wire.End{Code: e.Code, Message: e.Message}
}

// ready is when the subscription has something to do.
func (f *feed) ready() <-chan struct{} {
	if f.sub == nil {
		return nil
	}
	return f.sub.Ready()
}

// later is when what was put off is due.
func (f *feed) later() (<-chan time.Time, func()) {
	if len(f.catching) == 0 {
		return nil, func() {}
	}
	t := time.NewTimer(time.Until(f.idleUntil))
	return t.C, func() { t.Stop() }
}

func (f *feed) tellProgress() {
	if len(f.watches) > 0 {
		f.sub.Idle(time.Now())
	}
}

// errRetired is why a feed takes nothing that its lane has no more watches for: the next of them gets another.
var errRetired = code.New(code.Closed, "the feed has retired")

// retire ends a feed that has had watches and has none left, unless one is on its way.
func (f *feed) retire() bool {
	if f.sub == nil || len(f.watches) > 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.requests) > 0 {
		return false
	}
	f.closed = errRetired
	return true
}

// rest lets go of what only a busy feed needs.
func (f *feed) rest() {
	if f.sub != nil {
		f.sub.Rest()
	}
	if len(f.catching) == 0 {
		f.lister, f.catching = lister{}, nil
	}
}

// add adds a frame. That the lane is broken shows with the next Step.
func (f *feed) add(corr uint64, frame wire.Frame) { _ = f.sub.Add(corr, frame) }

// resume is where a watch goes on that ends now, and the generation of that.
func (f *feed) resume(x *watch) (offset, generation uint64) {
	generation = f.shard.View().Generation
	switch {
	case x.how == wire.HowHistory && x.catching:
		return x.offset, generation
	case x.catching:
		return 0, 0 // it has a part of a snapshot, which nothing can go on from
	}
	return max(x.from, f.sub.Next()), generation
}

// finish tells the watches that are left of the end, and lets go of everything.
func (f *feed) finish(end *wire.End) {
	why := errLaneClosed()
	if end != nil && end.Code != 0 {
		why = code.New(end.Code, "%s", end.Message).Retry(retryFeed)
	}
	f.mu.Lock()
	retired := f.closed != nil
	if !retired {
		f.closed = why
	}
	f.mu.Unlock()
	defer f.w.without(f) // a feed that follows this one must not begin before this one's last word
	for _, r := range f.take() {
		switch {
		case !r.end:
			f.w.refuse(r.watch.corr, why)
			f.w.forget(r.watch)
		case r.why == nil:
			f.w.refuse(r.corr, noWatch(r.watch.id))
		}
	}
	if f.sub == nil {
		return
	}
	defer f.sub.Close()
	defer f.served()
	if end != nil && len(f.watches) > 0 {
		f.add(0, &wire.WatchEnd{
			Shard: f.id, Code: end.Code, Message: end.Message, Resume: f.sub.Next(), Generation: f.shard.View().Generation,
		})
		if end.Code != 0 {
			f.w.told(why)
		}
	}
	if f.sub.Flush() != nil || end == nil && !retired {
		f.w.fail(code.New(code.Closed, "the lane is broken"))
	}
	for x := range f.watches {
		f.w.forget(x)
	}
}
