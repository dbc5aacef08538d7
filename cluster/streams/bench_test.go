// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

// Each run of a benchmark below is a pair of rounds, one with and one without what is measured, in an order that
// alternates: what the machine does meanwhile meets both. The ratios are medians over the pairs. Run them as
// `go test ./cluster/streams -run '^$' -bench 'SlowSubscriber|Patterns' -benchtime 15x`.

// crowd is subscribers that read all they get.
type crowd struct {
	left  atomic.Int64
	done  chan struct{} // closed when the last record that a round expects has come
	all   sync.WaitGroup
	close []func()
}

// join adds a subscriber.
func (c *crowd) join(b *testing.B, cl *client.Client, stream string, opts ...client.SubscribeOption) {
	b.Helper()
	s, err := cl.Subscribe(b.Context(), stream, opts...)
	if err != nil {
		b.Fatal(err)
	}
	c.close = append(c.close, s.Close)
	c.all.Go(func() {
		for rec, err := range s.Records(context.Background()) {
			if err != nil {
				return
			}
			if rec.Gap != nil {
				b.Errorf("a subscriber that reads was told of a gap: %+v", *rec.Gap)
			}
			if c.left.Add(-1) == 0 {
				close(c.done)
			}
		}
	})
}

// expect says how many records the next round brings to all of them together.
func (c *crowd) expect(n int) <-chan struct{} {
	c.done = make(chan struct{})
	c.left.Store(int64(n))
	return c.done
}

func (c *crowd) leave() {
	for _, end := range c.close {
		end()
	}
	c.all.Wait()
}

// rates are records a second: published, and delivered to the crowd.
type rates struct{ published, delivered float64 }

// round publishes records as fast as it can and waits until the crowd has them all.
func (c *crowd) round(b *testing.B, p *client.Publisher, records, deliveries int, record func(i int) client.Record) rates {
	b.Helper()
	done := c.expect(deliveries)
	begin := time.Now()
	for i := range records {
		p.PublishAsync(b.Context(), record(i))
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	published := time.Since(begin)
	<-done
	delivered := time.Since(begin)
	return rates{float64(records) / published.Seconds(), float64(deliveries) / delivered.Seconds()}
}

// compare runs pairs of rounds and reports the ratios of the first kind to the second.
func compare(b *testing.B, first, second func() rates) {
	b.Helper()
	var published, delivered, p1, p2, d1, d2 []float64
	for n := 0; b.Loop(); n++ {
		var x, y rates
		if n%2 == 0 {
			x = first()
			y = second()
		} else {
			y = second()
			x = first()
		}
		published, delivered = append(published, x.published/y.published), append(delivered, x.delivered/y.delivered)
		p1, p2, d1, d2 = append(p1, x.published), append(p2, y.published), append(d1, x.delivered), append(d2, y.delivered)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(published), "published-ratio")
	b.ReportMetric(median(delivered), "delivered-ratio")
	b.ReportMetric(median(p1), "published/s")
	b.ReportMetric(median(p2), "published/s-without")
	b.ReportMetric(median(d1), "delivered/s")
	b.ReportMetric(median(d2), "delivered/s-without")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// benchNode is a node with a stream whose disk is not what is measured.
func benchNode(b *testing.B) *margaytest.Node {
	b.Helper()
	n := margaytest.Start(b)
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		b.Fatal(err)
	}
	defer api.Close()
	spec := control.StreamSpec{Name: "s", Fsync: new(control.FsyncNever), Ack: new(control.AckLeader)}
	if _, err := api.CreateStream(b.Context(), cc.Tenant, cc.Namespace, spec); err != nil {
		b.Fatal(err)
	}
	return n
}

// What 99 subscribers and their publisher get with and without a hundredth that has stopped reading, under each overflow
// policy (R3).
func BenchmarkSlowSubscriber(b *testing.B) {
	const (
		readers = 99
		records = 16_000
		clients = 9
	)
	value := make([]byte, 256)
	for name, policy := range map[string]client.Policy{
		"drop_new": client.PolicyDropNew, "drop_old": client.PolicyDropOld, "catch_up": client.PolicyCatchUp, "disconnect": client.PolicyDisconnect,
	} {
		b.Run(name, func(b *testing.B) {
			n := benchNode(b)
			var c crowd
			defer c.leave()
			for range clients {
				cl := n.Connect()
				for range readers / clients {
					c.join(b, cl, "s", client.Overflow(client.PolicyCatchUp))
				}
			}
			p := n.Connect().Publisher("s")
			round := func() rates {
				return c.round(b, p, records, readers*records, func(int) client.Record { return client.Record{Value: value} })
			}
			with := func() rates {
				// On a connection of its own, and new in each round: under some policies its subscription has ended.
				cl := n.Connect()
				defer cl.Close()
				s, err := cl.Subscribe(b.Context(), "s", client.Overflow(policy), client.QueueLimits(100, 64<<10), client.ReceiveBuffer(64<<10))
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				return round()
			}
			round() // windows and buffers grow in the first one
			compare(b, with, round)
		})
	}
}

// What a publisher and its subscriber get when 9,999 others are there with a pattern of their own each, and when nobody
// else is: what patterns cost that select nothing. With "spread" each record goes to another of them, which is the cost of
// 10,000 lanes and no longer one of patterns.
func BenchmarkPatterns(b *testing.B) {
	const (
		patterns = 10_000
		perConn  = 1000
	)
	value := make([]byte, 100)
	for name, bench := range map[string]struct {
		records int
		key     func(i int) []byte
	}{
		"one_selects": {200_000, func(i int) []byte { return fmt.Appendf(nil, "device/0/%d", i%1000) }},
		"spread":      {20_000, func(i int) []byte { return fmt.Appendf(nil, "device/%d/0", i%patterns) }},
	} {
		b.Run(name, func(b *testing.B) {
			record := func(i int) client.Record { return client.Record{Key: bench.key(i), Value: value} }
			many, one := benchNode(b), benchNode(b)
			var ofMany, ofOne crowd
			defer ofMany.leave()
			defer ofOne.leave()
			var cl *client.Client
			for i := range patterns {
				if i%perConn == 0 {
					cl = many.Connect()
				}
				ofMany.join(b, cl, "s", client.Overflow(client.PolicyCatchUp), client.Keys(fmt.Sprintf("device/%d/+", i)))
			}
			ofOne.join(b, one.Connect(), "s", client.Overflow(client.PolicyCatchUp), client.Keys("device/+/+"))
			pm, po := many.Connect().Publisher("s"), one.Connect().Publisher("s")
			with := func() rates { return ofMany.round(b, pm, bench.records, bench.records, record) }
			without := func() rates { return ofOne.round(b, po, bench.records, bench.records, record) }
			with()
			without()
			compare(b, with, without)
		})
	}
}
