// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; no test passes by it.
const patience = await.Patience

func within(t *testing.T) context.Context {
	t.Helper()
	return await.Within(t)
}

// create makes a stream and waits until its shards are open: who speaks frames without the client is told
// "opening" before that.
func create(t *testing.T, n *margaytest.Node, spec control.StreamSpec) {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.CreateStream(within(t), cc.Tenant, cc.Namespace, spec); err != nil {
		t.Fatal(err)
	}
	c := n.Connect()
	defer c.Close()
	if _, err := c.Offsets(within(t), spec.Name); err != nil {
		t.Fatal(err)
	}
}

// fill publishes n records "v0".."vn-1" and waits for all of them.
func fill(t *testing.T, c *client.Client, stream string, from, to int) {
	t.Helper()
	ctx := within(t)
	p := c.Publisher(stream)
	for i := from; i < to; i++ {
		p.PublishAsync(ctx, client.Record{Key: fmt.Appendf(nil, "k%d", i%17), Value: fmt.Appendf(nil, "v%d", i)})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, c *client.Client, stream string, opts ...client.SubscribeOption) *client.Subscription {
	t.Helper()
	s, err := c.Subscribe(within(t), stream, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// take reads n records.
func take(t *testing.T, s *client.Subscription, n int) []client.Record {
	t.Helper()
	var out []client.Record
	if n == 0 {
		return nil
	}
	for r, err := range s.Records(within(t)) {
		if err != nil {
			t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		out = append(out, r)
		if len(out) == n {
			break
		}
	}
	if len(out) != n {
		t.Fatalf("the subscription ended after %d of %d records", len(out), n)
	}
	return out
}

// contiguous demands offsets without gap or repeat in each shard, the first one of a shard at least from.
func contiguous(t *testing.T, recs []client.Record) {
	t.Helper()
	next := map[uint32]uint64{}
	for i, r := range recs {
		if want, seen := next[r.Shard]; seen && r.Offset != want {
			t.Fatalf("record %d of shard %d has offset %d, want %d", i, r.Shard, r.Offset, want)
		}
		if r.Gap != nil {
			t.Fatalf("record %d of shard %d comes with a gap %+v", i, r.Shard, *r.Gap)
		}
		next[r.Shard] = r.Offset + 1
	}
}

func wantCode(t *testing.T, err error, c code.Code, class code.Class) {
	t.Helper()
	if !errors.Is(err, c) {
		t.Fatalf("got %v, want %v", err, c)
	}
	var e *client.Error
	if !errors.As(err, &e) || e.Class != class {
		t.Fatalf("%v has class %v, want %v", err, e.Class, class)
	}
	if e.Code.Remedy() == "" {
		t.Fatalf("%v names no remedy", err)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	await.True(t, what, cond)
}
