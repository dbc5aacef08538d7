// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// logOf makes stored batches of the sizes given, from offset 0 on.
func logOf(t *rapid.T, sizes []int) []batch.Batch {
	var log []batch.Batch
	var next uint64
	for i, n := range sizes {
		b := batch.NewBuilder(batch.Limits{})
		for range n {
			if err := b.Add(batch.Record{Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		bt, err := b.Build(0, 0, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		bt.Assign(batch.Assigned{Sequence: uint64(i), BaseOffset: next, Generation: 1})
		next = bt.NextOffset()
		log = append(log, bt)
	}
	return log
}

// SB-04, ID-11: however often the subscription resumes, whatever is repeated or dropped on the way, each offset comes
// once, as a record or in a gap, in order, and the position never runs ahead.
func TestShardStateCoversEveryOffsetOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := logOf(t, rapid.SliceOfN(rapid.IntRange(1, 4), 1, 12).Draw(t, "batches"))
		end := log[len(log)-1].NextOffset()
		first := uint64(rapid.IntRange(0, int(end)).Draw(t, "start"))
		s := &shardState{start: wire.Start{Kind: wire.StartOffset, At: first}}
		var covered []uint64
		use := func(e entry, ok bool) {
			if !ok {
				return
			}
			if e.kind == entryProgress {
				return
			}
			for o := e.from; o < e.to; o++ {
				covered = append(covered, o)
			}
		}
		for s.receive < end || !s.placed {
			at := s.resume()
			s.place(wire.Started{Offset: at.At, Generation: 1, Latest: end}, false)
			next := at.At
			for range rapid.IntRange(0, 6).Draw(t, "frames of this stream") {
				i := slices.IndexFunc(log, func(b batch.Batch) bool { return b.NextOffset() > next })
				if i < 0 {
					break
				}
				switch rapid.IntRange(0, 5).Draw(t, "frame") {
				case 0: // dropped at the broker
					use(s.skip(max(next, log[i].BaseOffset()), log[i].NextOffset(), GapDropped))
				case 1: // idle
					use(s.progress(next, 1))
					continue
				case 2: // repeated
					use(s.deliver(log[max(i-1, 0)], 1))
					continue
				default:
					use(s.deliver(log[i], 1))
				}
				next = log[i].NextOffset()
			}
		}
		for i, o := range covered {
			if o != first+uint64(i) {
				t.Fatalf("offsets %v from %d", covered, first)
			}
		}
		if uint64(len(covered)) != end-first {
			t.Fatalf("%d offsets of %d", len(covered), end-first)
		}
	})
}

// What takes no offsets is nobody's record, and moves no position, should a broker send it.
func TestShardStateTakesNothingWithoutOffsets(t *testing.T) {
	carried, err := batch.BuildCarried([]batch.Carried{{Record: batch.Record{Key: []byte("k"), Value: []byte("v")}}}, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []batch.Batch{carried, batch.BuildControl(batch.LogStart{})} {
		s := &shardState{start: wire.Start{Kind: wire.StartOffset}}
		s.place(wire.Started{Generation: 3, Latest: 10}, false)
		b.Assign(batch.Assigned{Sequence: 7, BaseOffset: 8, Generation: 4})
		if e, ok := s.deliver(b, len(b)); ok || s.receive != 0 {
			t.Errorf("it took %+v and stands at %d", e, s.receive)
		}
	}
}

// A gap that reaches beyond the generation of the last record is resumed behind under the generation that told it: under
// the older one the broker would say that the place was cut off.
func TestGapOverAnOpeningIsNoCut(t *testing.T) {
	s := &shardState{start: wire.Start{Kind: wire.StartOffset}}
	s.place(wire.Started{Generation: 3, Latest: 10}, false)
	s.take(0, 10, 3, 1)
	s.place(wire.Started{Offset: 10, Generation: 4, Latest: 40}, false) // resumed at another opening
	if at := s.resume(); at.At != 10 || at.Generation != 3 {
		t.Fatalf("before the gap it would resume at %+v, want the generation of its last record, which a cut would show", at)
	}
	s.skip(10, 30, GapDropped)
	if at := s.resume(); at.At != 30 || at.Generation != 4 {
		t.Errorf("behind the gap it would resume at %+v, want generation 4", at)
	}
	details := code.New(code.OutOfRange, "").With(code.DetailEarliest, 90).Details
	s.outOfRange(&details)
	if at := s.resume(); at.At != 90 || at.Generation != 0 {
		t.Errorf("behind what retention took it would resume at %+v, want no generation: nobody knows", at)
	}
}

func TestInboxIsBounded(t *testing.T) {
	q := newInbox(10_000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for ; ; n++ {
		full, stop := context.WithTimeout(ctx, time.Nanosecond)
		err := q.waitRoom(full, 1000)
		stop()
		if err != nil {
			break
		}
		q.put(entry{cost: 1000, to: uint64(n)})
	}
	if n != 8 {
		t.Errorf("%d entries of %d bytes fit %d bytes", n, 1000+entryCost, q.limit)
	}
	done := make(chan error, 1)
	go func() { done <- q.waitRoom(ctx, 1000) }()
	if e, ok := q.take(); !ok || e.to != 0 {
		t.Fatalf("took %+v", e)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := 1; i < n; i++ {
		if e, ok := q.take(); !ok || e.to != uint64(i) {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	if _, ok := q.take(); ok || q.held != 0 {
		t.Errorf("an empty inbox holds %d bytes", q.held)
	}
	// Something larger than the whole inbox passes when it is empty: else nothing would ever come again.
	if err := q.waitRoom(ctx, 1<<30); err != nil {
		t.Fatal(err)
	}
}
