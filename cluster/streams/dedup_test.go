// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// ID-05: publishes of one id are answered by one rule, whatever happens between them: it counts for the window from the
// append time of its first record on.
func TestDedupWindow(t *testing.T) {
	between := map[string]func(t *testing.T, n *margaytest.Node){
		"nothing": func(*testing.T, *margaytest.Node) {},
		"restart": func(_ *testing.T, n *margaytest.Node) { n.Restart() },
		"trim": func(t *testing.T, n *margaytest.Node) {
			c := n.Connect()
			o, err := c.Offsets(within(t), "s")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Trim(within(t), "s", client.TrimBeforeOffset(0, o[0].Latest)); err != nil {
				t.Fatal(err)
			}
		},
		"settings": func(t *testing.T, n *margaytest.Node) {
			patch(t, n, "s", control.StreamPatch{SegmentAge: new(control.Duration(time.Hour + time.Duration(rand.Uint32())))})
		},
	}
	for name, happens := range between {
		t.Run(name, func(t *testing.T) {
			var clk clock
			n := margaytest.Start(t, clk.node())
			create(t, n, control.StreamSpec{Name: "s", DedupWindow: new(control.Duration(10 * time.Second)), SegmentBytes: new(int64(4 << 10))})
			ctx := within(t)
			var first uint64
			for i, again := range []bool{false, true, false, true} {
				// A publisher of its own each time, as after a crash: no producer's memory helps.
				a, err := n.Connect().Publisher("s").Publish(ctx, client.Record{DedupID: "x", Value: []byte("v")})
				if err != nil || a.Duplicate != again {
					t.Fatalf("after %d s: duplicate %v, %v; want %v", 6*i, a.Duplicate, err, again)
				}
				if again && a.Offset != first {
					t.Fatalf("after %d s: told offset %d, the first is at %d", 6*i, a.Offset, first)
				}
				first = a.Offset
				for range 4 { // so that the record lies in a segment that is not read at a start
					fill(t, n.Connect(), "s", 0, 200)
				}
				happens(t, n)
				clk.advance(6 * time.Second)
			}
		})
	}
}

func patch(t *testing.T, n *margaytest.Node, name string, p control.StreamPatch) {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	s, err := api.Stream(within(t), cc.Tenant, cc.Namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.UpdateStream(within(t), cc.Tenant, cc.Namespace, name, s.Version, p); err != nil {
		t.Fatal(err)
	}
}

// ID-03, S7: of records that many publish under one id one is stored, also over restarts of the node, and whoever is
// acknowledged is told where it is.
func TestDedupIDsOfManyPublishers(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(2), SegmentBytes: new(int64(16 << 10))})
	const publishers, ids = 6, 300
	ctx := within(t)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		told = map[string]client.Ack{}
	)
	done := make(chan struct{})
	for i := range publishers {
		c := n.Connect()
		wg.Go(func() {
			p := c.Publisher("s", client.WithCompression(client.Zstd))
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			futures := map[string]client.Future{}
			for _, k := range rng.Perm(ids) {
				id := fmt.Sprintf("id%d", k)
				futures[id] = p.PublishAsync(ctx, client.Record{DedupID: id, Value: fmt.Appendf(nil, "%s of %d", id, i)})
				if k%3 == 0 {
					p.PublishAsync(ctx, client.Record{Value: fmt.Appendf(nil, "free %d/%d", i, k)})
				}
			}
			if err := p.Flush(ctx); err != nil {
				t.Error(err)
				return
			}
			for id, f := range futures {
				a, err := f.Wait(ctx)
				if err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				mu.Lock()
				if was, ok := told[id]; ok && (was.Shard != a.Shard || was.Offset != a.Offset) {
					t.Errorf("%s is told to be at %d/%d and at %d/%d", id, was.Shard, was.Offset, a.Shard, a.Offset)
				}
				told[id] = a
				mu.Unlock()
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for range 2 {
		n.Restart()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // load between two restarts, however little
		}
	}
	<-done
	seen := map[string]int{}
	for _, r := range take(t, subscribe(t, n.Connect(), "s", client.FromEarliest()), ids+publishers*100) {
		if r.DedupID == "" {
			seen[string(r.Value)]++
			continue
		}
		seen[r.DedupID]++
		if a := told[r.DedupID]; a.Shard != r.Shard || a.Offset != r.Offset {
			t.Errorf("%s lies at %d/%d, told %d/%d", r.DedupID, r.Shard, r.Offset, a.Shard, a.Offset)
		}
	}
	for what, times := range seen {
		if times != 1 {
			t.Errorf("%s is stored %d times", what, times)
		}
	}
	if len(seen) != ids+publishers*100 {
		t.Errorf("%d records are stored, want %d", len(seen), ids+publishers*100)
	}
}

// An id counts within its shard, and beside it in no other; what has none is not concerned.
func TestDedupIDsLieInAShard(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(8)})
	p := n.Connect().Publisher("s")
	ctx := within(t)
	shards := map[uint32]bool{}
	for i := range 50 {
		a, err := p.Publish(ctx, client.Record{Key: fmt.Appendf(nil, "k%d", i), DedupID: "same"})
		if err != nil {
			t.Fatal(err)
		}
		if a.Duplicate != shards[a.Shard] {
			t.Errorf("shard %d: duplicate %v", a.Shard, a.Duplicate)
		}
		shards[a.Shard] = true
	}
	_, err := p.PublishBatch(ctx, client.Record{Key: []byte("k"), DedupID: "a"}, client.Record{Key: []byte("k")})
	wantCode(t, err, code.BadRequest, code.ClassFatal)
}
