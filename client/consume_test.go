// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// queued is a broker with a queue of some shards, and a client's handle to it.
func queued(t testing.TB, shards int) (*fakebroker.Broker, *fakebroker.Log, *client.Queue) {
	t.Helper()
	b := fakebroker.New(t)
	l := b.AddLog(stream, shards)
	return b, l, connect(t, b).Queue("orders")
}

func consume(t testing.TB, q *client.Queue, opts ...client.ConsumeOption) *client.Consumer {
	t.Helper()
	g, err := q.Consume(within(t), "workers", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// messages takes n messages.
func messages(t testing.TB, g *client.Consumer, n int) []*client.Message {
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
	var out []string
	for _, m := range ms {
		out = append(out, string(m.Value))
	}
	slices.Sort(out)
	return out
}

func ack(t testing.TB, ms ...*client.Message) {
	t.Helper()
	for _, m := range ms {
		if err := m.Ack(within(t)); err != nil {
			t.Fatalf("ack of %s: %v", m.ID(), err)
		}
	}
}

func TestPushConsumeAck(t *testing.T) {
	b, l, q := queued(t, 3)
	for i := range 30 {
		if _, err := q.Push(within(t), client.Record{Key: []byte(value(i)), Value: []byte(value(i)), Headers: []client.Header{{Key: "h", Value: []byte("x")}}}, client.Priority(i%10), client.TTL(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	g := consume(t, q, client.ConsumerName("me"))
	ms := messages(t, g, 30)
	for _, m := range ms {
		if m.Attempt != 1 || string(m.Key) != string(m.Value) || len(m.Headers) != 1 || m.Generation != 1 || m.AppendTime.IsZero() || m.TTL != time.Hour {
			t.Fatalf("got %+v", m)
		}
		if m.Priority > 9 {
			t.Fatalf("priority %d", m.Priority)
		}
	}
	ack(t, ms...)
	ack(t, ms...) // double ack is harmless
	if got := valuesOf(ms); len(slices.Compact(got)) != 30 {
		t.Fatalf("got %v", got)
	}
	group := b.Group(l, "workers")
	settled := 0
	for _, s := range group.Shards {
		b.Change(func() { settled += len(s.Settled) })
	}
	if settled != 30 || g.InFlight() != 0 {
		t.Fatalf("%d settled, %d in flight", settled, g.InFlight())
	}
	if err := ms[0].Nack(within(t), 0); !errors.Is(err, client.ErrNoLongerOwner) {
		t.Fatalf("nack of what was acked: %v", err)
	}
	if c := b.Consumes(); c[len(c)-1].Consumer != "me" || c[len(c)-1].Concurrency != 1 || c[len(c)-1].MaxInFlight != client.DefaultMaxInFlight {
		t.Fatalf("asked for %+v", c)
	}
}

func TestGroupMustExist(t *testing.T) {
	b, _, q := queued(t, 2)
	_, err := q.Consume(within(t), "workers", client.MustExist())
	wantError(t, err, client.ErrNotFound, client.Fatal)
	for _, name := range []string{"", "UPPER", "a/b"} {
		_, err = q.Consume(within(t), name)
		wantError(t, err, client.ErrBadRequest, client.Fatal)
	}
	if len(b.Commands()) != 0 {
		t.Fatalf("commands: %+v", b.Commands())
	}
	consume(t, q)
	cs := b.Commands()
	if len(cs) != 2 || cs[0].Op != wire.GroupCreate || cs[0].Shard != 0 || cs[0].GroupID != 0 || cs[1].GroupID == 0 || cs[0].ID != cs[1].ID {
		t.Fatalf("commands: %+v", cs)
	}
}

func TestNackComesAgainAndRejectDoesNot(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a", "b", "c")
	g := consume(t, q)
	ms := messages(t, g, 3)
	if err := ms[0].Nack(within(t), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := ms[1].Reject(within(t), "bad \xff"+string(make([]byte, 1000))); err != nil {
		t.Fatal(err)
	}
	if err := ms[2].Release(within(t)); err != nil {
		t.Fatal(err)
	}
	again := messages(t, g, 2)
	slices.SortFunc(again, func(x, y *client.Message) int { return int(x.Offset) - int(y.Offset) })
	if string(again[0].Value) != "a" || again[0].Attempt != 2 || string(again[1].Value) != "c" || again[1].Attempt != 1 {
		t.Fatalf("got %s (%d), %s (%d)", again[0].Value, again[0].Attempt, again[1].Value, again[1].Attempt)
	}
	for _, after := range []time.Duration{-1, 1<<63 - 1} {
		if err := again[0].Nack(within(t), after); !errors.Is(err, client.ErrBadRequest) {
			t.Fatalf("nack after %v: %v", after, err)
		}
	}
	ack(t, again...)
	var dead []string
	for m, err := range q.Group("workers").DeadLetters(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		dead = append(dead, string(m.Value))
		if len(m.Error) > 256 || m.State != client.Dead || m.Reason != client.DeadRejected {
			t.Fatalf("dead letter %+v", m)
		}
	}
	if !slices.Equal(dead, []string{"b"}) {
		t.Fatalf("dead letters %q", dead)
	}
}

// A lane that breaks is joined again; what was acked and not answered is sent again under its claims; what was not settled can be;
// what was not handed to the application comes again.
func TestConsumerSurvivesItsConnection(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 0, "a", "b", "c", "d")
	b.Feed(l, 1, "e", "f", "g", "h")
	g := consume(t, q)
	ms := messages(t, g, 3)
	var once sync.Once
	b.Script(func(s *fakebroker.Script) {
		s.Settle = func(*wire.Settle) (v fakebroker.Verdict) {
			once.Do(func() { v = fakebroker.Verdict{Kill: true, Err: code.New(code.Unavailable, "killed"), Apply: true} })
			return v
		}
	})
	err := ms[0].Ack(within(t)) // applied, and its answer is lost
	wantError(t, err, client.ErrNoLongerOwner, client.Unknown)
	if err := ms[1].Ack(within(t)); err != nil && client.AsError(err).Class != client.Fatal {
		t.Fatal(err) // acked, unless it was handed out again before
	}
	seen := map[string]int{}
	for m, err := range g.Messages(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		seen[string(m.Value)]++
		if err := m.Ack(within(t)); err != nil {
			t.Fatal(err)
		}
		if info, err := q.Group("workers").Info(within(t)); err != nil {
			t.Fatal(err)
		} else if info.Totals.Acked == 8 {
			break
		}
	}
	for _, n := range seen {
		if n > 1 {
			t.Fatalf("seen %v", seen)
		}
	}
	if seen[string(ms[0].Value)] > 0 {
		t.Fatalf("what was acked came again")
	}
}

func TestConsumerSurvivesARestart(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a")
	var mu sync.Mutex
	var states []client.Status
	g := consume(t, q, client.OnStatus(func(s client.Status) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, s)
	}))
	ack(t, messages(t, g, 1)...)
	b.Stop()
	b.Start()
	b.Feed(l, 0, "b")
	ms := messages(t, g, 1)
	if string(ms[0].Value) != "b" || ms[0].Attempt != 1 {
		t.Fatalf("got %q, attempt %d", ms[0].Value, ms[0].Attempt)
	}
	ack(t, ms...)
	mu.Lock()
	defer mu.Unlock()
	if !states[len(states)-1].Connected || !slices.ContainsFunc(states, func(s client.Status) bool { return s.Err != nil }) {
		t.Fatalf("states %+v", states)
	}
}

// A shard that ends is joined again by itself, and the others go on.
func TestShardThatEndsIsJoinedAgain(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 0, "a")
	b.Feed(l, 1, "b")
	g := consume(t, q, client.MaxInFlight(10))
	held := messages(t, g, 2)
	b.EndShard(1, code.Opening)
	b.Feed(l, 1, "c")
	for m, err := range g.Messages(within(t)) { // b may come again: its lane is gone
		if err != nil {
			t.Fatal(err)
		}
		ack(t, m)
		if string(m.Value) == "c" {
			break
		}
	}
	for _, m := range held {
		if m.Shard == 0 {
			ack(t, m)
		}
	}
	cs := b.Consumes()
	last := cs[len(cs)-1]
	if len(cs) != 3 || !slices.Equal(last.Shards, []uint32{1}) || last.MaxInFlight != 5 { // the first found no group
		t.Fatalf("asked for %+v", cs)
	}
}

// Lanes that came apart are one again when nothing is in work.
func TestLanesAreReunited(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Group(l, "workers")
	b.Feed(l, 0, "a")
	g := consume(t, q, client.MergeAfter(time.Millisecond))
	m := messages(t, g, 1)[0]
	b.EndShard(1, code.Opening)
	eventually(t, "the shard to be joined", func() bool { return len(b.Consumes()) == 2 })
	b.Feed(l, 1, "b")
	ack(t, messages(t, g, 1)[0], m)
	eventually(t, "one lane", func() bool {
		cs := b.Consumes()
		return len(cs) >= 3 && slices.Equal(cs[len(cs)-1].Shards, []uint32{0, 1})
	})
	b.Feed(l, 0, "c")
	b.Feed(l, 1, "d")
	ack(t, messages(t, g, 2)...)
}

// A shard that cannot be joined does not keep the others waiting, whether the broker says which it is or not.
func TestShardThatCannotBeJoinedHoldsUpNoOther(t *testing.T) {
	for name, details := range map[string]bool{"named": true, "not named": false} {
		t.Run(name, func(t *testing.T) {
			b, l, q := queued(t, 4)
			b.Group(l, "workers")
			for i, v := range []string{"a", "b", "c", "d"} {
				b.Feed(l, i, v)
			}
			b.Script(func(s *fakebroker.Script) {
				s.Consume = func(c *wire.Consume) error {
					if !slices.Contains(c.Shards, 2) {
						return nil
					}
					err := code.New(code.Quarantined, "shard 2 stays closed")
					if details {
						err.With(code.DetailShard, 2)
					}
					return err
				}
			})
			g := consume(t, q)
			ms := messages(t, g, 3)
			if got := valuesOf(ms); !slices.Equal(got, []string{"a", "b", "d"}) {
				t.Fatalf("got %q", got)
			}
			b.Script(func(s *fakebroker.Script) { s.Consume = nil })
			ack(t, append(ms, messages(t, g, 1)...)...)
		})
	}
}

// What was written before a shard ended may be answered behind that, and then it is settled.
func TestAnswerBehindTheEndOfItsShardCounts(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Group(l, "workers")
	b.Feed(l, 1, "a")
	hold := make(chan struct{})
	var asked atomic.Int32
	b.Script(func(s *fakebroker.Script) {
		s.Settle = func(*wire.Settle) fakebroker.Verdict {
			asked.Add(1)
			return fakebroker.Verdict{Hold: hold, Early: true}
		}
		s.Consume = func(*wire.Consume) error {
			if asked.Load() > 0 {
				return code.New(code.Opening, "not now")
			}
			return nil
		}
	})
	g := consume(t, q)
	s := messages(t, g, 1)[0].AckAsync()
	eventually(t, "the settlement", func() bool { return asked.Load() == 1 })
	b.EndShard(1, code.Opening)
	eventually(t, "a try to join", func() bool { return len(b.Consumes()) > 1 })
	close(hold)
	if err := s.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
}

func TestDeletedGroupEndsItsConsumers(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 0, "a")
	g := consume(t, q)
	m := messages(t, g, 1)[0]
	if err := q.Group("workers").Delete(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, err := range g.Messages(within(t)) {
		wantError(t, err, client.ErrDeleted, client.Fatal)
	}
	if err := m.Ack(within(t)); !errors.Is(err, client.ErrDeleted) {
		t.Fatalf("ack: %v", err)
	}
	if err := g.Handle(within(t), 2, func(context.Context, *client.Message) error { return nil }); !errors.Is(err, client.ErrDeleted) {
		t.Fatalf("handle: %v", err)
	}
}

func TestPermissionEndsAConsumerAndTroubleDoesNot(t *testing.T) {
	b, _, q := queued(t, 1)
	g := consume(t, q)
	var tries atomic.Int32
	b.Script(func(s *fakebroker.Script) {
		s.Consume = func(*wire.Consume) error {
			if n := tries.Add(1); n < 4 {
				return code.New([]code.Code{code.Opening, code.Protocol, code.Overloaded}[n-1], "not now")
			}
			return code.New(code.PermissionDenied, "no")
		}
	})
	b.KillConnections()
	for _, err := range g.Messages(within(t)) {
		wantError(t, err, client.ErrPermissionDenied, client.Fatal)
	}
	if n := tries.Load(); n != 4 {
		t.Fatalf("%d tries", n)
	}
}

func TestConsumeIsBoundedByItsContext(t *testing.T) {
	b, _, q := queued(t, 1)
	b.Group(b.AddLog(stream, 1), "workers")
	b.Script(func(s *fakebroker.Script) {
		s.Consume = func(*wire.Consume) error { return code.New(code.Opening, "not now") }
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := q.Consume(ctx, "workers")
	if e := client.AsError(err); e == nil || e.Class != client.Refused || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	b.Script(func(s *fakebroker.Script) { s.Consume = nil })
	g := consume(t, q)
	ctx, cancelled := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancelled)
	for _, err := range g.Messages(ctx) {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, client.AsError(err).Code) {
			t.Fatalf("got %v", err)
		}
	}
}
