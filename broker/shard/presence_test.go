// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const grace = time.Minute

func (l *log) setLast(id uint64) {
	l.t.Helper()
	n := len(l.answers)
	l.step(&shard.SetLast{ID: id, Grace: grace, Batch: records(l.t, id, 1, 1), To: id})
	l.flush()
	if len(l.answers) != n+1 || l.lastAnswer().Err != nil {
		l.t.Fatalf("set the last record of %d: %+v", id, l.answers[n:])
	}
}

// published counts the batches of a session that are in the log.
func (l *log) published(id uint64) (n int) {
	for _, b := range l.batches {
		if !b.IsControl() && b.ProducerID() == id {
			n++
		}
	}
	return n
}

// A last record is published when its session is lost, once, and to readers; never when it was taken back.
func TestLastRecordIsPublishedOnce(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.setLast(7)
	l.setLast(8)
	l.step(&shard.ClearLast{ID: 8, To: 8})
	for range 2 {
		l.step(shard.ConnectionLost{ID: 7})
		l.step(shard.ConnectionLost{ID: 8})
	}
	if l.eff.LastsPublished != 1 {
		t.Errorf("%d are counted", l.eff.LastsPublished)
	}
	l.flush()
	if l.published(7) != 1 || l.published(8) != 0 || len(l.seen) != 1 {
		t.Fatalf("published %d and %d times, readers saw %v", l.published(7), l.published(8), l.seen)
	}
	for range 2 {
		l.reopen()
		l.now += 2 * grace.Microseconds()
		l.passTime()
		l.now += 2 * grace.Microseconds()
		l.passTime()
	}
	if l.published(7) != 1 || l.published(8) != 0 {
		t.Fatalf("after a restart: published %d and %d times", l.published(7), l.published(8))
	}
	l.setLast(7) // the session is back, and lost again
	l.step(shard.ConnectionLost{ID: 7})
	l.flush()
	if l.published(7) != 2 || l.core.View().Producers != 0 {
		t.Fatalf("published %d times, %d producers", l.published(7), l.core.View().Producers)
	}
}

// After a restart a session has its grace to show itself, from the opening on; also behind a checkpoint.
func TestLastRecordsAfterARestart(t *testing.T) {
	l := newLog(t, shard.Config{SegmentBytes: 4 << 10})
	for id := uint64(7); id <= 10; id++ {
		l.setLast(id)
	}
	for seq := uint64(1); seq < 60; seq++ {
		l.publish(1, seq, seq-1, 10)
		l.flush()
	}
	l.now += 10 * grace.Microseconds()
	l.reopen()
	l.passTime() // the graces begin
	batches := len(l.batches)
	l.setLast(7) // the same again: nothing to write
	if len(l.batches) != batches {
		t.Error("a session that says again what is known costs a write")
	}
	l.step(shard.LastAlive{ID: 8})
	l.step(&shard.ClearLast{ID: 9})
	l.now += grace.Microseconds() - 10
	l.passTime()
	if l.published(10) != 0 {
		t.Fatal("published within its grace")
	}
	l.now += 20
	l.passTime()
	for id, want := range map[uint64]int{7: 0, 8: 0, 9: 0, 10: 1} {
		if n := l.published(id); n != want {
			t.Errorf("the record of %d is published %d times, want %d", id, n, want)
		}
	}
	if at := l.core.Next(); at != 0 {
		t.Errorf("there is something to do at %d", at)
	}
}

// What could not be written is tried again; the session that it is of is gone and asks nobody.
func TestLastRecordWaitsForRoom(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.setLast(7)
	l.step(shard.Space{Full: true})
	l.step(shard.ConnectionLost{ID: 7})
	l.flush()
	l.step(shard.Space{})
	if l.published(7) != 0 {
		t.Fatal("published on a full disk")
	}
	l.now += time.Minute.Microseconds()
	if at := l.core.Next(); at == 0 || at > l.now {
		t.Fatalf("the next try is at %d", at)
	}
	l.step(shard.Time{})
	l.eff.Append = nil // the disk refuses it
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	l.now += time.Minute.Microseconds()
	l.passTime()
	if l.published(7) != 1 {
		t.Fatalf("published %d times", l.published(7))
	}
	if _, err := batch.CheckStored(l.batches[len(l.batches)-1]); err != nil {
		t.Error(err)
	}
}

func TestLastRecordsAreBounded(t *testing.T) {
	l := newLog(t, shard.Config{MaxLasts: 2})
	l.setLast(7)
	l.setLast(8)
	set := func(id uint64, b batch.Batch, want code.Code) {
		t.Helper()
		l.step(&shard.SetLast{ID: id, Batch: b, To: id})
		wantCode(t, l.eff.Answers[0].Err, want)
		l.collect()
	}
	set(9, records(t, 9, 1, 1), code.TooMany)
	set(8, records(t, 8, 1, 6000), code.TooLarge)
	l.setLast(8)
	l.step(shard.Space{Full: true})
	set(8, records(t, 8, 1, 1), code.StorageFull)
}
