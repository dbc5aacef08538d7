// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"margay.dev/storage"
	"margay.dev/storage/inspect"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

const dir = "data/shards/00000000000000000000000000000009/0"

var (
	id  = batch.LogID{15: 9}
	now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

func options(fs vfs.FS) storage.Options { return storage.Options{FS: fs, Dir: dir, ID: id} }

// build makes a log of so many segments of ten batches of two records each, all of it flushed.
func build(t *testing.T, segments int) *memfs.FS {
	t.Helper()
	fs := memfs.New(rand.New(rand.NewPCG(1, 1)))
	if err := vfs.MakeDir(fs, ".", "data/shards"); err != nil {
		t.Fatal(err)
	}
	d, err := storage.Create(options(fs))
	if err != nil {
		t.Fatal(err)
	}
	for range segments {
		extend(t, d, 10)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return fs
}

func extend(t *testing.T, d *storage.Disk, batches int) {
	t.Helper()
	next := []batch.Batch{batch.BuildControl(batch.CheckpointPart{Total: 1}, batch.LogStart{})}
	for range batches {
		b := batch.NewBuilder(batch.Limits{})
		for range 2 {
			if err := b.Add(batch.Record{Value: bytes.Repeat([]byte("v"), 50)}); err != nil {
				t.Fatal(err)
			}
		}
		built, err := b.Build(0, 0, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		next = append(next, slices.Clone(built))
	}
	for _, b := range next {
		s := d.State()
		b.Assign(batch.Assigned{Sequence: s.Length, BaseOffset: s.NextOffset, Generation: 3, AppendTime: 5000, Flushed: s.Flushed})
		if err := d.Append(b); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

func file(t *testing.T, fs vfs.FS, base uint64) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fs, path.Join(dir, segment.Name(base)), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, fs vfs.FS, base uint64, b []byte) {
	t.Helper()
	if err := vfs.WriteFile(fs, path.Join(dir, segment.Name(base)), b); err != nil {
		t.Fatal(err)
	}
}

// spoil flips a bit in the body of a batch.
func spoil(t *testing.T, fs vfs.FS, base uint64, sequences ...uint64) {
	t.Helper()
	b := file(t, fs, base)
	for pos := segment.HeaderSize; pos < len(b); {
		x := batch.Batch(b[pos:])
		if slices.Contains(sequences, x.Sequence()) {
			b[pos+x.Size()-1] ^= 1
		}
		pos += x.Size()
	}
	put(t, fs, base, b)
}

func TestReadOfASoundLog(t *testing.T) {
	fs := build(t, 3)
	for _, quick := range []bool{true, false} {
		visited := 0
		r, err := inspect.Read(fs, dir, inspect.Options{
			Quick: quick, Visit: func(string, int64, batch.Batch) error { visited++; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Sound || len(r.Problems) != 0 || r.ID != id || len(r.Segments) != 3 || r.Segments[1].Summary.Next != 22 || r.Segments[1].Index != "right" {
			t.Errorf("quick %v: %+v", quick, r)
		}
		if want := map[bool]int{true: 11, false: 33}[quick]; visited != want {
			t.Errorf("quick %v: visited %d batches", quick, visited)
		}
	}
	found, err := inspect.Find(fs, "data")
	if err != nil || len(found) != 1 || found[0] != dir {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(t *testing.T, fs *memfs.FS)
		severity inspect.Severity
		base     uint64
		sequence uint64
		remedy   string
	}{
		"sealed damage": {func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 11, 15) }, inspect.Damage, 11, 15, "gives up 202 bytes"},
		"newest damage": {func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 22, 25) }, inspect.Damage, 22, 25, "gives up 1616 bytes"},
		"torn tail":     {func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 22, 32) }, inspect.Torn, 22, 32, "cuts 202 bytes"},
		"unborn":        {func(t *testing.T, fs *memfs.FS) { put(t, fs, 33, nil) }, inspect.Torn, 33, 33, "removes the file"},
		"hole": {func(t *testing.T, fs *memfs.FS) {
			if err := fs.Remove(path.Join(dir, segment.Name(11))); err != nil {
				t.Fatal(err)
			}
		}, inspect.Damage, 0, 11, ""},
		"header": {func(t *testing.T, fs *memfs.FS) {
			b := file(t, fs, 11)
			b[3]++
			put(t, fs, 11, b)
		}, inspect.Damage, 11, 11, ""},
	} {
		fs := build(t, 3)
		c.change(t, fs)
		before := snapshot(t, fs)
		r, err := inspect.Read(fs, dir, inspect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := r.Problems[len(r.Problems)-1]
		for _, q := range r.Problems {
			if q.Severity > p.Severity {
				p = q
			}
		}
		if p.Severity != c.severity || path.Base(p.File) != segment.Name(c.base) || p.Sequence != c.sequence ||
			!strings.Contains(p.Remedy, c.remedy) || r.Sound != (c.severity < inspect.Damage) {
			t.Errorf("%s: %v", name, p)
		}
		if !snapshot(t, fs).equal(before) {
			t.Errorf("%s: inspecting changed something", name)
		}
	}
}

type files map[string]string

func (f files) equal(g files) bool {
	for name, data := range f {
		if g[name] != data {
			return false
		}
	}
	return len(f) == len(g)
}

func snapshot(t *testing.T, fs vfs.FS) files {
	t.Helper()
	out := files{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := fs.Stat(path.Join(dir, name)); err == nil && !info.Dir {
			b, err := vfs.ReadFile(fs, path.Join(dir, name), 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = string(b)
		}
	}
	return out
}

// readAll reads a log and returns the sequences that it holds, stepping over gaps.
func readAll(t *testing.T, d *storage.Disk) []uint64 {
	t.Helper()
	var out []uint64
	s := d.State()
	for seq := s.StartSequence; seq < s.Length; {
		p, err := d.Read(seq, s.Length, 1)
		if gap, ok := errors.AsType[*storage.GapError](err); ok {
			seq = gap.ToSequence
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := batch.CheckStored(p)
		if err != nil || b.Sequence() != seq {
			t.Fatalf("read at %d: %d, %v", seq, b.Sequence(), err)
		}
		out = append(out, seq)
		seq++
	}
	return out
}

func TestRepair(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, fs *memfs.FS)
		lost   []uint64 // sequences
		tail   bool     // the gap is at the end
	}{
		"nothing wrong":       {func(*testing.T, *memfs.FS) {}, nil, false},
		"one sealed batch":    {func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 11, 15) }, []uint64{15}, false},
		"several, scattered":  {func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 11, 12, 15, 16, 21) }, []uint64{12, 15, 16, 21}, false},
		"in several segments": {func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 0, 10); spoil(t, fs, 11, 11) }, []uint64{10, 11}, false},
		"newest":              {func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 22, 30) }, []uint64{30, 31, 32}, true},
		"newest checkpoint": {
			func(t *testing.T, fs *memfs.FS) { spoil(t, fs, 22, 22) },
			sequences(22, 33), true,
		},
		"header": {func(t *testing.T, fs *memfs.FS) {
			for _, base := range []uint64{11, 22} {
				b := file(t, fs, base)
				b[3]++
				put(t, fs, base, b)
			}
		}, nil, false},
		"hole under an unborn segment": {func(t *testing.T, fs *memfs.FS) {
			b := file(t, fs, 22)
			put(t, fs, 22, b[:len(b)-10])
			put(t, fs, 33, nil)
		}, []uint64{32}, true},
		"everything": {func(t *testing.T, fs *memfs.FS) {
			for _, base := range []uint64{0, 11, 22} {
				put(t, fs, base, bytes.Repeat([]byte{7}, 2000))
			}
		}, sequences(0, 33), true},
	} {
		t.Run(name, func(t *testing.T) {
			fs := build(t, 3)
			c.change(t, fs)
			before := snapshot(t, fs)
			plan, err := inspect.Plan(fs, dir)
			if err != nil {
				t.Fatal(err)
			}
			if !snapshot(t, fs).equal(before) {
				t.Fatal("planning changed something")
			}
			// Interrupted at every call, and then completed.
			for kill := 0; ; kill++ {
				fs := fs.Crash(nil)
				_, err := inspect.Repair(faultfs.Wrap(fs, &faultfs.Rule{Ops: mutating(), Skip: kill, Err: errors.New("died")}), dir, now)
				if err == nil {
					break
				}
				if _, err := inspect.Repair(fs, dir, now.Add(time.Hour)); err != nil {
					t.Fatalf("repair after an interruption at call %d: %v", kill, err)
				}
				opens(t, fs, c.lost, c.tail)
			}
			r, err := inspect.Repair(fs, dir, now)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Losses) != len(plan.Losses) || (len(c.lost) > 0) != (len(r.Losses) > 0) {
				t.Errorf("losses %v, planned %v", r.Losses, plan.Losses)
			}
			for _, changed := range r.Files {
				b, err := vfs.ReadFile(fs, path.Join(r.Aside, changed), 1<<30)
				if err != nil || string(b) != before[changed] {
					t.Errorf("original %s is not set aside: %v", changed, err)
				}
			}
			opens(t, fs.Crash(nil), c.lost, c.tail)
		})
	}
}

func sequences(from, to uint64) []uint64 {
	var out []uint64
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}

func mutating() []faultfs.Op {
	return []faultfs.Op{
		faultfs.Create, faultfs.Remove, faultfs.Rename, faultfs.MkdirAll, faultfs.SyncDir, faultfs.WriteAt, faultfs.Truncate, faultfs.Sync,
	}
}

// opens demands that the log opens, holds everything but what was lost, and goes on without giving an offset twice.
func opens(t *testing.T, fs *memfs.FS, lost []uint64, tail bool) {
	t.Helper()
	for range 2 {
		d, _, err := storage.Open(options(fs), func(batch.Batch) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		s := d.State()
		if s.NeedsCheckpoint != tail || tail && s.NextOffset < 60 {
			t.Fatalf("state %+v", s)
		}
		var want []uint64
		for seq := range uint64(33) {
			if !slices.Contains(lost, seq) {
				want = append(want, seq)
			}
		}
		got := readAll(t, d)
		if !slices.Equal(got, want) {
			t.Fatalf("holds %v, want %v", got, want)
		}
		for offset := range s.NextOffset {
			if _, err := d.FindOffset(offset); err != nil {
				t.Fatalf("offset %d: %v", offset, err)
			}
		}
		next := s.NextOffset
		fs2 := fs.Crash(nil)
		e, _, err := storage.Open(options(fs2), nil)
		if err != nil {
			t.Fatal(err)
		}
		extend(t, e, 3)
		if got := readAll(t, e); len(got) != len(want)+4 || e.State().NextOffset != next+6 {
			t.Fatalf("went on to %+v", e.State())
		}
		if _, _, err := storage.Open(options(fs2.Crash(nil)), nil); err != nil {
			t.Fatalf("opening what went on: %v", err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := inspect.Read(fs, dir, inspect.Options{}); err != nil || !r.Sound {
		t.Errorf("after the repair: %+v, %v", r, err)
	}
	if again, err := inspect.Repair(fs, dir, now); err != nil || len(again.Files)+len(again.Losses) != 0 {
		t.Errorf("repairing again: %+v, %v", again, err)
	}
}

func TestRepairRefuses(t *testing.T) {
	fs := build(t, 1)
	lock, err := fs.Lock("data/LOCK")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.Repair(fs, dir, now); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a directory that is in use: %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	b := file(t, fs, 0)
	put(t, fs, 99, b) // a segment under another's name
	if _, err := inspect.Repair(fs, dir, now); err == nil {
		t.Error("a foreign file was repaired")
	}
}
