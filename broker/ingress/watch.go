// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"sync/atomic"

	"margay.dev/broker/cache"
	"margay.dev/broker/host"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/token"
)

// watching is a lane of watches, which are of one log.
type watching struct {
	*lane
	log batch.LogID
	w   atomic.Pointer[cache.Watcher] // nil before the first watch
}

// watchLane gives the rest of the lane to watches. One that is refused leaves it as it is.
func (l *lane) watchLane(ctx context.Context, h wire.Header, body []byte) error {
	var f wire.Watch
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	x := &watching{lane: l, log: f.Log}
	claims, err := x.may(&f)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	ctx, release, refused := l.conn.subscription(ctx, l.lane, x.regrant)
	if refused != nil {
		return l.lane.Send(l.frameError(h.Corr, refused))
	}
	defer release()
	w := cache.NewWatcher(ctx, l.lane, cache.Config{
		Resolve: func(n uint32) (*host.Shard, *code.Error) { return led(l.conn.srv.cfg.Table.Load(), f.Log, n) },
		Refuse:  func(corr uint64, why error) { l.sendError(corr, code.From(why)) },
		Ended: func(why *code.Error) {
			l.conn.srv.metrics.error(why.Code)
			l.conn.subscriptionEnded(f.Log, &wire.End{Code: why.Code, Message: why.Message})
		},
		Serving: l.conn.srv.metrics.watch,
		Held:    &l.conn.watches,
		Stats:   &l.conn.srv.metrics.watches,
	})
	x.w.Store(w)
	l.conn.lanes.Go(func() {
		defer l.conn.cancelSubscription(l.lane, nil)
		if x.add(h.Corr, &f, claims) == nil {
			x.read()
		}
	})
	w.Wait()
	return errLaneDone
}

// read reads which watches begin and end, to the end of the lane.
func (x *watching) read() {
	for {
		h, err := x.lane.lane.ReadHeader()
		if err == nil {
			err = x.frame(h)
		}
		if err != nil {
			x.broken(err)
			return
		}
	}
}

// frame takes one frame. An error ends the lane.
func (x *watching) frame(h wire.Header) error {
	if err := h.Supported(); err != nil {
		return x.skip(h, err)
	}
	if h.Type != wire.TypeWatch && h.Type != wire.TypeUnwatch {
		return x.skip(h, code.New(code.BadRequest, "frame %s on a lane of watches", h.Type))
	}
	if limit := maxBody(h.Type); h.Size > limit {
		return x.skip(h, code.New(code.TooLarge, "frame %s of %d bytes", h.Type, h.Size).With(code.DetailLimit, uint64(limit)))
	}
	body, err := x.lane.lane.AppendBody(nil)
	if err != nil {
		return err
	}
	if h.Type == wire.TypeUnwatch {
		var f wire.Unwatch
		if err = wire.ParseFrame(h, &f, body); err != nil {
			err = badFrame(err)
		} else {
			err = x.w.Load().Unwatch(h.Corr, &f)
		}
		return x.answered(h.Corr, err)
	}
	var f wire.Watch
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return x.answered(h.Corr, badFrame(err))
	}
	claims, err := x.may(&f)
	if err != nil {
		return x.answered(h.Corr, err)
	}
	return x.add(h.Corr, &f, claims)
}

// answered tells of a refusal; what is not refused is answered by the watcher.
func (x *watching) answered(corr uint64, err error) error {
	if err == nil {
		return nil
	}
	return x.lane.lane.Send(x.frameError(corr, err))
}

// add begins a watch that these claims allow. If others have been shown meanwhile, they are asked too.
func (x *watching) add(corr uint64, f *wire.Watch, claims *token.Claims) error {
	err := x.w.Load().Watch(corr, f)
	if now := x.conn.claims.Load(); now != claims {
		if denied := x.regrant(now); denied != nil {
			x.conn.cancelSubscription(x.lane.lane, denied)
		}
	}
	return x.answered(corr, err)
}

// may holds a watch to the log of its lane, and to what the token grants.
func (x *watching) may(f *wire.Watch) (*token.Claims, error) {
	if f.Log != x.log {
		return nil, code.New(code.BadRequest, "the watches of a lane are of one log")
	}
	claims := x.conn.claims.Load()
	m := x.conn.srv.cfg.Table.Load()
	rl, found := m.ByID(router.LogID(f.Log))
	limited, err := x.mayReadOf(claims, rl, found)
	if err == nil && limited {
		err = mayFilter(claims, rl.Name, filtersOf(f.Filter))
	}
	if err != nil {
		return nil, err
	}
	if _, refused := led(m, f.Log, f.Shard); refused != nil {
		return nil, refused
	}
	return claims, nil
}

// regrant ends the watches that other claims do not allow, and says whether they allow any.
func (x *watching) regrant(claims *token.Claims) error {
	rl, found := x.conn.srv.cfg.Table.Load().ByID(router.LogID(x.log))
	limited, err := x.mayReadOf(claims, rl, found)
	if err != nil {
		return err
	}
	if w := x.w.Load(); w != nil && limited {
		w.Regrant(func(f wire.Filter) error { return mayFilter(claims, rl.Name, filtersOf(f)) })
	}
	return nil
}
