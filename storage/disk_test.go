// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"errors"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

func TestAppendReadReopen(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.must(l.records(1, 2, 3)...)
	l.fill(3, 20)
	l.flush()
	want := all(t, d)
	state := d.State()
	if state.Length != 67 || state.NextOffset != 6+180 || state.Segments != 4 || state.Flushed != 67 {
		t.Errorf("state is %+v", state)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var replayed int
	d, report, err := storage.Open(options(fs), func(b batch.Batch) error {
		if replayed == 0 && !b.IsCheckpointStart() {
			t.Error("replay does not begin with the checkpoint")
		}
		replayed++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if replayed != 21 || report.Tail != nil || len(report.Rebuilt) != 0 {
		t.Errorf("replayed %d batches, report %+v", replayed, report)
	}
	if got := d.State(); got != state {
		t.Errorf("state after reopening is %+v, was %+v", got, state)
	}
	if got := all(t, d); !bytes.Equal(got, want) {
		t.Error("bytes after reopening differ")
	}
}

func TestFindOffsetAndTime(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.must(l.records(1, 2, 3)...)
	l.fill(3, 700) // more than one index entry a segment
	for _, reopened := range []bool{false, true} {
		if reopened {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			_, d, _ = open(t, fs)
		}
		var seq, offset uint64
		var times []int64
		for p := all(t, d); len(p) > 0; {
			b, err := batch.CheckStored(p)
			if err != nil {
				t.Fatal(err)
			}
			for o := b.BaseOffset(); o < b.NextOffset(); o += 2 {
				if got, err := d.FindOffset(o); err != nil || got != seq {
					t.Fatalf("offset %d is found in %d, %v; it is in %d", o, got, err, seq)
				}
			}
			if got, err := d.FindTime(b.AppendTime()); err != nil || got != b.BaseOffset() {
				t.Fatalf("time %d is found at offset %d, %v; it is at %d", b.AppendTime(), got, err, b.BaseOffset())
			}
			times = append(times, b.AppendTime())
			seq, offset = seq+1, b.NextOffset()
			p = p[len(b):]
		}
		if got, err := d.FindOffset(offset); err != nil || got != seq {
			t.Errorf("next offset is found at %d, %v", got, err)
		}
		if _, err := d.FindOffset(offset + 1); !errors.Is(err, storage.ErrOutOfRange) {
			t.Errorf("offset beyond the end: %v", err)
		}
		if got, err := d.FindTime(times[len(times)-1] + 1); err != nil || got != offset {
			t.Errorf("time beyond the end is found at %d, %v", got, err)
		}
	}
}

func TestReadBounds(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.must(l.records(3, 3, 3)...)
	l.must(l.assign(records(t, 1, 200_000))...)
	size := len(l.records(3)[0])
	for _, c := range []struct {
		seq, until uint64
		max, want  int
	}{
		{1, 5, 1, size}, {1, 5, 2 * size, 2 * size}, {1, 5, 2*size - 1, size}, {1, 3, 1 << 20, 2 * size}, {5, 9, 1 << 20, 0}, {2, 2, 100, 0},
	} {
		got, err := d.Read(c.seq, c.until, c.max)
		if err != nil || len(got) != c.want {
			t.Errorf("read %+v: %d bytes, %v", c, len(got), err)
		}
	}
	if got, err := d.Read(4, 5, 10); err != nil || len(got) < 200_000 {
		t.Errorf("a batch larger than the bound: %d bytes, %v", len(got), err)
	}
	if _, err := d.Read(6, 9, 10); !errors.Is(err, storage.ErrOutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}
}

func TestAppendRefuses(t *testing.T) {
	fs := newFS(t)
	d, err := storage.Create(options(fs))
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: d, gen: 5, time: 1000}
	if err := d.Append(l.records(1)...); !errors.Is(err, storage.ErrCheckpoint) {
		t.Errorf("records before the first checkpoint: %v", err)
	}
	if _, err := fs.Stat(dir); !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("a refused append made the directory: %v", err)
	}
	l.must(l.checkpoint(2)[0])
	if err := d.Append(l.records(1)...); !errors.Is(err, storage.ErrCheckpoint) {
		t.Errorf("records inside a checkpoint: %v", err)
	}
	if flushed, err := d.Flush(); err != nil || flushed != 0 {
		t.Errorf("a checkpoint that is not complete is flushed up to %d, %v", flushed, err)
	}
	part := l.assign(batch.BuildControl(batch.CheckpointPart{Index: 1, Total: 2}, batch.LogStart{}))
	l.must(part...)
	if s := d.State(); s.Flushed != 2 {
		t.Errorf("a complete checkpoint is flushed up to %d", s.Flushed)
	}
	for name, change := range map[string]func(a *batch.Assigned){
		"sequence":   func(a *batch.Assigned) { a.Sequence++ },
		"offset":     func(a *batch.Assigned) { a.BaseOffset++ },
		"generation": func(a *batch.Assigned) { a.Generation-- },
		"time":       func(a *batch.Assigned) { a.AppendTime = 5 },
		"flushed":    func(a *batch.Assigned) { a.Flushed = 3 },
	} {
		a := batch.Assigned{Sequence: 2, Generation: 5, AppendTime: 2000, Flushed: 2}
		change(&a)
		b := records(t, 1, 10)
		b.Assign(a)
		if err := d.Append(b); !errors.Is(err, storage.ErrOrder) {
			t.Errorf("wrong %s: %v", name, err)
		}
	}
	if err := d.Append(records(t, 1, 10)); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("unassigned: %v", err)
	}
	if s := d.State(); s.Length != 2 {
		t.Errorf("refused batches moved the length to %d", s.Length)
	}
	if _, err := storage.Create(options(fs)); !errors.Is(err, storage.ErrExist) {
		t.Errorf("create over a log: %v", err)
	}
}

// A batch may say how much was flushed only when that is so on this disk too.
func TestAppendFlushesUpToTheWordOfABatch(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.must(l.records(1, 1)...)
	bs := l.records(1, 1)
	bs[1].Assign(batch.Assigned{Sequence: 4, BaseOffset: bs[1].BaseOffset(), Generation: 1, AppendTime: l.time, Flushed: 4})
	l.must(bs...)
	if s := d.State(); s.Flushed != 4 || s.Length != 5 {
		t.Errorf("flushed %d of %d", s.Flushed, s.Length)
	}
}

func TestTruncate(t *testing.T) {
	for length := range uint64(46) {
		fs := newFS(t)
		l, d := create(t, fs)
		l.must(l.records(1, 2, 3)...)
		l.fill(2, 20)
		l.flush()
		before := all(t, d)
		if err := d.Truncate(length); err != nil {
			t.Fatal(err)
		}
		s := d.State()
		if s.Length != length || s.Flushed != length {
			t.Fatalf("cut to %d: %+v", length, s)
		}
		cut := all(t, d)
		if !bytes.HasPrefix(before, cut) {
			t.Fatalf("cut to %d changed what stays", length)
		}
		crashed := fs.Crash(nil) // the cut is durable when it returns
		if length == 0 {
			if _, _, err := storage.Open(options(crashed), nil); !errors.Is(err, storage.ErrNotExist) {
				t.Fatalf("cut to nothing: %v", err)
			}
			l.must(l.checkpoint(1)...)
			continue
		}
		_, r, _ := open(t, crashed)
		if got := all(t, r); !bytes.Equal(got, cut) {
			t.Fatalf("cut to %d is not durable", length)
		}
		l.gen++
		l.must(l.records(2)...)
		l.must(l.checkpoint(1)...)
		l.must(l.records(2)...)
		all(t, d)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		_, r, report := open(t, fs)
		if len(report.Rebuilt) != 0 {
			t.Fatalf("cut to %d: stale index: %+v", length, report)
		}
		all(t, r)
	}
}

func TestDropBefore(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.fill(4, 10)
	segs := d.Segments()
	if freed, err := d.DropBefore(segs[1].NextSequence - 1); err != nil || freed != segs[0].Bytes {
		t.Fatalf("freed %d, %v", freed, err)
	}
	if _, err := d.Read(0, 5, 100); !errors.Is(err, storage.ErrDropped) {
		t.Errorf("read dropped: %v", err)
	}
	if _, err := d.FindOffset(0); err != nil { // offset 0 is that of the segment which is now the first
		t.Errorf("find first offset: %v", err)
	}
	if freed, err := d.DropBefore(1 << 60); err != nil || freed == 0 || len(d.Segments()) != 1 {
		t.Errorf("freed %d, %v, left %d", freed, err, len(d.Segments()))
	}
	if _, err := d.FindOffset(0); !errors.Is(err, storage.ErrDropped) {
		t.Errorf("find dropped offset: %v", err)
	}
	all(t, d)
	names, _ := fs.List(dir)
	if len(names) != 1 || names[0] != segment.Name(segs[4].BaseSequence) {
		t.Errorf("files left: %v", names)
	}
	_, r, _ := open(t, fs.Crash(nil))
	if r.State().StartSequence != segs[4].BaseSequence {
		t.Errorf("after a crash the log starts at %d", r.State().StartSequence)
	}
}

func TestClosed(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	next := l.records(1)
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	_, readErr := d.Read(0, 1, 1)
	_, flushErr := d.Flush()
	_, dropErr := d.DropBefore(1)
	_, findErr := d.FindTime(1)
	for _, err := range []error{d.Append(next...), d.Truncate(0), d.Replay(nil), readErr, flushErr, dropErr, findErr} {
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("after closing: %v", err)
		}
	}
}
