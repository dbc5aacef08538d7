// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// log is the simplest shell: what the core appends is kept, and replayed into a new core at will.
type log struct {
	t       *testing.T
	core    *shard.Core
	cfg     shard.Config
	now     int64
	batches []batch.Batch
	eff     shard.Effects
	answers []shard.Answer
	seen    []uint64 // base offsets of committed record batches
	drops   []uint64
	moves   []shard.Move
	build   *shard.BuildKeys   // asked for and not handed over
	head    *shard.ReclaimHead // asked for and not done
}

func newLog(t *testing.T, cfg shard.Config) *log {
	t.Helper()
	if cfg.Generation == 0 {
		cfg.Generation = 1
	}
	cfg.Node = "n1"
	return &log{t: t, cfg: cfg, core: shard.New(cfg), now: 1_700_000_000_000_000}
}

func records(t *testing.T, producer, seq uint64, n int) batch.Batch {
	t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	for i := range n {
		if err := bl.Add(batch.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "p%d-s%d-%d", producer, seq, i), Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Build(producer, seq, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (l *log) step(ev shard.Event) int64 {
	l.now++
	return l.core.Step(l.now, ev, &l.eff)
}

func (l *log) publish(producer, seq, previous uint64, n int) {
	l.t.Helper()
	l.step(&shard.Publish{Batch: records(l.t, producer, seq, n), Previous: previous, To: fmt.Sprintf("%d/%d", producer, seq)})
}

// take performs the effects but the flush, which a test calls when it wants it.
func (l *log) write() {
	if len(l.eff.Append) > 0 {
		l.batches = append(l.batches, l.eff.Append...)
		l.eff.Append = l.eff.Append[:0]
		l.step(shard.Written{Length: uint64(len(l.batches))})
	}
	l.collect()
}

func (l *log) flush() {
	l.write()
	l.step(shard.Flushed{Length: uint64(len(l.batches))})
	l.collect()
}

func (l *log) collect() {
	l.answers = append(l.answers, l.eff.Answers...)
	for _, c := range l.eff.Committed {
		if !c.Batch.IsControl() {
			l.seen = append(l.seen, c.Batch.BaseOffset())
		}
	}
	l.moves = append(l.moves, l.eff.Moves...)
	if l.eff.Drop > 0 {
		l.drops = append(l.drops, l.eff.Drop)
	}
	if l.eff.Keys != nil {
		l.build = l.eff.Keys
	}
	if l.eff.Reclaim != nil {
		l.head = l.eff.Reclaim
	}
	l.eff.Reset()
}

// reopen replays the newest segment into a core of the next generation.
func (l *log) reopen() {
	l.t.Helper()
	l.cfg.Generation++
	l.core = shard.New(l.cfg)
	from := 0
	for i, b := range l.batches {
		if b.IsCheckpointStart() {
			from = i
		}
	}
	for _, b := range l.batches[from:] {
		if err := l.core.Replay(b); err != nil {
			l.t.Fatal(err)
		}
	}
	if n := len(l.batches); n > 0 {
		l.core.Recovered(uint64(n), l.batches[n-1].NextOffset(), false)
	}
}

func (l *log) lastAnswer() shard.Answer {
	l.t.Helper()
	if len(l.answers) == 0 {
		l.t.Fatal("nobody was answered")
	}
	return l.answers[len(l.answers)-1]
}

func wantCode(t *testing.T, err error, c code.Code) {
	t.Helper()
	if !errors.Is(err, c) {
		t.Fatalf("got %v, want code %v", err, c)
	}
}

// Offsets are taken at the append, in order, before anything is durable; nobody is answered and nothing is
// seen before the flush (S2, S4).
func TestAppendThenWait(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 3)
	l.publish(2, 1, 0, 2)
	l.write()
	if len(l.answers) != 0 || len(l.seen) != 0 {
		t.Fatalf("before the flush: %d answers, %d batches seen", len(l.answers), len(l.seen))
	}
	l.flush()
	if len(l.answers) != 2 || l.answers[0].Ack.BaseOffset != 0 || l.answers[1].Ack.BaseOffset != 3 {
		t.Fatalf("answers %+v", l.answers)
	}
	for _, a := range l.answers {
		if a.Err != nil || !a.Ack.Flushed || !a.Ack.Committed || a.Ack.Generation != 1 {
			t.Errorf("answer %+v", a)
		}
	}
	if fmt.Sprint(l.seen) != "[0 3]" {
		t.Errorf("seen %v", l.seen)
	}
}

// The first batches of a shard are its checkpoint and its generation's opening; an idle shard has none.
func TestOpeningPrecedesEverything(t *testing.T) {
	l := newLog(t, shard.Config{Generation: 7})
	if l.core.View().Length != 0 {
		t.Fatal("an idle shard has written something")
	}
	l.publish(0, 0, 0, 1)
	l.flush()
	if !l.batches[0].IsCheckpointStart() || !l.batches[1].IsControl() || l.batches[2].IsControl() {
		t.Fatalf("the log begins with %v, %v, %v", l.batches[0].Attributes(), l.batches[1].Attributes(), l.batches[2].Attributes())
	}
	entries, err := l.batches[1].Entries()
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := entries[0].(batch.Opening); !ok || o.Generation != 7 || o.Leader != "n1" {
		t.Fatalf("the opening says %+v", entries[0])
	}
	l.reopen()
	l.publish(0, 0, 0, 1)
	l.flush()
	if entries, err = l.batches[3].Entries(); err != nil || entries[0].(batch.Opening).Generation != 8 {
		t.Fatalf("the second generation opens with %+v, %v", entries, err)
	}
}

// S7: a retry is answered with the original's place, and stored once, also after a restart.
func TestRetryIsStoredOnce(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 2)
	l.flush()
	l.publish(1, 2, 1, 2)
	l.publish(1, 2, 1, 2) // overtakes its original's commit
	l.write()
	if len(l.answers) != 1 {
		t.Fatalf("a retry of a pending batch was answered before it: %+v", l.answers)
	}
	l.flush()
	for i := range 3 {
		if i == 2 {
			l.reopen()
		}
		l.publish(1, 1, 0, 2)
		l.publish(1, 2, 1, 2)
		l.flush()
	}
	for _, a := range l.answers[2:] {
		if a.Err != nil || !a.Ack.Duplicate {
			t.Errorf("retry answered %+v", a)
		}
		if want := map[any]uint64{"1/1": 0, "1/2": 2}[a.To]; a.Ack.BaseOffset != want {
			t.Errorf("retry %v answered offset %d, want %d", a.To, a.Ack.BaseOffset, want)
		}
	}
	if n := l.core.View().NextOffset; n != 4 {
		t.Errorf("the log holds %d records, want 4", n)
	}
}

// ID-01: a sequence that was given up is left out by its successor; one that skips without saying so is
// out of order, and so is what comes too late.
func TestProducerOrder(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 1)
	l.publish(1, 3, 1, 1) // 2 was given up
	l.flush()
	if l.lastAnswer().Err != nil {
		t.Fatal(l.lastAnswer().Err)
	}
	l.publish(1, 5, 4, 1) // 4 never arrived
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.OutOfOrder)
	if last, ok := l.lastAnswer().Err.Details.Get(code.DetailLastSequence); !ok || last != 3 {
		t.Errorf("out of order names last sequence %d, %v", last, ok)
	}
	l.publish(1, 2, 1, 1) // the given-up one arrives after all
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.OutOfOrder)
	l.publish(2, 5, 4, 1)
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.ProducerUnknown)
}

// ST-12, ID-03: what could not be written leaves no trace: its offsets and its producer sequences are free.
func TestFailedWriteLeavesNoTrace(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 2)
	l.flush()
	before := l.core.View()
	l.publish(1, 2, 1, 5)
	l.publish(1, 2, 1, 5) // a retry that rests on it
	l.publish(3, 1, 0, 1)
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	if len(l.answers) != 4 {
		t.Fatalf("%d answers, want 4", len(l.answers))
	}
	for _, a := range l.answers[1:] {
		wantCode(t, a.Err, code.StorageFull)
	}
	after := l.core.View()
	before.LastAppend = after.LastAppend
	if before != after {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	l.publish(1, 2, 1, 5)
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || a.Ack.BaseOffset != 2 || a.Ack.Duplicate {
		t.Fatalf("the retry after a failed write: %+v", a)
	}
}

// A failed very first write takes checkpoint and opening with it; the next append writes them again.
func TestFailedFirstWrite(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(0, 0, 0, 1)
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	l.publish(0, 0, 0, 1)
	l.flush()
	if len(l.batches) != 3 || !l.batches[0].IsCheckpointStart() || l.batches[0].Sequence() != 0 {
		t.Fatalf("%d batches, first %v", len(l.batches), l.batches[0].Attributes())
	}
}

// ST-11: after a failed flush nobody knows: unknown to all who wait, refused to all who come.
func TestLostFlush(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 1)
	l.flush()
	l.publish(1, 2, 1, 1)
	l.write()
	l.step(shard.Lost{Err: code.New(code.OutcomeUnknown, "flush failed")})
	l.collect()
	if a := l.lastAnswer(); a.Err == nil || a.Err.Class != code.ClassUnknown {
		t.Fatalf("a waiter of a failed flush was told %+v", a)
	}
	l.publish(1, 3, 2, 1)
	l.collect()
	if l.lastAnswer().Err == nil {
		t.Fatal("a shard whose flush failed took another batch")
	}
	if v := l.core.View(); v.Ceiling != 1 {
		t.Fatalf("readers may see up to %d, want 1", v.Ceiling)
	}
}

func TestAckLevels(t *testing.T) {
	for _, c := range []struct {
		name        string
		rule, least shard.AckLevel
		fsync       shard.Fsync
		ask         shard.AckLevel
		refused     bool
		early       bool // answered when written
		flushed     bool // at that answer
	}{
		{"default waits for the flush", shard.AckQuorum, shard.AckNone, shard.FsyncAlways, shard.AckDefault, false, false, true},
		{"leader equals quorum on one copy", shard.AckQuorum, shard.AckNone, shard.FsyncAlways, shard.AckLeader, false, false, true},
		{"none is answered when written", shard.AckQuorum, shard.AckNone, shard.FsyncAlways, shard.AckNone, false, true, false},
		{"less than min-ack", shard.AckQuorum, shard.AckLeader, shard.FsyncAlways, shard.AckNone, true, false, false},
		{"more than the rule", shard.AckLeader, shard.AckNone, shard.FsyncAlways, shard.AckQuorum, true, false, false},
		{"interval answers before the flush and says so", shard.AckQuorum, shard.AckNone, shard.FsyncInterval, shard.AckDefault, false, true, false},
		{"never too", shard.AckQuorum, shard.AckNone, shard.FsyncNever, shard.AckQuorum, false, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLog(t, shard.Config{Rule: c.rule, MinAck: c.least, Fsync: c.fsync})
			l.publish(0, 0, 0, 1)
			l.flush() // the opening is out of the way
			l.answers = nil
			l.step(&shard.Publish{Batch: records(t, 0, 0, 1), Level: c.ask, To: "x"})
			l.write()
			if c.refused {
				wantCode(t, l.lastAnswer().Err, code.BadRequest)
				return
			}
			if (len(l.answers) == 1) != c.early {
				t.Fatalf("after the write: %d answers", len(l.answers))
			}
			l.flush()
			if len(l.answers) != 1 || l.answers[0].Err != nil {
				t.Fatalf("answers %+v", l.answers)
			}
			if a := l.answers[0].Ack; a.Flushed != c.flushed {
				t.Errorf("ack says flushed %v, want %v", a.Flushed, c.flushed)
			}
		})
	}
}

// A segment rolls by size and opens with a checkpoint from which a core is the same as one that saw all.
func TestRollAndCheckpoint(t *testing.T) {
	l := newLog(t, shard.Config{SegmentBytes: 8 << 10})
	for seq := uint64(1); seq <= 300; seq++ {
		l.publish(1+seq%3, seq, max(seq, 3)-3, 1)
		l.flush()
		if a := l.lastAnswer(); a.Err != nil {
			t.Fatalf("sequence %d: %v", seq, a.Err)
		}
	}
	starts := 0
	for _, b := range l.batches {
		if b.IsCheckpointStart() {
			starts++
		}
	}
	if starts < 3 {
		t.Fatalf("%d segments", starts)
	}
	was := l.core.View()
	l.reopen()
	is := l.core.View()
	was.Generation, was.Start = is.Generation, is.Start
	if was != is {
		t.Fatalf("replayed %+v, was %+v", is, was)
	}
	l.publish(1, 300, 297, 1) // a retry from before the restart
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || !a.Ack.Duplicate || a.Ack.BaseOffset != 299 {
		t.Fatalf("retry across a checkpoint: %+v", a)
	}
}

// RT-01, RT-09: a quiet log expires too, and offsets go on where they were.
func TestRetentionByAge(t *testing.T) {
	l := newLog(t, shard.Config{MaxAge: 10 * time.Second})
	l.publish(0, 0, 0, 5)
	l.flush()
	l.now += (11 * time.Second).Microseconds()
	l.step(shard.Tick{Segments: []shard.Segment{{LastAppendTime: l.batches[2].AppendTime(), Bytes: 1000}}})
	l.flush()
	var roll uint64
	for _, b := range l.batches[1:] {
		if b.IsCheckpointStart() {
			roll = b.Sequence()
		}
	}
	if roll == 0 {
		t.Fatal("a quiet segment past its age was not rolled")
	}
	l.step(shard.Tick{Segments: []shard.Segment{
		{LastAppendTime: l.batches[2].AppendTime(), Bytes: 1000},
		{BaseSequence: roll, BaseOffset: 5, LastAppendTime: l.now, Bytes: 200},
	}})
	if len(l.drops) != 0 || l.eff.Drop != 0 {
		t.Fatal("segments are dropped before the log start is committed")
	}
	l.flush()
	if len(l.drops) != 1 || l.drops[0] != roll {
		t.Fatalf("dropped %v, want %d", l.drops, roll)
	}
	l.reopen()
	if v := l.core.View(); v.Start != (shard.LogStart{Sequence: roll, Offset: 5}) || v.NextOffset != 5 {
		t.Fatalf("after everything expired: %+v", v)
	}
	wantCode(t, l.core.CheckResume(2, 0), code.OutOfRange)
	if err := l.core.CheckResume(5, 0); err != nil {
		t.Fatal(err)
	}
	l.publish(0, 0, 0, 1)
	l.flush()
	if a := l.lastAnswer(); a.Ack.BaseOffset != 5 {
		t.Fatalf("the next record got offset %d, want 5", a.Ack.BaseOffset)
	}
}

// RT-03: an idle log grows by nothing, whatever its settings.
func TestIdleLogDoesNotGrow(t *testing.T) {
	l := newLog(t, shard.Config{MaxAge: time.Second, SegmentAge: time.Second, MaxBytes: 1, SegmentBytes: 1})
	l.publish(0, 0, 0, 1)
	l.flush()
	for range 100 {
		l.now += time.Minute.Microseconds()
		var segs []shard.Segment
		for _, b := range l.batches {
			if b.IsCheckpointStart() {
				segs = append(segs, shard.Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
			}
			s := &segs[len(segs)-1]
			s.Bytes += int64(b.Size())
			s.LastAppendTime = b.AppendTime()
		}
		l.step(shard.Tick{Segments: segs})
		l.flush()
	}
	if len(l.batches) > 8 {
		t.Fatalf("an idle log has grown to %d batches", len(l.batches))
	}
}

func TestCut(t *testing.T) {
	l := newLog(t, shard.Config{Memory: true, Generation: 3})
	wantCode(t, l.core.CheckResume(5, 2), code.Cut)
	if err := l.core.CheckResume(0, 2); err != nil {
		t.Fatal(err)
	}
	l.publish(0, 0, 0, 9)
	l.write()
	wantCode(t, l.core.CheckResume(5, 2), code.Cut)
	if err := l.core.CheckResume(5, 3); err != nil {
		t.Fatal(err)
	}
	wantCode(t, l.core.CheckResume(50, 0), code.OutOfRange)
}

// A publish past its deadline is answered unknown; its batch keeps its place.
func TestDeadline(t *testing.T) {
	l := newLog(t, shard.Config{})
	wake := l.step(&shard.Publish{Batch: records(t, 0, 0, 1), To: "a", Deadline: l.now + 1000})
	if wake != l.now+999 {
		t.Fatalf("wake at %d, want %d", wake, l.now+999)
	}
	l.write()
	l.now += 2000
	l.step(shard.Space{})
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.Timeout)
	l.flush()
	if len(l.answers) != 1 || fmt.Sprint(l.seen) != "[0]" {
		t.Fatalf("answers %+v, seen %v", l.answers, l.seen)
	}
}

func TestFullDiskRefusesRecordsOnly(t *testing.T) {
	l := newLog(t, shard.Config{MaxBytes: 1})
	l.publish(0, 0, 0, 1)
	l.flush()
	l.step(shard.Space{Full: true})
	l.publish(0, 0, 0, 1)
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.StorageFull)
	l.step(shard.Space{})
	l.publish(0, 0, 0, 1)
	l.flush()
	if l.lastAnswer().Err != nil {
		t.Fatal("writes do not resume")
	}
}

func TestProducerTableIsBounded(t *testing.T) {
	l := newLog(t, shard.Config{MaxProducers: 2})
	l.publish(1, 1, 0, 1)
	l.publish(2, 1, 0, 1)
	l.publish(3, 1, 0, 1)
	l.flush()
	var refused int
	for _, a := range l.answers {
		if a.Err != nil {
			wantCode(t, a.Err, code.ProducersFull)
			refused++
		}
	}
	if refused != 1 {
		t.Fatalf("%d refused", refused)
	}
	l.now += (shard.ProducerIdle + time.Second).Microseconds()
	l.publish(2, 2, 1, 1) // active again: its append moves the shard's time
	l.flush()
	l.publish(3, 1, 0, 1)
	l.flush()
	if a := l.lastAnswer(); a.Err != nil {
		t.Fatalf("a producer idle for 15 minutes still holds its place: %v", a.Err)
	}
	l.publish(1, 2, 1, 1)
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.ProducerUnknown)
}
