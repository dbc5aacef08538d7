// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
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
	"margay.dev/wire/token"
)

// SB-06, RT-09: a trim begins the shard at exactly the offset, inside a batch too; who would start below is told
// out of range with the bounds, offsets go on where they were, and a restart changes nothing of it.
func TestTrim(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	batch := make([]client.Record, 100)
	for i := range batch {
		batch[i] = client.Record{Value: fmt.Appendf(nil, "v%d", i)}
	}
	if _, err := c.Publisher("s").PublishBatch(within(t), batch...); err != nil {
		t.Fatal(err)
	}
	trim := func(before client.TrimPoint, want uint64) {
		t.Helper()
		got, err := c.Trim(within(t), "s", before)
		if err != nil || len(got) != 1 || got[0].Earliest != want {
			t.Fatalf("trimmed %+v, %v; want the log to begin at %d", got, err, want)
		}
	}
	trim(client.TrimBeforeOffset(0, 42), 42)
	trim(client.TrimBeforeOffset(0, 7), 42)
	trim(client.TrimBeforeTime(time.Now().Add(-time.Hour)), 42)
	_, err := c.Trim(within(t), "s", client.TrimBeforeOffset(0, 101))
	wantCode(t, err, code.OutOfRange, code.ClassFatal)
	_, err = c.Trim(within(t), "s", client.TrimBeforeTime(time.Unix(42, 0)))
	wantCode(t, err, code.BadRequest, code.ClassFatal)
	_, err = c.Trim(within(t), "s", client.TrimBeforeOffset(9, 0))
	wantCode(t, err, code.NotFound, code.ClassFatal)
	for range 2 {
		got := take(t, subscribe(t, c, "s", client.FromEarliest()), 58)
		contiguous(t, got)
		if got[0].Offset != 42 || string(got[0].Value) != "v42" {
			t.Fatalf("the first record is %d %q", got[0].Offset, got[0].Value)
		}
		_, err = c.Subscribe(within(t), "s", client.FromOffset(0, 41))
		wantCode(t, err, code.OutOfRange, code.ClassFatal)
		skipped := take(t, subscribe(t, c, "s", client.FromOffset(0, 10), client.SkipLost()), 1)[0]
		if skipped.Offset != 42 || skipped.Gap == nil || *skipped.Gap != (client.Gap{From: 10, To: 42, Reason: client.GapRetention}) {
			t.Fatalf("the first record after a skip: %d, gap %+v", skipped.Offset, skipped.Gap)
		}
		n.Restart()
	}
	trim(client.TrimBeforeOffset(0, 100), 100)
	at := subscribe(t, c, "s", client.FromOffset(0, 100))
	n.Restart()
	ack, err := c.Publisher("s").Publish(within(t), client.Record{Value: []byte("next")})
	if err != nil || ack.Offset != 100 {
		t.Fatalf("after everything was trimmed: %+v, %v", ack, err)
	}
	if r := take(t, at, 1)[0]; r.Offset != 100 || string(r.Value) != "next" || r.Gap != nil {
		t.Fatalf("who waited at 100 gets %d %q, gap %+v", r.Offset, r.Value, r.Gap)
	}
}

// A time trims every shard, to the record that was the first at it or after it.
func TestTrimByTime(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(3)})
	c := n.Connect()
	fill(t, c, "s", 0, 60)
	last, err := c.Offsets(within(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	var latest time.Time
	for _, o := range last {
		if o.AppendTime.After(latest) {
			latest = o.AppendTime
		}
	}
	eventually(t, "the clock to move on", func() bool { return time.Now().After(latest.Add(10 * time.Millisecond)) })
	cut := latest.Add(5 * time.Millisecond)
	fill(t, c, "s", 60, 90)
	got, err := c.Trim(within(t), "s", client.TrimBeforeTime(cut))
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, s := range got {
		if s.Shard != uint32(i) || s.Earliest != last[i].Latest {
			t.Errorf("shard %d begins at %d, want %d", s.Shard, s.Earliest, last[i].Latest)
		}
	}
	for _, r := range take(t, subscribe(t, c, "s", client.FromEarliest()), 30) {
		if r.AppendTime.Before(cut) {
			t.Errorf("%q was appended at %v, before %v", r.Value, r.AppendTime, cut)
		}
	}
}

// SB-09: trims under publishers and slow readers: contiguous runs, the skips between them stated, nothing twice
// and nothing of what was trimmed after the answer.
func TestTrimUnderReaders(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(32 << 10))})
	c := n.Connect()
	const total = 3000
	fill(t, c, "s", 0, 10)
	var readers sync.WaitGroup
	for i := range 4 {
		s := subscribe(t, n.Connect(), "s", client.FromEarliest(), client.SkipLost(), client.ReceiveBuffer(32<<10), client.QueueLimits(10, 32<<10))
		readers.Go(func() {
			var next uint64
			for r, err := range s.Records(within(t)) {
				if err != nil {
					t.Errorf("reader %d: %v", i, err)
					return
				}
				if r.Gap != nil && (r.Gap.From != next || r.Gap.To != r.Offset || r.Gap.Reason != client.GapRetention) {
					t.Errorf("reader %d: gap %+v before offset %d, expected from %d", i, *r.Gap, r.Offset, next)
					return
				}
				if r.Gap == nil && r.Offset != next {
					t.Errorf("reader %d: offset %d, want %d, and no gap is stated", i, r.Offset, next)
					return
				}
				if next = r.Offset + 1; next >= total {
					return
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(within(t))
	var trims sync.WaitGroup
	trims.Go(func() {
		var was uint64
		for ctx.Err() == nil {
			o, err := c.Offsets(ctx, "s")
			if err != nil {
				return
			}
			got, err := c.Trim(ctx, "s", client.TrimBeforeOffset(0, (o[0].Earliest+o[0].Latest)/2))
			if ctx.Err() != nil {
				return
			}
			if err != nil || got[0].Earliest < was {
				t.Errorf("trim: %+v, %v, was %d", got, err, was)
				return
			}
			was = got[0].Earliest
			if o, err = c.Offsets(ctx, "s"); err == nil && o[0].Earliest < was {
				t.Errorf("trimmed to %d, and the shard begins at %d", was, o[0].Earliest)
			}
		}
	})
	p := c.Publisher("s")
	for i := 10; i < total; i++ {
		p.PublishAsync(ctx, client.Record{Value: make([]byte, 2000)})
	}
	if err := p.Flush(ctx); err != nil {
		t.Error(err)
	}
	readers.Wait()
	cancel()
	trims.Wait()
}

// Who may read and write may not trim; who may manage may, and finds the stream.
func TestTrimNeedsManage(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	fill(t, n.Connect(), "s", 0, 10)
	const name = "default/default/s"
	user := limited(t, n, "default", token.Grant{Actions: []token.Action{token.Subscribe, token.Publish}, Resource: name})
	_, err := user.Trim(within(t), name, client.TrimBeforeOffset(0, 10))
	wantCode(t, err, code.PermissionDenied, code.ClassFatal)
	stranger := limited(t, n, "acme", token.Grant{Actions: []token.Action{token.Any}, Resource: "acme/*/*"})
	_, err = stranger.Trim(within(t), name, client.TrimBeforeOffset(0, 10))
	wantCode(t, err, code.NotFound, code.ClassFatal)
	manager := limited(t, n, "default", token.Grant{Actions: []token.Action{token.Manage}, Resource: name})
	if got, err := manager.Trim(within(t), name, client.TrimBeforeOffset(0, 10)); err != nil || got[0].Earliest != 10 {
		t.Fatalf("%+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if _, err := manager.Trim(ctx, name, client.TrimBeforeOffset(0, 10)); !errors.Is(err, code.Cancelled) {
		t.Errorf("a cancelled trim: %v", err)
	}
}
