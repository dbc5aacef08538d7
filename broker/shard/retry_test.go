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
