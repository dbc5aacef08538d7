// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/storagetest"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

func isSegment(name string) bool { return strings.HasSuffix(name, segment.Suffix) }

// failing is a log on a file system that fails on demand, beside its model.
type failing struct {
	t   *testing.T
	mem *memfs.FS
	fs  *faultfs.FS
	o   storage.Options
	l   *storage.Disk
	m   *storagetest.Model
	w   *storagetest.Writer
}

func newFailing(t *testing.T, rng *rand.Rand) *failing {
	mem := memfs.New(rng)
	f := &failing{t: t, mem: mem, fs: faultfs.Wrap(mem), m: &storagetest.Model{Whole: true}, w: storagetest.NewWriter()}
	f.o = options(f.fs, "/data")
	f.l = create(t, f.o)
	f.append(f.w.Checkpoint(1, 30)...)
	f.append(f.w.Record(500), f.w.Record(500))
	f.flush()
	return f
}

func (f *failing) append(batches ...batch.Batch) {
	f.t.Helper()
	if err := f.l.Append(batches...); err != nil {
		f.t.Fatal(err)
	}
	f.m.Append(batches...)
}

func (f *failing) flush() {
	f.t.Helper()
	flushed, err := f.l.Flush()
	if err != nil {
		f.t.Fatal(err)
	}
	f.m.Flushed, f.w.Flushed = flushed, flushed
}

func (f *failing) check(l *storage.Disk) {
	f.t.Helper()
	if err := f.m.Compare(l); err != nil {
		f.t.Fatal(err)
	}
}

// refused holds that an append fails and leaves no trace, now, after a power cut and after opening again.
func (f *failing) refused(want error, batches ...batch.Batch) {
	f.t.Helper()
	if err := f.l.Append(batches...); !errors.Is(err, want) {
		f.t.Fatalf("append: %v, want %v", err, want)
	}
	f.w.Back(batches[0])
	f.check(f.l)
	for seed := range uint64(10) {
		o := f.o
		o.FS = f.mem.Crash(rand.New(rand.NewPCG(seed, 1)))
		l, _ := open(f.t, o)
		n := l.State().Length
		if n < f.m.Flushed || n > f.m.Length() {
			f.t.Fatalf("after a power cut the log has length %d; %d were flushed, %d written", n, f.m.Flushed, f.m.Length())
		}
		if err := l.Close(); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestFailedWrite is ST-12: a write that fails or stops short is refused as a whole, nothing of it is ever seen, and the
// next one takes its place.
func TestFailedWrite(t *testing.T) {
	kinds := []struct {
		name    string
		writes  int
		batches func(*storagetest.Writer) []batch.Batch
	}{
		{"one", 1, func(w *storagetest.Writer) []batch.Batch { return []batch.Batch{w.Record(9000)} }},
		{"several", 3, func(w *storagetest.Writer) []batch.Batch {
			return []batch.Batch{w.Record(100), w.Record(9000), w.Record(2 << 20), w.Record(50)}
		}},
		{"roll", 1, func(w *storagetest.Writer) []batch.Batch { return w.Checkpoint(1, 5000) }},
	}
	for _, cause := range []error{vfs.ErrFull, syscall.EIO} {
		for _, short := range []int{0, 1, 47, 48, 95, 96, 150, 4096, 9000} {
			for _, kind := range kinds {
				for skip := range kind.writes {
					t.Run(fmt.Sprintf("%v/%d bytes/%s/%d", cause, short, kind.name, skip), func(t *testing.T) {
						f := newFailing(t, nil)
						rule := &faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Path: isSegment, Skip: skip, Max: 1, Err: cause, Short: short}
						f.fs.Add(rule)
						f.refused(cause, kind.batches(f.w)...)
						if rule.Seen() != skip+1 {
							t.Fatalf("%d writes were seen", rule.Seen())
						}
						f.fs.Clear()
						// The same places, other batches.
						f.append(f.w.Record(33))
						f.append(kind.batches(f.w)...)
						f.flush()
						f.check(f.l)
						if err := f.l.Close(); err != nil {
							t.Fatal(err)
						}
						l, report := open(t, f.o)
						if report.Tail != nil {
							t.Errorf("remains: %+v", report.Tail)
						}
						f.check(l)
					})
				}
			}
		}
	}
}

// TestFullDisk is ST-12 with a disk that is really full: whatever the write, it is refused whole; reading and removing go
// on; room brings writing back by itself.
func TestFullDisk(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 3))
		f := newFailing(t, rng)
		f.mem.SetCapacity(256 << 10)
		full := 0
		for range 400 {
			batches := []batch.Batch{f.w.Record(rng.IntN(6000)), f.w.Record(rng.IntN(6000))}
			if rng.IntN(10) == 0 {
				f.w.Back(batches[0])
				batches = f.w.Checkpoint(1, 100)
			}
			err := f.l.Append(batches...)
			switch {
			case err == nil:
				f.m.Append(batches...)
				if rng.IntN(3) == 0 {
					f.flush()
				}
				continue
			case !errors.Is(err, storage.ErrFull):
				t.Fatalf("seed %d: %v", seed, err)
			}
			full++
			f.w.Back(batches[0])
			f.check(f.l)
			if len(f.m.Bases) > 1 {
				if _, err := f.l.DropBefore(f.m.Bases[1]); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				f.m.DropBefore(f.m.Bases[1])
				continue
			}
			// One segment fills the disk: cut it.
			length := f.m.Start() + (f.m.Length()-f.m.Start())/2 + 1
			f.mem.SetCapacity(512 << 10) // a cut notes itself, which takes a block
			if err := f.l.Truncate(length); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			f.mem.SetCapacity(256 << 10)
			f.m.Truncate(length)
			f.w.Sequence, f.w.Offset, f.w.Flushed = f.m.Length(), f.m.NextOffset(), f.m.Flushed
		}
		if full < 3 {
			t.Errorf("seed %d: the disk was full %d times", seed, full)
		}
		if err := f.l.Close(); err != nil {
			t.Fatal(err)
		}
		l, _ := open(t, f.o)
		f.check(l)
	}
}

// TestFailedFlush is ST-11: after a flush that failed the log vouches for nothing more until it is opened again, though
// the next flush of the file would succeed; and what opening counts is on the disk, whatever the page cache showed.
func TestFailedFlush(t *testing.T) {
	for name, rule := range map[string]*faultfs.Rule{
		"file":      {Ops: []faultfs.Op{faultfs.Sync}, Path: isSegment, Max: 1, Err: syscall.EIO},
		"full":      {Ops: []faultfs.Op{faultfs.Sync}, Path: isSegment, Max: 1, Err: vfs.ErrFull},
		"directory": {Ops: []faultfs.Op{faultfs.SyncDir}, Max: 1, Err: syscall.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFailing(t, nil)
			other := options(f.fs, "/other")
			beside := create(t, other)
			f.append(f.w.Record(100), f.w.Record(5000))
			flushed := f.m.Flushed
			f.fs.Add(rule)
			_, err := f.l.Flush()
			if name == "directory" {
				if err != nil {
					t.Fatal(err)
				}
				flushed = f.m.Length()
				err = f.l.Append(f.w.Checkpoint(1, 10)...) // its name cannot be flushed
			}
			if !errors.Is(err, storage.ErrPoisoned) || !errors.Is(err, rule.Err) {
				t.Fatalf("the flush that fails: %v", err)
			}
			if s := f.l.State(); !s.Poisoned || s.Flushed != flushed {
				t.Fatalf("state %+v, flushed were %d", s, flushed)
			}
			for range 2 { // the disk is healthy again, and still
				if got, err := f.l.Flush(); !errors.Is(err, storage.ErrPoisoned) || got > flushed {
					t.Fatalf("flush: %d, %v", got, err)
				}
				if err := f.l.Append(f.w.Record(1)); !errors.Is(err, storage.ErrPoisoned) {
					t.Fatalf("append: %v", err)
				}
			}
			if _, err := f.m.CompareRead(f.l, f.m.Start(), flushed, 1<<20); err != nil {
				t.Errorf("what was flushed can be read: %v", err)
			}
			w := storagetest.NewWriter()
			if err := beside.Append(w.Checkpoint(1, 10)...); err != nil {
				t.Errorf("another log: %v", err)
			}
			f.opensAfter(flushed)
		})
	}
}

// opensAfter opens a log with a flush that failed, in the same process and in another one.
func (f *failing) opensAfter(flushed uint64) {
	f.t.Helper()
	durable := func(l *storage.Disk, mem *memfs.FS) {
		f.t.Helper()
		o := f.o
		o.FS = mem.Crash(nil)
		again, _ := open(f.t, o)
		if got, want := again.State(), l.State(); got.Length != want.Length || got.NextOffset != want.NextOffset {
			f.t.Fatalf("opening counted %d batches, after a power cut there are %d", want.Length, got.Length)
		}
	}
	// Another process after a kill sees the page cache.
	killed := f.mem
	o := f.o
	l, _ := open(f.t, o)
	if n := l.State().Length; n < flushed {
		f.t.Fatalf("after a kill the log has length %d, flushed were %d", n, flushed)
	}
	durable(l, killed)
	if err := l.Close(); err != nil {
		f.t.Fatal(err)
	}
	// The same process knows what was flushed and cuts to it.
	if err := f.l.Close(); err != nil {
		f.t.Fatalf("close: %v", err)
	}
	o.CutTo = &flushed
	l, _ = open(f.t, o)
	if s := l.State(); s.Length != flushed || s.Flushed != flushed || s.Poisoned {
		f.t.Fatalf("cut to %d: %+v", flushed, s)
	}
	durable(l, f.mem)
	f.m.Truncate(flushed)
	f.w.Sequence, f.w.Offset, f.w.Generation = f.m.Length(), f.m.NextOffset(), 9
	b := f.w.Record(123)
	if err := l.Append(b); err != nil {
		f.t.Fatal(err)
	}
	f.m.Append(b)
	f.check(l)
}

// TestFlushFailsUnderLoad is the concurrent part of ST-11: of 8 publishers everybody who waits for the flush that fails
// is told so, and nobody is told afterwards that anything more was flushed.
func TestFlushFailsUnderLoad(t *testing.T) {
	f := newFailing(t, nil)
	f.fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: isSegment, Skip: 20, Max: 1, Err: syscall.EIO})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed atomic.Uint64 // what was flushed when the first of them was told
	acked := f.m.Flushed
	publish := func() error {
		mu.Lock()
		err := f.l.Append(f.w.Record(100))
		mu.Unlock()
		if err != nil {
			return err
		}
		flushed, err := f.l.Flush()
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed.CompareAndSwap(0, f.l.State().Flushed)
		} else {
			acked = max(acked, flushed)
		}
		return err
	}
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := publish(); err != nil {
					if !errors.Is(err, storage.ErrPoisoned) {
						t.Errorf("publish: %v", err)
					}
					return
				}
			}
			t.Error("the failure was not noticed")
		})
	}
	wg.Wait()
	if at := failed.Load(); acked > at {
		t.Errorf("flushed to %d after a flush failed at %d", acked, at)
	}
	o := f.o
	o.FS = f.mem.Crash(nil)
	if l, _ := open(t, o); l.State().Length < acked {
		t.Errorf("the log has length %d, flushed were %d", l.State().Length, acked)
	}
}

// TestNamesAreFlushed is ST-10: the order in which a new directory and a new segment become durable.
func TestNamesAreFlushed(t *testing.T) {
	mem := memfs.New(nil)
	var trace []string
	fsys := faultfs.Wrap(mem, &faultfs.Rule{Hook: func(c faultfs.Call) {
		if slices.Contains([]faultfs.Op{faultfs.Create, faultfs.WriteAt, faultfs.Sync, faultfs.SyncDir}, c.Op) {
			trace = append(trace, string(c.Op)+" "+strings.TrimPrefix(c.Name, "/data/shards/"+logID.String()))
		}
	}})
	o := options(fsys, "/data")
	l := create(t, o)
	w := storagetest.NewWriter()
	appendTraced := func(batches ...batch.Batch) []string {
		trace = nil
		if err := l.Append(batches...); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(slices.Clone(trace), func(s string) bool { return strings.HasSuffix(s, segment.IndexSuffix) })
	}
	first, second := "/0/"+segment.Name(0), "/0/"+segment.Name(2)
	got := appendTraced(w.Checkpoint(1, 10)...)
	made := slices.Index(got, "create "+first)
	for _, dir := range []string{"sync dir ", "sync dir /data/shards", "sync dir /data"} {
		if i := slices.Index(got, dir); i < 0 {
			t.Errorf("%q is missing in %q", dir, got)
		}
	}
	want := []string{"create " + first, "write " + first, "sync " + first, "sync dir /0"}
	if made < 0 || !slices.Equal(got[made:], want) {
		t.Errorf("the first segment: %q, want %q at the end", got, want)
	}
	appendTraced(w.Record(10))
	want = []string{"sync " + first, "create " + second, "write " + second, "sync " + second, "sync dir /0"}
	if got = appendTraced(w.Checkpoint(1, 10)...); !slices.Equal(got, want) {
		t.Errorf("the second segment: %q, want %q", got, want)
	}
	// In parts: nothing behind the checkpoint before it is complete, flushed and named.
	parts := w.Checkpoint(2, 10)
	third := "/0/" + segment.Name(parts[0].Sequence())
	want = []string{"create " + third, "write " + third, "write " + third, "sync " + third, "sync dir /0", "write " + third}
	got = appendTraced(parts[0])
	got = append(got, appendTraced(parts[1], w.Record(10))...)
	got = slices.DeleteFunc(got, func(s string) bool { return s == "sync "+second })
	if !slices.Equal(got, want) {
		t.Errorf("a checkpoint in parts: %q, want %q", got, want)
	}
}

// afterOpen runs a hook between the opening of a file for reading and its use.
type afterOpen struct {
	vfs.FS
	hook func(name string)
}

func (a *afterOpen) OpenRead(name string) (vfs.File, error) {
	f, err := a.FS.OpenRead(name)
	if hook := a.hook; hook != nil && err == nil {
		a.hook = nil
		hook(name)
	}
	return f, err
}

// TestStaleFile: a reader opens a sealed segment while the log is cut below it; its file must not come to stand for the
// segment that later begins at the same place.
func TestStaleFile(t *testing.T) {
	fsys := &afterOpen{FS: memfs.New(nil)}
	o := options(fsys, "/data")
	o.Files = storage.NewFiles(100)
	l := create(t, o)
	w, m := storagetest.NewWriter(), &storagetest.Model{Whole: true}
	segments := func(n, size int) {
		for range n {
			batches := append(w.Checkpoint(1, 10), w.Record(size), w.Record(size))
			if err := l.Append(batches...); err != nil {
				t.Fatal(err)
			}
			m.Append(batches...)
		}
	}
	segments(3, 100)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.Files = storage.NewFiles(100)
	l, _ = open(t, o)
	base := m.Bases[1]
	fsys.hook = func(string) {
		if err := l.Truncate(base); err != nil {
			t.Fatal(err)
		}
		m.Truncate(base)
		w.Sequence, w.Offset, w.Generation = m.Length(), m.NextOffset(), 2
	}
	if got, err := l.Read(base+1, base+2, 1); err == nil && len(got) > 0 {
		t.Error("a batch that was cut is read")
	}
	if fsys.hook != nil {
		t.Fatal("the segment was not opened")
	}
	segments(3, 200)
	if err := m.Compare(l); err != nil {
		t.Error(err)
	}
}
