// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire/batch"
)

var errIO = errors.New("input/output error")

func segments(name string) bool { return strings.HasSuffix(name, segment.Suffix) }

// Case ST-11: after a failed flush nothing is ever acknowledged from that file again, and what was not flushed is gone.
func TestFailedFlushPoisons(t *testing.T) {
	mem := newFS(t)
	fs := faultfs.Wrap(mem)
	l, d := create(t, fs)
	l.must(l.records(1, 1)...)
	l.flush()
	l.must(l.records(1, 1)...)
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Err: errIO, Max: 1})
	if n, err := d.Flush(); !errors.Is(err, storage.ErrPoisoned) || !errors.Is(err, errIO) || n != 3 {
		t.Errorf("flushed %d, %v", n, err)
	}
	if _, err := d.Flush(); !errors.Is(err, storage.ErrPoisoned) {
		t.Errorf("the next flush: %v", err)
	}
	if err := d.Append(l.records(1)...); !errors.Is(err, storage.ErrPoisoned) {
		t.Errorf("the next append: %v", err)
	}
	s := d.State()
	if !s.Poisoned || s.Flushed != 3 || s.Length != 5 {
		t.Errorf("state %+v", s)
	}
	all(t, d)
	if err := d.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	o := options(fs)
	o.CutTo = &s.Flushed
	d, report, err := storage.Open(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := d.State(); s.Length != 3 || s.Flushed != 3 || report.Tail != nil {
		t.Errorf("reopened: %+v, %+v", s, report)
	}
	_, d, _ = open(t, mem.Crash(nil))
	if s := d.State(); s.Length != 3 {
		t.Errorf("after a power cut: %+v", s)
	}
}

// A kernel calls pages clean that it failed to write. An open that knows of no failure must not count them either,
// unless it has written them again.
func TestOpenRewritesWhatAFailedFlushLeft(t *testing.T) {
	mem := newFS(t)
	fs := faultfs.Wrap(mem)
	l, _ := create(t, fs)
	l.must(l.records(1, 1)...)
	l.flush()
	l.must(l.records(1, 1)...)
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Err: errIO, Max: 1})
	if _, err := l.log.Flush(); err == nil {
		t.Fatal("the flush did not fail")
	}
	// The process dies here; the next one sees all five batches in the page cache.
	_, d, report := open(t, fs)
	if s := d.State(); s.Length != 5 || report.Rewritten == 0 {
		t.Fatalf("opened: %+v, %+v", s, report)
	}
	_, r, _ := open(t, mem.Crash(nil))
	if s := r.State(); s.Length != 5 {
		t.Errorf("what an open counted was not on the disk: %+v", s)
	}
}

// A roll flushes the old segment first, and the new one before it counts.
func TestFailedFlushInARoll(t *testing.T) {
	for skip := range 2 {
		mem := newFS(t)
		fs := faultfs.Wrap(mem)
		l, d := create(t, fs)
		l.must(l.records(1, 1)...)
		fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Err: errIO, Skip: skip, Max: 1})
		if err := d.Append(l.checkpoint(1)...); !errors.Is(err, storage.ErrPoisoned) {
			t.Fatalf("roll: %v", err)
		}
		flushed := d.State().Flushed
		if want := []uint64{1, 3}[skip]; flushed != want {
			t.Errorf("flushed %d, want %d", flushed, want)
		}
		_ = d.Close()
		o := options(fs)
		o.CutTo = &flushed
		d, _, err := storage.Open(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s := d.State(); s.Length != flushed || s.Segments != 1 {
			t.Errorf("reopened: %+v", s)
		}
	}
}

// Case ST-10: no append in a new segment is written before the segment's name is flushed.
func TestNamesAreFlushedBeforeAnythingCounts(t *testing.T) {
	mem := newFS(t)
	for _, failing := range []faultfs.Op{faultfs.SyncDir, faultfs.Sync} {
		fs := faultfs.Wrap(mem.Crash(nil), &faultfs.Rule{Ops: []faultfs.Op{failing}, Err: errIO})
		d, err := storage.Create(options(fs))
		if err != nil {
			t.Fatal(err)
		}
		l := &leader{t: t, log: d, gen: 1}
		if err := d.Append(l.checkpoint(1)...); err == nil {
			t.Errorf("a failing %s did not fail the first append", failing)
		}
	}
	l, d := create(t, mem)
	if _, _, report := open(t, mem.Crash(nil)); report.Tail != nil {
		t.Errorf("report %+v", report)
	}
	l.fill(2, 3)
	l.flush()
	_, r, _ := open(t, mem.Crash(nil))
	if got, want := r.State().Length, d.State().Length; got != want {
		t.Errorf("after a power cut %d of %d batches are left", got, want)
	}
}

// Case ST-12: of a write that failed or came up short nothing is left, and the same offset is given again.
func TestFailedWriteLeavesNothing(t *testing.T) {
	for _, cause := range []error{io.ErrShortWrite, vfs.ErrFull} {
		for _, roll := range []bool{false, true} {
			mem := newFS(t)
			fs := faultfs.Wrap(mem)
			l, d := create(t, fs)
			l.must(l.records(1)...)
			before, files := d.State(), all(t, d)
			next := l.records(1, 2, 3)
			if roll {
				next = l.assign(l.checkpoint(1)[0], records(t, 1, 10))
			}
			// The write gets through one whole batch and a part of the next.
			fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Path: segments, Err: cause, Short: len(next[0]) + 20, Max: 1})
			err := d.Append(next...)
			if !errors.Is(err, cause) || errors.Is(err, storage.ErrPoisoned) {
				t.Fatalf("append: %v", err)
			}
			after := d.State()
			after.Flushed, after.FlushedOffset = before.Flushed, before.FlushedOffset // a roll flushes first
			if after != before || !bytes.Equal(all(t, d), files) {
				t.Errorf("state %+v, was %+v", after, before)
			}
			_, r, report := open(t, mem.Crash(nil))
			if s := r.State(); s.Length > before.Length || report.Tail != nil || s.Segments != 1 {
				t.Errorf("after a power cut: %+v, %+v", s, report)
			}
			l.must(l.records(2)...)
			l.must(l.checkpoint(1)...)
			all(t, d)
			names, _ := mem.List(dir)
			if len(names) != 3 {
				t.Errorf("files: %v", names)
			}
		}
	}
}

// When even the remains of a failed write cannot be removed, nobody knows what the file holds.
func TestFailedCutPoisons(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.Truncate, faultfs.Sync} {
		fs := faultfs.Wrap(newFS(t))
		l, d := create(t, fs)
		fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Err: errIO, Short: 10}, &faultfs.Rule{Ops: []faultfs.Op{op}, Err: errIO})
		if err := d.Append(l.records(1)...); !errors.Is(err, storage.ErrPoisoned) {
			t.Errorf("failing %s: %v", op, err)
		}
	}
}

// Case RT-04: a full disk refuses writes with its own error; reads and drops go on; writes resume.
func TestFullDisk(t *testing.T) {
	mem := newFS(t)
	l, d := create(t, mem)
	l.fill(3, 20)
	mem.SetCapacity(160 << 10)
	var err error
	for err == nil {
		err = d.Append(l.records(3)...)
	}
	if !errors.Is(err, storage.ErrFull) || !vfs.IsFull(err) {
		t.Fatalf("full: %v", err)
	}
	length := d.State().Length
	if err := d.Append(l.checkpoint(1)...); err != nil && !errors.Is(err, storage.ErrFull) {
		t.Fatalf("roll on a full disk: %v", err)
	} else if err == nil {
		length++
	}
	all(t, d)
	if _, r, _ := open(t, mem); r.State().Length != length {
		t.Errorf("opened on a full disk: %+v", r.State())
	} else if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if freed, err := d.DropBefore(d.Segments()[1].NextSequence); err != nil || freed == 0 {
		t.Fatalf("drop on a full disk: %d, %v", freed, err)
	}
	l.must(l.records(3)...)
	all(t, d)
}

// Case GC-08 and the contract of Flush: neither appends nor reads wait for a flush under way.
func TestFlushHoldsUpNobody(t *testing.T) {
	fs := faultfs.Wrap(newFS(t))
	l, d := create(t, fs)
	l.must(l.records(1)...)
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) {
		once.Do(func() { close(entered); <-release })
	}})
	done := make(chan uint64)
	go func() {
		n, err := d.Flush()
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	<-entered
	l.must(l.records(1)...)
	all(t, d)
	if s := d.State(); s.Length != 3 || s.Flushed != 1 {
		t.Errorf("during the flush: %+v", s)
	}
	close(release)
	if n := <-done; n != 2 {
		t.Errorf("flushed %d: what was appended during a flush must not count", n)
	}
}

// A read that fails once while a log is opened must fail the open, or change nothing of what is replayed: a log that opens
// without its state forgets producers and cursors.
func TestReadThatFailsOnceForgetsNothing(t *testing.T) {
	mem := newFS(t)
	l, d := create(t, mem)
	l.must(l.records(1, 1)...)
	l.flush()
	l.must(l.checkpoint(1)...)
	l.must(l.records(1, 1, 1)...)
	l.flush()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	replayed := func(rules ...*faultfs.Rule) (n int, err error) {
		d, _, err := storage.Open(options(faultfs.Wrap(mem, rules...)), func(batch.Batch) error { n++; return nil })
		if err == nil {
			err = d.Close()
		}
		return n, err
	}
	want, err := replayed()
	if err != nil || want == 0 {
		t.Fatalf("replayed %d, %v", want, err)
	}
	for skip := 0; ; skip++ {
		r := &faultfs.Rule{Ops: []faultfs.Op{faultfs.ReadAt}, Err: errIO, Skip: skip, Max: 1}
		n, err := replayed(r)
		if r.Seen() <= skip {
			break
		}
		if err == nil && n != want {
			t.Errorf("read %d failed: %d batches are replayed, %d without", skip, n, want)
		}
	}
}

// A directory that could not be flushed once must not keep every segment from being removed from then on.
func TestDropGoesOnAfterAFailedDirectoryFlush(t *testing.T) {
	mem := newFS(t)
	fs := faultfs.Wrap(mem)
	l, d := create(t, fs)
	for range 3 {
		l.must(l.records(1, 1)...)
		l.must(l.checkpoint(1)...)
	}
	l.flush()
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.SyncDir}, Err: errIO, Max: 1})
	length := d.State().Length
	if _, err := d.DropBefore(length); !errors.Is(err, errIO) {
		t.Fatalf("drop: %v", err)
	}
	if _, err := d.DropBefore(length); err != nil {
		t.Errorf("drop again: %v", err)
	}
	if n := d.State().Segments; n != 1 {
		t.Errorf("%d segments are left", n)
	}
}

// A segment that is gone is no part of the log any more, though what was to follow its removal failed: who looks for a time
// would be told of damage otherwise.
func TestDropThatFailsHalfwayIsNoDamage(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.SyncDir, faultfs.Remove} {
		mem := newFS(t)
		l, d := create(t, mem)
		for range 3 {
			l.must(l.records(1, 1)...)
			l.must(l.checkpoint(1)...)
		}
		l.flush()
		length := d.State().Length
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		skip := 0
		if op == faultfs.Remove { // of the segment, then of its index
			skip = 1
		}
		fs := faultfs.Wrap(mem)
		_, d, _ = open(t, fs)
		fs.Add(&faultfs.Rule{Ops: []faultfs.Op{op}, Err: errIO, Max: 1, Skip: skip})
		if _, err := d.DropBefore(length); !errors.Is(err, errIO) {
			t.Fatalf("%s: drop: %v", op, err)
		}
		if _, err := d.FindTime(0); err != nil {
			t.Errorf("%s: the log's beginning: %v", op, err)
		}
		if _, err := d.DropBefore(length); err != nil {
			t.Errorf("%s: drop again: %v", op, err)
		}
	}
}
