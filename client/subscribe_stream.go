// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sort"
	"sync"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/frames"
	"margay.dev/client/internal/link"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

const (
	corrSubscribe uint64 = 1
	// arenaChunk is what small deliveries are cut from, arenaBelow the largest of them: one allocation for many, and a
	// record that is kept pins no more than a chunk.
	arenaChunk = 64 << 10
	arenaBelow = 4 << 10
	// maxStrikes is how often in a row a subscription is tried again after an error that should not pass.
	maxStrikes = 3
)

// subscribeStream is a subscription's connection.
type subscribeStream struct {
	conn *link.Conn
	lane *session.Lane
	// useful: something came over it.
	useful bool
}

func (st *subscribeStream) close() { st.lane.Reset(code.Cancelled) }

// run receives until the subscription ends, over as many streams as it takes.
func (s *Subscription) run(st *subscribeStream) {
	defer close(s.gone)
	over := sync.OnceFunc(func() { close(s.over) })
	defer over()
	wait := s.newBackoff()
	for {
		err := s.receive(st, s.finished)
		if s.finished() && s.cfg.durable != "" {
			over()                                          // for the reader, who is not there yet
			_ = s.receive(st, func() bool { return false }) // answers to commits, until he is done
		}
		s.use(nil)
		st.close()
		if s.finished() {
			return
		}
		if s.ctx.Err() != nil {
			s.err = errClosed("the subscription")
			return
		}
		e := code.From(err)
		s.status(Status{Err: e})
		if end := s.settle(e); end != nil {
			s.err = end
			return
		}
		if st.useful {
			wait.Reset()
		} else {
			backoff.Pause(s.ctx, wait.Next())
		}
		if st, e = s.establish(s.ctx, s.status); e != nil {
			s.err = e
			if s.ctx.Err() != nil {
				s.err = errClosed("the subscription")
			}
			return
		}
		s.use(st)
		s.status(Status{Connected: true})
	}
}

func (s *Subscription) newBackoff() *backoff.Backoff {
	return &backoff.Backoff{Rand: s.c.rng, Base: retryBase, Cap: retryCap}
}

func (s *Subscription) status(st Status) {
	if s.cfg.onStatus != nil {
		s.cfg.onStatus(st)
	}
}

// finished reports whether every shard has come to the end that was asked for.
func (s *Subscription) finished() bool {
	for _, sh := range s.shards {
		if !sh.over {
			return false
		}
	}
	return true
}

// establish subscribes from where each shard stands, until it works, ctx ends, or an error is final.
func (s *Subscription) establish(ctx context.Context, status func(Status)) (*subscribeStream, *Error) {
	wait := s.newBackoff()
	var last *Error
	for attempt := 1; ; attempt++ {
		st, err := s.attempt(ctx)
		if err == nil {
			return st, nil
		}
		e := code.From(err)
		if ctx.Err() != nil {
			if last != nil {
				e = last // what stood in the way, rather than that time ran out on it
			}
			return nil, code.New(e.Code, "subscribe %s: %s (gave up: %w)", s.name, e.Message, ctx.Err()).WithClass(Refused)
		}
		last = e
		status(Status{Err: e, Attempt: attempt})
		if end := s.settle(e); end != nil {
			return nil, end
		}
		backoff.Pause(ctx, max(wait.Next(), e.RetryAfter))
	}
}

// attempt is one try of establish. It has an end of its own: a shard that hangs must not keep the subscription silent,
// nor from another broker.
func (s *Subscription) attempt(ctx context.Context) (*subscribeStream, error) {
	limited, cancel := context.WithTimeout(ctx, s.c.cfg.subscribeTimeout)
	defer cancel()
	st, err := s.open(limited)
	if e := code.From(err); err != nil && e.Class != Fatal && limited.Err() != nil && ctx.Err() == nil {
		return nil, ended(limited, Refused, "%s", e.Message)
	}
	return st, err
}

// settle decides what an error means for the subscription: nil to go on, else the end.
func (s *Subscription) settle(e *Error) *Error {
	if end := s.judge(e); end != nil {
		return end
	}
	if e.Class != Fatal || e.Code == code.Cut || e.Code == code.OutOfRange {
		return nil
	}
	// It should not pass by itself, but may come from a connection or a broker on its way out.
	var at uint64
	for _, sh := range s.shards {
		at += sh.receive
	}
	if at != s.struckAt {
		s.strikes, s.struckAt = 0, at
	}
	if s.strikes++; s.strikes >= maxStrikes {
		return e
	}
	return nil
}

func (s *Subscription) judge(e *Error) *Error {
	shard := s.concerned(&e.Details)
	switch e.Code {
	case code.Cut:
		at, known := e.Details.Get(code.DetailResumeAt)
		if shard == nil || !known {
			return e
		}
		s.enqueue(shard.cut(at, e.Generation))
		return nil
	case code.OutOfRange:
		if shard == nil || !s.cfg.skipLost {
			return e
		}
		if entry, ok := shard.outOfRange(&e.Details); ok {
			s.inbox.put(entry)
			return nil
		}
		return e
	case code.SlowConsumer:
		if s.cfg.policy == PolicyDisconnect {
			return e // what was asked for
		}
		return nil
	case code.Unauthenticated:
		if s.c.renews() {
			return nil // a fresh token is shown with the next connection
		}
		return e
	case code.Protocol, code.CorruptBatch, code.Closed:
		return nil // of the connection, not of the log, unless it repeats
	default:
		if e.Class == Fatal {
			return e
		}
		return nil
	}
}

// concerned is the shard that an error is about.
func (s *Subscription) concerned(d *code.Details) *shardState {
	if id, ok := d.Get(code.DetailShard); ok {
		sh, _ := s.shard(uint32(id))
		return sh
	}
	if len(s.shards) == 1 {
		return s.shards[0]
	}
	return nil
}

func (s *Subscription) shard(id uint32) (*shardState, int) {
	i := sort.Search(len(s.shards), func(i int) bool { return s.shards[i].id >= id })
	if i == len(s.shards) || s.shards[i].id != id {
		return nil, 0
	}
	return s.shards[i], i
}

func (s *Subscription) enqueue(e entry, ok bool) {
	if ok {
		s.inbox.put(e)
	}
}

// open makes a lane and subscribes on it.
func (s *Subscription) open(ctx context.Context) (*subscribeStream, error) {
	conn, err := s.c.subscribing.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if s.cfg.durable != "" && !conn.Hello.Features.Has(wire.FeatureCursors) {
		return nil, code.New(code.Unsupported, "the broker keeps no cursors")
	}
	lane, err := conn.OpenLane(ctx)
	if err != nil {
		return nil, unavailable("open lane", err)
	}
	// Reads of a lane know no context: ending the lane ends them.
	stop := context.AfterFunc(ctx, func() { lane.Reset(code.Cancelled) })
	err = s.subscribe(lane)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		lane.Reset(code.Cancelled)
		if e := code.From(err); e.Code == code.Unauthenticated {
			conn.Reauthenticate()
		}
		return nil, err
	}
	return &subscribeStream{conn: conn, lane: lane}, nil
}

func (s *Subscription) subscribe(lane *session.Lane) error {
	req := &wire.Subscribe{
		Log: s.log, Policy: s.policy(), QueueRecords: s.cfg.queueRecords, QueueBytes: s.cfg.queueBytes, UntilMark: s.cfg.untilMark,
		Filters: s.cfg.filters, Durable: s.cfg.durable,
	}
	for _, sh := range s.shards {
		if !sh.over {
			req.Shards = append(req.Shards, sh.resume())
		}
	}
	if err := lane.SendFrame(corrSubscribe, req); err != nil {
		return unavailable("subscribe", err)
	}
	h, body, err := frames.Read(lane, nil)
	switch {
	case err != nil:
		return unavailable("subscribe", err)
	case h.Type == wire.TypeError:
		return frames.Error(body)
	case h.Type != wire.TypeSubscribed:
		return frames.Unexpected(h, "subscribe")
	}
	var ok wire.Subscribed
	if err := wire.ParseFrame(h, &ok, body); err != nil {
		return err
	}
	return s.place(&ok, len(req.Shards))
}

func (s *Subscription) place(ok *wire.Subscribed, asked int) error {
	for _, at := range ok.Shards {
		sh, i := s.shard(at.Shard)
		if sh == nil {
			return code.New(code.Protocol, "subscribe: an answer about shard %d, which was not asked for", at.Shard)
		}
		if sh.placed && at.Offset > sh.receive { // another holder has read on meanwhile
			s.enqueue(sh.progress(at.Offset, at.Generation))
		}
		if at.Resumed && !sh.placed {
			s.resumed = true
		}
		sh.place(at, s.cfg.untilMark)
		s.placed(at)
		s.marks[i].Store(at.Latest)
	}
	for _, sh := range s.shards {
		if !sh.placed {
			return code.New(code.Protocol, "subscribe: no answer about shard %d, %d asked, %d answered", sh.id, asked, len(ok.Shards))
		}
	}
	return nil
}

// policy keeps a live subscription what it is when it resumes from an offset: only what was asked for first decides the
// default.
func (s *Subscription) policy() Policy {
	if s.cfg.policy == PolicyDefault && s.cfg.kind == wire.StartLatest && s.shards[0].placed && s.cfg.durable == "" {
		return PolicyDropNew
	}
	return s.cfg.policy
}

// receive reads a stream until it ends, and the error says why, or until enough.
func (s *Subscription) receive(st *subscribeStream, enough func() bool) error {
	stop := context.AfterFunc(s.ctx, func() { st.lane.Reset(code.Cancelled) })
	defer stop()
	var small []byte
	for !enough() {
		h, err := st.lane.ReadSupported()
		if err != nil {
			return err
		}
		switch h.Type {
		case wire.TypeDeliver, wire.TypeDeliverSlice:
			err = s.receiveBatches(st, h)
		default:
			if h.Size > frames.MaxSmall {
				return code.New(code.Protocol, "frame %s: body of %d bytes", h.Type, h.Size)
			}
			if small, err = st.lane.AppendBody(small[:0]); err == nil {
				err = s.receiveNote(h, small)
			}
		}
		if err != nil {
			return err
		}
		st.useful = true
	}
	return nil
}

func (s *Subscription) receiveBatches(st *subscribeStream, h wire.Header) error {
	// Not read before there is room: so a slow reader holds the broker's queue, not this process's memory.
	if err := s.inbox.waitRoom(s.ctx, int64(h.Size)); err != nil {
		return err
	}
	body := s.allocate(int(h.Size))
	if err := st.lane.ReadBody(body); err != nil {
		return err
	}
	if h.Type == wire.TypeDeliverSlice {
		var d wire.DeliverSlice
		if err := d.Parse(body); err != nil {
			return err
		}
		return s.receiveAll(d.Shard, d.Mark, d.Slices, func(sh *shardState, rest []byte) (entry, bool, int, error) {
			b, err := batch.CheckSlice(rest)
			if err != nil {
				return entry{}, false, 0, err
			}
			e, ok := sh.deliverSlice(b, len(b))
			return e, ok, len(b), nil
		})
	}
	var d wire.Deliver
	if err := d.Parse(body); err != nil {
		return err
	}
	return s.receiveAll(d.Shard, d.Mark, d.Batch, func(sh *shardState, rest []byte) (entry, bool, int, error) {
		b, err := batch.CheckStored(rest)
		if err != nil {
			return entry{}, false, 0, err
		}
		e, ok := sh.deliver(b, len(b))
		return e, ok, len(b), nil
	})
}

// receiveAll walks what a delivery holds: one batch or slice when it is live, as many as lay together when it comes from
// the log.
func (s *Subscription) receiveAll(shard uint32, mark uint64, rest []byte, next func(*shardState, []byte) (entry, bool, int, error)) error {
	sh, i := s.shard(shard)
	if sh == nil {
		return code.New(code.Protocol, "a delivery of shard %d, which was not asked for", shard)
	}
	s.marks[i].Store(mark)
	for len(rest) > 0 {
		e, ok, n, err := next(sh, rest)
		if err != nil {
			return code.New(code.CorruptBatch, "a delivery of shard %d behind offset %d: %w", shard, sh.receive, err)
		}
		rest = rest[n:]
		s.enqueue(e, ok)
	}
	return nil
}

func (s *Subscription) allocate(n int) []byte {
	if n > arenaBelow {
		return make([]byte, n)
	}
	if n > len(s.arena) {
		s.arena = make([]byte, arenaChunk)
	}
	out := s.arena[:n:n]
	s.arena = s.arena[n:]
	return out
}

// receiveNote takes a frame without records.
func (s *Subscription) receiveNote(h wire.Header, body []byte) error {
	if err := s.inbox.waitRoom(s.ctx, 0); err != nil {
		return err
	}
	switch h.Type {
	case wire.TypeGap:
		var g wire.Gap
		if err := g.Parse(body); err != nil {
			return err
		}
		if sh, _ := s.shard(g.Shard); sh != nil {
			s.enqueue(sh.skip(g.From, g.To, GapReason(g.Reason)))
		}
	case wire.TypeProgress:
		var p wire.Progress
		if err := p.Parse(body); err != nil {
			return err
		}
		if sh, i := s.shard(p.Shard); sh != nil {
			s.marks[i].Store(p.Mark)
			s.enqueue(sh.progress(p.Next, p.Generation))
		}
	case wire.TypeEnd:
		var e wire.End
		if err := e.Parse(body); err != nil {
			return err
		}
		return s.receiveEnd(&e)
	case wire.TypeCommitted:
		return orNil(s.settled(h.Corr, nil))
	case wire.TypeError:
		err := frames.Error(body)
		if h.Corr >= corrCommit {
			return orNil(s.settled(h.Corr, code.From(err)))
		}
		return err
	default:
		return frames.Unexpected(h, "subscribe")
	}
	return nil
}

// receiveEnd takes the broker's last word about a shard, or about all.
func (s *Subscription) receiveEnd(e *wire.End) error {
	if e.Code != 0 {
		err := code.New(e.Code, "subscription of %s: %s", s.name, e.Message)
		for _, r := range e.Resume {
			if e.Shard != wire.AllShards && r.Shard != e.Shard {
				continue
			}
			if e.Code == code.Cut {
				if sh, _ := s.shard(r.Shard); sh != nil {
					s.enqueue(sh.cut(r.Offset, r.Generation))
				}
			}
		}
		if e.Code == code.Cut && len(e.Resume) > 0 {
			return code.New(code.Unavailable, "%s", err.Message) // where to go on is settled
		}
		return err
	}
	for _, sh := range s.shards {
		if e.Shard == wire.AllShards || e.Shard == sh.id {
			if !s.cfg.untilMark {
				return code.New(code.Unavailable, "the broker ended the subscription of shard %d", sh.id)
			}
			sh.over = true
		}
	}
	return nil
}
