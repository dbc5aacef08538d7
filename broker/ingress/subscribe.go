// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"slices"

	"margay.dev/broker/stream"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// subscribe gives the rest of the lane to one subscription.
func (l *lane) subscribe(ctx context.Context, h wire.Header, body []byte) error {
	var f wire.Subscribe
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return l.lane.Send(l.frameError(h.Corr, badFrame(err)))
	}
	m := l.conn.srv.cfg.Table.Load()
	parts, err := l.parts(m, &f)
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	ctx, release, refused := l.conn.subscription(ctx, l.lane, func(c *token.Claims) error { return l.maySubscribe(m, &f, c) })
	if refused != nil {
		return l.lane.Send(l.frameError(h.Corr, refused))
	}
	defer release()
	sub, ok, err := stream.Open(ctx, l.lane, &f, parts, l.conn.srv.cfg.Wall(), l.durable())
	if err != nil {
		return l.lane.Send(l.frameError(h.Corr, err))
	}
	defer sub.Close()
	if err := l.lane.Write(wire.AppendFrame(nil, h.Corr, ok)); err != nil {
		return err
	}
	l.conn.lanes.Go(func() { l.watch(ctx, sub) })
	defer l.conn.srv.metrics.watch(sub)()
	if end := sub.Serve(ctx); end != nil {
		l.conn.srv.metrics.error(end.Code)
		l.conn.subscriptionEnded(f.Log, end)
		_ = l.lane.Write(wire.AppendFrame(nil, h.Corr, end)) // a broken lane tells its client enough
		if f.Durable != "" && end.Code == 0 {
			sub.Settle(ctx)
		}
	}
	return errLaneDone
}

// parts resolves the shards of a subscription. Each shard stands once.
func (l *lane) parts(m *router.Map, f *wire.Subscribe) ([]stream.Part, error) {
	if err := l.maySubscribe(m, f, l.conn.claims.Load()); err != nil {
		return nil, err
	}
	rl, _ := m.ByID(router.LogID(f.Log)) // maySubscribe has found it
	if err := mayRead(infoOf(rl), served, wire.Features(l.conn.features.Load())); err != nil {
		return nil, err
	}
	if len(f.Shards) == 0 {
		return nil, code.New(code.BadRequest, "a subscription names at least one shard")
	}
	seen := make(map[uint32]bool, len(f.Shards))
	parts := make([]stream.Part, 0, len(f.Shards))
	for _, st := range f.Shards {
		if seen[st.Shard] {
			return nil, code.New(code.BadRequest, "shard %d is named twice", st.Shard)
		}
		seen[st.Shard] = true
		s, refused := led(m, f.Log, st.Shard)
		if refused != nil {
			return nil, refused
		}
		parts = append(parts, stream.Part{Start: st, Shard: s})
	}
	return parts, nil
}

// mayRead refuses a log that has batches which an older client takes for damage: those of expired keys, when it did not agree
// on caches, and those with priorities, when it did not agree on queues.
func mayRead(info *control.Log, served, agreed wire.Features) error {
	if info.Keep == control.KeepUnsettled && served.Has(wire.FeatureQueues) && !agreed.Has(wire.FeatureQueues) {
		return code.New(code.Unsupported, "the log is a queue, which this client is too old to read")
	}
	if info.Keep == control.KeepNewest && served.Has(wire.FeatureCaches) && !agreed.Has(wire.FeatureCaches) {
		return code.New(code.Unsupported, "the log keeps the newest record of each key, which this client is too old to read")
	}
	return nil
}

// maySubscribe holds a subscription to what claims grant.
func (l *lane) maySubscribe(m *router.Map, f *wire.Subscribe, claims *token.Claims) error {
	rl, found := m.ByID(router.LogID(f.Log))
	if err := l.allowed(claims, rl, found, token.Subscribe); err != nil {
		return err
	}
	return mayFilter(claims, rl.Name, f.Filters)
}

// mayFilter holds a subscription to what the token grants of the log's keys: every filter must lie within one
// of its patterns. One that asks for more is refused, not narrowed: its reader would take the rest for absent.
func mayFilter(claims *token.Claims, name string, filters []wire.Filter) error {
	for _, f := range filters {
		if err := f.Validate(); err != nil {
			return code.New(code.BadRequest, "%w", err)
		}
	}
	patterns, limited := claims.KeyLimits(token.Subscribe, name)
	if !limited {
		return nil
	}
	if len(filters) == 0 {
		return code.New(code.PermissionDenied, "the token grants keys of %s that match %q: filter by them", name, patterns)
	}
	for _, f := range filters {
		if !slices.ContainsFunc(patterns, f.Within) {
			return code.New(code.PermissionDenied, "the filter %q is wider than what the token grants of %s: keys that match %q", f.Value, name, patterns)
		}
	}
	return nil
}

// watch reads what a subscriber still says: how far it has got, that it has enough, or nothing more.
func (l *lane) watch(ctx context.Context, sub *stream.Subscription) {
	defer l.conn.cancelSubscription(l.lane, nil)
	for {
		h, err := l.lane.ReadHeader()
		if err != nil {
			l.broken(err)
			return
		}
		if h.Type == wire.TypeCommit {
			err = l.commit(ctx, sub, h)
		} else {
			err = l.lane.Skip(h.Size)
		}
		if err != nil {
			return
		}
		if h.Type == wire.TypeUnsubscribe {
			return
		}
	}
}
