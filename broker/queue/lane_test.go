// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/queue"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

func bubble(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, run)
}

func three(s *fake) []batch.Record {
	out := make([]batch.Record, 3)
	for i := range out {
		out[i] = batch.Record{Value: fmt.Appendf(nil, "%d/%d", s.id, s.next.Offset+uint64(i)), Timestamp: 1}
	}
	return out
}

// TestAWholeBatchGoesOutAsItIsStored: a batch whose records are handed out in order is sent as it is; of another its records
// are cut out, and each message comes with its own hand-out, offset and attempt.
func TestAWholeBatchGoesOutAsItIsStored(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := newFake(t, 4)
			s.hidden = hidden
			r := begin(t, 100, s)
			s.put(three(s)...)
			s.put(three(s)...)
			got := r.c.take()
			if len(got) != 6 || r.c.whole != 2 || r.c.slices != 0 {
				t.Fatalf("got %v, %d whole batches and %d slices", got, r.c.whole, r.c.slices)
			}
			for i, m := range got {
				if want := (message{4, uint64(i + 1), uint64(i), 1, fmt.Sprintf("4/%d", i)}); m != want {
					t.Errorf("got %v, want %v", m, want)
				}
			}
			s.do(func() { s.ready = nil }) // they come together
			r.settle(wire.SettleNack, got[4], got[1], got[2], got[0])
			again := r.c.take()
			want := []message{{4, 7, 4, 2, "4/4"}, {4, 8, 1, 2, "4/1"}, {4, 9, 2, 2, "4/2"}, {4, 10, 0, 2, "4/0"}}
			if !slices.Equal(again, want) || r.c.slices != 3 {
				t.Errorf("got %v in %d slices, want %v", again, r.c.slices, want)
			}
			r.ack(slices.Concat(again, got[3:4], got[5:])...)
			if r.out() != 0 || len(s.settled) != 6 {
				t.Errorf("%d are out, %d are settled", r.out(), len(s.settled))
			}
		})
	}
}

// TestABatchWithASettlementIsCut: what it says of other messages is nobody's business but the leader's.
func TestABatchWithASettlementIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		bl := batch.NewBuilder(batch.Limits{})
		for _, rec := range three(s) {
			if err := bl.Add(rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := bl.SetSettlement(batch.Settlement{Group: 1, Generation: 1, Tokens: []batch.SettledToken{{HandOut: 1, Offset: 1}}}); err != nil {
			t.Fatal(err)
		}
		b, err := bl.Build(0, 0, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		r := begin(t, 100, s)
		s.store(b)
		if got := r.c.take(); len(got) != 3 || r.c.whole != 0 || r.c.slices != 1 {
			t.Errorf("got %v, %d whole, %d slices", got, r.c.whole, r.c.slices)
		}
	})
}

// TestCreditIsOneForAllShards: however many shards there are, no more messages are out than the consumer said, and each
// shard has its turn.
func TestCreditIsOneForAllShards(t *testing.T) {
	for _, most := range []uint32{1, 2, 7} {
		bubble(t, func(t *testing.T) {
			const shards, each = 3, 40
			var all []*fake
			for id := range uint32(shards) {
				s := newFake(t, id)
				s.values(each)
				all = append(all, s)
			}
			synctest.Wait()
			r := begin(t, most, all...)
			got := map[uint32]int{}
			rng := rand.New(rand.NewPCG(1, uint64(most)))
			var have []message
			for n := range shards * each {
				have = append(have, r.c.take()...)
				if out := r.out(); out > int(most) || len(have) != out {
					t.Fatalf("%d are out, and the consumer has %d", out, len(have))
				}
				if len(have) == 0 {
					t.Fatalf("after %d messages nothing comes", n)
				}
				k := rng.IntN(len(have))
				m := have[k]
				have = slices.Delete(have, k, k+1)
				r.ack(m)
				if got[m.shard]++; n == shards*each/2 && min(got[0], got[1], got[2]) < each/4 {
					t.Errorf("the shards' shares of %d are %v", n, got)
				}
			}
			if out, unsent := r.lane.Depth(); out != 0 || unsent != 0 {
				t.Errorf("%d are out and %d unsent at the end", out, unsent)
			}
		})
	}
}

// TestFlowChangesWhatMayBeOut: with nothing allowed nothing comes, and it comes as soon as it is.
func TestFlowChangesWhatMayBeOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newFake(t, 0), newFake(t, 1)
		r := begin(t, 5, a, b)
		r.lane.Flow(&wire.Flow{})
		a.values(10)
		b.values(10)
		if got := r.c.take(); len(got) != 0 {
			t.Fatalf("got %v", got)
		}
		r.lane.Flow(&wire.Flow{MaxInFlight: 6})
		if got := r.c.take(); len(got) != 6 {
			t.Fatalf("got %d", len(got))
		}
		r.lane.Flow(&wire.Flow{MaxInFlight: 2})
		r.lane.Flow(&wire.Flow{MaxInFlight: 20})
		if got := r.c.take(); len(got) != 14 {
			t.Fatalf("got %d", len(got))
		}
	})
}

// TestABusyShardIsToldLater: credit that came back is not lost with a shard that has too much to do.
func TestABusyShardIsToldLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newFake(t, 0), newFake(t, 1)
		r := begin(t, 1, a, b)
		a.values(1)
		got := r.c.take()
		b.values(1)
		synctest.Wait()
		b.with(func() { b.busy = 1 << 30 })
		r.ack(got...)
		time.Sleep(time.Second)
		b.with(func() { b.busy = 0 })
		time.Sleep(time.Second)
		if got = r.c.take(); len(got) != 1 || got[0].shard != 1 {
			t.Fatalf("got %v", got)
		}
	})
}

// TestWhoDoesNotReadIsHandedNoMore: messages that cannot be written are for those who read.
func TestWhoDoesNotReadIsHandedNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 10_000, s)
		large := make([]byte, 1<<20)
		for range 4 {
			s.put(batch.Record{Value: large})
		}
		r.c.take()
		r.c.shut()
		for range 100 {
			s.put(batch.Record{Value: large})
		}
		if out := r.out(); out < 10 || out > 50 {
			t.Errorf("%d messages of 1 MiB are out", out)
		}
		r.c.open()
		if got := r.c.take(); len(got) != 100 {
			t.Errorf("%d came", len(got))
		}
	})
}

// TestSettleIsAnsweredForEachMessage: what fails is named by its run and its place in that.
func TestSettleIsAnsweredForEachMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 100, s)
		s.values(10)
		r.c.take()
		r.lane.Settle(r.ctx, 9, &wire.Settle{GroupID: groupID, Resets: resets, Generation: generation, Runs: []wire.SettleRun{
			{Op: wire.SettleAck, HandOut: 1, Offset: 0, Count: 3},
			{Op: wire.SettleReject, HandOut: 9, Offset: 8, Count: 4, Reason: "bad"}, // two of them are not there
			{Op: wire.SettleRelease, HandOut: 5, Offset: 3, Count: 1},               // another's
			{Op: wire.SettleAck, HandOut: 3, Offset: 2, Count: 3},                   // the first was settled above
		}})
		r.lane.Extend(r.ctx, 10, &wire.Extend{GroupID: groupID, Resets: resets, Generation: generation, Tokens: []batch.SettledToken{
			{HandOut: 1, Offset: 0}, {HandOut: 6, Offset: 5}, {HandOut: 99, Offset: 5},
		}})
		r.lane.Settle(r.ctx, 11, &wire.Settle{GroupID: groupID, Shard: 8, Resets: resets, Generation: generation, Runs: []wire.SettleRun{{Op: wire.SettleAck, Count: 1}}})
		synctest.Wait()
		want := []wire.SettleFailed{{Run: 1, Index: 2, Code: code.NoLongerOwner}, {Run: 1, Index: 3, Code: code.NoLongerOwner}, {Run: 2, Code: code.NoLongerOwner}, {Run: 3, Code: code.NoLongerOwner}}
		if got := r.c.settled[9]; got == nil || !slices.Equal(got.Failed, want) {
			t.Errorf("got %+v", got)
		}
		if got := r.c.extends[10]; got == nil || !slices.Equal(got.Failed, []wire.ExtendFailed{{Index: 0, Code: code.NoLongerOwner}, {Index: 2, Code: code.NoLongerOwner}}) {
			t.Errorf("got %+v", got)
		}
		if !errors.Is(r.c.errs[11], code.BadRequest) {
			t.Errorf("of a shard that the lane has not: %v", r.c.errs[11])
		}
	})
}

// TestManySettlesAreInFlightAndNoMore: a consumer need not wait for one to be committed, and what it may ask for is bounded.
func TestManySettlesAreInFlightAndNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 100_000, s)
		s.values(2000)
		r.c.take()
		s.with(func() { s.stalled = true })
		asked := 0
		go func() {
			for i := range uint64(2000) {
				r.lane.Settle(r.ctx, i+1, &wire.Settle{GroupID: groupID, Resets: resets, Generation: generation, Runs: []wire.SettleRun{
					{Op: wire.SettleAck, HandOut: i + 1, Offset: i, Count: 1},
				}})
				asked++
			}
		}()
		synctest.Wait()
		if asked < 100 || asked >= 2000 {
			t.Errorf("%d are in flight", asked)
		}
		s.with(func() { s.stalled = false })
		synctest.Wait()
		if asked != 2000 || len(r.c.settled) != 2000 || len(s.settled) != 2000 {
			t.Errorf("%d asked, %d answered, %d settled", asked, len(r.c.settled), len(s.settled))
		}
	})
}

// TestAShardEndsAndTheOthersGoOn: its messages count no more, and what is said of them later goes to who leads then.
func TestAShardEndsAndTheOthersGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newFake(t, 0), newFake(t, 1)
		r := begin(t, 4, a, b)
		a.values(9)
		got := r.c.take()
		b.values(9)
		if more := r.c.take(); len(got) != 4 || len(more) != 0 {
			t.Fatalf("got %v and %v", got, more)
		}
		a.end(code.New(code.Opening, "opened again"))
		if more := r.c.take(); len(more) != 4 || more[0].shard != 1 {
			t.Fatalf("got %v", more)
		}
		if len(r.c.ends) != 1 || r.c.ends[0].Shard != 0 || r.c.ends[0].Code != code.Opening || !slices.Equal(r.told, []uint32{0}) {
			t.Fatalf("ends %v, told %v", r.c.ends, r.told)
		}
		next := newFake(t, 0)
		next.claims[got[0].handOut] = claim{&group.Consumer{Credit: &queueless{}}, got[0].offset}
		r.shards = []*fake{next, b}
		corr := r.settle(wire.SettleAck, got[0])
		synctest.Wait()
		if x := r.c.settled[corr]; x == nil || len(x.Failed) > 0 || len(next.settled) != 1 {
			t.Fatalf("the next leader's answer: %+v, %v", x, r.c.errs[corr])
		}
		r.lane.Leave()
		<-r.over
		if len(b.left) != 1 || !b.left[0].Orderly || len(r.c.ends) != 2 || r.c.ends[1].Shard != wire.AllShards || r.c.ends[1].Code != 0 {
			t.Fatalf("left %+v, ends %v", b.left, r.c.ends)
		}
	})
}

// queueless is credit of nobody.
type queueless struct{}

func (queueless) Take(int) int { return 0 }
func (queueless) Give(int)     {}

// TestLeavingGivesAllBack: what is asked for before is answered first, and behind the end nothing comes.
func TestLeavingGivesAllBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 5, s)
		s.values(20)
		got := r.c.take()
		corr := r.settle(wire.SettleAck, got[0])
		s.with(func() { s.busy = 3 })
		r.lane.Leave()
		<-r.over
		if len(s.left) != 1 || !s.left[0].Orderly || len(s.claims) != 0 || r.c.settled[corr] == nil {
			t.Fatalf("left %+v, %d out, settled %v", s.left, len(s.claims), r.c.settled[corr])
		}
		if out, unsent := r.lane.Depth(); out != 0 || unsent != 0 || len(r.c.ends) != 1 || r.stats.Lanes.Load() != 0 {
			t.Fatalf("%d out, %d unsent, ends %v", out, unsent, r.c.ends)
		}
	})
}

// TestABrokenLaneSaysHowFarItGot: whose attempts are counted hangs on it.
func TestABrokenLaneSaysHowFarItGot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 100, s)
		s.values(8)
		r.c.take()
		r.lane.Flow(&wire.Flow{MaxInFlight: 100, Begun: []wire.Begun{{Shard: 0, HandOut: 3}, {Shard: 7, HandOut: 9}}})
		r.cancel(nil) // what the end of a connection does
		<-r.over
		synctest.Wait()
		if len(s.left) != 1 || s.left[0].Orderly || s.left[0].Delivered != 8 || s.left[0].Begun != 3 {
			t.Fatalf("left %+v", s.left)
		}
	})
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 100, s)
		s.values(1)
		r.c.take()
		r.c.mu.Lock()
		r.c.broken = errors.New("gone")
		r.c.mu.Unlock()
		s.values(1)
		<-r.over
		synctest.Wait()
		if len(s.left) != 1 || s.left[0].Orderly || s.left[0].Delivered != 2 {
			t.Fatalf("left %+v", s.left)
		}
	})
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 100, s)
		r.cancel(code.New(code.ShuttingDown, "down"))
		<-r.over
		synctest.Wait()
		if len(s.left) != 1 || !s.left[0].Orderly || len(r.c.ends) != 1 || r.c.ends[0].Code != code.ShuttingDown {
			t.Fatalf("left %+v, ends %v", s.left, r.c.ends)
		}
	})
}

// TestWhoDoesNotReadTheEndIsNoAttempt: a lane that is cut because its consumer does not take the broker's word.
func TestWhoDoesNotReadTheEndIsNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 100, s)
		s.values(1)
		r.c.take()
		r.c.shut()
		s.values(1)
		synctest.Wait() // it is being written
		r.cancel(code.New(code.ShuttingDown, "down"))
		r.c.mu.Lock()
		r.c.broken = errors.New("reset")
		gate := r.c.gate
		r.c.gate = nil
		r.c.mu.Unlock()
		close(gate)
		<-r.over
		synctest.Wait()
		if len(s.left) != 1 || !s.left[0].Orderly {
			t.Fatalf("left %+v", s.left)
		}
	})
}

// TestOneThatCannotBeReadHoldsUpNothing: it is given back, and left alone when it comes again.
func TestOneThatCannotBeReadHoldsUpNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 2, s)
		s.with(func() { s.gone[1] = true })
		s.values(5)
		for range 4 {
			r.ack(r.c.take()...)
		}
		if len(s.settled) != 4 || len(s.claims) != 1 || r.stats.Unreadable.Load() != 2 {
			t.Fatalf("%d settled, %d out, %d unreadable", len(s.settled), len(s.claims), r.stats.Unreadable.Load())
		}
	})
}

// TestAMessageThatMovedIsFound: the log is asked where it lies now.
func TestAMessageThatMovedIsFound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newFake(t, 0)
		r := begin(t, 100, s)
		s.with(func() { s.stalled = true })
		s.values(2)
		s.do(func() { // the core knows a place that is gone, and the log a better one
			s.mu.Lock()
			defer s.mu.Unlock()
			s.batches[100], s.gone[1] = s.batches[1], true
			s.place[0] = 100
		})
		s.with(func() { s.stalled = false })
		if got := r.c.take(); len(got) != 2 {
			t.Fatalf("got %v", got)
		}
	})
}

// TestADamagedLogEndsItsShard: the others go on.
func TestADamagedLogEndsItsShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newFake(t, 0), newFake(t, 1)
		r := begin(t, 3, a, b)
		a.with(func() { a.broken = errors.New("the disk") })
		a.values(5)
		synctest.Wait()
		b.values(5)
		time.Sleep(time.Second)
		if got := r.c.take(); len(got) != 3 || got[0].shard != 1 {
			t.Fatalf("got %v", got)
		}
		if len(r.c.ends) != 1 || r.c.ends[0].Shard != 0 || r.c.ends[0].Code != code.Unavailable || len(a.left) != 1 || len(a.claims) != 0 {
			t.Fatalf("ends %v, left %v", r.c.ends, a.left)
		}
	})
}

// TestARefusedConsumerLeavesNothingBehind: those who let it in are told that it left.
func TestARefusedConsumerLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newFake(t, 0), newFake(t, 1)
		b.refuse = code.New(code.NotFound, "there is no such group")
		_, _, err := queue.Open(t.Context(), newConsumer(t), &wire.Consume{Group: "g", MaxInFlight: 1, Concurrency: 1},
			[]queue.Part{{ID: 0, Shard: a}, {ID: 1, Shard: b}}, queue.Config{Stats: &queue.Stats{}})
		synctest.Wait()
		at, _ := code.From(err).Details.Get(code.DetailShard)
		if !errors.Is(err, code.NotFound) || at != 1 || len(a.left) != 1 || !a.left[0].Orderly {
			t.Fatalf("%v, left %+v", err, a.left)
		}
		s := newFake(t, 2)
		s.with(func() { s.stalled = true })
		_, _, err = queue.Open(t.Context(), newConsumer(t), &wire.Consume{Group: "g", MaxInFlight: 1, Concurrency: 1},
			[]queue.Part{{ID: 2, Shard: s}}, queue.Config{Stats: &queue.Stats{}})
		if !errors.Is(err, code.Timeout) {
			t.Fatal(err)
		}
		s.with(func() { s.stalled = false })
		synctest.Wait()
		if len(s.left) != 1 || len(s.consumers) != 0 {
			t.Fatalf("left %+v", s.left)
		}
	})
}

// TestProgressComesToWhoWaits: a consumer that gets nothing knows that it is alive.
func TestProgressComesToWhoWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := begin(t, 1, newFake(t, 0), newFake(t, 1))
		time.Sleep(3*queue.ProgressEvery + time.Second)
		synctest.Wait()
		if len(r.c.notes) != 6 {
			t.Fatalf("got %v", r.c.notes)
		}
	})
}
