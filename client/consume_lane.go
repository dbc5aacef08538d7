// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"margay.dev/client/internal/frames"
	"margay.dev/client/internal/link"
	"margay.dev/client/internal/settle"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

const (
	// Correlation ids of a consume lane. Below corrConsume they are tickets of settlements, above corrExtend extensions.
	corrConsume uint64 = 1<<62 + iota
	corrLeave
	corrExtend
)

// notePause is how soon after another a note of what was begun goes, when nothing else does: a note for each message would be
// a write for each message.
const notePause = time.Millisecond

// consumeLane is a consumer's connection to some of the shards. One goroutine reads it, a second writes. There is one for all
// shards, unless one of them had to be joined again by itself.
type consumeLane struct {
	g           *Consumer
	conn        *link.Conn
	lane        *session.Lane
	concurrency int
	small       []byte
	arena       []byte

	down chan struct{} // closed when err says why the lane is given up
	once sync.Once
	err  *Error

	// Under Consumer.mu.
	shards   []*consumeShard
	limit    uint32 // messages in flight that the broker was told last
	begun    bool   // something was begun that the broker was not told of
	notedAt  time.Time
	useful   bool
	parted   bool // a shard ended: answers about it may come that nobody waits for any more
	leaving  bool
	leaveBy  time.Time // leave with settlements unanswered
	leaveOut bool      // Leave is written
	extends  uint64
	asked    map[uint64][]*extension

	wake  chan struct{} // capacity 1
	awake bool          // the writer has been woken and has not looked yet
}

// join opens a lane to shards that are being joined. When it fails they are to be joined again later.
func (g *Consumer) join(ctx context.Context, shards []*consumeShard) (*consumeLane, *Error) {
	limited, cancel := context.WithTimeout(ctx, g.c.cfg.subscribeTimeout)
	defer cancel()
	l, answered, err := g.open(limited, shards)
	if err == nil {
		g.mu.Lock()
		g.together = len(g.shards)
		g.mu.Unlock()
		return l, nil
	}
	e := code.From(err)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	about, one := e.Details.Get(code.DetailShard)
	switch {
	case len(shards) == 1:
		about, one = uint64(shards[0].id), true
	case answered && !one && !g.final(e):
		g.together = len(shards) / 2 // it may be about one of them: the others are not to wait for that
	}
	at := now.Add(e.RetryAfter)
	if !one {
		at = at.Add(g.wait.Next())
	}
	for _, s := range shards {
		s.joining, s.joinAt = false, now // one that fails does not keep the others waiting
		switch {
		case !one:
			s.joinAt = at
		case uint64(s.id) == about:
			s.joinAt = at.Add(s.wait.Next())
		}
	}
	return nil, e
}

// open tries once. Answered says that an error is what the broker said to it.
func (g *Consumer) open(ctx context.Context, shards []*consumeShard) (_ *consumeLane, answered bool, _ error) {
	conn, err := g.c.consuming.Conn(ctx)
	if err != nil {
		return nil, false, err
	}
	if !conn.Hello.Features.Has(wire.FeatureQueues) {
		return nil, false, code.New(code.Unsupported, "the broker has no queues")
	}
	sl, err := conn.OpenLane(ctx)
	if err != nil {
		return nil, false, unavailable("open lane", err)
	}
	l := &consumeLane{
		g: g, conn: conn, lane: sl, shards: shards, down: make(chan struct{}), wake: make(chan struct{}, 1),
		asked: map[uint64][]*extension{},
	}
	stop := context.AfterFunc(ctx, func() { sl.Reset(code.Cancelled) })
	answered, err = l.consume()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		sl.Reset(code.Cancelled)
		if e := code.From(err); e.Code == code.Unauthenticated {
			conn.Reauthenticate()
		}
		return nil, answered, err
	}
	return l, true, nil
}

// consume sends the first frame of the lane and takes its answer.
func (l *consumeLane) consume() (answered bool, _ error) {
	g := l.g
	req := &wire.Consume{Log: g.log, Group: g.group, Consumer: g.cfg.name}
	for _, s := range l.shards {
		req.Shards = append(req.Shards, s.id)
	}
	g.mu.Lock()
	l.concurrency = g.concurrency
	l.limit = g.shareOf(len(l.shards), len(l.shards))
	for _, s := range l.shards {
		if !g.book.Idle(s.id) {
			l.limit = 0 // it would be handed what it has settled and not been able to say
		}
	}
	req.MaxInFlight, req.Concurrency = l.limit, uint32(l.concurrency)
	g.mu.Unlock()
	if err := l.lane.SendFrame(corrConsume, req); err != nil {
		return false, unavailable("consume", err)
	}
	h, body, err := frames.Read(l.lane, nil)
	switch {
	case err != nil:
		return false, unavailable("consume", err)
	case h.Type == wire.TypeError:
		return true, frames.Error(body)
	case h.Type != wire.TypeConsumed:
		return false, frames.Unexpected(h, "consume")
	}
	var ok wire.Consumed
	if err := wire.ParseFrame(h, &ok, body); err != nil {
		return false, err
	}
	return false, l.place(&ok)
}

func (l *consumeLane) place(ok *wire.Consumed) error {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if wait := time.Duration(ok.AckWaitUs) * time.Microsecond; wait > 0 {
		l.g.ackWait = wait
	} else {
		return code.New(code.Protocol, "consume: claims of %d µs", ok.AckWaitUs)
	}
	for _, s := range l.shards {
		i := slices.IndexFunc(ok.Shards, func(c wire.Consuming) bool { return c.Shard == s.id })
		if i < 0 {
			return code.New(code.Protocol, "consume: no answer about shard %d", s.id)
		}
		s.claims = settle.Claims{Shard: s.id, Group: ok.GroupID, Resets: ok.Shards[i].Resets, Generation: ok.Shards[i].Generation}
		s.begun, s.told = 0, 0
	}
	return nil
}

// adopt takes a lane that joined into use.
func (g *Consumer) adopt(l *consumeLane) {
	g.mu.Lock()
	g.lanes[l] = struct{}{}
	for _, s := range l.shards {
		s.lane, s.joining, s.joined = l, false, time.Now()
		g.book.Up(s.id)
	}
	if g.closing || g.concurrency > l.concurrency && g.out == 0 {
		l.leave(time.Now().Add(closeWait))
	}
	g.merge, g.mergeAt = false, time.Now().Add(g.cfg.mergeAfter)
	g.rouseAll()
	g.mu.Unlock()
	g.wg.Go(l.run)
}

// reunite leaves all lanes when there are several, because shards ended or could not be joined with the others, and nothing is in
// work: joined together again, they share what may be in flight.
func (g *Consumer) reunite(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lanes) < 2 || g.draining || now.Before(g.mergeAt) {
		return
	}
	if g.merge = g.out > 0; g.merge { // later
		return
	}
	for l := range g.lanes {
		l.leave(now.Add(closeWait))
	}
}

// shareOf is how much of what may be in flight belongs to a lane of n shards, of all that have lanes and joining more. Called
// with mu held.
func (g *Consumer) shareOf(n, joining int) uint32 {
	all := joining
	for l := range g.lanes {
		all += len(l.shards)
	}
	return uint32(max(g.cfg.maxInFlight*n/max(all, 1), 1))
}

// limitNow is what the broker is to keep in flight on the lane. Called with mu held.
func (l *consumeLane) limitNow() uint32 {
	if b := &l.g.buffer; l.g.draining || l.leaving || b.full || b.unread {
		return 0
	}
	for _, s := range l.shards {
		if l.g.book.Behind(s.id) {
			return 0
		}
	}
	return l.g.shareOf(len(l.shards), 0)
}

// run reads the lane until it fails, is given up, or has been left.
func (l *consumeLane) run() {
	ctx, cancel := context.WithCancel(l.g.ctx)
	stop := context.AfterFunc(ctx, func() { l.lane.Reset(code.Cancelled) })
	var writer sync.WaitGroup
	writer.Go(func() {
		defer cancel()
		l.write(ctx)
	})
	err := l.read()
	cancel()
	stop()
	l.lane.Reset(code.Cancelled)
	writer.Wait()
	select {
	case <-l.down:
		err = l.err
	default:
	}
	if e := code.From(err); e != nil && e.Code == code.Unauthenticated {
		l.conn.Reauthenticate()
	}
	l.g.lost(l, code.From(err))
}

// close is for a lane that was never adopted.
func (l *consumeLane) close() { l.lane.Reset(code.Cancelled) }

// fail gives the lane up.
func (l *consumeLane) fail(err *Error) {
	l.once.Do(func() {
		l.err = err
		close(l.down)
	})
}

// begin notes that something was begun. Called with mu held.
func (l *consumeLane) begin() {
	if !l.begun {
		l.begun = true
		l.rouse()
	}
}

// settled wakes the writer when a settlement can go. Called with mu held.
func (l *consumeLane) settled() {
	if !l.awake {
		l.rouse()
	}
}

// rouse wakes the writer. Called with mu held.
func (l *consumeLane) rouse() {
	if !l.awake {
		l.awake = true
		poke(l.wake)
	}
}

// rouseAll wakes every writer, to look at what the broker is to keep in flight. Called with mu held.
func (g *Consumer) rouseAll() {
	for l := range g.lanes {
		l.rouse()
	}
}

// leave gives back everything in order, once what was settled is answered or until is over. Called with mu held.
func (l *consumeLane) leave(until time.Time) {
	if !l.leaving || until.Before(l.leaveBy) {
		l.leaving, l.leaveBy = true, until
		l.g.buffer.drop(func(d *delivery) bool { return d.lane == l })
		l.rouse()
	}
}

// lost takes note that a lane is gone; err is nil when it was left.
func (g *Consumer) lost(l *consumeLane, err *Error) {
	g.mu.Lock()
	delete(g.lanes, l)
	at := time.Now()
	if l.useful {
		g.wait.Reset()
	}
	if err != nil && !l.leaving {
		at = at.Add(max(g.wait.Next(), err.RetryAfter))
	}
	for _, s := range l.shards {
		g.homeless(s, at)
		g.book.Lost(s.id)
	}
	for _, asked := range l.asked {
		for _, x := range asked {
			if g.err != nil {
				x.done(g.err)
			} else {
				x.shard.extensions = append(x.shard.extensions, x)
			}
		}
	}
	for _, s := range l.shards {
		s.holdExtensions()
	}
	l.shards, l.asked = nil, nil
	g.rouseAll()
	poke(g.rest)
	final := err != nil && g.final(err)
	if final {
		g.fail(err) // before anybody joins again
	}
	g.mu.Unlock()
	poke(g.kick)
	if err != nil && g.ctx.Err() == nil {
		g.c.cfg.logger.Debug("a consume lane was lost", "queue", g.q.name, "group", g.group, "error", err)
		g.status(Status{Err: err})
	}
	if final {
		g.end(err)
	}
}

// homeless takes a shard from its lane. What came over it and was not handed on comes again. Called with mu held.
func (g *Consumer) homeless(s *consumeShard, at time.Time) {
	s.lane, s.joinAt = nil, at
	g.keep(s)
	g.buffer.drop(func(d *delivery) bool { return d.shard == s })
}

// shardEnded takes the broker's word that it serves a shard no more. It reports whether others are left.
func (g *Consumer) shardEnded(l *consumeLane, shard uint32, err *Error) (left bool) {
	g.mu.Lock()
	i := slices.IndexFunc(l.shards, func(s *consumeShard) bool { return s.id == shard })
	if i >= 0 {
		s := l.shards[i]
		l.shards = slices.Delete(slices.Clone(l.shards), i, i+1)
		g.homeless(s, time.Now().Add(max(s.wait.Next(), err.RetryAfter)))
		g.book.Down(s.id)
		l.parted = true
		for corr, asked := range l.asked {
			if asked[0].shard == s {
				delete(l.asked, corr)
				s.extensions = append(s.extensions, asked...)
			}
		}
		s.holdExtensions()
		g.rouseAll()
	}
	left = len(l.shards) > 0
	final := g.final(err)
	if final {
		g.fail(err)
	}
	g.mu.Unlock()
	poke(g.kick)
	g.status(Status{Err: err})
	if final {
		g.end(err)
	}
	return left
}
