// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"math"
	"sync"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/frames"
	"margay.dev/client/internal/link"
	"margay.dev/router/hash"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// LastRecord is a record that the cluster publishes when this client is lost.
type LastRecord struct {
	c        *Client
	stream   string
	request  wire.SetLast
	onReturn func()

	ctx    context.Context //nolint:containedctx // the lifetime of the record, ended by Clear or with the client
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// LastOption sets up a LastRecord.
type LastOption interface{ applyLast(l *LastRecord) }

type lastOption func(l *LastRecord)

func (o lastOption) applyLast(l *LastRecord) { o(l) }

// OnReturn hears each time that the connection was lost and the record has been set anew. It may have been published in
// between: this is when to say again that the client is there. It is called from a goroutine of the client and must not
// block.
func OnReturn(f func()) LastOption { return lastOption(func(l *LastRecord) { l.onReturn = f }) }

// LastRecord leaves a record with the cluster, which publishes it once when this client's connection ends other than by
// Close: the process died, or nothing was heard of it for the connection's idle time (10 s). It returns when that is
// durable. The record is set anew by itself when the connection was lost.
//
// After a restart of the broker the client has grace to show itself before its record is published; make that longer than
// a restart takes. Grace is kept in whole milliseconds. A record may have at most 64 KiB, and no dedup id. In a stream
// with storage in memory it does not outlive the broker.
func (c *Client) LastRecord(ctx context.Context, stream string, rec Record, grace time.Duration, opts ...LastOption) (*LastRecord, error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	if ms := grace.Milliseconds(); ms < 0 || ms > math.MaxUint32 {
		return nil, code.New(code.BadRequest, "last record: grace %v is out of range", grace)
	}
	if rec.DedupID != "" || rec.alone() {
		return nil, code.New(code.BadRequest, "last record: it cannot have a dedup id, conditions or a sequence")
	}
	info, e := c.lookup(ctx, stream)
	if e != nil {
		return nil, e
	}
	if err := c.lacks(wire.FeaturePresence, "last records of "+info.Name); err != nil {
		return nil, err
	}
	l := &LastRecord{c: c, stream: info.Name, request: wire.SetLast{Log: info.Log, GraceMs: uint32(grace.Milliseconds())}}
	for _, o := range opts {
		o.applyLast(l)
	}
	if err := l.build(&rec, len(info.Shards)); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(c.ctx)
	conn, e := l.set(ctx)
	if e != nil {
		l.cancel()
		return nil, e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		l.cancel()
		return nil, errClosed("the client")
	}
	c.lasts.Add(1)
	l.wg.Go(func() {
		defer c.lasts.Done()
		l.keep(conn)
	})
	return l, nil
}

// build makes the batch of the record, with an id of its own.
func (l *LastRecord) build(rec *Record, shards int) error {
	if key, bound := rec.binding(); bound {
		l.request.Shard = hash.Shard(key, shards)
	} else {
		l.request.Shard = uint32(l.c.rng.IntN(shards))
	}
	for l.request.ID == 0 {
		l.request.ID = l.c.rng.Uint64()
	}
	b := batch.NewBuilder(l.c.limits())
	if err := b.Add(rec.encode(time.Now())); err != nil {
		return refusal(err)
	}
	built, err := b.Build(l.request.ID, 1, batch.None)
	if err != nil {
		return refusal(err)
	}
	if len(built) > batch.MaxLast {
		return code.New(code.TooLarge, "last record of %d bytes", len(built)).With(code.DetailLimit, batch.MaxLast)
	}
	l.request.Batch = built
	return nil
}

// keep sets the record anew whenever the connection that it was set over is gone.
func (l *LastRecord) keep(conn *link.Conn) {
	for {
		select {
		case <-conn.Done():
		case <-l.ctx.Done():
			return
		}
		var err *Error
		if conn, err = l.set(l.ctx); err != nil {
			if l.ctx.Err() == nil {
				l.c.cfg.logger.Error("a last record cannot be set anew: nothing is published when this client is lost", "stream", l.stream, "error", err)
			}
			return
		}
		if l.onReturn != nil {
			l.onReturn()
		}
	}
}

// set asks until the record is set, ctx ends or an error is final, and returns the connection that it lives with.
func (l *LastRecord) set(ctx context.Context) (*link.Conn, *Error) {
	wait := backoff.Backoff{Rand: l.c.rng, Base: retryBase, Cap: retryCap}
	for {
		conn, err := l.c.requests.Conn(ctx)
		if err == nil {
			err = askOver(ctx, conn, &l.request, &wire.Done{})
		}
		if err == nil {
			return conn, nil
		}
		e := code.From(err)
		switch {
		case ctx.Err() != nil:
			return nil, code.New(e.Code, "last record of %s: %s (gave up: %w)", l.stream, e.Message, ctx.Err()).WithClass(Unknown)
		case e.Code == code.Unauthenticated && l.c.renews():
			if conn != nil {
				conn.Reauthenticate()
			}
		case e.Class == Fatal && e.Code != code.Closed && e.Code != code.Protocol:
			return nil, e
		}
		backoff.Pause(ctx, max(wait.Next(), e.RetryAfter))
	}
}

// Clear takes the record back: nothing is published, whatever becomes of the client.
func (l *LastRecord) Clear(ctx context.Context) error {
	l.cancel()
	l.wg.Wait() // it is not set anew behind this
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	request := &wire.ClearLast{Log: l.request.Log, Shard: l.request.Shard, ID: l.request.ID}
	if e := l.c.caller.call(ctx, request, &wire.Done{}); e != nil {
		if e.Class != Fatal {
			e = e.WithClass(Unknown)
		}
		return e
	}
	return nil
}

// askOver asks once over one connection, on a lane of its own: what is asked lives as long as the connection.
func askOver(ctx context.Context, conn *link.Conn, request, answer wire.Frame) error {
	lane, err := conn.OpenLane(ctx)
	if err != nil {
		return unavailable("open lane", err)
	}
	defer lane.Reset(code.Cancelled)
	stop := context.AfterFunc(ctx, func() { lane.Reset(code.Cancelled) })
	defer stop()
	return ask(lane, request, answer)
}

func ask(lane *session.Lane, request, answer wire.Frame) error {
	if err := lane.SendFrame(1, request); err != nil {
		return unavailable("send "+request.Type().String(), err)
	}
	h, body, err := frames.Read(lane, nil)
	switch {
	case err != nil:
		return unavailable(request.Type().String(), err)
	case h.Type == wire.TypeError:
		return frames.Error(body)
	case h.Type != answer.Type():
		return frames.Unexpected(h, "request")
	}
	return answer.Parse(body)
}
