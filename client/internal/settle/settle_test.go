// SPDX-License-Identifier: Apache-2.0

package settle_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"margay.dev/client/internal/settle"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

var start = time.Unix(1_000_000, 0)

func newBook() *settle.Book {
	return settle.New(4, func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
}

func ack(n uint64) settle.Token { return settle.Token{HandOut: n, Offset: 100 + n, Op: wire.SettleAck} }

func TestConsecutiveTokensAreOneRun(t *testing.T) {
	b := newBook()
	c := settle.Claims{Shard: 3, Group: 1}
	for _, n := range []uint64{7, 5, 6, 1, 2, 3} {
		b.Add(c, ack(n))
	}
	b.Add(c, settle.Token{HandOut: 4, Offset: 104, Op: wire.SettleNack, After: 9, Reason: "x"})
	b.Up(3)
	f := b.Take(3, start)
	runs := f.Runs()
	want := []wire.SettleRun{
		{Op: wire.SettleAck, HandOut: 1, Offset: 101, Count: 3},
		{Op: wire.SettleNack, HandOut: 4, Offset: 104, Count: 1, AfterUs: 9, Reason: "x"},
		{Op: wire.SettleAck, HandOut: 5, Offset: 105, Count: 3},
	}
	if len(runs) != len(want) {
		t.Fatalf("runs %+v", runs)
	}
	for i := range want {
		if runs[i] != want[i] {
			t.Errorf("run %d is %+v, want %+v", i, runs[i], want[i])
		}
	}
}

func TestFrameIsBounded(t *testing.T) {
	b := newBook()
	c := settle.Claims{Group: 1}
	for n := range uint64(wire.MaxSettleTokens + 1) {
		b.Add(c, ack(n))
	}
	for n := range uint64(wire.MaxSettleRuns + 1) {
		b.Add(settle.Claims{Group: 1, Generation: 2}, ack(2*n))
	}
	b.Up(0)
	for _, want := range []int{wire.MaxSettleTokens, 1, wire.MaxSettleRuns, 1} {
		f := b.Take(0, start)
		if f == nil || f.Len() != want || len(f.Runs()) > wire.MaxSettleRuns {
			t.Fatalf("got %+v, want %d tokens", f, want)
		}
	}
	if b.Ready(0, start) {
		t.Fatal("there is more")
	}
}

func TestLostAnswerLeavesTheOutcomeOpen(t *testing.T) {
	b := newBook()
	f, i := b.Add(settle.Claims{Group: 1}, ack(1))
	_, j := b.Add(settle.Claims{Group: 1}, ack(5))
	b.Up(0)
	b.Take(0, start)
	b.Lost(0)
	if b.Ready(0, start) {
		t.Fatal("written without a lane")
	}
	b.Up(0)
	again := b.Take(0, start)
	if again != f || len(again.Runs()) != 2 {
		t.Fatalf("sent again: %+v", again)
	}
	if owed, err := b.Settled(again.Ticket, []wire.SettleFailed{{Run: 0, Index: 0, Code: code.NoLongerOwner}}); err != nil || !owed {
		t.Fatal(owed, err)
	}
	if done := b.Finished(); len(done) != 1 || b.Pending() != 0 {
		t.Fatalf("finished %v, pending %d", done, b.Pending())
	}
	if err := f.Result(i); err == nil || !errors.Is(err, code.NoLongerOwner) || err.Class != code.ClassUnknown {
		t.Fatalf("got %v", err)
	}
	if err := f.Result(j); err != nil {
		t.Fatalf("got %v", err)
	}
}

func TestAnswersToNothingAreErrors(t *testing.T) {
	b := newBook()
	b.Add(settle.Claims{Group: 1}, ack(1))
	b.Up(0)
	f := b.Take(0, start)
	if owed, _ := b.Settled(f.Ticket+1, nil); owed || b.Refused(f.Ticket+1, code.New(code.Deleted, ""), start) {
		t.Fatal("an answer to nothing was taken")
	}
	if _, err := b.Settled(f.Ticket, []wire.SettleFailed{{Run: 0, Index: 1, Code: code.NoLongerOwner}}); err == nil {
		t.Fatal("an answer about a token that there is not was taken")
	}
	b.Lost(0)
	if b.Pending() != 1 {
		t.Fatal("the settlement is lost")
	}
}

// broker applies tokens, at most once each.
type broker struct{ applied map[uint64]bool }

func (k *broker) take(f *settle.Flight) (failed []wire.SettleFailed) {
	for r, run := range f.Runs() {
		for i := range run.Count {
			n := run.HandOut + uint64(i)
			if k.applied[n] || n%7 == 0 { // settled before, or ended
				failed = append(failed, wire.SettleFailed{Run: uint32(r), Index: i, Code: code.NoLongerOwner})
			}
			if n%7 != 0 {
				k.applied[n] = true
			}
		}
	}
	return failed
}

// TestEverySettlementComesToItsTrueEnd: over any loss of lanes and answers and any refusal, each token is written until it is
// answered, nothing is called settled that is not, and nothing is called refused for certain that was applied by this consumer.
func TestEverySettlementComesToItsTrueEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, k := newBook(), &broker{applied: map[uint64]bool{}}
		type held struct {
			f *settle.Flight
			i uint32
			n uint64
		}
		var tokens []held
		sent := map[uint32][]*settle.Flight{}
		up := map[uint32]bool{}
		now, next := start, uint64(0)
		ended := map[*settle.Flight]bool{}
		drain := func() {
			for _, f := range b.Finished() {
				ended[f] = true
			}
		}
		answer := func(s uint32, lose bool) {
			f := sent[s][0]
			sent[s] = sent[s][1:]
			failed := k.take(f)
			if lose {
				return
			}
			if owed, err := b.Settled(f.Ticket, failed); err != nil || !owed {
				t.Fatal(owed, err)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"settle": func(t *rapid.T) {
				s := rapid.Uint32Max(1).Draw(t, "shard")
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					next += rapid.Uint64Range(1, 2).Draw(t, "skip")
					f, i := b.Add(settle.Claims{Shard: s, Group: 1, Generation: rapid.Uint64Max(1).Draw(t, "generation")}, ack(next))
					tokens = append(tokens, held{f, i, next})
				}
			},
			"up": func(t *rapid.T) {
				s := rapid.Uint32Max(1).Draw(t, "shard")
				for up[s] = true; len(sent[s]) > 0; { // what came too late for the lane before
					answer(s, true)
				}
				b.Up(s)
			},
			"down": func(t *rapid.T) {
				s := rapid.Uint32Max(1).Draw(t, "shard")
				up[s] = false
				b.Down(s)
			},
			"write": func(t *rapid.T) {
				s := rapid.Uint32Max(1).Draw(t, "shard")
				if f := b.Take(s, now); f != nil {
					if sent[s] = append(sent[s], f); len(sent[s]) > 4 || !up[s] {
						t.Fatalf("%d unanswered, up: %v", len(sent[s]), up[s])
					}
				}
			},
			"answer": func(t *rapid.T) {
				if s := rapid.Uint32Max(1).Draw(t, "shard"); len(sent[s]) > 0 {
					answer(s, false)
				}
			},
			"refuse": func(t *rapid.T) {
				s := rapid.Uint32Max(1).Draw(t, "shard")
				if len(sent[s]) == 0 {
					return
				}
				f := sent[s][0]
				e := code.New(code.Overloaded, "not now")
				if sent[s] = sent[s][1:]; rapid.Bool().Draw(t, "applied") {
					k.take(f)
					e = code.New(code.Timeout, "who knows")
				}
				if !b.Refused(f.Ticket, e, now) {
					t.Fatal("not owed")
				}
			},
			"lose": func(t *rapid.T) {
				s := rapid.Uint32Max(1).Draw(t, "shard")
				for len(sent[s]) > 0 && rapid.Bool().Draw(t, "arrived") {
					answer(s, true)
				}
				sent[s], up[s] = nil, false
				b.Lost(s)
			},
			"wait": func(*rapid.T) { now = now.Add(time.Second) },
			"":     func(*rapid.T) { drain() },
		})
		for s := range uint32(2) { // from here on all goes well
			for len(sent[s]) > 0 {
				answer(s, false)
			}
			b.Up(s)
			for now = now.Add(time.Minute); b.Ready(s, now) || len(sent[s]) > 0; {
				if f := b.Take(s, now); f != nil {
					sent[s] = append(sent[s], f)
					continue
				}
				answer(s, false)
			}
		}
		drain()
		if b.Pending() != 0 {
			t.Fatalf("%d are pending", b.Pending())
		}
		for _, x := range tokens {
			err := x.f.Result(x.i)
			switch {
			case !ended[x.f]:
				t.Fatalf("%d has not ended", x.n)
			case err == nil && !k.applied[x.n]:
				t.Fatalf("%d is called settled", x.n)
			case err != nil && err.Class == code.ClassFatal && k.applied[x.n]:
				t.Fatalf("%d is called refused: %v", x.n, err)
			}
		}
	})
}

// What was settled without a lane is answered before the lane may be handed anything: also when it is refused at first.
func TestLaneIsBehindUntilOldSettlementsAreAnswered(t *testing.T) {
	b := newBook()
	b.Add(settle.Claims{Group: 1}, ack(1))
	b.Up(0)
	b.Add(settle.Claims{Group: 1, Generation: 2}, ack(1))
	f := b.Take(0, start)
	b.Refused(f.Ticket, code.New(code.Opening, ""), start)
	now := start.Add(time.Minute)
	if f = b.Take(0, now); !b.Behind(0) {
		t.Fatal("not behind, and the old settlement is not answered")
	}
	if _, err := b.Settled(f.Ticket, nil); err != nil || b.Behind(0) {
		t.Fatal("behind without anything old", err)
	}
	b.Abort(code.Closed, "")
	if b.Behind(0) || b.Pending() != 0 {
		t.Fatal("something is left")
	}
}
