// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

func TestAcksShareFrames(t *testing.T) {
	b, l, q := queued(t, 1)
	const n = 1000
	vals := make([]string, n)
	for i := range vals {
		vals[i] = value(i)
	}
	b.Feed(l, 0, vals...)
	hold := make(chan struct{})
	b.Script(func(s *fakebroker.Script) {
		s.Settle = func(*wire.Settle) fakebroker.Verdict { return fakebroker.Verdict{Hold: hold} }
	})
	g := consume(t, q, client.MaxInFlight(n))
	var settled []*client.Settlement
	for i, m := range messages(t, g, n) {
		settled = append(settled, m.AckAsync())
		if i < 4 {
			eventually(t, "a settlement of its own", func() bool { return len(b.Settles()) == i+1 })
		}
	}
	close(hold)
	for _, s := range settled {
		if err := s.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	all := b.Settles()
	if len(all) != 5 || len(all[4].Runs) != 1 || all[4].Runs[0].Count != n-4 {
		t.Fatalf("%d settlements, the last of %d runs", len(all), len(all[len(all)-1].Runs))
	}
	if err := g.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}

func TestRefusedSettlementIsTriedAgain(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a")
	var tries atomic.Int32
	b.Script(func(s *fakebroker.Script) {
		s.Settle = func(*wire.Settle) fakebroker.Verdict {
			if tries.Add(1) < 4 {
				return fakebroker.Verdict{Err: code.New(code.Overloaded, "not now")}
			}
			return fakebroker.Verdict{}
		}
	})
	ack(t, messages(t, consume(t, q), 1)...)
	if n := tries.Load(); n != 4 {
		t.Fatalf("%d tries", n)
	}
}

func TestExtend(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Group(l, "workers").Settings.AckWait = 200_000
	b.Feed(l, 0, "a")
	g := consume(t, q)
	m := messages(t, g, 1)[0]
	if err := m.Extend(within(t), time.Hour); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(m.Deadline()); left < 50*time.Minute || left > time.Hour {
		t.Fatalf("ends in %v", left)
	}
	if err := m.Extend(within(t), 0); err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{-1, 13 * time.Hour} {
		if err := m.Extend(within(t), d); !errors.Is(err, client.ErrBadRequest) {
			t.Fatalf("extend by %v: %v", d, err)
		}
	}
	again := messages(t, g, 1)[0] // once the claim has ended
	if again.Attempt != 2 {
		t.Fatalf("attempt %d", again.Attempt)
	}
	wantError(t, m.Extend(within(t), 0), client.ErrNoLongerOwner, client.Fatal)
	wantError(t, m.Ack(within(t)), client.ErrNoLongerOwner, client.Fatal)
	ack(t, again)
	wantError(t, again.Extend(within(t), 0), client.ErrNoLongerOwner, client.Fatal)
}

// What waits for its turn is given back before its claim ends: nobody has looked at it, so no attempt is counted, and others have
// it meanwhile. Once nobody reads, nothing is asked for.
func TestUnreadMessagesAreGivenBack(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Group(l, "workers").Settings.AckWait = 400_000
	b.Feed(l, 0, "a", "b", "c", "d")
	g := consume(t, q)
	first := messages(t, g, 1)
	ack(t, first...)
	eventually(t, "a note that nothing more is wanted", func() bool {
		f := b.Flows()
		return len(f) > 0 && f[len(f)-1].MaxInFlight == 0
	})
	other := consume(t, connect(t, b).Queue("orders"))
	ms := messages(t, other, 3)
	for _, m := range ms {
		if m.Attempt != 1 {
			t.Fatalf("attempt %d", m.Attempt)
		}
	}
	ack(t, ms...)
	b.Feed(l, 0, "e")
	other.Close()
	ms = messages(t, g, 1)
	if string(ms[0].Value) != "e" || ms[0].Attempt != 1 {
		t.Fatalf("got %q, attempt %d", ms[0].Value, ms[0].Attempt)
	}
}

// What does not fit is given back, and asked for again when there is room.
func TestConsumeBufferIsBounded(t *testing.T) {
	b, l, q := queued(t, 1)
	for i := range 20 {
		b.Feed(l, 0, fmt.Sprintf("%s%1000d", value(i), 0))
	}
	g := consume(t, q, client.ConsumeBuffer(3000))
	seen := map[string]bool{}
	for _, m := range messages(t, g, 20) {
		if m.Attempt != 1 || seen[string(m.Value)] {
			t.Fatalf("got %.10q again, attempt %d", m.Value, m.Attempt)
		}
		seen[string(m.Value)] = true
		ack(t, m)
	}
	// Either what came was given back, and handed out once more, or nothing more was asked for before it came.
	gaveBack := func(f wire.Flow) bool { return len(f.Begun) > 0 && f.Begun[0].HandOut > 20 }
	if f := b.Flows(); !slices.ContainsFunc(f, func(f wire.Flow) bool { return f.MaxInFlight == 0 || gaveBack(f) }) {
		t.Fatalf("notes %+v", f)
	}
}

// The broker hears what was begun, in notes that many messages share.
func TestBegunIsTold(t *testing.T) {
	b, l, q := queued(t, 1)
	vals := make([]string, 200)
	for i := range vals {
		vals[i] = value(i)
	}
	b.Feed(l, 0, vals...)
	g := consume(t, q)
	messages(t, g, 150)
	eventually(t, "the mark of what was begun", func() bool {
		f := b.Flows()
		return len(f) > 0 && len(f[len(f)-1].Begun) == 1 && f[len(f)-1].Begun[0].HandOut == 150
	})
	g.Close()
	group := b.Group(l, "workers")
	b.Change(func() {
		for _, gs := range group.Shards {
			if len(gs.Attempts) != 0 {
				t.Errorf("attempts %v: it left in order", gs.Attempts)
			}
		}
	})
}

func TestDrain(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a", "b", "c", "d")
	g := consume(t, q)
	ms := messages(t, g, 2)
	done := make(chan error, 1)
	go func() { done <- g.Drain(within(t)) }()
	other := consume(t, connect(t, b).Queue("orders"))
	rest := messages(t, other, 2) // given back at once
	if got := valuesOf(rest); !slices.Equal(got, []string{"c", "d"}) || rest[0].Attempt != 1 {
		t.Fatalf("the other got %q", got)
	}
	for _, err := range g.Messages(within(t)) {
		wantError(t, err, client.ErrClosed, client.Fatal)
	}
	ack(t, ms[0])
	select {
	case err := <-done:
		t.Fatalf("it is over while a message is in work: %v", err)
	default:
	}
	ack(t, ms[1])
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ack(t, rest...)
	if n := len(b.Group(l, "workers").Shards[0].Settled); n != 4 {
		t.Fatalf("%d settled", n)
	}
}

func TestDrainGivesUpInTime(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a")
	g := consume(t, q)
	messages(t, g, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	m := messages(t, consume(t, connect(t, b).Queue("orders")), 1)[0]
	if m.Attempt != 1 {
		t.Fatalf("attempt %d", m.Attempt)
	}
}

// Close sends on what was settled, and gives back what was not.
func TestCloseFlushesAndGivesBack(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 0, "a", "b", "c")
	b.Feed(l, 1, "d", "e", "f")
	g := consume(t, q)
	ms := messages(t, g, 4)
	s := []*client.Settlement{ms[0].AckAsync(), ms[1].AckAsync(), ms[2].AckAsync()}
	g.Close()
	g.Close()
	for _, s := range s {
		if err := s.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, ms[3].Ack(within(t)), client.ErrClosed, client.Fatal)
	rest := messages(t, consume(t, q), 3)
	for _, m := range rest {
		if m.Attempt != 1 {
			t.Fatalf("attempt %d", m.Attempt)
		}
	}
}

func TestCloseWithoutABroker(t *testing.T) {
	b, l, q := queued(t, 1)
	b.Feed(l, 0, "a", "b")
	g := consume(t, q)
	ms := messages(t, g, 2)
	hold := make(chan struct{})
	defer close(hold)
	b.Script(func(s *fakebroker.Script) {
		s.Settle = func(*wire.Settle) fakebroker.Verdict { return fakebroker.Verdict{Hold: hold} }
	})
	sent := ms[0].AckAsync()
	eventually(t, "the settlement", func() bool { return len(b.Settles()) == 1 })
	b.Script(func(s *fakebroker.Script) {
		s.Consume = func(*wire.Consume) error { return code.New(code.Opening, "not now") }
	})
	joined := len(b.Consumes())
	b.KillConnections()
	eventually(t, "a try to join again", func() bool { return len(b.Consumes()) > joined })
	kept := ms[1].AckAsync()
	g.Close()
	wantError(t, sent.Wait(within(t)), client.ErrClosed, client.Unknown)
	wantError(t, kept.Wait(within(t)), client.ErrClosed, client.Refused)
}
