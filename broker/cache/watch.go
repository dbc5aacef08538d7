// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/stream"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	// MaxWatches is how many watches a lane may have.
	MaxWatches = 10_000
	// MaxHeld is how many watches the lanes of a connection may have.
	MaxHeld = 100_000
	// maxRequests is how many requests of a shard's watches wait until its feed takes them; behind them the lane is not read.
	maxRequests = 1024
)

// retryFeed is when to watch again what a feed ended for.
const retryFeed = 50 * time.Millisecond

// Config is what a watcher needs of its lane.
type Config struct {
	// Resolve finds the shard that this broker leads.
	Resolve func(shard uint32) (*host.Shard, *code.Error)
	// Refuse answers a request with an error. It must not wait for the lane.
	Refuse func(corr uint64, why error)
	// Ended is called with why watches end, when their client has not asked for it.
	Ended func(*code.Error)
	// Serving is called with each subscription that begins, and returns what to call at its end.
	Serving func(*stream.Subscription) (over func())
	// Held counts the watches of all lanes of the connection.
	Held  *atomic.Int64
	Stats *Stats
}

// Watcher serves the watches of one lane, which are of one log. Each shard has one feed for all of them.
type Watcher struct {
	lane  stream.Lane
	cfg   Config
	stats *Stats
	fail  context.CancelCauseFunc
	run   func(*feed)     // until the lane ends
	over  <-chan struct{} // closed when it does

	mu      sync.Mutex
	watches map[uint64]*watch // by id
	feeds   map[uint32]*feed
	closed  bool
	running sync.WaitGroup
}

// watch is one watch. What does not change is read by anybody, the rest by its feed alone.
type watch struct {
	id, corr uint64
	filter   wire.Filter
	feed     *feed
	start    wire.WatchStart
	how      wire.WatchHow
	revoked  bool   // its end has been asked for, because the token does not allow it; with the watcher's lock
	over     bool   // nothing of it is sent any more
	catching bool   // it has not all that it begins with
	offset   uint64 // where it is to begin; then the next of its history
	gen      uint64 // of the record before that
	from     uint64
}

// request is something that a feed is asked for.
type request struct {
	watch *watch
	end   bool
	slot  bool        // it holds one of the feed's
	corr  uint64      // of an Unwatch
	why   *code.Error // why it ends; nil when its client asked for it
}

// NewWatcher makes the watcher of a lane. It ends with ctx, whose cause is what its client is told.
func NewWatcher(ctx context.Context, lane stream.Lane, cfg Config) *Watcher {
	w := &Watcher{lane: lane, cfg: cfg, stats: cfg.Stats, watches: map[uint64]*watch{}, feeds: map[uint32]*feed{}}
	ctx, w.fail = context.WithCancelCause(ctx)
	w.over = ctx.Done()
	w.run = func(f *feed) { w.running.Go(func() { f.run(ctx) }) }
	return w
}

// Wait returns when the watcher has ended and all of it is gone.
func (w *Watcher) Wait() {
	<-w.over
	w.mu.Lock()
	w.closed = true // no feed begins behind this
	w.mu.Unlock()
	w.running.Wait()
	w.fail(nil)
}

func (w *Watcher) refuse(corr uint64, why error) { w.cfg.Refuse(corr, why) }

func (w *Watcher) told(why *code.Error) { w.cfg.Ended(why) }

func errLaneClosed() *code.Error { return code.New(code.Closed, "the lane is closed") }

func noWatch(id uint64) *code.Error { return code.New(code.NotFound, "the lane has no watch %d", id) }

// Watch begins a watch. What is refused here is the caller's to tell; everything else is told on the lane. It waits while
// too many requests of the lane have not been taken.
func (w *Watcher) Watch(corr uint64, f *wire.Watch) error {
	x := &watch{id: f.ID, corr: corr, filter: f.Filter, start: f.Start, offset: f.Offset, gen: f.Generation}
	for {
		if err := w.register(x, f.Shard); err != nil {
			return err
		}
		refused := x.feed.ask(request{watch: x})
		if refused == nil {
			return nil
		}
		w.forget(x)
		if refused != errRetired {
			return refused
		}
		w.without(x.feed)
	}
}

// register takes a watch up, with the feed of its shard.
func (w *Watcher) register(x *watch, shard uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.mayAdd(x); err != nil {
		return err
	}
	fd, err := w.feedOf(shard)
	if err != nil {
		return err
	}
	if held := w.cfg.Held.Add(1); held > MaxHeld {
		w.cfg.Held.Add(-1)
		return code.New(code.TooMany, "the connection has %d watches, as many as it may", MaxHeld).With(code.DetailLimit, MaxHeld)
	}
	x.feed = fd
	w.watches[x.id] = x
	w.stats.Watches.Add(1)
	return nil
}

// without takes a feed out that has come to its end.
func (w *Watcher) without(f *feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.feeds[f.id] == f {
		delete(w.feeds, f.id)
	}
}

// mayAdd refuses a watch that the lane must not have. Called with mu held.
func (w *Watcher) mayAdd(x *watch) error {
	switch {
	case w.closed:
		return errLaneClosed()
	case w.watches[x.id] != nil:
		return code.New(code.BadRequest, "the lane has a watch %d", x.id)
	case len(w.watches) >= MaxWatches:
		return code.New(code.TooMany, "the lane has %d watches, as many as it may", len(w.watches)).With(code.DetailLimit, MaxWatches)
	}
	return nil
}

// feedOf is the feed of a shard, which begins if there is none. Called with mu held.
func (w *Watcher) feedOf(shard uint32) (*feed, error) {
	if fd := w.feeds[shard]; fd != nil {
		return fd, nil
	}
	s, refused := w.cfg.Resolve(shard)
	if refused != nil {
		return nil, refused
	}
	fd := newFeed(w, shard, s)
	w.feeds[shard] = fd
	w.run(fd)
	return fd, nil
}

// Unwatch ends a watch, which its WatchEnd answers.
func (w *Watcher) Unwatch(corr uint64, f *wire.Unwatch) error {
	w.mu.Lock()
	x := w.watches[f.ID]
	w.mu.Unlock()
	if x == nil || x.feed.ask(request{watch: x, end: true, corr: corr}) != nil { // its feed has told its end
		return noWatch(f.ID)
	}
	return nil
}

// Regrant ends every watch that may not go on. It does not wait.
func (w *Watcher) Regrant(may func(wire.Filter) error) {
	w.mu.Lock()
	var out []request
	for _, x := range w.watches {
		if err := may(x.filter); err != nil && !x.revoked {
			x.revoked = true
			out = append(out, request{watch: x, end: true, why: code.From(err)})
		}
	}
	w.mu.Unlock()
	for _, r := range out {
		_ = r.watch.feed.put(r) // a feed that takes nothing has told the end of its watches
	}
}

// forget takes a watch out that has come to its end.
func (w *Watcher) forget(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches[x.id] == x {
		delete(w.watches, x.id)
		w.stats.Watches.Add(-1)
		w.cfg.Held.Add(-1)
	}
}
