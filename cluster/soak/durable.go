// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
)

const (
	durableSession = 15 * time.Second // then it is closed, and another goes on
	commitEvery    = 500              // records, where the reader commits by itself
)

// durable reads under a name, in sessions that go on where the one before was.
func (r *soak) durable(ctx context.Context, c *client.Client, name, stream string, manual bool) {
	reader := r.ledger.Reader(name, false)
	floor := map[uint32]uint64{} // what is committed is not read again
	options := []client.SubscribeOption{client.Durable(name), client.FromEarliest(), client.SkipLost()}
	if manual {
		options = append(options, client.ManualCommit())
	}
	for ctx.Err() == nil {
		session, end := context.WithTimeout(ctx, durableSession)
		s, err := c.Subscribe(session, stream, options...)
		if err != nil {
			r.refused(ctx, name, err)
			end()
			continue
		}
		d := &durableReader{r: r, s: s, name: name, stream: stream, to: reader, floor: floor, manual: manual, begun: map[uint32]bool{}}
		err = d.read(session)
		s.Close()
		if err != nil && session.Err() == nil {
			r.harness.Errorf("durable subscription %s ended: %v", name, err)
			pause(ctx, again)
		}
		end()
	}
}

// durableReader is one session.
type durableReader struct {
	r            *soak
	s            *client.Subscription
	name, stream string
	to           *history.LedgerReader
	floor        map[uint32]uint64
	manual       bool
	begun        map[uint32]bool
}

func (d *durableReader) read(ctx context.Context) error {
	next := map[uint32]uint64{}
	n := 0
	for rec, err := range d.s.Records(ctx) {
		if err != nil {
			return err
		}
		if !d.begun[rec.Shard] {
			d.begun[rec.Shard] = true
			at := rec.Offset
			if rec.Gap != nil {
				at = rec.Gap.From
			}
			d.to.Resume(history.Shard{Log: d.stream, Number: rec.Shard}, at, d.floor[rec.Shard])
		}
		d.r.got(tail{name: d.name, stream: d.stream, policy: client.PolicyCatchUp}, &rec, d.to)
		next[rec.Shard] = rec.Offset // the one in hand is not committed
		if n++; d.manual && n%commitEvery == 0 {
			if err := d.s.Commit(ctx); err == nil {
				for shard, at := range next {
					d.floor[shard] = max(d.floor[shard], at)
				}
			} else if e := client.AsError(err); ctx.Err() == nil && (e == nil || e.Class == client.Fatal) {
				return err
			}
		}
		next[rec.Shard] = rec.Offset + 1
	}
	return nil
}

// churn has clients come, subscribe, read a little and go, some of them without a word, until ctx ends.
func (r *soak) churn(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		if err := r.visit(ctx, n); err != nil {
			if e := client.AsError(err); ctx.Err() == nil && (e == nil || e.Class == client.Fatal) {
				r.harness.Errorf("visit %d: %v", n, err)
			}
		} else {
			r.visits.Add(1)
		}
		pause(ctx, again)
	}
}

// visit is one of them.
func (r *soak) visit(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c, err := client.Connect(ctx, r.url, client.WithContext(r.context))
	if err != nil {
		return err
	}
	defer c.Close()
	for i, options := range [][]client.SubscribeOption{
		{},
		{client.Overflow(client.PolicyDropOld), client.QueueLimits(16, 64<<10)},
		{client.Keys("+/3", "+/7")},
		{client.FromEarliest(), client.SkipLost()},
	} {
		s, err := c.Subscribe(ctx, agedStream, options...)
		if err != nil {
			return err
		}
		for _, err := range s.Records(ctx) {
			if err != nil {
				return err
			}
			break
		}
		if (n+i)%2 == 0 { // the others go with their client
			s.Close()
		}
	}
	if n%10 != 0 {
		return nil
	}
	name := fmt.Sprintf("visit-%d", n)
	s, err := c.Subscribe(ctx, agedStream, client.Durable(name))
	if err != nil {
		return err
	}
	s.Close()
	if err := c.DeleteCursor(ctx, agedStream, name); err != nil && !errors.Is(err, client.ErrNotFound) {
		return fmt.Errorf("delete cursor %s: %w", name, err)
	}
	return nil
}
