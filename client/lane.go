// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/order"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	// laneWindow is how many batches may be unanswered on a lane. A batch goes at once while there are fewer,
	// otherwise it grows: so batches grow exactly when the path is busy, and nobody waits for company.
	laneWindow = 4
	// batchBytes and batchRecords end the growth of a batch.
	batchBytes   = 1 << 20
	batchRecords = 10_000
)

// errLaneEnded says that a lane takes nothing more: its publisher closed, or its log is gone.
var errLaneEnded = errors.New("publish lane has ended")

// lane carries one publisher's batches to one shard, in order. Callers add records under mu; one goroutine (run)
// writes them, one per connection (publishStream.read) takes the answers.
type lane struct {
	p     *Publisher
	r     *route
	shard uint32
	grows int64         // up to which a batch does
	wake  chan struct{} // capacity 1

	mu      sync.Mutex
	line    *order.Line[*flight]
	open    *flight // being filled; not in line yet
	started bool    // run has been started
	ended   bool    // takes no more records
	awake   bool    // run has been woken and has not looked yet
	// fatal ends the lane: what is known to make every further try useless.
	fatal *Error

	// The rest is owned by run.
	backoff backoff.Backoff
	trouble string // why there is no connection; empty when there is one
}

func newLane(p *Publisher, r *route, shard uint32) *lane {
	cfg := order.Config{
		Window: laneWindow, Wait: p.retryWait,
		AnswerWait: maxAnswerWait, Margin: min(answerMargin, p.cfg.deliveryTimeout),
	}
	switch {
	case p.cfg.producer != 0:
		cfg.Named = p.cfg.producer
	case !p.cfg.anonymous:
		cfg.NewID = p.c.rng.Uint64
	}
	return &lane{
		p: p, r: r, shard: shard, wake: make(chan struct{}, 1), line: order.New[*flight](cfg),
		grows:   cmp.Or(p.cfg.batchBytes, batchBytes),
		backoff: backoff.Backoff{Rand: p.c.rng, Base: retryBase, Cap: retryCap},
	}
}

// add puts a record into the open batch. The caller has charged its size; on an error it is the caller's again.
func (l *lane) add(rec *Record, size int64) (Future, error) {
	if rec.alone() {
		f, err := l.addBatch([]Record{*rec}, []int{0}, size, nil)
		return Future{f: f}, err
	}
	now := time.Now()
	enc := rec.encode(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return Future{}, errLaneEnded
	}
	if l.open != nil && (l.open.count >= batchRecords || int64(l.open.builder.Size())+size > l.grows) {
		l.seal()
	}
	if l.open == nil {
		l.open = l.begin(now)
	}
	err := l.open.builder.Add(enc)
	if errors.Is(err, batch.ErrFull) && l.open.count > 0 {
		l.seal()
		l.open = l.begin(now)
		err = l.open.builder.Add(enc)
	}
	if err != nil {
		if l.open.count == 0 {
			l.r.builders.put(l.open.builder)
			l.open = nil
		}
		return Future{}, refusal(err)
	}
	f := Future{f: l.open, index: uint32(l.open.count)}
	l.open.derived(rec, l.open.count)
	l.open.count++
	l.open.charged += size
	l.open.keyless = l.open.keyless || rec.free()
	l.rouse(now)
	return f, nil
}

// addBatch makes a batch of its own of the records: all or none are stored. With settles, messages are settled with them or not.
func (l *lane) addBatch(recs []Record, pick []int, size int64, settles *batch.Settlement) (*flight, error) {
	now := time.Now()
	f := l.begin(now)
	f.alone = true
	if settles != nil {
		if err := f.builder.SetSettlement(*settles); err != nil {
			l.r.builders.put(f.builder)
			return nil, refusal(err)
		}
	}
	for n, i := range pick {
		if err := f.builder.Add(recs[i].encode(now)); err != nil {
			l.r.builders.put(f.builder)
			if errors.Is(err, batch.ErrFull) {
				return nil, code.New(code.TooLarge, "publish batch: the records of shard %d do not fit one batch", l.shard)
			}
			return nil, refusal(err)
		}
		f.derived(&recs[i], n)
		f.count++
		f.keyless = f.keyless || recs[i].free()
		f.item.Elsewhere = f.item.Elsewhere || recs[i].DedupID != ""
		f.item.Sequence = recs[i].options.sequence
		if o := &recs[i].options; o.conditional {
			f.conditions = append(f.conditions, wire.Condition{Record: uint32(n), Version: o.version})
		}
	}
	f.charged = size
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		l.r.builders.put(f.builder)
		return nil, errLaneEnded
	}
	if err := l.line.Broken(); err != nil {
		l.r.builders.put(f.builder)
		return nil, err
	}
	l.seal()
	// Deadlines do not decrease along the line: the time between begin and the lock may have let another pass.
	f.deadline = time.Now().Add(l.p.cfg.deliveryTimeout)
	l.open = f
	l.seal()
	l.rouse(now)
	l.signal()
	return f, nil
}

func (l *lane) begin(now time.Time) *flight {
	return &flight{
		shard: l.shard, builder: l.r.builders.get(), done: make(chan struct{}),
		deadline: now.Add(l.p.cfg.deliveryTimeout),
	}
}

// seal ends the growth of the open batch. Called with mu held.
func (l *lane) seal() {
	f := l.open
	if f == nil {
		return
	}
	l.open = nil
	f.item.Value, f.item.Deadline = f, f.deadline
	l.line.Push(&f.item)
	if f.keyless {
		l.r.passOn(l.shard)
	}
}

// rouse wakes run if it could do something and has not been told. Called with mu held.
func (l *lane) rouse(now time.Time) {
	if !l.started {
		l.started = true
		l.p.wg.Go(l.run)
		return
	}
	// With nothing under way no answer will wake run, and it may sleep through the end of a pause. With nothing under way
	// but what was given up, it sleeps until that is overdue, and the record may not live so long.
	asleep := (l.line.Outstanding() == 0 || l.line.Len() == 0) && l.open != nil && l.open.count == 1
	if !l.awake && (asleep || !l.line.IsUp() || l.line.Ready(now)) {
		l.signal()
	}
}

// signal wakes run. Called with mu held.
func (l *lane) signal() {
	l.awake = true
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// end lets the lane take no more records; what it has goes on.
func (l *lane) end(fatal *Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if fatal != nil && l.fatal == nil {
		l.fatal = fatal
	}
	l.signal()
}

// flights returns every batch that is not done.
func (l *lane) flights(into []*flight) []*flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range l.line.Items() {
		into = append(into, it.Value)
	}
	if l.open != nil {
		into = append(into, l.open)
	}
	return into
}

// run writes the lane's batches until the lane has ended and nothing is left, or the publisher is stopped.
func (l *lane) run() {
	ctx := l.p.ctx
	var s *publishStream
	defer func() { s.close() }()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if s.failed() {
			l.lost(s)
			s = nil
		}
		step := l.next(s)
		switch {
		case step.over:
			return
		case step.leave != nil:
			l.p.c.cfg.logger.Debug("a publish lane begins anew", "log", l.r.info.Name, "error", step.leave)
			s.fail(step.leave)
		case step.connect:
			s = l.connect(ctx, step.wakeAt)
		case len(step.items) > 0:
			if err := l.write(s, step.items); err != nil {
				s.fail(err)
			}
		default:
			resetTimer(timer, step.wakeAt)
			select {
			case <-l.wake:
			case <-s.broken():
			case <-timer.C:
			case <-ctx.Done():
				l.end(errClosed("the publisher"))
			}
		}
	}
}

// step is what run does next.
type step struct {
	over    bool
	connect bool
	leave   *Error // why to give the stream up for another
	items   []*item
	wakeAt  time.Time // zero: nothing to do without an event
}

// next decides; what the step before it was to write is written.
func (l *lane) next(s *publishStream) step {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awake = false
	now := time.Now()
	l.line.Written(now)
	if l.fatal != nil {
		l.seal()
		l.line.Abort(l.fatal.Code, l.fatal.Message)
	}
	if l.p.ctx.Err() != nil {
		l.ended = true
		l.seal()
		l.line.Abort(code.Closed, "the publisher was closed")
	}
	if l.open != nil && !now.Before(l.open.deadline) {
		l.seal()
	}
	l.line.Expire(now, l.trouble)
	l.finish(nil)
	idle := l.line.Len() == 0 && l.open == nil
	switch {
	case idle && l.ended:
		return step{over: true}
	case l.line.Overdue(now):
		return step{leave: code.New(code.Unavailable, "shard %d: the broker owes an answer", l.shard)}
	case s.draining() && l.line.Outstanding() == 0:
		return step{leave: code.New(code.Unavailable, "shard %d: the broker said goodbye", l.shard)}
	}
	st := step{connect: s == nil && !idle}
	if l.open != nil {
		st.wakeAt = l.open.deadline
	}
	if at, ok := l.line.Wake(now); ok && (st.wakeAt.IsZero() || at.Before(st.wakeAt)) {
		st.wakeAt = at
	}
	if s == nil || s.draining() {
		return st
	}
	for l.line.Ready(now) {
		if l.line.Unwritten() == 0 {
			if l.open == nil {
				break
			}
			l.seal()
		}
		it, ok := l.line.Take(now)
		if !ok {
			break
		}
		st.items = append(st.items, it)
	}
	return st
}

// finish tells the callers of what is done. Called with mu held; it only closes channels and gives memory back.
func (l *lane) finish(p *wire.Published) {
	for _, d := range l.line.Finished() {
		f := d.Item.Value
		if d.Err != nil {
			f.err = d.Err
			l.p.remember(f)
		} else {
			f.stored(p)
			l.r.builders.answered(f.encoded)
		}
		// A batch that is being encoded cannot end: it counts as written, no answer can have come, and giving up is
		// done by run itself. So nobody else holds the builder.
		if f.builder != nil {
			l.r.builders.put(f.builder)
			f.builder = nil
		}
		f.encoded = nil
		l.p.c.budget.Release(f.charged)
		close(f.done)
	}
}

// lost ends a stream that failed. Its reader is gone after that: no answer of it can be taken for one of the next.
func (l *lane) lost(s *publishStream) {
	s.close()
	l.trouble = s.err.Error()
	l.mu.Lock()
	l.line.Lost()
	l.finish(nil)
	l.mu.Unlock()
	if s.useful.Load() {
		l.backoff.Reset()
		return
	}
	// A stream that brought nothing: do not open the next one in a hurry.
	backoff.Pause(l.p.ctx, l.backoff.Next())
}

// connect opens a stream to the shard's leader, for as long as the oldest batch is worth it.
func (l *lane) connect(ctx context.Context, until time.Time) *publishStream {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	s, err := openPublishStream(ctx, l)
	if err == nil {
		l.mu.Lock()
		l.line.Up()
		l.mu.Unlock()
		l.trouble = ""
		return s
	}
	e := code.From(err)
	l.trouble = e.Message
	if e.Class == code.ClassFatal && e.Code != code.Closed {
		// The credential or the protocol is refused: waiting does not help. The next record tries anew.
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seal()
		l.line.Abort(e.Code, e.Message)
		l.finish(nil)
		return nil
	}
	backoff.Pause(ctx, max(l.backoff.Next(), e.RetryAfter))
	return nil
}

func resetTimer(t *time.Timer, at time.Time) {
	d := time.Hour
	if !at.IsZero() {
		d = max(time.Until(at), 0)
	}
	t.Reset(d)
}
