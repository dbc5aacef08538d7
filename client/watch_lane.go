// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/fold"
	"margay.dev/client/internal/match"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// watchLane carries all watches of one log. What changes comes once and is told apart here. The reader of the lane (run) waits
// for no application longer than relieve does, since what a watch has no room for stays in the log.
type watchLane struct {
	c   *Client
	log batch.LogID

	ctx    context.Context //nolint:containedctx // ends with the last watch
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kick   chan struct{} // capacity 1: there may be something to send
	// waited counts the watches whose readers the lane waits for; eased (capacity 1) says that there are none.
	waited atomic.Int64
	eased  chan struct{}
	// eases counts what those readers take; credit is how long the lane may wait for a minority of them.
	eases    atomic.Int64
	credit   time.Duration
	creditAt time.Time

	mu      sync.Mutex
	users   int // watches that have joined and not left
	watches map[*Watch]struct{}
	index   match.Index[*Watch]
	ids     map[uint64]watchRef
	lastID  uint64
	at      map[uint32]fold.Start // how far each shard's live changes have come
	dirty   []*Watch              // may have shards to ask for
	unwatch []uint64
	retries []*Watch // are dirty again at retryAt
	retryAt time.Time
	wait    backoff.Backoff
	up      bool

	// The reader's, kept for the next frame.
	touched []*Watch
	crowded []*Watch
	records batch.Reader
	sliced  batch.SliceReader
}

// watchRef is a watch of one shard.
type watchRef struct {
	w    *Watch
	slot int
}

// joinWatchLane gives the watch to the lane of its log, which it makes when it is the first.
func (c *Client) joinWatchLane(w *Watch) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed("the client")
	}
	log := w.r.info.Log
	l := c.watchLanes[log]
	if l == nil {
		l = &watchLane{
			c: c, log: log, kick: make(chan struct{}, 1), watches: map[*Watch]struct{}{}, ids: map[uint64]watchRef{},
			at: map[uint32]fold.Start{}, eased: make(chan struct{}, 1), wait: backoff.Backoff{Rand: c.rng, Base: retryBase, Cap: retryCap},
		}
		l.ctx, l.cancel = context.WithCancel(c.ctx)
		c.watchLanes[log] = l
		l.wg.Go(l.run)
	}
	l.users++
	w.lane = l
	l.mu.Lock()
	l.watches[w] = struct{}{}
	l.index.Add(w.cfg.filter, w)
	l.ask(w)
	l.mu.Unlock()
	return nil
}

// leaveWatchLane takes a watch out of its lane, which ends with the last.
func (c *Client) leaveWatchLane(w *Watch) {
	l := w.lane
	l.mu.Lock()
	delete(l.watches, w)
	l.index.Remove(w.cfg.filter, w)
	l.quit(w)
	l.mu.Unlock()
	c.mu.Lock()
	l.users--
	last := l.users == 0
	if last && c.watchLanes[l.log] == l {
		delete(c.watchLanes, l.log)
	}
	c.mu.Unlock()
	if last {
		l.cancel()
		l.wg.Wait()
	}
}

// ask lets the sender look at the watch. Called with mu held.
func (l *watchLane) ask(w *Watch) {
	if !w.asking {
		w.asking = true
		l.dirty = append(l.dirty, w)
		poke(l.kick)
	}
}

// askLater is ask after a pause. Called with mu held.
func (l *watchLane) askLater(w *Watch, after time.Duration) {
	if len(l.retries) == 0 {
		l.retryAt = time.Now().Add(max(l.wait.Next(), after))
	}
	l.retries = append(l.retries, w)
	poke(l.kick)
}

// quit ends all that the broker sends for the watch. Called with mu held.
func (l *watchLane) quit(w *Watch) {
	for i := range w.ids {
		l.quitSlot(w, i)
	}
}

func (l *watchLane) quitSlot(w *Watch, slot int) {
	id := w.ids[slot]
	if id == 0 {
		return
	}
	w.ids[slot] = 0
	delete(l.ids, id)
	l.unwatch = append(l.unwatch, id)
	poke(l.kick)
}

// does what a watch's fold says about a slot. Called with mu held.
func (l *watchLane) does(w *Watch, slot int, o fold.Outcome) {
	switch o {
	case fold.FellBehind:
		l.quitSlot(w, slot)
	case fold.MustReset:
		l.quit(w)
		w.mu.Lock()
		w.fold.Reset()
		w.reset, w.listing, w.list = true, true, nil
		w.mu.Unlock()
		l.ask(w)
	case fold.GoOn:
	}
}

// catchUp asks again for what the watch had no room for.
func (l *watchLane) catchUp(w *Watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fold.CatchUp(func(int) { l.ask(w) })
}

// touch marks a watch to be woken once the frame is through. Called with mu held.
func (l *watchLane) touch(w *Watch) {
	if !w.touched {
		w.touched = true
		l.touched = append(l.touched, w)
	}
}

// wake wakes the readers of what was touched. Called with mu held.
func (l *watchLane) wake() {
	for i, w := range l.touched {
		w.touched = false
		poke(w.ready)
		l.touched[i] = nil
	}
	l.touched = l.touched[:0]
}

// outgoing bounds what is sent in one piece.
const outgoing = 64 << 10

// next appends what is to be sent now, and says when to look again without being kicked.
func (l *watchLane) next(buf []byte) (out []byte, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.retries) > 0 && !time.Now().Before(l.retryAt) {
		for _, w := range l.retries {
			l.ask(w)
		}
		l.retries = nil
	}
	for ; len(l.unwatch) > 0 && len(buf) < outgoing; l.unwatch = l.unwatch[1:] {
		buf = wire.AppendFrame(buf, l.unwatch[0], &wire.Unwatch{ID: l.unwatch[0]})
	}
	for ; len(l.dirty) > 0 && len(buf) < outgoing; l.dirty = l.dirty[1:] {
		w := l.dirty[0]
		w.asking = false
		if _, here := l.watches[w]; here {
			buf = l.askFor(buf, w)
		}
	}
	if len(l.retries) > 0 {
		at = l.retryAt
	}
	return buf, at
}

// askFor appends a Watch for each shard that needs one. Called with mu held.
func (l *watchLane) askFor(buf []byte, w *Watch) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return buf
	}
	for i, s := range w.shards {
		if w.fold.State(i) != fold.Idle {
			continue
		}
		l.lastID++
		ask := &wire.Watch{Log: l.log, Shard: s, ID: l.lastID, Filter: w.cfg.filter}
		if at, ok := w.fold.Ask(i); ok {
			ask.Start, ask.Offset, ask.Generation = wire.WatchOffset, at.Offset, at.Generation
		}
		w.ids[i] = l.lastID
		l.ids[l.lastID] = watchRef{w, i}
		buf = wire.AppendFrame(buf, l.lastID, ask)
	}
	return buf
}

// ended takes the broker's word that a watch of a shard is over. Called with mu held.
func (l *watchLane) ended(id uint64, err *Error) {
	ref, ok := l.ids[id]
	if !ok {
		return // asked for
	}
	delete(l.ids, id)
	ref.w.ids[ref.slot] = 0
	l.touch(ref.w)
	switch {
	case err.Code == code.Cut || err.Code == code.OutOfRange:
		l.does(ref.w, ref.slot, fold.MustReset)
	case err.Class == Fatal && !passes(err):
		ref.w.fail(err)
	default:
		w := ref.w
		w.mu.Lock()
		w.fold.Ended(ref.slot, l.at[w.shards[ref.slot]])
		w.trouble = err
		w.mu.Unlock()
		l.askLater(w, err.RetryAfter)
	}
}

// passes reports of a fatal error that it is of the connection, not of the log.
func passes(err *Error) bool {
	return err.Code == code.Protocol || err.Code == code.CorruptBatch || err.Code == code.Closed
}

// lost takes note that nothing more comes over the connection.
func (l *watchLane) lost(why *Error) (statuses []func(Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.ids)
	l.unwatch, l.retries = nil, nil
	for w := range l.watches {
		w.mu.Lock()
		for i, s := range w.shards {
			w.fold.Ended(i, l.at[s])
			w.ids[i] = 0
		}
		w.trouble = why
		w.mu.Unlock()
		l.ask(w)
		if w.cfg.onStatus != nil && l.up {
			statuses = append(statuses, w.cfg.onStatus)
		}
	}
	l.up = false
	clear(l.at)
	return statuses
}

// end fails every watch.
func (l *watchLane) end(err *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watches {
		w.fail(err)
	}
}
