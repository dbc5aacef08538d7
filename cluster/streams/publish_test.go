// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Bad input gets a typed error with a remedy and fails only itself.
func TestBadInput(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(2)})
	c := n.Connect()
	p := c.Publisher("s")
	ctx := within(t)
	for name, bad := range map[string]struct {
		rec client.Record
		c   code.Code
	}{
		"negative delay":    {client.Record{Value: []byte("x"), Delay: -time.Second}, code.BadRequest},
		"negative ttl":      {client.Record{Value: []byte("x"), TTL: -time.Second}, code.BadRequest},
		"ttl below delay":   {client.Record{Value: []byte("x"), Delay: time.Second, TTL: time.Second}, code.BadRequest},
		"long key":          {client.Record{Key: make([]byte, 5000)}, code.TooLarge},
		"large record":      {client.Record{Value: make([]byte, 9<<20)}, code.TooLarge},
		"too many headers":  {client.Record{Headers: make([]client.Header, 65)}, code.TooLarge},
		"headers too large": {client.Record{Headers: []client.Header{{Key: "a", Value: make([]byte, 17<<10)}}}, code.TooLarge},
	} {
		good := p.PublishAsync(ctx, client.Record{Value: []byte("before")})
		_, err := p.Publish(ctx, bad.rec)
		if !errors.Is(err, bad.c) {
			t.Errorf("%s: got %v, want %v", name, err, bad.c)
		}
		if _, err := good.Wait(ctx); err != nil {
			t.Errorf("%s took another record with it: %v", name, err)
		}
	}
	_, err := p.PublishBatch(ctx)
	wantCode(t, err, code.BadRequest, code.ClassFatal)
	_, err = c.Publisher("nosuch").Publish(ctx, client.Record{Value: []byte("x")})
	wantCode(t, err, code.NotFound, code.ClassFatal)
	_, err = c.Subscribe(ctx, "s", client.Shards(2))
	if !errors.Is(err, code.NotFound) && !errors.Is(err, code.BadRequest) {
		t.Errorf("subscribe to a shard that is not there: %v", err)
	}
	_, err = client.Connect(ctx, n.URL(), client.WithCA([]byte(n.Context().CA)), client.WithToken("not.a.token"))
	wantCode(t, err, code.Unauthenticated, code.ClassFatal)
	if _, err := p.Publish(ctx, client.Record{Value: []byte("still alive")}); err != nil {
		t.Fatal(err)
	}
}

// Null, empty and large values, keys and headers come back byte for byte, compressed or not.
func TestRecordsComeBackWhole(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(i * 7)
	}
	recs := []client.Record{
		{Key: []byte("k"), Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Value: big, Headers: []client.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte{}}}},
		{Key: []byte("k"), Value: []byte("v"), TTL: time.Hour, Delay: time.Minute, Timestamp: time.UnixMicro(12345)},
		{Key: bytes.Repeat([]byte("k"), 4096), Value: bytes.Repeat([]byte("compress me "), 10_000)},
	}
	for _, compression := range []client.Compression{client.NoCompression, client.Zstd} {
		c := n.Connect()
		o, err := c.Offsets(within(t), "s")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Publisher("s", client.WithCompression(compression)).PublishBatch(within(t), recs...); err != nil {
			t.Fatal(err)
		}
		for i, r := range take(t, subscribe(t, c, "s", client.FromOffset(0, o[0].Latest)), len(recs)) {
			w := recs[i]
			if !bytes.Equal(r.Key, w.Key) || (r.Key == nil) != (w.Key == nil) || !bytes.Equal(r.Value, w.Value) || (r.Value == nil) != (w.Value == nil) {
				t.Errorf("record %d: key %.20q value %.20q", i, r.Key, r.Value)
			}
			if len(r.Headers) != len(w.Headers) || r.TTL != w.TTL || r.Delay != w.Delay {
				t.Errorf("record %d: headers %v, ttl %v, delay %v", i, r.Headers, r.TTL, r.Delay)
			}
			if !w.Timestamp.IsZero() && !r.Timestamp.Equal(w.Timestamp) {
				t.Errorf("record %d: timestamp %v, want %v", i, r.Timestamp, w.Timestamp)
			}
		}
	}
}

func TestAckLevelsEndToEnd(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "always"})
	create(t, n, control.StreamSpec{Name: "interval", Fsync: new("interval"), FsyncInterval: new(control.Duration(time.Minute))})
	create(t, n, control.StreamSpec{Name: "strict", MinAck: new("quorum")})
	c := n.Connect()
	ctx := within(t)
	ack, err := c.Publisher("always").Publish(ctx, client.Record{Value: []byte("x")})
	if err != nil || !ack.Flushed || !ack.Committed || ack.Replicas != 1 || ack.AppendTime.IsZero() || ack.Generation == 0 {
		t.Errorf("always: %+v, %v", ack, err)
	}
	p := c.Publisher("interval")
	if _, err := p.Publish(ctx, client.Record{Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if ack, err = p.Publish(ctx, client.Record{Value: []byte("x")}); err != nil || ack.Flushed || !ack.Committed {
		t.Errorf("interval: %+v, %v", ack, err)
	}
	if ack, err = c.Publisher("always", client.WithAck(client.AckNone)).Publish(ctx, client.Record{Value: []byte("x")}); err != nil || ack.Committed {
		t.Errorf("none: %+v, %v", ack, err)
	}
	_, err = c.Publisher("strict", client.WithAck(client.AckNone)).Publish(ctx, client.Record{Value: []byte("x")})
	wantCode(t, err, code.BadRequest, code.ClassFatal)
}

// GC-07, ID-01: who gives up is answered at once with class unknown; what it published is stored at most
// once, and what others or it publish afterwards is untouched.
func TestGivenUpPublishes(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	p := c.Publisher("s")
	ctx := within(t)
	sure := map[string]bool{}
	maybe := map[string]bool{}
	for round := range 50 {
		a := fmt.Sprintf("a%d", round)
		cut, cancel := context.WithTimeout(ctx, time.Duration(round%5)*50*time.Microsecond)
		_, err := p.Publish(cut, client.Record{Value: []byte(a)})
		cancel()
		switch err {
		case nil:
			sure[a] = true
		default:
			maybe[a] = true
			var e *client.Error
			if !errors.As(err, &e) || e.Class == code.ClassFatal {
				t.Fatalf("a given-up publish: %v", err)
			}
		}
		b := fmt.Sprintf("b%d", round)
		if _, err := p.Publish(ctx, client.Record{Value: []byte(b)}); err != nil {
			t.Fatalf("the publish after a given-up one: %v", err)
		}
		sure[b] = true
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	o, err := c.Offsets(ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range take(t, subscribe(t, c, "s", client.FromEarliest()), int(o[0].Latest)) {
		seen[string(r.Value)]++
	}
	for v := range sure {
		if seen[v] != 1 {
			t.Errorf("%s was acknowledged and is stored %d times", v, seen[v])
		}
	}
	for v := range maybe {
		if seen[v] > 1 {
			t.Errorf("%s is stored %d times", v, seen[v])
		}
	}
}

// ID-02, ID-03: publishers ride over restarts without help; every record is stored exactly once.
func TestPublishersOverRestarts(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(2), SegmentBytes: new(int64(64 << 10))})
	const publishers, each = 4, 1500
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range publishers {
		c := n.Connect()
		wg.Go(func() {
			ctx := within(t)
			p := c.Publisher("s")
			for j := range each {
				rec := client.Record{Key: fmt.Appendf(nil, "k%d", j%5), Value: fmt.Appendf(nil, "%d/%d", i, j)}
				if j%50 == 0 {
					if _, err := p.Publish(ctx, rec); err != nil {
						t.Errorf("publisher %d, record %d: %v", i, j, err)
						return
					}
					continue
				}
				p.PublishAsync(ctx, rec)
			}
			if err := p.Flush(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	sub := subscribe(t, n.Connect(), "s", client.FromEarliest())
	for range 4 {
		n.Restart()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // load between two restarts, however little
		}
	}
	<-done
	recs := take(t, sub, publishers*each)
	contiguous(t, recs)
	seen := map[string]bool{}
	for _, r := range recs {
		if seen[string(r.Value)] {
			t.Fatalf("%s is stored twice", r.Value)
		}
		seen[string(r.Value)] = true
	}
}

// A batch is all or none within a shard, and answered for each.
func TestPublishBatch(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(4)})
	c := n.Connect()
	var recs []client.Record
	for i := range 100 {
		recs = append(recs, client.Record{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("x")})
	}
	acks, err := c.Publisher("s").PublishBatch(within(t), recs...)
	if err != nil || len(acks) != 4 {
		t.Fatalf("%d answers, %v", len(acks), err)
	}
	contiguous(t, take(t, subscribe(t, c, "s", client.FromEarliest()), 100))
}
