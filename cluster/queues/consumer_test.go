// SPDX-License-Identifier: Apache-2.0

// Package queues_test holds what producers and consumers of queues are promised to a whole node, over QUIC and over TLS.
package queues_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t testing.TB) context.Context {
	t.Helper()
	return await.Within(t)
}

// queued is a node with a queue of some shards, and a client's handle to it.
func queued(t testing.TB, shards int) (*margaytest.Node, *client.Queue) {
	t.Helper()
	n := margaytest.Start(t)
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.CreateQueue(within(t), cc.Tenant, cc.Namespace, control.QueueSpec{Name: "q", Shards: &shards}); err != nil {
		t.Fatal(err)
	}
	return n, n.Connect().Queue("q")
}

func push(t testing.TB, q *client.Queue, values ...string) []client.MessageID {
	t.Helper()
	ids := make([]client.MessageID, len(values))
	for i, v := range values {
		a, err := q.Push(within(t), client.Record{Key: []byte(v), Value: []byte(v)})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = client.MessageID{Shard: a.Shard, Offset: a.Offset}
	}
	return ids
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%04d", i)
	}
	return out
}

func consume(t testing.TB, q *client.Queue, group string, opts ...client.ConsumeOption) *client.Consumer {
	t.Helper()
	g, err := q.Consume(within(t), group, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

func take(t testing.TB, g *client.Consumer, n int) []*client.Message {
	t.Helper()
	var out []*client.Message
	for m, err := range g.Messages(within(t)) {
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(out), n, err)
		}
		if out = append(out, m); len(out) == n {
			break
		}
	}
	return out
}

func valuesOf(ms []*client.Message) []string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = string(m.Value)
	}
	slices.Sort(out)
	return out
}

func ack(t testing.TB, ms ...*client.Message) {
	t.Helper()
	for _, m := range ms {
		m.AckAsync()
	}
	for _, m := range ms {
		if err := m.Ack(within(t)); err != nil {
			t.Fatalf("ack of %s: %v", m.ID(), err)
		}
	}
}

func info(t testing.TB, q *client.Queue, group string) *client.GroupInfo {
	t.Helper()
	i, err := q.Group(group).Info(within(t), client.Counted())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// QU-14: what was acked does not come again after a restart, and what was not does.
func TestAcksOutliveARestart(t *testing.T) {
	n, q := queued(t, 3)
	push(t, q, numbered(300)...)
	g := consume(t, q, "workers", client.MaxInFlight(1000))
	ms := take(t, g, 300)
	var odd, even []*client.Message
	for i, m := range ms {
		if i%2 == 0 {
			even = append(even, m)
		} else {
			odd = append(odd, m)
		}
	}
	ack(t, odd...)
	n.Restart()
	again := take(t, g, 150)
	if got := valuesOf(again); !slices.Equal(got, valuesOf(even)) {
		t.Fatalf("%d came again, want the %d that were not acked", len(got), len(even))
	}
	for _, m := range again {
		if m.Attempt != 1 {
			t.Fatalf("attempt %d: a restart counts none", m.Attempt)
		}
	}
	ack(t, again...)
	if i := info(t, q, "workers"); i.Totals.Acked != 300 || i.Ready+i.InFlight+i.Delayed+i.Dead != 0 {
		t.Fatalf("info %+v", i)
	}
}

// What was settled while the node was away counts, although the consumer asks for messages as soon as it is there again: it says
// first what it has done.
func TestAcksWithoutANodeCount(t *testing.T) {
	n, q := queued(t, 2)
	push(t, q, numbered(40)...)
	g := consume(t, q, "workers")
	ms := take(t, g, 20)
	n.Stop()
	var settled []*client.Settlement
	for _, m := range ms {
		settled = append(settled, m.AckAsync())
	}
	n.StartAgain()
	for i, s := range settled {
		if err := s.Wait(within(t)); err != nil {
			t.Fatalf("ack of %s: %v, class %v", ms[i].ID(), err, client.AsError(err).Class)
		}
	}
	rest := take(t, g, 20)
	if got := slices.Compact(append(valuesOf(rest), valuesOf(ms)...)); len(got) != 40 {
		t.Fatalf("%q came again", got)
	}
	ack(t, rest...)
	if i := info(t, q, "workers"); i.Totals.Acked != 40 || i.Ready+i.InFlight != 0 {
		t.Fatalf("info %+v", i)
	}
}

// QU-15: a consumer that leaves takes nothing along.
func TestLeavingGivesBack(t *testing.T) {
	n, q := queued(t, 2)
	push(t, q, numbered(10)...)
	g := consume(t, q, "workers")
	first := take(t, g, 4)
	ack(t, first[0])
	g.Close()
	ms := take(t, consume(t, n.Connect().Queue("q"), "workers"), 9)
	for _, m := range ms {
		if m.Attempt != 1 {
			t.Fatalf("attempt %d of %s", m.Attempt, m.Value)
		}
	}
	ack(t, ms...)
}

// QU-02, QU-19: attempts are counted to the dead letters, and the numbers add up at each step.
func TestHandlersAttemptsDeadLettersAndRedrive(t *testing.T) {
	_, q := queued(t, 2)
	cfg := client.GroupConfig{MaxAttempts: 3, Backoff: []time.Duration{time.Millisecond}}
	if err := q.Group("workers").Ensure(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	push(t, q, numbered(20)...)
	g := consume(t, q, "workers")
	var mu sync.Mutex
	attempts := map[string][]int{}
	var heal atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- g.Handle(ctx, 4, func(_ context.Context, m *client.Message) error {
			mu.Lock()
			attempts[string(m.Value)] = append(attempts[string(m.Value)], m.Attempt)
			mu.Unlock()
			switch last := m.Value[len(m.Value)-1]; {
			case heal.Load() || last > '2':
				return nil
			case last == '0':
				panic("at the disco")
			case last == '1':
				return client.RejectMessage(errors.New("never"))
			}
			return errors.New("not yet")
		})
	}()
	await.True(t, "every message to come to an end", func() bool {
		i := info(t, q, "workers")
		return i.Totals.Acked == 14 && i.Dead == 6 && i.Ready+i.InFlight+i.Delayed == 0
	})
	mu.Lock()
	if a := attempts["m0010"]; !slices.Equal(a, []int{1, 2, 3}) {
		t.Errorf("attempts %v", a)
	}
	if a := attempts["m0011"]; !slices.Equal(a, []int{1}) {
		t.Errorf("attempts %v", a)
	}
	mu.Unlock()
	reasons := map[client.DeadReason]int{}
	for m, err := range q.Group("workers").DeadLetters(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		reasons[m.Reason]++
		if m.Error == "" || m.Since.IsZero() || m.State != client.Dead || string(m.Key) != string(m.Value) {
			t.Errorf("dead letter %+v", m)
		}
	}
	if reasons[client.DeadAttempts] != 4 || reasons[client.DeadRejected] != 2 {
		t.Errorf("reasons %v", reasons)
	}
	heal.Store(true)
	if n, err := q.Group("workers").Redrive(within(t), client.RedriveOptions{}); err != nil || n != 6 {
		t.Fatalf("redriven %d, %v", n, err)
	}
	await.True(t, "the redriven to be acked", func() bool { return info(t, q, "workers").Totals.Acked == 20 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// A message and what follows from it are one step.
func TestAckAndPublish(t *testing.T) {
	n, q := queued(t, 2)
	push(t, q, "a", "b")
	g := consume(t, q, "workers")
	for _, m := range take(t, g, 2) {
		acks, err := m.AckAndPublish(within(t), client.Record{ShardKey: m.Key, Value: append([]byte("after "), m.Value...)})
		if err != nil || len(acks) != 1 || acks[0].Shard != m.Shard {
			t.Fatalf("%+v, %v", acks, err)
		}
		_, err = m.AckAndPublish(within(t), client.Record{Value: []byte("x")})
		if !errors.Is(err, client.ErrNoLongerOwner) {
			t.Fatalf("again: %v", err)
		}
	}
	n.Restart()
	ms := take(t, g, 2)
	if got := valuesOf(ms); !slices.Equal(got, []string{"after a", "after b"}) {
		t.Fatalf("got %q", got)
	}
	late := ms[0]
	ack(t, ms...)
	if err := q.Group("workers").Reset(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := late.Extend(within(t), 0); !errors.Is(err, client.ErrNoLongerOwner) {
		t.Fatalf("extend: %v", err)
	}
	ack(t, take(t, g, 4)...)
}

// QU-07, QU-08: what is delayed comes when it is due; cancelled it does not, rescheduled it comes then.
func TestDelayCancelReschedule(t *testing.T) {
	_, q := queued(t, 1)
	g := consume(t, q, "workers")
	var ids []client.MessageID
	begun := time.Now()
	for i, d := range []time.Duration{300 * time.Millisecond, time.Hour, time.Hour} {
		a, err := q.Push(within(t), client.Record{Value: fmt.Appendf(nil, "%d", i)}, client.Delay(d))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, client.MessageID{Shard: a.Shard, Offset: a.Offset})
	}
	m := take(t, g, 1)[0]
	if string(m.Value) != "0" || time.Since(begun) < 300*time.Millisecond {
		t.Fatalf("got %q after %v", m.Value, time.Since(begun))
	}
	ack(t, m)
	if n, err := q.Cancel(within(t), ids[1]); err != nil || n != 1 {
		t.Fatalf("cancelled %d, %v", n, err)
	}
	if n, err := q.Reschedule(within(t), time.Now(), ids[2]); err != nil || n != 1 {
		t.Fatalf("rescheduled %d, %v", n, err)
	}
	if m = take(t, g, 1)[0]; string(m.Value) != "2" {
		t.Fatalf("got %q", m.Value)
	}
	ack(t, m)
	if i := info(t, q, "workers"); i.Totals.Acked != 2 || i.Totals.Cancelled != 1 || i.Delayed != 0 {
		t.Fatalf("info %+v", i)
	}
}

// Find, Peek and the list of groups see what there is, and take nothing.
func TestLookingTakesNothing(t *testing.T) {
	_, q := queued(t, 2)
	push(t, q, numbered(30)...)
	for _, name := range []string{"b", "a"} {
		if err := q.Group(name).Ensure(within(t), client.GroupConfig{}); err != nil {
			t.Fatal(err)
		}
	}
	g := consume(t, q, "a", client.MaxInFlight(5), client.ConsumerName("me"))
	ack(t, take(t, g, 3)...)
	count := func(opts ...client.FindOption) (n int) {
		for _, err := range q.Find(within(t), opts...) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	if n := count(); n != 30 {
		t.Errorf("found %d records", n)
	}
	if n := count(client.OfGroup("a")); n != 27 {
		t.Errorf("found %d that are not settled", n)
	}
	if n := count(client.OfGroup("b"), client.Prefix("m001")); n != 10 {
		t.Errorf("found %d of the prefix", n)
	}
	if ms, err := q.Peek(within(t), 4, client.OfGroup("b")); err != nil || len(ms) != 4 || ms[0].State != client.Ready {
		t.Errorf("peeked %+v, %v", ms, err)
	}
	all, err := q.Groups(within(t), client.Counted())
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Ready != 30 {
		t.Errorf("groups %+v, %+v, %v", *all[0], *all[1], err)
	}
	if i := info(t, q, "a"); len(i.Consumers) != 1 || i.Consumers[0].Name != "me" || i.Consumers[0].InFlight != 5 || i.InFlight != 5 {
		t.Errorf("consumers %+v", i.Consumers)
	}
	if err := q.Group("a").Delete(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, err := range g.Messages(within(t)) {
		if err != nil {
			if !errors.Is(err, client.ErrDeleted) && !errors.Is(err, client.ErrNotFound) {
				t.Errorf("ended with %v", err)
			}
			return
		}
	}
	t.Error("the consumer of a deleted group ended silently")
}

// A consumer that is slow to ask gives back what waits for its turn: nobody's attempt, and others can have it.
func TestWhatWaitsIsNotAnAttempt(t *testing.T) {
	n, q := queued(t, 1)
	if err := q.Group("workers").Ensure(within(t), client.GroupConfig{AckWait: time.Second}); err != nil {
		t.Fatal(err)
	}
	push(t, q, numbered(10)...)
	g := consume(t, q, "workers")
	ack(t, take(t, g, 1)...)
	ms := take(t, consume(t, n.Connect().Queue("q"), "workers"), 9)
	for _, m := range ms {
		if m.Attempt != 1 {
			t.Errorf("%s: attempt %d", m.Value, m.Attempt)
		}
	}
	ack(t, ms...)
}

func BenchmarkConsume(b *testing.B) {
	_, q := queued(b, 1)
	g := consume(b, q, "workers", client.MaxInFlight(20_000))
	value := make([]byte, 100)
	for range b.N {
		q.PushAsync(b.Context(), client.Record{Value: value})
	}
	if err := q.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	n := 0
	for m, err := range g.Messages(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
		m.AckAsync()
		if n++; n == b.N {
			break
		}
	}
	if err := g.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
