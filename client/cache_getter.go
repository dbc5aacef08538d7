// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	// getWindow is how many frames of gets of a shard may be unanswered. A get goes at once while there are fewer, otherwise
	// it shares the next frame with all that come meanwhile: as a publish lane's batches do.
	getWindow = 2
	// getBytes ends the growth of a frame of gets, as wire.MaxGetKeys does.
	getBytes = 256 << 10
)

// getter asks one shard for the values of keys, those of many callers in one frame.
type getter struct {
	c     *Client
	r     *route
	shard uint32
	stale bool

	mu    sync.Mutex
	queue []*getGroup // not sent; the last one grows
	under int         // frames that are unanswered
}

// getGroup is what goes in one frame.
type getGroup struct {
	g     *getter
	arena []byte // the keys' bytes
	keys  [][]byte
	live  int // callers that still wait; under the getter's mu
	sent  bool
	lane  *requestLane
	timer *time.Timer

	// done is closed when what follows is final.
	done    chan struct{}
	entries []wire.Entry
	body    []byte // what the entries alias
	err     *Error
	// unread counts the callers that have not copied their value out of the body.
	unread atomic.Int32
}

// get waits for the value of a key. An error is of this try.
func (g *getter) get(ctx context.Context, key string) (e Entry, found bool, err *Error) {
	if ctx.Err() != nil {
		return e, false, ended(ctx, Refused, "get")
	}
	g.mu.Lock()
	grp, i := g.join(key)
	send := g.take()
	g.mu.Unlock()
	if send != nil {
		g.open(ctx, send)
	}
	select {
	case <-grp.done:
	case <-ctx.Done():
		g.leave(grp)
		return e, false, ended(ctx, Refused, "get")
	}
	switch {
	case grp.err != nil && ctx.Err() != nil: // it may have failed for no other reason
		return e, false, ended(ctx, Refused, "get")
	case grp.err != nil:
		return e, false, grp.err
	}
	if w := &grp.entries[i]; w.Kind == wire.EntryValue {
		found, err = true, grp.lend(&e, key, w)
	}
	if grp.unread.Add(-1) == 0 {
		putBody(grp.body)
	}
	return e, found, err
}

// lend gives a caller its own copy, or the frame's bytes when nobody else is in it.
func (grp *getGroup) lend(e *Entry, key string, w *wire.Entry) *Error {
	own := *w
	if len(grp.keys) > 1 {
		own.Value, own.Headers = append([]byte{}, w.Value...), bytes.Clone(w.Headers)
	}
	return e.fill(key, &own)
}

// join puts a key into the frame that grows. Called with mu held.
func (g *getter) join(key string) (*getGroup, int) {
	var grp *getGroup
	if n := len(g.queue); n > 0 {
		grp = g.queue[n-1]
	}
	if grp == nil || len(grp.keys) == wire.MaxGetKeys || len(grp.arena)+len(key) > getBytes {
		grp = &getGroup{g: g, done: make(chan struct{})}
		grp.timer = time.AfterFunc(DefaultRequestTimeout, grp.expire)
		g.queue = append(g.queue, grp)
	}
	at := len(grp.arena)
	grp.arena = append(grp.arena, key...)
	grp.keys = append(grp.keys, grp.arena[at:len(grp.arena):len(grp.arena)])
	grp.live++
	return grp, len(grp.keys) - 1
}

// take returns what is to be sent now. Called with mu held.
func (g *getter) take() *getGroup {
	if g.under >= getWindow || len(g.queue) == 0 {
		return nil
	}
	grp := g.queue[0]
	g.queue = slices.Delete(g.queue, 0, 1)
	grp.sent = true
	g.under++
	return grp
}

// leave is for a caller whose time is over. What nobody waits for any more is not sent.
func (g *getter) leave(grp *getGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if grp.live--; grp.live > 0 || grp.sent {
		return
	}
	grp.timer.Stop()
	g.queue = slices.DeleteFunc(g.queue, func(other *getGroup) bool { return other == grp })
}

// open sends a group over the lane in use, or over a new one, which its caller waits for.
func (g *getter) open(ctx context.Context, grp *getGroup) {
	l := g.c.gets.ready()
	if l == nil {
		ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
		defer cancel()
		var err error
		if l, err = g.c.gets.open(ctx); err != nil {
			grp.finish(nil, code.From(err))
			return
		}
	}
	grp.send(l)
}

// send queues the frame; it never waits.
func (grp *getGroup) send(l *requestLane) {
	grp.g.mu.Lock()
	grp.lane = l
	grp.g.mu.Unlock()
	grp.timer.Reset(DefaultRequestTimeout)
	ask := &wire.Get{Log: grp.g.r.info.Log, Shard: grp.g.shard, Stale: grp.g.stale, Keys: grp.keys[len(grp.entries):]}
	if err := l.post(ask, grp); err != nil {
		grp.finish(nil, code.From(err))
	}
}

// answer takes the reply, in the lane's goroutine.
func (grp *getGroup) answer(l *requestLane, r reply) {
	got, err := grp.parse(r)
	if err != nil {
		grp.finish(l, err)
		return
	}
	switch whole := len(got.Entries) == len(grp.keys); {
	case whole && len(grp.keys) > 1:
		grp.body = r.body
		grp.unread.Store(int32(len(grp.keys)))
	default: // its only caller keeps the body, or it comes in parts: then none is used again
		grp.unread.Store(int32(len(grp.keys)) + 1)
	}
	grp.entries = append(grp.entries, got.Entries...)
	if len(grp.entries) < len(grp.keys) {
		grp.send(l)
		return
	}
	grp.finish(l, nil)
}

func (grp *getGroup) parse(r reply) (*wire.Got, *Error) {
	if r.err != nil {
		return nil, code.From(r.err)
	}
	got := &wire.Got{Entries: make([]wire.Entry, 0, len(grp.keys))}
	if r.head.Type != wire.TypeGot {
		return nil, code.New(code.Protocol, "get is answered with %s", r.head.Type)
	}
	if err := wire.ParseFrame(r.head, got, r.body); err != nil {
		return nil, code.New(code.Protocol, "get: %w", err)
	}
	return got, checkGot(grp.keys[len(grp.entries):], got)
}

// expire is for callers without a deadline.
func (grp *getGroup) expire() {
	g := grp.g
	g.mu.Lock()
	l, sent := grp.lane, grp.sent
	if !sent {
		g.queue = slices.DeleteFunc(g.queue, func(other *getGroup) bool { return other == grp })
	}
	g.mu.Unlock()
	if sent && (l == nil || !l.forget(grp)) {
		return // its lane is being opened, which has an end of its own, or it is answered
	}
	grp.finish(l, code.New(code.Timeout, "get: no answer within %v", DefaultRequestTimeout).WithClass(Refused))
}

// finish tells the callers, and sends over the lane what has gathered.
func (grp *getGroup) finish(l *requestLane, err *Error) {
	grp.timer.Stop()
	grp.err = err
	close(grp.done)
	g := grp.g
	g.mu.Lock()
	if grp.sent {
		g.under--
	}
	next := g.take()
	g.mu.Unlock()
	switch {
	case next == nil:
	case l != nil && l.working():
		next.send(l)
	default: // its callers come again, and open another
		next.finish(nil, code.New(code.Unavailable, "get: there is no connection at the moment"))
	}
}
