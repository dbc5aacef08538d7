// SPDX-License-Identifier: Apache-2.0

package storagetest

import (
	"errors"
	"slices"
	"testing"

	"margay.dev/storage"
	"margay.dev/wire/batch"
)

// Driver makes the logs of one implementation.
type Driver struct {
	// Create returns an empty log.
	Create func(t testing.TB) storage.Log
	// Reopen closes a log and opens it again. Nil for a log that ends with its process.
	Reopen func(t testing.TB, l storage.Log) storage.Log
	// Whole means that a read ends early only where a segment does.
	Whole bool
}

// Run holds an implementation to the contract of storage.Log.
func Run(t *testing.T, d Driver) {
	parts := map[string]func(*testing.T, *fixture){
		"empty":                testEmpty,
		"first batch":          testFirstBatch,
		"append":               testAppend,
		"append refuses":       testAppendRefuses,
		"append is all":        testAppendIsAll,
		"checkpoint":           testCheckpoint,
		"checkpoint refuses":   testCheckpointRefuses,
		"flush":                testFlush,
		"flushed field":        testFlushedField,
		"read":                 testRead,
		"read is stable":       testReadIsStable,
		"find offset":          testFindOffset,
		"find time":            testFindTime,
		"truncate":             testTruncate,
		"truncate everything":  testTruncateEverything,
		"truncate, then other": testTruncateThenOther,
		"drop before":          testDropBefore,
		"replay":               testReplay,
		"start elsewhere":      testStartElsewhere,
		"size":                 testSize,
		"close":                testClose,
		"concurrent":           testConcurrent,
	}
	for name, run := range parts {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, d)
			run(t, f)
		})
	}
}

// fixture is a log beside its model and its writer.
type fixture struct {
	t      testing.TB
	driver Driver
	l      storage.Log
	m      *Model
	w      *Writer
}

func newFixture(t testing.TB, d Driver) *fixture {
	f := &fixture{t: t, driver: d, l: d.Create(t), m: &Model{Whole: d.Whole}, w: NewWriter()}
	t.Cleanup(func() {
		if err := f.l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

func (f *fixture) append(batches ...batch.Batch) {
	f.t.Helper()
	if err := f.l.Append(batches...); err != nil {
		f.t.Fatalf("append: %v", err)
	}
	f.m.Append(batches...)
}

// refused holds that an append fails with one of these errors and leaves no trace.
func (f *fixture) refused(batches []batch.Batch, want ...error) {
	f.t.Helper()
	err := f.l.Append(batches...)
	if err == nil || !slices.ContainsFunc(want, func(w error) bool { return errors.Is(err, w) }) {
		f.t.Fatalf("append: %v, want %v", err, want)
	}
	f.check()
}

// check compares the log with its model, and once more after it was opened again.
func (f *fixture) check() {
	f.t.Helper()
	if err := f.m.Compare(f.l); err != nil {
		f.t.Fatal(err)
	}
}

// reopened runs check, then opens the log again, when it can be, and checks again.
func (f *fixture) reopened() {
	f.t.Helper()
	f.check()
	if f.driver.Reopen == nil || len(f.m.Bases) == 0 {
		return
	}
	f.l = f.driver.Reopen(f.t, f.l)
	f.m.Reopen()
	f.check()
}

// fill appends segments, each with a checkpoint and so many batches of one record.
func (f *fixture) fill(segments, batches, size int) {
	f.t.Helper()
	for range segments {
		f.append(f.w.Checkpoint(1, 30)...)
		for range batches {
			f.append(f.w.Record(size))
		}
	}
}

func testEmpty(t *testing.T, f *fixture) {
	f.check()
	if s := f.l.State(); s.Length != 0 || s.Bytes != 0 || s.Flushed != 0 {
		t.Errorf("state %+v", s)
	}
	if flushed, err := f.l.Flush(); flushed != 0 || err != nil {
		t.Errorf("flush: %d, %v", flushed, err)
	}
	if seq, err := f.l.FindOffset(0); seq != 0 || err != nil {
		t.Errorf("find offset: %d, %v", seq, err)
	}
	if offset, err := f.l.FindTime(0); offset != 0 || err != nil {
		t.Errorf("find time: %d, %v", offset, err)
	}
	if n, err := f.l.DropBefore(100); n != 0 || err != nil {
		t.Errorf("drop: %d, %v", n, err)
	}
	if err := f.l.Append(); err != nil {
		t.Errorf("append of nothing: %v", err)
	}
	if err := f.l.Replay(func(batch.Batch) error { return errors.New("a batch") }); err != nil {
		t.Errorf("replay: %v", err)
	}
}

func testFirstBatch(_ *testing.T, f *fixture) {
	f.refused([]batch.Batch{f.w.Record(10)}, storage.ErrCheckpoint)
	f.w = NewWriter()
	f.refused([]batch.Batch{f.w.Control()}, storage.ErrCheckpoint)
	f.w = NewWriter()
	f.append(f.w.Checkpoint(1, 0)...)
	f.reopened()
}

func testAppend(_ *testing.T, f *fixture) {
	f.append(append(f.w.Checkpoint(1, 30), f.w.Record(10))...)
	f.append(f.w.Record(100), f.w.Control(), f.w.Records([]byte("a"), nil, []byte("")), f.w.Carried(2, 100), f.w.Expired(2))
	f.reopened()
	f.w.Generation++
	f.append(f.w.Record(100_000))
	f.w.Time-- // the same append time is not earlier
	f.append(f.w.Record(1))
	f.reopened()
	for range 300 {
		f.append(f.w.Record(1000))
	}
	f.reopened()
}

// testAppendRefuses: what does not follow the tail is refused before a byte of it is written.
func testAppendRefuses(_ *testing.T, f *fixture) {
	f.w.Generation = 5
	f.fill(1, 3, 50)
	wrong := func(change func(w *Writer)) []batch.Batch {
		w := *f.w
		change(&w)
		return []batch.Batch{w.Record(20)}
	}
	f.refused(wrong(func(w *Writer) { w.Sequence++ }), storage.ErrOrder)
	f.refused(wrong(func(w *Writer) { w.Sequence-- }), storage.ErrOrder)
	f.refused(wrong(func(w *Writer) { w.Offset++ }), storage.ErrOrder)
	f.refused(wrong(func(w *Writer) { w.Offset-- }), storage.ErrOrder)
	f.refused(wrong(func(w *Writer) { w.Generation-- }), storage.ErrOrder)
	f.refused(wrong(func(w *Writer) { w.Time -= 1000 }), storage.ErrOrder)

	ahead := f.w.Record(20)
	f.w.Back(ahead)
	ahead.Assign(batch.Assigned{
		Sequence: ahead.Sequence(), BaseOffset: ahead.BaseOffset(), Generation: 5, AppendTime: ahead.AppendTime(),
		Flushed: ahead.Sequence() + 1, // nobody can have flushed it before it was written
	})
	f.refused([]batch.Batch{ahead}, storage.ErrOrder)

	b := f.w.Record(20)
	f.w.Back(b)
	f.refused([]batch.Batch{b[:len(b)-1]}, storage.ErrInvalid)
	f.refused([]batch.Batch{append(slices.Clone(b), 0)}, storage.ErrInvalid)
	f.refused([]batch.Batch{nil}, storage.ErrInvalid)
	flipped := slices.Clone(b)
	flipped[20] ^= 1 // in the assigned part
	f.refused([]batch.Batch{flipped}, storage.ErrInvalid, storage.ErrOrder)
	f.append(f.w.Record(20))
	f.reopened()
}

// testAppendIsAll: one wrong batch refuses those before it too.
func testAppendIsAll(_ *testing.T, f *fixture) {
	f.fill(1, 1, 50)
	w := *f.w
	good, skipped, last := w.Record(10), w.Record(10), w.Record(10)
	_ = skipped
	f.refused([]batch.Batch{good, last}, storage.ErrOrder)
	f.append(good, skipped, last)
	f.reopened()
}

func testCheckpoint(_ *testing.T, f *fixture) {
	f.append(f.w.Checkpoint(3, 100)...)
	f.append(f.w.Record(10))
	f.reopened()
	// Part by part, and together with what stands before and behind.
	for _, part := range f.w.Checkpoint(3, 5000) {
		f.append(part)
		f.check()
	}
	f.append(f.w.Record(10))
	f.reopened()
	batches := []batch.Batch{f.w.Record(10), f.w.Record(10)}
	batches = append(batches, f.w.Checkpoint(2, 100)...)
	batches = append(batches, f.w.Record(10))
	batches = append(batches, f.w.Checkpoint(1, 100)...)
	batches = append(batches, f.w.Record(10))
	f.append(batches...)
	f.reopened()
	// One checkpoint right behind the other.
	f.append(f.w.Checkpoint(1, 0)...)
	f.append(f.w.Checkpoint(1, 0)...)
	f.reopened()
	// One that is not complete counts for nothing.
	f.append(f.w.Record(10))
	parts := f.w.Checkpoint(3, 100)
	f.append(parts[0], parts[1])
	f.check()
	if flushed, err := f.l.Flush(); err != nil || flushed != parts[0].Sequence() {
		f.t.Fatalf("flush inside a checkpoint at sequence %d: %d, %v", parts[0].Sequence(), flushed, err)
	}
	if f.driver.Reopen != nil {
		f.reopened()
		f.w.Back(parts[0])
		parts = f.w.Checkpoint(3, 100)
		f.append(parts[0], parts[1])
	}
	f.append(parts[2])
	f.append(f.w.Record(10))
	f.reopened()
}

func testCheckpointRefuses(_ *testing.T, f *fixture) {
	f.fill(1, 1, 10)
	w := *f.w
	parts := w.Checkpoint(3, 10)
	second := *f.w
	skip := parts[1]
	skip.Assign(batch.Assigned{Sequence: second.Sequence, BaseOffset: second.Offset, Generation: 1, AppendTime: second.Time})
	f.refused([]batch.Batch{skip}, storage.ErrCheckpoint)
	w = *f.w
	parts = w.Checkpoint(3, 10)
	f.append(parts[0])
	f.w.Sequence, f.w.Time = w.Sequence-2, w.Time-2
	w = *f.w
	f.refused([]batch.Batch{w.Record(10)}, storage.ErrCheckpoint)
	w = *f.w
	f.refused(w.Checkpoint(1, 10), storage.ErrCheckpoint)
	f.append(parts[1], parts[2])
	f.w.Sequence, f.w.Time = f.w.Sequence+2, f.w.Time+2
	f.append(f.w.Record(10))
	f.reopened()
}

func testFlush(t *testing.T, f *fixture) {
	f.fill(2, 3, 10)
	for range 2 {
		flushed, err := f.l.Flush()
		if err != nil || flushed != f.m.Length() {
			t.Fatalf("flush: %d, %v, want %d", flushed, err, f.m.Length())
		}
		f.m.Flushed = flushed
		f.check()
		if s := f.l.State(); s.Flushed != s.Length || s.FlushedOffset != s.NextOffset {
			t.Errorf("state after a flush: %+v", s)
		}
	}
	f.append(f.w.Record(10))
	f.check()
}

// testFlushedField: a batch that says more was flushed than is flushed here makes that true first. Recovery goes by the
// field, so it has to be true on every disk (guarantee: no acknowledged record is cut as a torn tail).
func testFlushedField(t *testing.T, f *fixture) {
	f.fill(1, 3, 10)
	f.w.Flushed = f.w.Sequence
	b := f.w.Record(10)
	f.append(b)
	if s := f.l.State(); s.Flushed < b.Flushed() {
		t.Fatalf("flushed is %d after a batch that says %d", s.Flushed, b.Flushed())
	}
	c := f.w.Record(10)
	f.w.Flushed = f.w.Sequence
	d, e := f.w.Record(10), f.w.Record(10)
	f.append(c, d, e)
	if s := f.l.State(); s.Flushed < d.Flushed() {
		t.Fatalf("flushed is %d after a batch that says %d", s.Flushed, d.Flushed())
	}
	f.reopened()
}

func testRead(t *testing.T, f *fixture) {
	f.fill(3, 5, 100)
	f.append(f.w.Control(), f.w.Record(300_000), f.w.Record(10))
	for pass := range 2 {
		length := f.m.Length()
		for seq := uint64(0); seq <= length; seq++ {
			for _, until := range []uint64{0, seq, seq + 1, seq + 3, length, length + 100} {
				for _, limit := range []int{0, 1, 100, 250, 1000, 1 << 20} {
					if _, err := f.m.CompareRead(f.l, seq, until, limit); err != nil {
						t.Fatalf("pass %d: %v", pass, err)
					}
				}
			}
		}
		if _, err := f.l.Read(length+1, length+2, 100); !errors.Is(err, storage.ErrOutOfRange) {
			t.Errorf("read beyond the end: %v", err)
		}
		f.reopened()
	}
}

// testReadIsStable: what was read stays as it is, whatever is cut, dropped and written afterwards.
func testReadIsStable(t *testing.T, f *fixture) {
	f.fill(2, 4, 50)
	base := f.m.Bases[1]
	got, err := f.l.Read(base, f.m.Length(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(got)
	f.truncate(base + 2)
	f.fill(1, 10, 60)
	f.drop(f.m.Length())
	if !slices.Equal(got, want) {
		t.Error("bytes that were read have changed")
	}
}

func testFindOffset(t *testing.T, f *fixture) {
	f.fill(1, 2, 50)
	f.append(f.w.Control(), f.w.Records([]byte("a"), []byte("b"), []byte("c")), f.w.Control())
	f.append(f.w.Carried(3, 100_000), f.w.Carried(3, 100_000), f.w.Expired(3), f.w.Carried(1, 10)) // more than an index entry apart
	f.fill(2, 5, 100)
	f.append(f.w.Checkpoint(2, 10)...) // a segment without records
	f.append(f.w.Checkpoint(1, 10)...)
	f.append(f.w.Control(), f.w.Carried(1, 10))
	for pass := range 3 {
		f.findOffsets(f.m.StartOffset())
		if _, err := f.l.FindOffset(f.m.NextOffset() + 1); !errors.Is(err, storage.ErrOutOfRange) {
			t.Errorf("find an offset beyond the end: %v", err)
		}
		if pass == 1 {
			f.drop(f.m.Bases[1])
			if _, err := f.l.FindOffset(0); !errors.Is(err, storage.ErrDropped) {
				t.Errorf("find an offset that was dropped: %v", err)
			}
		}
		f.reopened()
	}
}

func (f *fixture) findOffsets(from uint64) {
	f.t.Helper()
	for offset := from; offset <= f.m.NextOffset(); offset++ {
		if got, err := f.l.FindOffset(offset); err != nil || got != f.m.FindOffset(offset) {
			f.t.Fatalf("find offset %d: sequence %d, %v, want %d", offset, got, err, f.m.FindOffset(offset))
		}
	}
}

func testFindTime(t *testing.T, f *fixture) {
	f.append(f.w.Checkpoint(1, 10)...)
	for i := range 60 {
		f.w.Time += int64(i % 7 * 3)
		switch {
		case i%20 == 19:
			f.append(f.w.Checkpoint(1, 10)...)
		case i%5 == 4:
			f.append(f.w.Control())
		default:
			f.append(f.w.Records([]byte("a"), []byte("b")))
		}
		if i%3 == 0 {
			f.w.Time-- // two batches of one time: the first is found
		}
	}
	for pass := range 2 {
		first, last := f.m.Batches[0].AppendTime(), f.m.Batches[len(f.m.Batches)-1].AppendTime()
		for us := first - 2; us <= last+2; us++ {
			if got, err := f.l.FindTime(us); err != nil || got != f.m.FindTime(us) {
				t.Fatalf("pass %d: find time %d: offset %d, %v, want %d", pass, us, got, err, f.m.FindTime(us))
			}
		}
		f.reopened()
	}
	for us, want := range map[int64]uint64{-1 << 63: 0, 1<<63 - 1: f.m.NextOffset()} {
		if got, err := f.l.FindTime(us); err != nil || got != want {
			t.Errorf("find time %d: offset %d, %v, want %d", us, got, err, want)
		}
	}
}

func (f *fixture) truncate(length uint64) {
	f.t.Helper()
	if err := f.l.Truncate(length); err != nil {
		f.t.Fatalf("truncate to %d: %v", length, err)
	}
	f.m.Truncate(length)
	f.w.Sequence, f.w.Offset = f.m.Length(), f.m.NextOffset()
}

func (f *fixture) drop(seq uint64) {
	f.t.Helper()
	before := f.l.State()
	freed, err := f.l.DropBefore(seq)
	if err != nil {
		f.t.Fatalf("drop before %d: %v", seq, err)
	}
	if got := before.Bytes - f.l.State().Bytes; got != freed {
		f.t.Fatalf("drop before %d freed %d bytes, says %d", seq, got, freed)
	}
	f.m.DropBefore(seq)
}
