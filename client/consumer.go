// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/settle"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	// settleWindow is how many settlements of a shard may be unanswered. Like batches they go at once while there are fewer, and
	// grow together otherwise.
	settleWindow = 4
	// maxSettling bounds what a consumer has settled and not heard of: with more, nothing new is handed to the application.
	maxSettling = 4 * wire.MaxSettleTokens
	// closeWait is how long Close waits for the broker to take what was settled, and then for it to take back the rest.
	closeWait = 2 * time.Second
	// mergeAfter is how long a consumer has several lanes before it makes one of them.
	mergeAfter = 5 * time.Second
	// joinSlack is how much earlier a shard is joined to go together with others.
	joinSlack = 50 * time.Millisecond
)

// Consumer takes messages of a group. It joins again by itself when its broker restarts or the connection is lost, and never
// ends silently. Use one for all goroutines, or for Handle's.
//
//	workers, err := c.Queue("emails").Consume(ctx, "workers")
//	defer workers.Close()
//	for m, err := range workers.Messages(ctx) {
//		if err != nil { return err }
//		send(m.Value)
//		err = m.Ack(ctx)
//	}
//
// Every message is handed out until it is settled: at least once, so the same one may come again after a failure, here or
// elsewhere, with its Attempt counted up.
type Consumer struct {
	c     *Client
	q     *Queue
	group string
	log   batch.LogID
	cfg   consumeConfig

	ctx    context.Context //nolint:containedctx // the lifetime of the consumer, ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// ready says that there may be a message, kick that the supervisor may have something to do, rest that messages or
	// settlements came to their end. Capacity 1 each.
	ready, kick, rest chan struct{}
	over              chan struct{} // closed when err is final
	ending            sync.Once

	mu          sync.Mutex
	err         *Error
	draining    bool // takes nothing more
	closing     bool // gives back everything
	together    int  // how many shards are joined at a time
	merge       bool // several lanes are to be made one when nothing is in work, from mergeAt on
	mergeAt     time.Time
	concurrency int           // what lanes are to say
	out         int           // messages that the application has and did not settle
	ackWait     time.Duration // as the broker said last
	shards      []*consumeShard
	lanes       map[*consumeLane]struct{}
	wait        backoff.Backoff // of joining, when the connection is what failed
	book        *settle.Book
	buffer      messageBuffer
	handlers    map[*handler]struct{}
}

// consumeShard is where a consumer stands in one shard. All of it is under Consumer.mu.
type consumeShard struct {
	id     uint32
	lane   *consumeLane // nil while there is none
	claims settle.Claims
	// begun is the highest hand-out over the lane that the application has got, told what the broker knows of that.
	begun, told uint64
	// joinAt is when to join, while there is no lane.
	joinAt  time.Time
	joining bool
	wait    backoff.Backoff
	// extensions to be sent.
	extensions []*extension
	// kept is what handlers work on whose claims the broker has forgotten, by offset, since joined; see keep.
	kept   map[uint64]*Message
	joined time.Time
}

// Consume joins a group of the queue, which it makes with DefaultGroup's settings when there is none (unless MustExist). ctx
// bounds the set-up only; the consumer lives until Close or Drain, or until an error ends it: the group or the queue is deleted,
// or the permission is gone.
//
// From then on the broker hands out messages to it, at most MaxInFlight that are not settled. A claim ends after the group's ack
// wait; so does that of a message that waits here for its turn, which is given back before.
func (q *Queue) Consume(ctx context.Context, group string, opts ...ConsumeOption) (*Consumer, error) {
	g := &Consumer{
		c: q.c, q: q, group: group, cfg: defaultConsumeConfig(), concurrency: 1,
		ready: make(chan struct{}, 1), kick: make(chan struct{}, 1), rest: make(chan struct{}, 1), over: make(chan struct{}),
		lanes: map[*consumeLane]struct{}{}, handlers: map[*handler]struct{}{}, wait: backoff.Backoff{Rand: q.c.rng, Base: retryBase, Cap: retryCap},
	}
	for _, o := range opts {
		o.applyConsume(&g.cfg)
	}
	if err := g.cfg.check(q.name, group); err != nil {
		return nil, err
	}
	g.concurrency = max(g.cfg.concurrency, 1)
	g.book = settle.New(settleWindow, func(n int) time.Duration { return q.c.rng.UpTo(min(retryBase<<min(n-1, 10), retryCap)) })
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	r, err := q.resolve(ctx)
	if err != nil {
		return nil, err
	}
	g.log = r.info.Log
	for i := range r.info.Shards {
		g.shards = append(g.shards, &consumeShard{id: uint32(i), wait: g.wait})
	}
	g.together = len(g.shards)
	g.ctx, g.cancel = context.WithCancel(q.c.ctx)
	if err := g.establish(ctx); err != nil {
		g.cancel()
		q.gone(r, err)
		return nil, err
	}
	return g, nil
}

// establish joins for the first time, and makes the group when it is not there.
func (g *Consumer) establish(ctx context.Context) *Error {
	made := false
	var last *Error
	for {
		shards := g.claimHomeless(time.Now())
		if len(shards) == 0 {
			backoff.Pause(ctx, time.Until(g.nextJoin()))
			continue
		}
		l, err := g.join(ctx, shards)
		if err == nil {
			return g.start(l)
		}
		switch {
		case ctx.Err() != nil:
			if last != nil {
				err = last // what stood in the way, rather than that time ran out on it
			}
			return code.New(err.Code, "consume %s: %s (gave up: %w)", g.q.name, err.Message, ctx.Err()).WithClass(Refused)
		case err.Code == code.NotFound && !made && !g.cfg.mustExist:
			made = true
			if err := g.q.Group(g.group).create(ctx, &GroupConfig{}); err != nil {
				return err
			}
			continue
		case g.final(err):
			return err
		}
		last = err
	}
}

// start begins to consume over the first lane.
func (g *Consumer) start(first *consumeLane) *Error {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	if g.c.closed {
		first.close()
		return errClosed("the client")
	}
	g.c.consumers[g] = struct{}{}
	g.adopt(first)
	g.wg.Go(g.run)
	g.wg.Go(g.sweep)
	return nil
}

// final reports whether an error ends the consumer: what may pass, or is of a connection, does not.
func (g *Consumer) final(err *Error) bool {
	switch err.Code {
	case code.Protocol, code.CorruptBatch, code.Closed, code.NoLongerOwner, code.TakenOver, code.Quarantined:
		return false
	case code.Unauthenticated:
		return !g.c.renews()
	default:
		return err.Class == Fatal
	}
}

// run joins shards that have no lane, until the consumer ends.
func (g *Consumer) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for g.ctx.Err() == nil {
		now := time.Now()
		if shards := g.claimHomeless(now.Add(joinSlack)); len(shards) > 0 {
			l, err := g.join(g.ctx, shards)
			switch {
			case err == nil:
				g.adopt(l)
				g.status(Status{Connected: true})
			case g.ctx.Err() == nil && g.final(err):
				g.end(err)
			case g.ctx.Err() == nil:
				g.status(Status{Err: err, Attempt: 1})
			}
			continue
		}
		g.reunite(now)
		resetTimer(timer, g.nextJoin())
		select {
		case <-g.kick:
		case <-timer.C:
		case <-g.ctx.Done():
		}
	}
}

// claimHomeless returns the shards that are to be joined by then. They count as being joined.
func (g *Consumer) claimHomeless(by time.Time) []*consumeShard {
	g.mu.Lock()
	defer g.mu.Unlock()
	var due []*consumeShard
	if g.err != nil {
		return nil
	}
	for _, s := range g.shards {
		if len(due) < max(g.together, 1) && s.lane == nil && !s.joining && !s.joinAt.After(by) {
			s.joining = true
			due = append(due, s)
		}
	}
	return due
}

func (g *Consumer) nextJoin() (at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.shards {
		if s.lane == nil && !s.joining && (at.IsZero() || s.joinAt.Before(at)) {
			at = s.joinAt
		}
	}
	if len(g.lanes) > 1 && !g.merge && (at.IsZero() || g.mergeAt.Before(at)) {
		at = g.mergeAt
	}
	return at
}

// end ends the consumer with an error. Whoever waits for messages or settlements is told; Close waits for the goroutines.
func (g *Consumer) end(err *Error) {
	g.mu.Lock()
	g.fail(err)
	g.mu.Unlock()
	g.ending.Do(func() { close(g.over) })
	g.cancel()
}

// fail is the part of end that nothing comes between. Called with mu held.
func (g *Consumer) fail(err *Error) {
	if g.err != nil {
		return
	}
	g.err = err
	g.buffer.clear()
	g.book.Abort(err.Code, "the consumer of "+g.q.name+" ended: "+err.Message)
	g.finish()
	for _, s := range g.shards {
		for _, x := range s.extensions {
			x.done(err)
		}
		s.extensions = nil
	}
}

// finish tells whoever waits for settlements that came to their end. Called with mu held.
func (g *Consumer) finish() {
	done := g.book.Finished()
	for _, f := range done {
		close(f.Done)
	}
	if len(done) > 0 {
		poke(g.rest)
		poke(g.ready)
	}
}

// Messages iterates over what is handed out. An error is the last element: ctx's end, ErrClosed after Close and Drain, or what
// ended the consumer. After ctx's end, or a break, iterate again to go on; nothing is lost in between. What the loop has got and
// does not settle is handed out again, here or elsewhere, when its claim ends.
//
// Key, Value and header values lie in the memory that the message came in with others; it is never reused, and must not be
// changed. Copy what you keep for long.
func (g *Consumer) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		for {
			m, err := g.next(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (g *Consumer) next(ctx context.Context) (*Message, *Error) {
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx, Refused, "consume %s", g.q.name)
		}
		m, err := g.pull(time.Now())
		if m != nil || err != nil {
			return m, err
		}
		select {
		case <-g.ready:
		case <-g.over:
		case <-ctx.Done():
		}
	}
}

// Group is the name of the consumer's group.
func (g *Consumer) Group() string { return g.group }

// InFlight is how many messages the application has and did not settle.
func (g *Consumer) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.out
}

// Flush waits until everything that was settled before it is answered, and returns the first error among that, or ctx's.
func (g *Consumer) Flush(ctx context.Context) error {
	g.mu.Lock()
	flights := g.book.Flights(nil)
	g.mu.Unlock()
	var first *Error
	for _, f := range flights {
		select {
		case <-f.Done:
		case <-ctx.Done():
			return ended(ctx, Unknown, "flush the settlements of %s", g.q.name)
		}
		if e := f.First(); first == nil && e != nil {
			first = e
		}
	}
	return orNil(first)
}

// Drain takes no more messages, gives back those that the application has not got yet, waits until it has settled those that it
// has, and until that is answered, and closes the consumer. Iterations and Handle end with ErrClosed as soon as they ask for more.
// When ctx ends first, the consumer is closed as Close does and the error is ctx's.
func (g *Consumer) Drain(ctx context.Context) error {
	g.mu.Lock()
	g.draining = true
	g.giveBack(g.buffer.empty())
	g.rouseAll()
	g.mu.Unlock()
	for poke(g.ready); ; {
		g.mu.Lock()
		left := g.out
		g.mu.Unlock()
		if left == 0 || g.isOver() {
			break
		}
		select {
		case <-g.rest:
		case <-g.over:
		case <-ctx.Done():
			g.close(closeWait)
			return ended(ctx, Refused, "drain the consumer of %s: %d messages were not settled in time", g.q.name, left)
		}
	}
	err := g.Flush(ctx)
	g.close(closeWait)
	if ctx.Err() == nil && errors.Is(err, code.NoLongerOwner) {
		return nil // whoever settled it was told, or did not ask
	}
	return err
}

func (g *Consumer) isOver() bool {
	select {
	case <-g.over:
		return true
	default:
		return false
	}
}

// Close ends the consumer and waits for its goroutines. What was settled is sent on, if the broker takes it soon; all else is
// given back and goes to others at once, also what the application works on: use Drain to finish that.
func (g *Consumer) Close() { g.close(closeWait) }

func (g *Consumer) close(patience time.Duration) {
	g.leaveAll(patience)
	g.end(errClosed("the consumer of " + g.q.name))
	g.wg.Wait()
	g.c.mu.Lock()
	delete(g.c.consumers, g)
	g.c.mu.Unlock()
}

// leaveAll lets every lane give back what it holds, once what was settled is answered.
func (g *Consumer) leaveAll(patience time.Duration) {
	g.mu.Lock()
	g.draining, g.closing = true, true
	g.giveBack(g.buffer.empty())
	until := time.Now().Add(patience)
	for l := range g.lanes {
		l.leave(until)
	}
	for _, s := range g.shards {
		s.joining = true // none is joined any more
	}
	g.mu.Unlock()
	timer := time.NewTimer(patience + patience/2)
	defer timer.Stop()
	for {
		g.mu.Lock()
		left := len(g.lanes)
		g.mu.Unlock()
		if left == 0 || g.isOver() {
			return
		}
		select {
		case <-g.rest:
		case <-g.over:
		case <-timer.C:
			return
		}
	}
}

func (c *Client) liveConsumers() []*Consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.consumers))
}

// drainConsumers drains them all at once.
func (c *Client) drainConsumers(ctx context.Context) []error {
	live := c.liveConsumers()
	errs := make([]error, len(live))
	var all sync.WaitGroup
	for i, g := range live {
		all.Go(func() { errs[i] = g.Drain(ctx) })
	}
	all.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// closeConsumers lets every consumer give back what it holds, all at once, before everything ends.
func (c *Client) closeConsumers() {
	var all sync.WaitGroup
	for _, g := range c.liveConsumers() {
		all.Go(g.Close)
	}
	all.Wait()
}

func (g *Consumer) status(st Status) {
	if g.cfg.onStatus != nil {
		g.cfg.onStatus(st)
	}
}
