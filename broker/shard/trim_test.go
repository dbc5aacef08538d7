// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/code"
)

// segments is what the log's files would be: what was dropped is gone.
func (l *log) segments() []shard.Segment {
	var out []shard.Segment
	for _, b := range l.batches {
		if b.IsCheckpointStart() {
			out = append(out, shard.Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
		}
		s := &out[len(out)-1]
		s.Bytes += int64(b.Size())
		s.LastAppendTime = max(s.LastAppendTime, b.AppendTime())
	}
	for _, below := range l.drops {
		for len(out) > 1 && out[1].BaseSequence <= below {
			out = out[1:]
		}
	}
	return out
}

// sequenceOf is the batch that holds offset, or the end of the log.
func (l *log) sequenceOf(offset uint64) uint64 {
	for _, b := range l.batches {
		if !b.IsControl() && b.NextOffset() > offset {
			return b.Sequence()
		}
	}
	return uint64(len(l.batches))
}

func (l *log) trim(offset uint64) {
	l.step(&shard.Trim{Offset: offset, Sequence: l.sequenceOf(offset), To: "trim"})
}

// three makes a log of three batches of four records each.
func three(t *testing.T, cfg shard.Config) *log {
	t.Helper()
	l := newLog(t, cfg)
	for range 3 {
		l.publish(0, 0, 0, 4)
	}
	l.flush()
	l.answers = nil
	return l
}

// A trim begins the log at exactly the offset, inside a batch too; it is answered when that is committed, and
// only then may anything be dropped (S11).
func TestTrimIsExactAndCommitted(t *testing.T) {
	l := three(t, shard.Config{})
	at := l.sequenceOf(6)
	l.trim(6)
	l.write()
	if len(l.answers) != 0 || l.core.View().Start.Offset != 0 || len(l.drops) != 0 {
		t.Fatalf("before the flush: answers %+v, view %+v, drops %v", l.answers, l.core.View(), l.drops)
	}
	l.flush()
	want := shard.LogStart{Sequence: at, Offset: 6}
	if a := l.lastAnswer(); a.Err != nil || a.Ack.BaseOffset != 6 || l.core.View().Start != want {
		t.Fatalf("answer %+v, view %+v, want start %+v", a, l.core.View(), want)
	}
	if len(l.drops) != 1 || l.drops[0] != at {
		t.Errorf("dropped %v, want what is below %d", l.drops, at)
	}
	if len(l.moves) != 1 || l.moves[0] != (shard.Move{To: want, Cause: shard.ByTrim}) {
		t.Errorf("moves %+v", l.moves)
	}
	l.reopen()
	if v := l.core.View(); v.Start != want || v.NextOffset != 12 {
		t.Errorf("after a restart %+v", v)
	}
	wantCode(t, l.core.CheckResume(5, 0), code.OutOfRange)
	if err := l.core.CheckResume(6, 0); err != nil {
		t.Error(err)
	}
}

// A trim never moves the start back: a lower one is answered with where the log begins, once that is committed.
func TestTrimNeverMovesBack(t *testing.T) {
	l := three(t, shard.Config{})
	l.trim(9)
	l.trim(3) // overtakes the commit of the one before
	l.write()
	if len(l.answers) != 0 {
		t.Fatalf("answered from the pending layer: %+v", l.answers)
	}
	l.flush()
	l.trim(2)
	l.collect()
	if len(l.answers) != 3 {
		t.Fatalf("answers %+v", l.answers)
	}
	for _, a := range l.answers {
		if a.Err != nil || a.Ack.BaseOffset != 9 {
			t.Errorf("answer %+v, want 9", a)
		}
	}
	if len(l.moves) != 1 {
		t.Errorf("moves %+v", l.moves)
	}
}

// A trim beyond what is committed is refused: it would take what somebody is still to be answered for, or is a
// mistake that would empty the log.
func TestTrimStopsAtTheCeiling(t *testing.T) {
	l := three(t, shard.Config{})
	l.publish(0, 0, 0, 4)
	l.write()
	l.trim(13)
	l.collect()
	err := l.lastAnswer().Err
	wantCode(t, err, code.OutOfRange)
	if latest, ok := err.Details.Get(code.DetailLatest); !ok || latest != 12 {
		t.Errorf("the refusal names latest %d, %v", latest, ok)
	}
	l.trim(12) // everything that is committed, beside something that is not
	l.flush()
	if v := l.core.View(); v.Start.Offset != 12 || v.Ceiling != 16 {
		t.Fatalf("%+v", v)
	}
	if at := l.core.View().Start.Sequence; at > l.sequenceOf(12) {
		t.Errorf("the log begins at sequence %d, and the record at 12 is in %d", at, l.sequenceOf(12))
	}
}

// RT-09: who trims everything gets the space back, and offsets go on where they were, also after a restart.
func TestTrimOfEverything(t *testing.T) {
	l := three(t, shard.Config{})
	l.trim(12)
	l.flush()
	segs := l.segments()
	if len(segs) != 1 || segs[0].BaseOffset != 12 {
		t.Fatalf("%d segments are left, first %+v", len(segs), segs[0])
	}
	n := len(l.batches)
	l.trim(12)
	l.flush()
	if len(l.batches) != n {
		t.Error("trimming nothing wrote something")
	}
	l.reopen()
	if v := l.core.View(); v.Start.Offset != 12 || v.NextOffset != 12 {
		t.Fatalf("after a restart %+v", v)
	}
	l.publish(0, 0, 0, 1)
	l.flush()
	if a := l.lastAnswer(); a.Ack.BaseOffset != 12 {
		t.Fatalf("the next record got offset %d, want 12", a.Ack.BaseOffset)
	}
}

// A newest segment without records is not closed for a trim: it holds nothing to give back.
func TestTrimAfterARoll(t *testing.T) {
	l := three(t, shard.Config{SegmentAge: time.Second})
	l.now += time.Minute.Microseconds()
	l.step(shard.Tick{Segments: l.segments()})
	l.flush()
	before := l.segments()
	l.trim(12)
	l.flush()
	if after := l.segments(); len(before) != 2 || len(after) != 1 || after[0].BaseSequence != before[1].BaseSequence {
		t.Fatalf("segments %+v, before %+v", after, before)
	}
}

// A trim whose batch could not be written is refused, and the start stays where it was; what is cut off behind
// a pending start leaves that alone.
func TestTrimThatCannotBeWritten(t *testing.T) {
	l := three(t, shard.Config{})
	l.trim(8)
	l.write() // in the file, not flushed
	l.publish(0, 0, 0, 4)
	l.trim(10)
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	refused := 0
	for _, a := range l.answers {
		wantCode(t, a.Err, code.StorageFull)
		refused++
	}
	if refused != 2 {
		t.Fatalf("answers %+v, want the publish and the second trim", l.answers)
	}
	l.answers = nil
	l.trim(4) // rests on the first, which still stands
	l.flush()
	if len(l.answers) != 2 || len(l.moves) != 1 || l.core.View().Start.Offset != 8 {
		t.Fatalf("answers %+v, moves %+v, view %+v", l.answers, l.moves, l.core.View())
	}
	for _, a := range l.answers {
		if a.Err != nil || a.Ack.BaseOffset != 8 {
			t.Errorf("answer %+v, want 8", a)
		}
	}
}

func TestTrimOfALostShard(t *testing.T) {
	l := three(t, shard.Config{})
	l.trim(8)
	l.write()
	l.step(shard.Lost{Err: code.New(code.OutcomeUnknown, "flush failed")})
	l.trim(8)
	l.collect()
	if len(l.answers) != 2 {
		t.Fatalf("answers %+v", l.answers)
	}
	for _, a := range l.answers {
		wantCode(t, a.Err, code.OutcomeUnknown)
	}
}

// What a crash or a failed removal left below the start is dropped at a later look.
func TestDropAgain(t *testing.T) {
	l := rolled(t, shard.Config{SegmentBytes: 4 << 10}, 200)
	l.trim(100)
	l.flush()
	kept := l.segments()
	l.drops = nil // none of it was removed
	l.reopen()
	l.step(shard.Tick{Segments: l.segments()})
	l.collect()
	if got := l.segments(); len(got) != len(kept) || got[0] != kept[0] {
		t.Fatalf("%d segments after another look, want %d", len(got), len(kept))
	}
	l.step(shard.Tick{Segments: l.segments()})
	l.collect()
	if len(l.drops) != 1 {
		t.Errorf("dropped %v: nothing was left to drop", l.drops)
	}
}

// rolled makes a log of n records over several segments.
func rolled(t *testing.T, cfg shard.Config, n int) *log {
	t.Helper()
	l := newLog(t, cfg)
	for range n {
		l.publish(0, 0, 0, 1)
		l.flush()
	}
	if len(l.segments()) < 3 {
		t.Fatalf("%d records make %d segments", n, len(l.segments()))
	}
	l.answers = nil
	return l
}

// RT-05: only a log that is told to drops its oldest on a full disk, as much as is needed and no more, and
// never the newest segment.
func TestReclaimDropsTheOldest(t *testing.T) {
	keeps := rolled(t, shard.Config{SegmentBytes: 4 << 10}, 200)
	keeps.step(shard.Reclaim{Segments: keeps.segments(), Bytes: 1})
	if len(keeps.eff.Append) != 0 {
		t.Fatal("a log that is to refuse gives up records")
	}

	l := rolled(t, shard.Config{SegmentBytes: 4 << 10, DropOldest: true}, 200)
	before := l.segments()
	l.step(shard.Reclaim{Segments: before, Bytes: before[0].Bytes + 1})
	l.write()
	if len(l.drops) != 0 {
		t.Fatal("segments are dropped before the start is committed")
	}
	l.flush()
	after := l.segments()
	if len(after) != len(before)-2 || l.core.View().Start.Offset != before[2].BaseOffset {
		t.Fatalf("%d of %d segments are left and the log begins at %d, want two gone", len(after), len(before), l.core.View().Start.Offset)
	}
	if l.moves[0].Cause != shard.ByFullDisk {
		t.Errorf("moves %+v", l.moves)
	}
	l.step(shard.Reclaim{Segments: after, Bytes: 1 << 40})
	l.flush()
	if left := l.segments(); len(left) != 1 || left[0].BaseSequence != before[len(before)-1].BaseSequence {
		t.Fatalf("segments %+v", left)
	}
}

// A log of one segment closes it first, if what it holds is enough; else emptying it would not help.
func TestReclaimOfOneSegment(t *testing.T) {
	l := three(t, shard.Config{DropOldest: true})
	for range 40 {
		l.publish(0, 0, 0, 4)
	}
	l.flush()
	l.step(shard.Reclaim{Segments: l.segments(), Bytes: 1 << 20})
	if len(l.eff.Append) != 0 {
		t.Fatal("a segment is closed whose bytes are not enough")
	}
	l.step(shard.Reclaim{Segments: l.segments(), Bytes: 1 << 10})
	l.flush()
	l.step(shard.Reclaim{Segments: l.segments(), Bytes: 1 << 10})
	l.flush()
	v := l.core.View()
	if len(l.segments()) != 1 || v.Start.Offset != v.NextOffset || v.NextOffset != 43*4 {
		t.Fatalf("%d segments, %+v", len(l.segments()), v)
	}
	n := len(l.batches)
	l.step(shard.Reclaim{Segments: l.segments(), Bytes: 1})
	l.flush()
	if len(l.batches) != n {
		t.Error("an empty log is rolled again and again")
	}
}

// A full disk refuses no log start.
func TestTrimOnAFullDisk(t *testing.T) {
	l := three(t, shard.Config{})
	l.step(shard.Space{Full: true})
	l.trim(12)
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || a.Ack.BaseOffset != 12 {
		t.Fatalf("answer %+v", a)
	}
}

// The log begins at or behind where its files do, and never before what it has given up.
func TestBeginAt(t *testing.T) {
	l := three(t, shard.Config{})
	l.trim(6)
	l.flush()
	l.reopen()
	is := l.core.View().Start
	l.core.BeginAt(shard.LogStart{})
	if l.core.View().Start != is {
		t.Errorf("%+v", l.core.View().Start)
	}
	behind := shard.LogStart{Sequence: is.Sequence + 1, Offset: 8}
	l.core.BeginAt(behind)
	if l.core.View().Start != behind {
		t.Errorf("%+v", l.core.View().Start)
	}
}

// A trim is answered once it is flushed, also in a log that does not flush for an answer: segments are removed on the
// strength of it, and a flush that fails takes it back.
func TestTrimIsFlushedInEveryMode(t *testing.T) {
	for _, mode := range []shard.Fsync{shard.FsyncInterval, shard.FsyncNever} {
		l := three(t, shard.Config{Fsync: mode})
		l.trim(6)
		l.publish(0, 0, 0, 1)
		l.write()
		if len(l.answers) != 0 || l.core.View().Start.Offset != 0 || len(l.drops) != 0 {
			t.Fatalf("before the flush: answers %+v, view %+v, drops %v", l.answers, l.core.View(), l.drops)
		}
		l.step(shard.Lost{Err: code.New(code.OutcomeUnknown, "the disk failed to flush")})
		l.collect()
		if len(l.answers) != 2 || l.answers[0].Err == nil || l.answers[1].Err == nil || l.core.View().Start.Offset != 0 {
			t.Errorf("after a failed flush: answers %+v, view %+v", l.answers, l.core.View())
		}
	}
}
