// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"

	"margay.dev/broker/queue"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// consuming is a lane of one consumer of a group.
type consuming struct {
	*lane
	q *queue.Lane
}

// consume gives the rest of the lane to one consumer. One that is refused leaves it as it is.
func (l *lane) consume(ctx context.Context, h wire.Header, body []byte) error {
	var f wire.Consume
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	parts, err := l.consumed(&f)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	ctx, release, refused := l.conn.subscription(ctx, l.lane, func(c *token.Claims) error { return l.mayConsume(c, f.Log) })
	if refused != nil {
		return l.lane.Send(l.frameError(h.Corr, refused))
	}
	defer release()
	q, ok, err := queue.Open(ctx, l.lane, &f, parts, queue.Config{
		Resolve: func(n uint32) (queue.Shard, *code.Error) {
			s, refused := led(l.conn.srv.cfg.Table.Load(), f.Log, n)
			if refused != nil {
				return nil, refused // not a nil *host.Shard, which would be one
			}
			return s, nil
		},
		Ended: func(n uint32, why *code.Error) {
			l.conn.srv.metrics.error(why.Code)
			l.conn.subscriptionEnded(f.Log, &wire.End{Shard: n, Code: why.Code, Message: why.Message})
		},
		Stats: &l.conn.srv.metrics.queues,
	})
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	defer l.conn.srv.metrics.consumes(q)()
	x := &consuming{l, q}
	if err := l.lane.Write(wire.AppendFrame(nil, h.Corr, ok)); err != nil {
		l.conn.cancelSubscription(l.lane, nil) // Serve takes the consumer out of its groups
	}
	l.conn.lanes.Go(func() { x.read(ctx) })
	if end := q.Serve(ctx); end != nil {
		if end.Code != 0 {
			l.conn.srv.metrics.error(end.Code)
			l.conn.subscriptionEnded(f.Log, &wire.End{Shard: end.Shard, Code: end.Code, Message: end.Message})
		}
		_ = l.lane.Write(wire.AppendFrame(nil, h.Corr, end)) // a broken lane tells its client enough
	}
	return errLaneDone
}

// read reads what the consumer says, to the end of the lane.
func (x *consuming) read(ctx context.Context) {
	defer x.conn.cancelSubscription(x.lane.lane, nil)
	for {
		h, err := x.lane.lane.ReadHeader()
		if err == nil {
			err = x.frame(ctx, h)
		}
		if err != nil {
			x.broken(err)
			return
		}
	}
}

// frame takes one frame. An error ends the lane.
func (x *consuming) frame(ctx context.Context, h wire.Header) error {
	err := h.Supported()
	switch {
	case err != nil:
	case h.Type != wire.TypeSettle && h.Type != wire.TypeExtend && h.Type != wire.TypeFlow && h.Type != wire.TypeLeave:
		err = code.New(code.BadRequest, "frame %s on the lane of a consumer", h.Type)
	case h.Size > maxBody(h.Type):
		err = code.New(code.TooLarge, "frame %s of %d bytes", h.Type, h.Size).With(code.DetailLimit, uint64(maxBody(h.Type)))
	}
	if err != nil {
		x.refuse(ctx, h.Corr, err)
		return x.lane.lane.Skip(h.Size)
	}
	body, err := x.lane.lane.AppendBody(nil)
	if err != nil {
		return err
	}
	switch h.Type {
	case wire.TypeSettle:
		taken(ctx, x, h, body, &wire.Settle{}, func(f *wire.Settle) { x.q.Settle(ctx, h.Corr, f) })
	case wire.TypeExtend:
		taken(ctx, x, h, body, &wire.Extend{}, func(f *wire.Extend) { x.q.Extend(ctx, h.Corr, f) })
	case wire.TypeFlow:
		taken(ctx, x, h, body, &wire.Flow{}, x.q.Flow)
	default:
		taken(ctx, x, h, body, &wire.Leave{}, func(*wire.Leave) { x.q.Leave() })
	}
	return ctx.Err()
}

// taken parses a frame and passes it on.
func taken[F wire.Frame](ctx context.Context, x *consuming, h wire.Header, body []byte, f F, to func(F)) {
	if err := wire.ParseFrame(h, f, body); err != nil {
		x.refuse(ctx, h.Corr, badFrame(err))
		return
	}
	to(f)
}

// refuse answers a frame with an error, behind what is written before.
func (x *consuming) refuse(ctx context.Context, corr uint64, err error) {
	x.conn.srv.metrics.error(code.From(err).Code)
	x.q.Refuse(ctx, corr, err)
}

// consumed resolves the shards of a consumer. Each stands once.
func (l *lane) consumed(f *wire.Consume) ([]queue.Part, error) {
	if err := l.mayConsume(l.conn.claims.Load(), f.Log); err != nil {
		return nil, err
	}
	m := l.conn.srv.cfg.Table.Load()
	seen := make(map[uint32]bool, len(f.Shards))
	parts := make([]queue.Part, 0, len(f.Shards))
	for _, n := range f.Shards {
		if seen[n] {
			return nil, code.New(code.BadRequest, "shard %d is named twice", n)
		}
		seen[n] = true
		s, refused := led(m, f.Log, n)
		if refused != nil {
			return nil, refused
		}
		parts = append(parts, queue.Part{ID: n, Shard: s})
	}
	return parts, nil
}

// mayConsume says whether claims allow taking messages from a log and settling them.
func (l *lane) mayConsume(claims *token.Claims, id batch.LogID) error {
	rl, found := l.conn.srv.cfg.Table.Load().ByID(router.LogID(id))
	if err := l.allowed(claims, rl, found, token.Consume); err != nil {
		return err
	}
	return groupsOf(infoOf(rl))
}

// groupsOf refuses a log that can have no groups: what they have settled must outlive the broker.
func groupsOf(info *control.Log) error {
	if info.Storage == control.StorageMemory {
		return code.New(code.BadRequest, "the log is held in memory only: it can have no consumer groups")
	}
	return nil
}

// maxSettleFrame bounds the body of a Settle: one may have thousands of reasons, and no client has that many of the longest.
const maxSettleFrame = 4 << 20
