// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/code"
)

// roll publishes anonymous records until a segment has begun that holds nothing but its checkpoint and some of them.
func (l *log) roll() {
	l.t.Helper()
	starts := func() (n int) {
		for _, b := range l.batches {
			if b.IsCheckpointStart() {
				n++
			}
		}
		return n
	}
	for was := starts(); starts() == was; {
		l.publish(0, 0, 0, 10)
		l.flush()
	}
}

// S7: a retry of the oldest batch that a producer's window holds is recognized after a start too, though the newest
// segment has nothing of that producer but what its checkpoint says.
func TestCheckpointCarriesTheProducers(t *testing.T) {
	l := newLog(t, shard.Config{SegmentBytes: 4 << 10})
	for seq := uint64(1); seq <= 3; seq++ {
		l.publish(7, seq, seq-1, 2)
		l.flush()
	}
	l.roll()
	l.reopen()
	for seq := uint64(1); seq <= 3; seq++ {
		l.publish(7, seq, seq-1, 2)
		l.flush()
		if a := l.lastAnswer(); a.Err != nil || !a.Ack.Duplicate || a.Ack.BaseOffset != 2*(seq-1) {
			t.Fatalf("retry of %d behind a checkpoint: %+v", seq, a)
		}
	}
	l.publish(7, 4, 3, 1)
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || a.Ack.Duplicate {
		t.Fatalf("the next one: %+v", a)
	}
}

// R1: who has read what was cut off is told so, also when the log has long gone past that offset and the cut lies before
// the newest checkpoint.
func TestCheckpointCarriesTheGenerations(t *testing.T) {
	l := newLog(t, shard.Config{SegmentBytes: 4 << 10, Fsync: shard.FsyncNever})
	l.publish(0, 0, 0, 10)
	l.write()
	kept := len(l.batches)
	l.publish(0, 0, 0, 5)
	l.write() // seen, and not flushed
	l.batches = l.batches[:kept]
	l.reopen()
	l.roll()
	l.reopen()
	l.publish(0, 0, 0, 1)
	l.flush()
	err := l.core.CheckResume(15, 1)
	if err == nil {
		t.Fatal("offset 15 of generation 1 was cut off, and nothing says so")
	}
	wantCode(t, err, code.Cut)
	if at, _ := err.Details.Get(code.DetailResumeAt); at != 10 {
		t.Errorf("resume at %d, want 10", at)
	}
	if err := l.core.CheckResume(10, 1); err != nil {
		t.Errorf("offset 10 of generation 1 stands: %v", err)
	}
}

// R12, R17: append times never fall, whatever the clock does: expiry and windows are measured by them.
func TestAppendTimesNeverFall(t *testing.T) {
	l := newLog(t, shard.Config{})
	for _, step := range []time.Duration{0, -time.Hour, time.Minute, -24 * time.Hour, 0} {
		l.now += step.Microseconds()
		l.publish(0, 0, 0, 1)
		l.flush()
	}
	for i, b := range l.batches[1:] {
		if b.AppendTime() < l.batches[i].AppendTime() {
			t.Errorf("batch %d was appended at %d, the one before at %d", b.Sequence(), b.AppendTime(), l.batches[i].AppendTime())
		}
	}
}

// S11: files are removed on the strength of a new start, so it is flushed whatever the fsync mode is.
func TestNewStartIsFlushed(t *testing.T) {
	for _, mode := range []shard.Fsync{shard.FsyncAlways, shard.FsyncInterval, shard.FsyncNever} {
		l := three(t, shard.Config{Fsync: mode})
		l.trim(6)
		if !l.eff.Flush {
			t.Errorf("fsync mode %d: the new start is not flushed", mode)
		}
	}
}

// R7: a head segment goes only if what stays still fills the bound.
func TestRetentionKeepsWhatItIsToKeep(t *testing.T) {
	const bound = 20 << 10
	l := newLog(t, shard.Config{SegmentBytes: 4 << 10, MaxBytes: bound})
	for n := range 400 {
		l.set("k", fmt.Sprintf("%0100d", n))
		l.flush()
		l.step(shard.Tick{Segments: l.segments()})
		l.flush()
		var kept int64
		segments := l.segments()
		for _, s := range segments {
			kept += s.Bytes
		}
		switch {
		case l.core.View().Start.Sequence > 0 && kept < bound:
			t.Fatalf("after %d records %d bytes are left of %d", n, kept, bound)
		case kept-segments[0].Bytes > bound:
			t.Fatalf("after %d records %d bytes are kept", n, kept)
		}
	}
	if l.core.View().Start.Sequence == 0 {
		t.Fatal("retention took nothing")
	}
}
