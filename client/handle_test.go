// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire/code"
)

// handling runs Handle until stop is called, which returns what Handle did.
func handling(t *testing.T, g *client.Consumer, n int, fn func(context.Context, *client.Message) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.Handle(ctx, n, fn) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

func settledIn(b *fakebroker.Broker, gs *fakebroker.GroupShard) (settled, dead int) {
	b.Change(func() { settled, dead = len(gs.Settled), len(gs.Dead) })
	return settled, dead
}

func TestHandleSettlesAsTheHandlerSays(t *testing.T) {
	b, l, q := queued(t, 1)
	group := b.Group(l, "workers")
	group.Settings.Backoff = []uint64{1000}
	group.Settings.MaxAttempts = 3
	b.Feed(l, 0, "fine", "fails", "panics", "reject", "retry", "own")
	g := consume(t, q)
	var mu sync.Mutex
	tries := map[string]int{}
	stop := handling(t, g, 4, func(ctx context.Context, m *client.Message) error {
		mu.Lock()
		tries[string(m.Value)]++
		mu.Unlock()
		switch string(m.Value) {
		case "fails":
			return errors.New("it cannot be")
		case "panics":
			panic("at the disco")
		case "reject":
			return client.RejectMessage(errors.New("never"))
		case "retry":
			if m.Attempt == 1 {
				return client.RetryAfter(time.Millisecond, errors.New("later"))
			}
		case "own":
			return errors.Join(m.Ack(ctx), errors.New("acked nevertheless"))
		}
		return nil
	})
	gs := group.Shards[0]
	eventually(t, "every message to come to its end", func() bool {
		settled, dead := settledIn(b, gs)
		return settled == 3 && dead == 3
	})
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	b.Change(func() {
		dead := gs.Dead
		if dead[1] != "it cannot be" || dead[2] != "panic: at the disco" || dead[3] != "never" {
			t.Errorf("dead letters %v", dead)
		}
	})
	want := map[string]int{"fine": 1, "fails": 3, "panics": 3, "reject": 1, "retry": 2, "own": 1}
	for v, n := range want {
		if tries[v] != n {
			t.Errorf("%q was tried %d times, want %d", v, tries[v], n)
		}
	}
	if c := b.Consumes(); c[len(c)-1].Concurrency != 4 {
		t.Fatalf("asked for %+v", c)
	}
}

func TestHandleKeepsClaimsAlive(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Group(l, "workers").Settings.AckWait = 200_000
	b.Feed(l, 0, "a", "b")
	g := consume(t, q)
	var calls atomic.Int32
	release := make(chan struct{})
	stop := handling(t, g, 2, func(ctx context.Context, _ *client.Message) error {
		calls.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return nil
	})
	eventually(t, "several extensions", func() bool { return len(b.Extends()) >= 6 })
	close(release)
	gs := b.Group(l, "workers").Shards[0]
	eventually(t, "both to be settled", func() bool { n, _ := settledIn(b, gs); return n == 2 })
	_ = stop()
	if calls.Load() != 2 {
		t.Fatalf("%d calls", calls.Load())
	}
	joined := 0
	for _, x := range b.Extends() {
		joined = max(joined, len(x.Tokens))
	}
	if joined != 2 {
		t.Fatalf("extensions do not share frames: %+v", b.Extends())
	}
}

func TestLostClaimEndsTheHandlersContext(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Group(l, "workers").Settings.AckWait = 200_000
	b.Feed(l, 0, "a")
	g := consume(t, q)
	cause := make(chan error, 10)
	stop := handling(t, g, 1, func(ctx context.Context, m *client.Message) error {
		gs := b.Group(l, "workers").Shards[0]
		b.Change(func() { gs.Settled[m.Offset] = true }) // somebody else was handed it, and is done
		b.EndShard(0, code.Opening)                      // the broker forgets the claim
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	})
	select {
	case err := <-cause:
		if !errors.Is(err, client.ErrNoLongerOwner) {
			t.Fatalf("ended with %v", err)
		}
	case <-within(t).Done():
		t.Fatal("the context does not end")
	}
	_ = stop()
}

// What is interrupted because Handle is to stop is given back, and counts as no attempt.
func TestInterruptedHandlerCountsNoAttempt(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a")
	g := consume(t, q)
	begun := make(chan struct{})
	stop := handling(t, g, 3, func(ctx context.Context, _ *client.Message) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	})
	<-begun
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatalf("ended with %v", err)
	}
	m := messages(t, g, 1)[0]
	if m.Attempt != 1 {
		t.Fatalf("attempt %d", m.Attempt)
	}
}

func TestDrainLetsHandlersFinish(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 0, "a", "b")
	b.Feed(l, 1, "c", "d")
	g := consume(t, q, client.Concurrency(2))
	begun := make(chan struct{}, 2)
	release := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- g.Handle(t.Context(), 2, func(ctx context.Context, _ *client.Message) error {
			begun <- struct{}{}
			<-release
			return ctx.Err()
		})
	}()
	<-begun
	<-begun
	drained := make(chan error, 1)
	go func() { drained <- g.Drain(within(t)) }()
	other := consume(t, connect(t, b).Queue("orders"))
	rest := messages(t, other, 2)
	close(release)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	wantError(t, <-result, client.ErrClosed, client.Fatal)
	ack(t, rest...)
	n, _ := settledIn(b, b.Group(l, "workers").Shards[0])
	m, _ := settledIn(b, b.Group(l, "workers").Shards[1])
	if n+m != 4 || len(b.Consumes()) != 3 { // the first found no group
		t.Fatalf("%d and %d settled, %d lanes", n, m, len(b.Consumes()))
	}
}

func TestHandleRefusesNonsense(t *testing.T) {
	_, _, q := queued(t, 1)
	g := consume(t, q)
	wantError(t, g.Handle(t.Context(), 0, func(context.Context, *client.Message) error { return nil }), client.ErrBadRequest, client.Fatal)
	wantError(t, g.Handle(t.Context(), 1, nil), client.ErrBadRequest, client.Fatal)
}

// Ack and publish are one batch: stored and settled, or neither.
func TestAckAndPublish(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 1, "a", "b")
	g := consume(t, q)
	ms := messages(t, g, 2)
	here, there := keyOf(t, q, 1), keyOf(t, q, 0)
	_, err := ms[0].AckAndPublish(within(t), client.Record{Key: []byte(there), Value: []byte("x")})
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	_, err = ms[0].AckAndPublish(within(t), client.Record{DedupID: "d", Value: []byte("x")})
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	acks, err := ms[0].AckAndPublish(within(t), client.Record{Value: []byte("one")}, client.Record{Key: []byte(here), Value: []byte("two")},
		client.Record{Key: []byte(there), ShardKey: []byte(here), Value: []byte("three")})
	if err != nil {
		t.Fatal(err)
	}
	if len(acks) != 3 || acks[0].Shard != 1 || acks[2].Offset != acks[0].Offset+2 {
		t.Fatalf("acks %+v", acks)
	}
	if !ms[0].Settled() || ms[0].Ack(within(t)) != nil || g.InFlight() != 1 {
		t.Fatal("it is not settled")
	}
	if got := b.Values(l, 1); !slices.Equal(got, []string{"a", "b", "one", "two", "three"}) {
		t.Fatalf("stored %q", got)
	}
	ack(t, ms[1])
	_, err = ms[1].AckAndPublish(within(t), client.Record{Value: []byte("x")})
	wantError(t, err, client.ErrNoLongerOwner, client.Fatal)
	if acks, err := messages(t, g, 1)[0].AckAndPublish(within(t)); err != nil || acks != nil {
		t.Fatalf("a plain ack: %v, %v", acks, err)
	}
}

// keyOf is a key of a shard.
func keyOf(t *testing.T, q *client.Queue, shard uint32) string {
	t.Helper()
	for i := range 1000 {
		key := "k" + value(i)
		if s, err := q.ShardOf(within(t), client.Record{Key: []byte(key)}); err != nil {
			t.Fatal(err)
		} else if s == shard {
			return key
		}
	}
	t.Fatal("no key")
	return ""
}

// A batch that settles is sent again as it was, also under another producer id.
func TestAckAndPublishIsSentAgainAsItWas(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a", "b")
	g := consume(t, q)
	ms := messages(t, g, 2)
	if _, err := q.Push(within(t), client.Record{Value: []byte("first")}); err != nil {
		t.Fatal(err)
	}
	b.Change(func() { l.Shards[0].Forget() })
	var tries atomic.Int32
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict {
			return fakebroker.Verdict{Kill: tries.Add(1) == 2, Apply: true}
		}
	})
	if _, err := ms[0].AckAndPublish(within(t), client.Record{Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if n := tries.Load(); n < 3 { // the producer is unknown; the answer is lost; a duplicate
		t.Fatalf("%d tries", n)
	}
	if got := b.Values(l, 0); strings.Join(got, " ") != "a b first x" {
		t.Fatalf("stored %q", got)
	}
}

// A claim that has ended stores nothing; the message can be dealt with otherwise then.
func TestAckAndPublishOfALostClaimStoresNothing(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Group(l, "workers").Settings.AckWait = 100_000
	b.Feed(l, 0, "a")
	g := consume(t, q)
	m := messages(t, g, 1)[0]
	again := messages(t, g, 1)[0]
	_, err := m.AckAndPublish(within(t), client.Record{Value: []byte("x")})
	wantError(t, err, client.ErrNoLongerOwner, client.Fatal)
	if got := b.Values(l, 0); len(got) != 1 || m.Settled() {
		t.Fatalf("stored %q", got)
	}
	if m.DedupID() != again.DedupID() || !strings.HasPrefix(m.DedupID(), "q") || len(m.DedupID()) > 128 {
		t.Fatalf("dedup ids %q and %q", m.DedupID(), again.DedupID())
	}
}

// A group that is gone says nothing about the queue: what others push goes on.
func TestAckAndPublishForADeletedGroup(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a")
	g := consume(t, q)
	m := messages(t, g, 1)[0]
	hold := make(chan struct{})
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(p fakebroker.Publish) fakebroker.Verdict {
			if p.Values[0] == "x" {
				return fakebroker.Verdict{Hold: hold, Err: code.New(code.NotFound, "no such group")}
			}
			return fakebroker.Verdict{}
		}
	})
	result := make(chan error, 1)
	go func() {
		_, err := m.AckAndPublish(within(t), client.Record{Value: []byte("x")})
		result <- err
	}()
	eventually(t, "the batch", func() bool { return len(b.Publishes()) == 1 })
	f := q.PushAsync(within(t), client.Record{Value: []byte("y")})
	close(hold)
	wantError(t, <-result, client.ErrNotFound, client.Fatal)
	if _, err := f.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
}
