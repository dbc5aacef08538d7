// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// diskOf is how much the segments of a node's logs take.
func diskOf(t *testing.T, n *margaytest.Node) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(n.Dir(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(d.Name(), ".seg") {
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil // a file that was removed meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// noise is a value that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

// churn pushes and acks so many messages.
func churn(t *testing.T, q *client.Queue, g *client.Consumer, rounds, each int, ack func(*client.Message)) {
	t.Helper()
	value := noise(1000)
	for range rounds {
		for range each {
			q.PushAsync(t.Context(), client.Record{Value: value})
		}
		if err := q.Flush(await.Within(t)); err != nil {
			t.Fatal(err)
		}
		left := each
		for m, err := range g.Messages(await.Within(t)) {
			if err != nil {
				t.Fatal(err)
			}
			ack(m)
			if left--; left == 0 {
				break
			}
		}
		if err := g.Flush(await.Within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

// A queue that is used for long stays small, whatever sits in it: a message that is stuck with a consumer, one that is due in a year, one
// that is dead, one that nobody is to get yet. None of them is lost: they are what they were when the segments they came in are
// long gone, also after a restart.
func TestALongLivedQueueStaysSmall(t *testing.T) {
	t.Parallel()
	rounds := 8
	if !testing.Short() {
		rounds = 60
	}
	n := margaytest.Start(t)
	hostileQueue(t, n, control.QueueSpec{Name: "q", Fsync: new("never"), SegmentBytes: new(int64(64 << 10))})
	q := n.Connect().Queue("q")
	err := q.Group("g").Ensure(await.Within(t), client.GroupConfig{AckWait: time.Hour, Backoff: []time.Duration{time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	push := func(value string, opts ...client.RecordOption) client.MessageID {
		ack, err := q.Push(await.Within(t), client.Record{Key: []byte(value), Value: []byte(value), Headers: []client.Header{{Key: "h", Value: []byte(value)}}}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return client.MessageID{Shard: ack.Shard, Offset: ack.Offset}
	}
	late := push("late", client.Delay(100*24*time.Hour))
	push("stuck")
	push("dead")
	retried := push("retried")
	g, err := q.Consume(await.Within(t), "g", client.MaxInFlight(300))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var stuck *client.Message
	left := 3
	for m, err := range g.Messages(await.Within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		switch string(m.Value) {
		case "stuck":
			stuck = m
		case "dead":
			err = m.Reject(await.Within(t), "no")
		case "retried":
			err = m.Nack(await.Within(t), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if left--; left == 0 {
			break
		}
	}
	n0 := 0
	ack := func(m *client.Message) {
		n0++
		m.AckAsync()
	}
	churn(t, q, g, rounds, 200, ack)
	await.True(t, fmt.Sprintf("the segments to be reclaimed: %d bytes", diskOf(t, n)), func() bool { return diskOf(t, n) < 700<<10 })
	info := adds(t, q.Group("g"), uint64(4+n0))
	if info.InFlight != 1 || info.Dead != 1 || info.Delayed != 2 {
		t.Errorf("%+v", *info)
	}
	t.Logf("%d bytes, from %d to %d, next %d", diskOf(t, n), info.Shards[0].Start, info.Shards[0].End, info.Shards[0].Next)
	if err := stuck.Ack(await.Within(t)); err != nil {
		t.Errorf("ack of what was carried: %v", err)
	}
	g.Close()
	n.Restart()
	c := n.Connect()
	q = c.Queue("q")
	if g, err = q.Consume(await.Within(t), "g"); err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	churn(t, q, g, rounds, 200, ack)
	g.Close()
	n.Restart()
	q = n.Connect().Queue("q")
	info = adds(t, q.Group("g"), uint64(4+n0))
	if info.Dead != 1 || info.Delayed != 2 || info.Totals.Acked != uint64(n0+1) {
		t.Errorf("%+v", *info)
	}
	dead := 0
	for d, err := range q.Group("g").DeadLetters(await.Within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if dead++; string(d.Value) != "dead" || string(d.Key) != "dead" || len(d.Headers) != 1 || d.Error != "no" {
			t.Errorf("dead letter %+v", d)
		}
	}
	if dead != 1 {
		t.Errorf("%d dead letters", dead)
	}
	if count, err := q.Group("g").Redrive(await.Within(t), client.RedriveOptions{}); count != 1 || err != nil {
		t.Errorf("redriven %d, %v", count, err)
	}
	if count, err := q.Group("g").Reschedule(await.Within(t), time.Now(), late, retried); count != 2 || err != nil {
		t.Errorf("rescheduled %d, %v", count, err)
	}
	if g, err = q.Consume(await.Within(t), "g"); err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	want := map[string]int{"late": 1, "dead": 1, "retried": 2}
	for m, err := range g.Messages(await.Within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if attempt := want[string(m.Value)]; attempt != m.Attempt || string(m.Key) != string(m.Value) {
			t.Errorf("%q came as attempt %d", m.Value, m.Attempt)
		}
		delete(want, string(m.Value))
		if err := m.Ack(await.Within(t)); err != nil {
			t.Error(err)
		}
		if len(want) == 0 {
			break
		}
	}
	adds(t, q.Group("g"), uint64(4+n0))
	churn(t, q, g, rounds, 200, ack)
	if info = adds(t, q.Group("g"), uint64(4+n0)); info.Totals.Acked != uint64(4+n0) {
		t.Errorf("%+v", *info)
	}
	await.True(t, "the segments to be reclaimed", func() bool { return diskOf(t, n) < 700<<10 })
}

// On a stream retention goes over a group: what was removed is counted as lost, tokens of it are refused, and the rest comes.
func TestRetentionPassesOverAGroup(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	hostileStream(t, n, control.StreamSpec{Name: "s", Fsync: new("never"), SegmentBytes: new(int64(16 << 10)), MaxBytes: new(int64(1 << 20))})
	q := n.Connect().Queue("s")
	err := q.Group("g").Ensure(await.Within(t), client.GroupConfig{AckWait: time.Hour, Backoff: []time.Duration{time.Millisecond}, OrderByKey: true})
	if err != nil {
		t.Fatal(err)
	}
	value := noise(1000)
	published := 0
	push := func(count int) {
		for range count {
			q.PushAsync(t.Context(), client.Record{Key: fmt.Append(nil, published%10), Value: value, Delay: time.Duration(published%5) * time.Hour})
			published++
			if published%20 == 0 {
				if err := q.Flush(await.Within(t)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	push(100)
	g, err := q.Consume(await.Within(t), "g", client.MaxInFlight(5))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var held []*client.Message
	for m, err := range g.Messages(await.Within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if len(held) == 0 {
			if err := m.Reject(await.Within(t), "dead"); err != nil {
				t.Fatal(err)
			}
		}
		if held = append(held, m); len(held) == 2 {
			break
		}
	}
	for published < 5000 {
		push(500)
	}
	if err := q.Flush(await.Within(t)); err != nil {
		t.Fatal(err)
	}
	var info *client.GroupInfo
	await.True(t, "retention to have passed", func() bool {
		info, err = q.Group("g").Info(await.Within(t), client.Counted())
		return err == nil && info.Shards[0].Start > 200
	})
	adds(t, q.Group("g"), uint64(published))
	for _, m := range held[1:] {
		if err := m.Ack(await.Within(t)); codeOf(err) == 0 {
			t.Errorf("the ack of a message that is gone: %v", err)
		}
	}
	// What is left and not delayed comes, though messages of its keys were out when they were lost.
	ctx := await.Within(t)
	for {
		now, err := q.Group("g").Info(ctx, client.Counted())
		if err != nil {
			t.Fatal(err)
		}
		if now.Ready+now.InFlight == 0 {
			break
		}
		some, cancel := context.WithTimeout(ctx, time.Second) // what was ready may be lost meanwhile
		for m, err := range g.Messages(some) {
			if err != nil && some.Err() != nil && ctx.Err() == nil {
				break
			}
			if err != nil {
				t.Fatalf("%v; %+v", err, now)
			}
			if m.Value == nil {
				t.Error("a message without its value")
			}
			if err := m.Ack(ctx); err != nil && codeOf(err) != code.NoLongerOwner { // what is lost may have waited here
				t.Errorf("ack of %d: %v", m.Offset, err)
			}
			break
		}
		cancel()
	}
	adds(t, q.Group("g"), uint64(published))
	n.Restart()
	adds(t, n.Connect().Queue("s").Group("g"), uint64(published))
}
