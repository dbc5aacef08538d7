// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Subscription reads records of a stream forward. It resumes by itself, without gap or repeat, when its broker restarts
// or the connection is lost, and never ends silently.
type Subscription struct {
	c     *Client
	name  string
	cfg   subscribeConfig
	log   batch.LogID
	inbox *inbox

	ctx    context.Context //nolint:containedctx // the lifetime of the subscription, ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// over is closed when nothing more will come into the inbox; err is then final, nil for the end that was asked for.
	over chan struct{}
	// gone is closed when nothing more will come over a connection: commits find none.
	gone chan struct{}
	err  *Error

	shards []*shardState // in order of the shard; read-only
	marks  []atomic.Uint64

	// Owned by run.
	arena    []byte // small deliveries are cut from it
	strikes  int    // fatal errors in a row that brought the subscription nowhere
	struckAt uint64
	resumed  bool // read-only once the subscription is made

	commits commits

	turn    sync.Mutex // held by the reader for one record; guards what follows and the reader's side of the shards
	current entry
	records batch.Reader
	sliced  batch.SliceReader // in place of records while current is a slice
	reading bool
	broken  *Error // a batch that cannot be read: the end
	// What iterations of a durable subscription have given and nobody is done with.
	holdings map[*holding]struct{}
}

// Subscribe subscribes to a stream, by default to all shards, from the latest record on. ctx bounds the set-up only; the
// subscription lives until Close, or until an error ends it.
func (c *Client) Subscribe(ctx context.Context, name string, opts ...SubscribeOption) (*Subscription, error) {
	cfg := subscribeConfig{receiveBuffer: DefaultReceiveBuffer}
	for _, o := range opts {
		o.applySubscribe(&cfg)
	}
	info, e := c.lookup(ctx, name)
	if e != nil {
		return nil, e
	}
	if e := cfg.check(name, len(info.Shards)); e != nil {
		return nil, e
	}
	if cfg.position != nil && cfg.position.log != info.Log {
		return nil, code.New(code.BadRequest, "subscribe %s: the position belongs to another log, perhaps to a deleted one of this name", name)
	}
	s := &Subscription{
		c: c, name: info.Name, cfg: cfg, log: info.Log, inbox: newInbox(cfg.receiveBuffer), over: make(chan struct{}),
		gone: make(chan struct{}),
	}
	for _, shard := range cfg.chosen(len(info.Shards)) {
		s.shards = append(s.shards, &shardState{id: shard, start: cfg.start(shard)})
	}
	s.marks = make([]atomic.Uint64, len(s.shards))
	s.ctx, s.cancel = context.WithCancel(c.ctx)
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	first, e := s.establish(ctx, func(Status) {})
	if e != nil {
		s.cancel()
		return nil, e
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		first.close()
		s.cancel()
		return nil, errClosed("the client")
	}
	c.subscriptions[s] = struct{}{}
	s.use(first)
	s.wg.Go(func() { s.run(first) })
	if s.cfg.durable != "" && !s.cfg.manualCommit {
		s.wg.Go(s.keepStoring)
	}
	c.mu.Unlock()
	return s, nil
}

// Records iterates over what comes. An error is the last element: ctx's end, or what ended the subscription. After
// ctx's end, or a break, iterate again to go on with the very next record: nothing is lost in between. Without an error
// the iteration ends only where UntilMark says so.
//
// Key, Value and header values lie in the memory that the record's batch was received into; it is never reused, so they
// stay valid, and they must not be changed. Keeping one record keeps its batch in memory; copy what you keep for long.
func (s *Subscription) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		given := &holding{}
		defer s.leave(given)
		for {
			s.asked(given)
			rec, ok, err := s.read(ctx, given)
			if err != nil {
				yield(Record{}, err)
				return
			}
			if !ok || !yield(rec, nil) {
				return
			}
		}
	}
}

// read returns the next record; ok is false at the end that was asked for.
func (s *Subscription) read(ctx context.Context, given *holding) (rec Record, ok bool, err *Error) {
	for {
		if ctx.Err() != nil {
			return Record{}, false, ended(ctx, Refused, "read %s", s.name)
		}
		if s.ctx.Err() != nil {
			return Record{}, false, errClosed("the subscription")
		}
		if ok, err := s.pull(&rec, given); ok || err != nil {
			return rec, ok, err
		}
		select {
		case <-s.inbox.ready:
		case <-s.over:
			// What came before the end has precedence over it.
			if ok, err := s.pull(&rec, given); ok || err != nil {
				return rec, ok, err
			}
			return Record{}, false, s.err
		case <-s.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// pull takes the next record out of what has arrived.
func (s *Subscription) pull(rec *Record, given *holding) (bool, *Error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for {
		if s.broken != nil {
			return false, s.broken
		}
		if s.reading {
			ok, err := s.decode(rec)
			if ok || err != nil {
				s.broken = err
				if ok {
					s.hand(given, rec)
				}
				return ok, err
			}
			s.reading = false
			s.current = entry{}
			s.records.Reset(nil)
			s.sliced.Reset(nil)
		}
		e, ok := s.inbox.take()
		if !ok {
			return false, nil
		}
		switch e.kind {
		case entryRecords:
			s.current, s.reading = e, true
			if e.slice != nil {
				s.sliced.Reset(e.slice)
			} else {
				s.records.Reset(e.batch)
			}
		case entryGap:
			e.shard.told(&e)
		case entryProgress:
			// Not past a loss that the reader has not been told of: resumed behind it, nobody would hear of it.
			if e.shard.gap == nil {
				e.shard.next, e.shard.generation = e.to, e.generation
			}
		}
	}
}

// decode reads the next record of the current batch that is for this subscription.
func (s *Subscription) decode(rec *Record) (bool, *Error) {
	e := &s.current
	for {
		var b batch.Record
		ok, offset, err := s.nextStored(&b)
		if err != nil {
			return false, code.New(code.CorruptBatch, "read %s shard %d behind offset %d: %w", s.name, e.shard.id, e.shard.next, err)
		}
		if !ok {
			return false, nil
		}
		if offset < e.from || offset >= e.to {
			continue
		}
		if b.Headers != nil {
			b.Headers = append([]Header(nil), b.Headers...) // the reader lends the slice for one record only
		}
		*rec = Record{
			Key: b.Key, Value: b.Value, Headers: b.Headers, Timestamp: time.UnixMicro(b.Timestamp), Delay: b.Delay, TTL: b.TTL,
			Priority: b.Priority, Shard: e.shard.id, Offset: offset, Generation: e.generation, AppendTime: time.UnixMicro(e.appendTime()),
			Gap: e.shard.gap,
		}
		rec.restore()
		e.shard.gap = nil
		e.shard.next, e.shard.generation = offset+1, e.generation
		return true, nil
	}
}

func (s *Subscription) nextStored(rec *batch.Record) (ok bool, offset uint64, err error) {
	if s.current.slice != nil {
		ok, err = s.sliced.Next(rec)
		return ok, s.sliced.Offset(), err
	}
	ok, err = s.records.Next(rec)
	return ok, s.records.Offset(), err
}

// Position returns a token of where the reader stands: behind the last record that Records gave, in every shard. Give it
// to FromPosition to go on there, in this process or another. Treat it as opaque.
func (s *Subscription) Position() string {
	s.turn.Lock()
	defer s.turn.Unlock()
	p := position{log: s.log, shards: make([]shardPosition, len(s.shards))}
	for i, sh := range s.shards {
		p.shards[i] = shardPosition{shard: sh.id, next: sh.next, generation: sh.generation}
	}
	return p.String()
}

// PendingGaps are the gaps, by shard, that no record has carried yet because none came behind them: what a reader that has
// come to its end must still be told.
func (s *Subscription) PendingGaps() map[uint32]Gap {
	s.turn.Lock()
	defer s.turn.Unlock()
	gaps := map[uint32]Gap{}
	for _, sh := range s.shards {
		if sh.gap != nil {
			gaps[sh.id] = *sh.gap
		}
	}
	return gaps
}

// Lag is how many committed records the reader has not been given yet, as far as the subscription has heard.
func (s *Subscription) Lag() uint64 {
	s.turn.Lock()
	defer s.turn.Unlock()
	var lag uint64
	for i, sh := range s.shards {
		if mark := s.marks[i].Load(); mark > sh.next {
			lag += mark - sh.next
		}
	}
	return lag
}

// Close ends the subscription and waits for its goroutines; a durable one first stores how far its reader has got, if its
// broker answers soon. What was not read is not lost: Position says where to go on.
func (s *Subscription) Close() {
	s.storeLast()
	s.cancel()
	s.wg.Wait()
	s.c.mu.Lock()
	delete(s.c.subscriptions, s)
	s.c.mu.Unlock()
}
