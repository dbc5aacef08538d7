// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/storage"
	"margay.dev/storage/storagetest"
	"margay.dev/wire/batch"
)

// TestModel runs random operations against each log and the naive model of it.
func TestModel(t *testing.T) {
	for name, d := range map[string]storagetest.Driver{
		"disk on os": disk(onOS), "disk on memfs": disk(onMem), "memory": memory(),
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { runModel(t, rt, d) })
		})
	}
}

// machine is a log beside its model and its writer.
type machine struct {
	tb testing.TB
	t  *rapid.T
	d  storagetest.Driver
	l  storage.Log
	m  *storagetest.Model
	w  *storagetest.Writer
	// rest are the parts of a checkpoint that are still to be appended.
	rest []batch.Batch
}

func runModel(tb testing.TB, t *rapid.T, d storagetest.Driver) {
	x := &machine{tb: tb, t: t, d: d, l: d.Create(tb), m: &storagetest.Model{Whole: d.Whole}, w: storagetest.NewWriter()}
	defer func() { _ = x.l.Close() }()
	x.w.Sequence = rapid.Uint64Range(0, 3).Draw(t, "first sequence")
	x.w.Offset = rapid.Uint64Range(0, 1<<40).Draw(t, "first offset")
	x.m.Sequence, x.m.Offset = x.w.Sequence, x.w.Offset
	x.roll(t)
	actions := map[string]func(*rapid.T){
		"append": x.append, "append again": x.append, "roll": x.roll, "refused": x.refused, "flush": x.flush,
		"read": x.read, "find offset": x.findOffset, "find time": x.findTime, "drop": x.drop, "truncate": x.truncate,
		"replay": x.replay, "": x.check,
	}
	if d.Reopen != nil {
		actions["reopen"] = x.reopen
	}
	t.Repeat(actions)
	if err := x.m.Compare(x.l); err != nil {
		t.Fatal(err)
	}
}

func (x *machine) check(t *rapid.T) {
	if err := x.m.CompareState(x.l); err != nil {
		t.Fatal(err)
	}
}

func (x *machine) add(t *rapid.T, batches ...batch.Batch) {
	if err := x.l.Append(batches...); err != nil {
		t.Fatalf("append: %v", err)
	}
	x.m.Append(batches...)
}

// step moves the writer: time, generation, and what it says was flushed.
func (x *machine) step(t *rapid.T) {
	x.w.Time += rapid.Int64Range(-1, 50).Draw(t, "time")
	if len(x.m.Batches) > 0 {
		x.w.Time = max(x.w.Time, x.m.Batches[len(x.m.Batches)-1].AppendTime())
	}
	if rapid.IntRange(0, 9).Draw(t, "generation") == 0 {
		x.w.Generation++
	}
	x.w.Flushed = rapid.SampledFrom([]uint64{0, x.l.State().Flushed, x.w.Sequence}).Draw(t, "flushed")
	if base, open := x.m.OpenCheckpoint(); open {
		x.w.Flushed = min(x.w.Flushed, base) // no leader could say more: an open checkpoint is never flushed
	}
}

func size(t *rapid.T) int {
	return rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 5000), rapid.IntRange(60_000, 70_000)).Draw(t, "size")
}

func (x *machine) append(t *rapid.T) {
	x.finish(t)
	if len(x.m.Bases) == 0 {
		x.roll(t)
		x.finish(t)
	}
	var batches []batch.Batch
	for range rapid.IntRange(1, 5).Draw(t, "batches") {
		x.step(t)
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			batches = append(batches, x.w.Control())
		case 1:
			batches = append(batches, x.w.Records([]byte("x"), nil, []byte("z")))
		case 2:
			batches = append(batches, x.w.Carried(rapid.IntRange(1, 9).Draw(t, "carried"), size(t)))
		case 3:
			batches = append(batches, x.w.Expired(rapid.IntRange(1, 9).Draw(t, "expired")))
		default:
			batches = append(batches, x.w.Record(size(t)))
		}
	}
	x.add(t, batches...)
}

// finish appends what is left of a checkpoint.
func (x *machine) finish(t *rapid.T) {
	if len(x.rest) > 0 {
		x.add(t, x.rest...)
		x.rest = nil
	}
}

// roll begins a segment, and may leave its checkpoint open.
func (x *machine) roll(t *rapid.T) {
	x.finish(t)
	x.step(t)
	parts := x.w.Checkpoint(rapid.IntRange(1, 3).Draw(t, "parts"), rapid.SampledFrom([]int{0, 100, 3000}).Draw(t, "filler"))
	now := rapid.IntRange(1, len(parts)).Draw(t, "parts now")
	x.rest = parts[now:]
	x.add(t, parts[:now]...)
}

// refused offers what must be refused; check then finds the log unchanged.
func (x *machine) refused(t *rapid.T) {
	w := *x.w
	if len(x.rest) > 0 {
		w.Sequence, w.Offset = x.m.Length(), x.m.NextOffset()
	}
	want := storage.ErrOrder
	switch rapid.IntRange(0, 2).Draw(t, "fault") {
	case 0:
		w.Sequence += rapid.Uint64Range(1, 9).Draw(t, "skip")
	case 1:
		w.Offset++
	case 2:
		_, open := x.m.OpenCheckpoint()
		if !open && len(x.m.Bases) > 0 {
			return
		}
		want = storage.ErrCheckpoint
	}
	if err := x.l.Append(w.Record(10)); !errors.Is(err, want) && !errors.Is(err, storage.ErrCheckpoint) {
		t.Fatalf("append: %v, want %v", err, want)
	}
}

func (x *machine) flush(t *rapid.T) {
	want := x.m.Length()
	if base, open := x.m.OpenCheckpoint(); open {
		want = base
	}
	got, err := x.l.Flush()
	if err != nil || got != want {
		t.Fatalf("flush: %d, %v, want %d", got, err, want)
	}
	x.m.Flushed = got
}

func (x *machine) sequence(t *rapid.T, label string) uint64 {
	return rapid.Uint64Range(x.m.Start(), x.m.Length()).Draw(t, label)
}

func (x *machine) read(t *rapid.T) {
	from := x.sequence(t, "from")
	until := from + rapid.Uint64Range(0, 40).Draw(t, "count")
	if _, err := x.m.CompareRead(x.l, from, until, rapid.IntRange(0, 200_000).Draw(t, "bytes")); err != nil {
		t.Fatal(err)
	}
	if x.m.Start() > 0 {
		if _, err := x.l.Read(x.m.Start()-1, x.m.Length(), 1); !errors.Is(err, storage.ErrDropped) && len(x.m.Bases) > 0 {
			t.Fatalf("read before the start: %v", err)
		}
	}
}

func (x *machine) findOffset(t *rapid.T) {
	offset := rapid.Uint64Range(x.m.StartOffset(), x.m.NextOffset()).Draw(t, "offset")
	if got, err := x.l.FindOffset(offset); err != nil || got != x.m.FindOffset(offset) {
		t.Fatalf("find offset %d: sequence %d, %v, want %d", offset, got, err, x.m.FindOffset(offset))
	}
}

func (x *machine) findTime(t *rapid.T) {
	us := x.w.Time
	if len(x.m.Batches) > 0 {
		us = rapid.Int64Range(x.m.Batches[0].AppendTime()-1, x.w.Time+1).Draw(t, "time")
	}
	if got, err := x.l.FindTime(us); err != nil || got != x.m.FindTime(us) {
		t.Fatalf("find time %d: offset %d, %v, want %d", us, got, err, x.m.FindTime(us))
	}
}

func (x *machine) drop(t *rapid.T) {
	seq := x.sequence(t, "before")
	before := x.l.State().Bytes
	freed, err := x.l.DropBefore(seq)
	if err != nil || before-x.l.State().Bytes != freed {
		t.Fatalf("drop before %d: %d bytes, %v", seq, freed, err)
	}
	x.m.DropBefore(seq)
}

func (x *machine) truncate(t *rapid.T) {
	length, before := x.sequence(t, "length"), x.m.Length()
	if rapid.Bool().Draw(t, "near the end") {
		length = max(length, x.m.Length()-min(x.m.Length()-x.m.Start(), 2))
	}
	x.cut(t, length)
	if base, open := x.m.OpenCheckpoint(); open && length < before {
		x.cut(t, base) // what could follow is not just any checkpoint, but the rest of that one
	}
}

func (x *machine) cut(t *rapid.T, length uint64) {
	if err := x.l.Truncate(length); err != nil {
		t.Fatalf("truncate to %d: %v", length, err)
	}
	if length == x.m.Length() {
		return
	}
	x.m.Truncate(length)
	x.rest = nil
	x.w.Sequence, x.w.Offset = x.m.Length(), x.m.NextOffset()
	x.check(t)
}

func (x *machine) replay(t *rapid.T) {
	want := x.m.Newest()
	err := x.l.Replay(func(b batch.Batch) error {
		if len(want) == 0 || string(b) != string(want[0]) {
			return errors.New("another batch")
		}
		want = want[1:]
		return nil
	})
	if err != nil || len(want) > 0 {
		t.Fatalf("replay: %v, %d batches are missing", err, len(want))
	}
}

func (x *machine) reopen(t *rapid.T) {
	if base, open := x.m.OpenCheckpoint(); open && base == x.m.Start() || len(x.m.Bases) == 0 {
		return // nothing would be left to open
	}
	x.l = x.d.Reopen(x.tb, x.l)
	if _, open := x.m.OpenCheckpoint(); open {
		x.rest = nil
	}
	x.m.Reopen()
	x.w.Sequence, x.w.Offset = x.m.Length(), x.m.NextOffset()
	if err := x.m.Compare(x.l); err != nil {
		t.Fatal(err)
	}
}
