// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"testing"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
)

func TestPublishAndSubscribe(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 3)
	c := connect(t, b)
	ctx := within(t)
	p := c.Publisher("orders")
	for i := range 30 {
		ack, err := p.Publish(ctx, client.Record{
			Key: []byte{byte(i)}, Value: []byte(value(i)), Headers: []client.Header{{Key: "n", Value: []byte{byte(i)}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if ack.Replicas != 1 || !ack.Flushed || !ack.Committed || ack.Generation != 1 || ack.AppendTime.IsZero() {
			t.Fatalf("ack %+v", ack)
		}
	}
	s, err := c.Subscribe(ctx, "orders", client.FromEarliest(), client.UntilMark())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	seen := map[string]bool{}
	next := map[uint32]uint64{}
	for _, rec := range all(t, s) {
		if rec.Offset != next[rec.Shard] {
			t.Fatalf("shard %d: offset %d, want %d", rec.Shard, rec.Offset, next[rec.Shard])
		}
		next[rec.Shard]++
		seen[string(rec.Value)] = true
		if len(rec.Headers) != 1 || rec.Headers[0].Value[0] != rec.Key[0] {
			t.Fatalf("headers %v of key %v", rec.Headers, rec.Key)
		}
	}
	if len(seen) != 30 {
		t.Fatalf("read %d different records, want 30", len(seen))
	}
}
