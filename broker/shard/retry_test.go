// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/code"
)

// ST-12: a first write that fails behind a repair's gap leaves no trace: the next one begins with a checkpoint
// again, without which the storage takes nothing behind a gap.
func TestFailedWriteBehindAGapStartsWithACheckpointAgain(t *testing.T) {
	l := newLog(t, shard.Config{})
	const length, offset = 10, 100
	l.core.Recovered(length, offset, true)
	for try := range 3 {
		l.publish(1, 1, 0, 1)
		if len(l.eff.Append) < 3 || !l.eff.Append[0].IsCheckpointStart() {
			t.Fatalf("try %d does not begin with a checkpoint: %d batches", try, len(l.eff.Append))
		}
		if b := l.eff.Append[0]; b.Sequence() != length || b.BaseOffset() != offset {
			t.Fatalf("try %d begins at %d, offset %d", try, b.Sequence(), b.BaseOffset())
		}
		l.step(shard.Written{Length: length})
		l.eff.Append = l.eff.Append[:0]
		l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
		l.collect()
		wantCode(t, l.lastAnswer().Err, code.StorageFull)
	}
	l.publish(1, 1, 0, 1)
	all := uint64(length + len(l.eff.Append))
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.Written{Length: all})
	l.step(shard.Flushed{Length: all})
	l.collect()
	if a := l.lastAnswer(); a.Err != nil || a.Ack.BaseOffset != offset {
		t.Fatalf("once there is room: %+v", a)
	}
	l.publish(1, 2, 1, 1)
	if l.eff.Append[0].IsCheckpoint() {
		t.Fatal("a checkpoint is written again though it stands")
	}
}

// R5: a sequence that the producer passed is not stored, if the shard remembers what lies on both sides of it. Below all that
// it remembers it may be, and nobody is told otherwise; it is not stored again.
func TestSequenceOlderThanTheWindow(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 10, 0, 1)
	last := uint64(10)
	next := func(seq uint64) {
		l.publish(1, seq, last, 1)
		l.flush()
		last = seq
	}
	refused := func(seq uint64, class code.Class) {
		t.Helper()
		l.publish(1, seq, 0, 1)
		l.collect()
		wantCode(t, l.lastAnswer().Err, code.OutOfOrder)
		if got := l.lastAnswer().Err.Class; got != class {
			t.Errorf("sequence %d of up to %d is refused as %s, want %s", seq, last, got, class)
		}
	}
	next(12)
	refused(11, code.ClassFatal)
	refused(9, code.ClassUnknown) // its producer may have been forgotten since
	for last < 12+2*shard.ProducerWindow {
		next(last + 2)
	}
	l.reopen()
	refused(10, code.ClassUnknown) // it is there
	refused(11, code.ClassUnknown)
	refused(last-1, code.ClassFatal)
	if n := l.core.View().NextOffset; n != 2+shard.ProducerWindow {
		t.Errorf("the log holds %d records, want %d", n, 2+shard.ProducerWindow)
	}
}

// S7: that a sequence is out of order is told once the one that it names as the last is committed; when that is taken back, its
// publisher is not sent on behind it.
func TestOutOfOrderRestsOnWhatIsPending(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 1)
	l.flush()
	l.publish(1, 2, 1, 1)
	l.publish(1, 4, 3, 1)
	if n := len(l.eff.Answers); n != 0 {
		t.Fatalf("%d answers before anything of it is flushed: %+v", n, l.eff.Answers)
	}
	l.flush()
	for _, a := range l.answers[1:] {
		if want := map[any]code.Code{"1/4": code.OutOfOrder}[a.To]; want != 0 {
			wantCode(t, a.Err, want)
		}
	}
	if n := len(l.answers); n != 3 {
		t.Fatalf("%d answers: %+v", n, l.answers)
	}
	l.publish(1, 5, 2, 1)
	l.publish(1, 7, 6, 1)
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	for _, a := range l.answers[3:] {
		wantCode(t, a.Err, code.StorageFull)
	}
	l.publish(1, 7, 6, 1)
	l.collect()
	if last, _ := l.lastAnswer().Err.Details.Get(code.DetailLastSequence); last != 2 {
		t.Errorf("the last stored is said to be %d: %v", last, l.lastAnswer().Err)
	}
}

// S7, R8: a retry of what is stored is answered with the place of the first on a full disk too: "refused" would
// say that it is not stored.
func TestRetryOnAFullDiskIsAnswered(t *testing.T) {
	l := newLog(t, shard.Config{DedupWindow: time.Minute})
	l.publish(1, 1, 0, 3)
	l.tell("order-7")
	l.flush()
	l.step(shard.Space{Full: true})
	l.publish(1, 1, 0, 3)
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || !a.Ack.Duplicate || a.Ack.BaseOffset != 0 || a.Ack.Count != 3 {
		t.Fatalf("the retry by sequence: %+v", a)
	}
	l.tell("order-7")
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || !a.Ack.Duplicate || a.Ack.BaseOffset != 3 {
		t.Fatalf("the retry by dedup id: %+v", a)
	}
	l.publish(1, 2, 1, 1)
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.StorageFull)
	if v := l.core.View(); v.NextOffset != 4 {
		t.Fatalf("the full disk took records up to offset %d", v.NextOffset)
	}
}
