// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
)

// again is how long a reader waits before it subscribes again.
const again = 200 * time.Millisecond

// sink takes what a reader gets.
type sink interface {
	Read(s history.Shard, offset uint64, t history.Tag, sum uint32)
	Gap(s history.Shard, from, to uint64)
}

// auditor is the sink of the reader that reads everything.
type auditor struct{ ledger *history.Ledger }

func (a auditor) Read(s history.Shard, offset uint64, t history.Tag, sum uint32) {
	a.ledger.Audit(s, offset, t, sum)
}
func (a auditor) Gap(s history.Shard, from, to uint64) { a.ledger.AuditGap(s, from, to) }

// tail is a reader of one stream for as long as the run lasts.
type tail struct {
	name, stream string
	options      []client.SubscribeOption
	policy       client.Policy
	pace         time.Duration // between two records; 0: as they come
	filtered     bool
	audits       bool
}

func (r *soak) tail(ctx context.Context, c *client.Client, t tail) {
	options := append([]client.SubscribeOption{client.Overflow(t.policy), client.SkipLost()}, t.options...)
	for ctx.Err() == nil {
		s, err := c.Subscribe(ctx, t.stream, options...)
		if err != nil {
			r.refused(ctx, t.name, err)
			continue
		}
		var to sink = r.ledger.Reader(t.name, t.filtered)
		if t.audits {
			to = auditor{r.ledger}
		}
		err = r.follow(ctx, s, t, to)
		s.Close()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, client.ErrSlowConsumer) && t.policy == client.PolicyDisconnect:
			r.disconnects.Add(1)
			pause(ctx, again)
		default:
			r.harness.Errorf("subscription %s ended: %v", t.name, err)
			pause(ctx, again)
		}
	}
}

// refused takes an error of Subscribe: the node may be away.
func (r *soak) refused(ctx context.Context, name string, err error) {
	if e := client.AsError(err); ctx.Err() == nil && (e == nil || e.Class == client.Fatal) {
		r.harness.Errorf("subscribe %s: %v", name, err)
	}
	pause(ctx, again)
}

// follow reads until the subscription or the run ends.
func (r *soak) follow(ctx context.Context, s *client.Subscription, t tail, to sink) error {
	var paced <-chan time.Time
	if t.pace > 0 {
		tick := time.NewTicker(t.pace)
		defer tick.Stop()
		paced = tick.C
	}
	for rec, err := range s.Records(ctx) {
		if err != nil {
			return err
		}
		r.got(t, &rec, to)
		if paced != nil {
			select {
			case <-paced:
			case <-ctx.Done():
			}
		}
	}
	return ctx.Err()
}

// got enters a record into the history.
func (r *soak) got(t tail, rec *client.Record, to sink) {
	s := history.Shard{Log: t.stream, Number: rec.Shard}
	if g := rec.Gap; g != nil {
		dropped := g.Reason == client.GapDropped && (t.policy == client.PolicyDropNew || t.policy == client.PolicyDropOld)
		if !dropped && g.Reason != client.GapRetention {
			r.harness.Errorf("reader %s was told of %v at %d to %d of %s/%d", t.name, g.Reason, g.From, g.To, t.stream, rec.Shard)
		}
		to.Gap(s, g.From, g.To)
	}
	tag, sum, err := check(r.block, rec.Value)
	if err != nil {
		r.harness.Errorf("reader %s, %s/%d offset %d, %v: %v", t.name, t.stream, rec.Shard, rec.Offset, tag, err)
		return
	}
	to.Read(s, rec.Offset, tag, sum)
}

func pause(ctx context.Context, d time.Duration) {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-late.C:
	case <-ctx.Done():
	}
}
