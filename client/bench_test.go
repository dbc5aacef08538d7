// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/semaphore"

	"margay.dev/client/internal/backoff"
	"margay.dev/wire"
)

// offline is a publisher whose lanes never write: what is left is what a record costs its caller.
func offline(shards int) (*Publisher, *route) {
	cfg := config{bufferBytes: DefaultBufferBytes, publisher: publisherConfig{deliveryTimeout: DefaultDeliveryTimeout}}
	c := &Client{
		cfg: cfg, rng: backoff.NewRand(rand.New(rand.NewPCG(1, 2))), budget: semaphore.NewWeighted(cfg.bufferBytes),
		ctx: context.Background(),
	}
	p := &Publisher{c: c, cfg: cfg.publisher, ctx: context.Background(), gate: make(chan struct{}, 1)}
	r := &route{info: &wire.LogInfo{Shards: make([]wire.Route, shards)}, limits: limits{}}
	r.limits.Key, r.limits.Headers, r.limits.HeaderBytes, r.limits.Record = 4096, 64, 16<<10, 8<<20
	r.builders = newBuilders(r.limits)
	for i := range shards {
		l := newLane(p, r, uint32(i))
		l.started, l.awake = true, true
		r.lanes = append(r.lanes, l)
	}
	p.route.Store(r)
	return p, r
}

// settleAll ends everything as if it were acknowledged.
func (r *route) settleAll() {
	for _, l := range r.lanes {
		l.mu.Lock()
		l.seal()
		l.line.Abort(0, "")
		l.finish(nil)
		l.mu.Unlock()
	}
}

func publishOffline(tb testing.TB, p *Publisher, r *route, n int, rec *Record) {
	for i := range n {
		if f, err := p.add(context.Background(), rec); err != nil || f.f == nil {
			tb.Fatal(err)
		}
		if i%4096 == 4095 {
			r.settleAll()
		}
	}
}

// The budget is one allocation per record at most; batching brings it near none.
func TestPublishAllocatesNothingPerRecord(t *testing.T) {
	p, r := offline(4)
	rec := &Record{Key: []byte("key"), Value: make([]byte, 128)}
	const n = 20_000
	publishOffline(t, p, r, n, rec) // grows the builders
	if got := testing.AllocsPerRun(5, func() { publishOffline(t, p, r, n, rec) }) / n; got > 0.05 {
		t.Errorf("%.3f allocations per record", got)
	}
}

func BenchmarkPublishAdd(b *testing.B) {
	p, r := offline(4)
	rec := &Record{Key: []byte("key"), Value: make([]byte, 128)}
	b.ReportAllocs()
	publishOffline(b, p, r, b.N, rec)
}
