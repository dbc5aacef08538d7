// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"sync"

	"margay.dev/broker/cache"
	"margay.dev/broker/host"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

const (
	// fewKeys of a Get are read at once, by the lane's own goroutine: waking another would take longer than most readings. More
	// of them may be many reads of the disk, which the requests behind them on the lane must not wait for.
	fewKeys = 16
	// maxBeside is how many requests of a connection wait, or are being answered, beside its lanes.
	maxBeside = 256
	// laneLists and allLists are how many answers that are large, or long in the making, are made at the same time, for a lane
	// and for all: each may be 4 MiB that its client has not read.
	laneLists = 2
	allLists  = 32
	// smallAnswer is copied into the lane's queue, and leaves with the others there; a larger one is written from where it is.
	smallAnswer = 32 << 10
	keepBody    = 64 << 10
)

// getting is a Get under way, with all that it needs.
type getting struct {
	body   []byte
	asks   wire.Get
	getter cache.Getter
}

var gettings = sync.Pool{New: func() any { return new(getting) }}

func (g *getting) done() {
	if cap(g.body) <= keepBody {
		gettings.Put(g)
	}
}

// get answers a Get, at once when it is few keys and need not wait.
func (l *lane) get(ctx context.Context, h wire.Header) error {
	g := gettings.Get().(*getting)
	body, err := l.lane.AppendBody(g.body[:0])
	if err != nil {
		return err
	}
	g.body = body
	if err := wire.ParseFrame(h, &g.asks, body); err != nil {
		g.done()
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	s, err := l.mayGet(&g.asks)
	if err != nil {
		g.done()
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	reached := cache.Reached(s, g.asks.AtLeast)
	if reached && len(g.asks.Keys) <= fewKeys {
		defer g.done()
		return l.got(ctx, h.Corr, s, g)
	}
	return l.beside(h.Corr, func() {
		defer g.done()
		if !reached {
			if err := cache.Await(ctx, s, &g.asks); err != nil {
				l.sendError(h.Corr, code.From(err))
				return
			}
		}
		if len(g.asks.Keys) > fewKeys {
			if !l.takeList(ctx) {
				return
			}
			defer l.giveList()
		}
		_ = l.got(ctx, h.Corr, s, g) // a lane that is broken has nobody to tell
	})
}

// got reads and answers.
func (l *lane) got(ctx context.Context, corr uint64, s *host.Shard, g *getting) error {
	answer, err := g.getter.Get(ctx, s, &g.asks)
	if err != nil {
		return l.lane.Send(l.frameError(corr, err))
	}
	l.conn.srv.metrics.answeredRead(readGet, len(answer.Entries))
	return l.answer(corr, answer)
}

// answer sends an answer that may be large. When the client does not take them as fast as it asks, what it asks waits.
func (l *lane) answer(corr uint64, f wire.Frame) error {
	if f.Size() <= smallAnswer {
		if err := l.lane.SendFrame(corr, f); !errors.Is(err, session.ErrLaneFull) {
			return err
		}
	}
	return l.lane.Write(wire.AppendFrame(nil, corr, f))
}

// list answers a List, beside the lane: it may be thousands of reads of the disk.
func (l *lane) list(ctx context.Context, h wire.Header, body []byte) error {
	f := &wire.List{}
	if err := wire.ParseFrame(h, f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	s, err := l.mayRead(f.Log, f.Shard, f.Filter)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	return l.beside(h.Corr, func() {
		if !l.takeList(ctx) {
			return
		}
		defer l.giveList()
		answer, err := cache.List(ctx, s, f)
		if err != nil {
			l.sendError(h.Corr, code.From(err))
			return
		}
		l.conn.srv.metrics.answeredRead(readList, len(answer.Entries))
		_ = l.answer(h.Corr, answer) // a lane that is broken has nobody to tell
	})
}

// count answers a Count, beside the lane: it may look at millions of keys.
func (l *lane) count(ctx context.Context, h wire.Header, body []byte) error {
	f := &wire.Count{}
	if err := wire.ParseFrame(h, f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	s, err := l.mayRead(f.Log, f.Shard, f.Filter)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	return l.beside(h.Corr, func() {
		if !l.takeList(ctx) {
			return
		}
		defer l.giveList()
		answer, err := cache.Count(ctx, s, f)
		if err != nil {
			l.sendError(h.Corr, code.From(err))
			return
		}
		l.conn.srv.metrics.answeredRead(readCount, 0)
		_ = l.answer(h.Corr, answer)
	})
}

// beside answers a request in a goroutine of its own: the lane's requests behind it do not wait for it.
func (l *lane) beside(corr uint64, work func()) error {
	c := l.conn
	if c.beside.Add(1) > maxBeside {
		c.beside.Add(-1)
		return l.lane.Send(l.frameError(corr, code.New(code.TooMany, "%d requests of the connection wait to be answered", maxBeside).
			With(code.DetailLimit, maxBeside).Retry(retryTooMany)))
	}
	c.lanes.Go(func() {
		defer c.beside.Add(-1)
		work()
	})
	return nil
}

// takeList waits for a turn to make a large answer. Without one the connection is over.
func (l *lane) takeList(ctx context.Context) bool {
	select {
	case l.lists <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	select {
	case l.conn.srv.lists <- struct{}{}:
		return true
	case <-ctx.Done():
		<-l.lists
		return false
	}
}

func (l *lane) giveList() {
	<-l.conn.srv.lists
	<-l.lists
}

// mayReadLog says whether the caller may read some keys of a log at least: who may follow it may, and who may read it as a
// cache. It answers most from the last request's answer.
func (l *lane) mayReadLog(m *router.Map, id batch.LogID) (*granted, error) {
	x, claims := &l.reads, l.conn.claims.Load()
	if x.table == m && x.claims == claims && x.id == id {
		return x, x.err
	}
	rl, found := m.ByID(router.LogID(id))
	*x = granted{table: m, claims: claims, id: id}
	x.limited, x.err = l.mayReadOf(claims, rl, found)
	return x, x.err
}

// mayReadOf is mayReadLog of some claims. Limited says that it is some of the keys.
func (l *lane) mayReadOf(claims *token.Claims, rl *router.Log, found bool) (limited bool, err error) {
	return l.grantedOf(claims, rl, found, token.Read, token.Subscribe)
}

// grantedOf asks claims for an action on caches, which knows no keys, or for the one on logs that means the same, which may
// be limited to some of them.
func (l *lane) grantedOf(claims *token.Claims, rl *router.Log, found bool, onCaches, action token.Action) (limited bool, err error) {
	if found && isCache(rl) && claims.Allows(onCaches, rl.Name) {
		return false, nil
	}
	if err := l.allowed(claims, rl, found, action); err != nil {
		return false, err
	}
	_, limited = claims.KeyLimits(action, rl.Name)
	return limited, nil
}

func isCache(rl *router.Log) bool {
	info := infoOf(rl)
	return info != nil && info.Keep == control.KeepNewest
}

// mayGet finds the shard of a Get that asks for nothing else than the token grants.
func (l *lane) mayGet(f *wire.Get) (*host.Shard, error) {
	m := l.conn.srv.cfg.Table.Load()
	x, err := l.mayReadLog(m, f.Log)
	if err != nil {
		return nil, err
	}
	if x.limited {
		rl, _ := m.ByID(router.LogID(f.Log)) // it was found
		for _, key := range f.Keys {
			if !x.claims.AllowsKey(token.Subscribe, rl.Name, key) {
				return nil, code.New(code.PermissionDenied, "the token does not grant reading the key %.100q of %s", key, rl.Name)
			}
		}
	}
	s, refused := led(m, f.Log, f.Shard)
	if refused != nil {
		return nil, refused
	}
	return s, nil
}

// mayRead finds the shard of a request for the keys that a filter lets through.
func (l *lane) mayRead(id batch.LogID, n uint32, f wire.Filter) (*host.Shard, error) {
	m := l.conn.srv.cfg.Table.Load()
	x, err := l.mayReadLog(m, id)
	if err != nil {
		return nil, err
	}
	if x.limited {
		rl, _ := m.ByID(router.LogID(id)) // it was found
		if err := mayFilter(x.claims, rl.Name, filtersOf(f)); err != nil {
			return nil, err
		}
	}
	s, refused := led(m, id, n)
	if refused != nil {
		return nil, refused
	}
	return s, nil
}

// filtersOf is how a subscription would ask for the keys that a filter lets through: for all by none.
func filtersOf(f wire.Filter) []wire.Filter {
	if f.Kind == wire.FilterAll {
		return nil
	}
	return []wire.Filter{f}
}
