// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"runtime"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

// Case ST-01: the last record torn at every byte, zeroed from every byte, followed by zeros.
func TestTornTail(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	for range 19 {
		l.must(l.records(1)...)
		l.flush()
	}
	kept := all(t, d)
	last := l.records(1)
	l.must(last...)
	whole := fileBytes(t, fs, segment.Name(0))
	size := len(last[0])
	damage := map[string]func(k int) []byte{
		"cut": func(k int) []byte { return whole[:len(whole)-k] },
		"zero": func(k int) []byte {
			return append(bytes.Clone(whole[:len(whole)-k]), make([]byte, k)...)
		},
		"garbage": func(k int) []byte {
			return append(bytes.Clone(whole[:len(whole)-k]), bytes.Repeat([]byte{0xa5}, k+100)...)
		},
	}
	for name, torn := range damage {
		for k := 1; k < size; k++ {
			put(t, fs, segment.Name(0), torn(k))
			l, d, report := open(t, fs)
			if got := all(t, d); !bytes.Equal(got, kept) {
				t.Fatalf("%s %d: %d bytes are left of %d", name, k, len(got), len(kept))
			}
			c := report.Tail
			if c == nil || c.Pos != int64(len(whole)-size) || c.Bytes != int64(len(torn(k)))-c.Pos || c.Sequence != 20 || c.Offset != 19 {
				t.Fatalf("%s %d: report %+v", name, k, c)
			}
			l.must(l.records(1)...)
			all(t, d)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if _, _, report := open(t, fs); report.Tail != nil {
				t.Fatalf("%s %d: still torn after the repair: %+v", name, k, report.Tail)
			}
		}
	}
	put(t, fs, segment.Name(0), append(bytes.Clone(whole), make([]byte, 4<<20)...))
	if _, d, report := open(t, fs); d.State().NextOffset != 20 || report.Tail != nil || len(fileBytes(t, fs, segment.Name(0))) != len(whole) {
		t.Errorf("zeros behind the end: %+v, %+v", d.State(), report.Tail)
	}
}

// A power cut keeps unflushed batches in any order, and a flush makes the ones before it certain.
func TestDamageInTheNewestSegment(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.must(l.records(1, 1)...) // 1, 2
	l.flush()
	l.must(l.records(1, 1, 1)...) // 3, 4, 5 say that 3 were flushed
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole := fileBytes(t, fs, segment.Name(0))
	var at []int
	for pos := segment.HeaderSize; pos < len(whole); {
		b, err := batch.CheckStored(whole[pos:])
		if err != nil {
			t.Fatal(err)
		}
		at, pos = append(at, pos), pos+len(b)
	}
	for seq, pos := range at {
		for _, off := range []int{0, 4, 9, 44, 50, 52, 56, 60, 92, 97, 150} { // both parts, meta and body
			if off >= batch.Batch(whole[pos:]).Size() {
				continue
			}
			bad := bytes.Clone(whole)
			bad[pos+off] ^= 4
			put(t, fs, segment.Name(0), bad)
			d, _, err := storage.Open(options(fs), nil)
			if seq >= 3 {
				if err != nil || d.State().Length != uint64(seq) {
					t.Errorf("batch %d, byte %d: %v", seq, off, err)
				}
				continue
			}
			var damage *storage.CorruptError
			if !errors.As(err, &damage) || damage.Sequence != uint64(seq) || damage.Pos != int64(pos) {
				t.Errorf("batch %d, byte %d: %v", seq, off, err)
			}
			if !bytes.Equal(fileBytes(t, fs, segment.Name(0)), bad) {
				t.Errorf("batch %d, byte %d: a failed open changed the file", seq, off)
			}
		}
	}
}

// Case ST-02: one flipped bit in a sealed segment is met by the reader, who gets everything before it.
func TestDamageInASealedSegment(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.fill(2, 30)
	l.flush()
	want := all(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	name := segment.Name(1)
	whole := fileBytes(t, fs, name)
	for pos := segment.HeaderSize; pos < len(whole); pos += 61 {
		bad := bytes.Clone(whole)
		bad[pos] ^= 1
		put(t, fs, name, bad)
		d, _, err := storage.Open(options(fs), nil)
		var damage *storage.CorruptError
		if err != nil { // the last batch is checked at opening
			if !errors.As(err, &damage) || damage.File != path.Join(dir, name) {
				t.Fatalf("byte %d: %v", pos, err)
			}
			continue
		}
		got, err := readFrom(d, 0)
		if !errors.As(err, &damage) || !bytes.HasPrefix(want, got) {
			t.Fatalf("byte %d: read %d bytes, %v", pos, len(got), err)
		}
		if damage.Pos > int64(pos) || damage.Pos+2000 < int64(pos) || damage.File != path.Join(dir, name) {
			t.Fatalf("byte %d: %v", pos, damage)
		}
		if b, err := d.Read(damage.Sequence+1, damage.Sequence+2, 1); err == nil && damage.Sequence < 31 {
			if _, err := batch.CheckStored(b); err != nil {
				t.Fatalf("byte %d: behind the damage: %v", pos, err)
			}
		}
		if !bytes.Equal(fileBytes(t, fs, name), bad) {
			t.Fatalf("byte %d: reading changed the file", pos)
		}
		_ = d.Close()
	}
}

// Case ST-03: a hole between segments is damage, whatever it looks like.
func TestHoles(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.fill(3, 10)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sealed := segment.Name(12)
	whole := fileBytes(t, fs, sealed)
	for name, change := range map[string]func(fs *memfs.FS) error{
		"cut inside a batch": func(fs *memfs.FS) error { put(t, fs, sealed, whole[:len(whole)-10]); return nil },
		"cut at a batch":     func(fs *memfs.FS) error { put(t, fs, sealed, whole[:len(whole)-len(l.records(3)[0])]); return nil },
		"empty":              func(fs *memfs.FS) error { put(t, fs, sealed, nil); return nil },
		"longer":             func(fs *memfs.FS) error { put(t, fs, sealed, append(bytes.Clone(whole), 1)); return nil },
		"gone":               func(fs *memfs.FS) error { return fs.Remove(path.Join(dir, sealed)) },
		"newest gone, then one made too far on": func(fs *memfs.FS) error {
			put(t, fs, segment.Name(99), nil)
			return nil
		},
	} {
		fs := fs.Crash(nil)
		if err := change(fs); err != nil {
			t.Fatal(err)
		}
		before := contents(t, fs)
		var damage *storage.CorruptError
		if _, _, err := storage.Open(options(fs), nil); !errors.As(err, &damage) {
			t.Errorf("%s: %v", name, err)
		}
		if after := contents(t, fs); !equalContents(before, after) {
			t.Errorf("%s: a failed open changed files", name)
		}
	}
}

func contents(t *testing.T, fs vfs.FS) map[string][]byte {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, name := range names {
		out[name] = fileBytes(t, fs, name)
	}
	return out
}

func equalContents(a, b map[string][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for name, data := range a {
		if !bytes.Equal(data, b[name]) {
			return false
		}
	}
	return true
}

// Case ST-05: an index is derived. Whatever it is, the log answers as before, and the segments stay as they are.
func TestIndexesAreDerived(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.fill(2, 900)
	other := fileBytes(t, fs, segment.IndexName(0))
	index := segment.IndexName(1)
	whole := fileBytes(t, fs, index)
	want := answers(t, d)
	segs := fileBytes(t, fs, segment.Name(1))
	entry := func(x segment.Entry) []byte {
		p, err := segment.ParseIndex(whole)
		if err != nil {
			t.Fatal(err)
		}
		p.Entries = append(p.Entries, x)
		return p.Append(nil)
	}
	noise := make([]byte, 4096)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	shifted, err := segment.ParseIndex(whole)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(shifted.Entries)-1; i++ {
		shifted.Entries[i].Position += 3 // self-consistent, and wrong
	}
	for name, data := range map[string][]byte{
		"empty": {}, "zeros": make([]byte, 4096), "noise": noise, "of another segment": other, "short": whole[:len(whole)-1],
		"past the end":          entry(segment.Entry{Offset: 1 << 40, AppendTime: 1 << 60, Sequence: 1 << 40, Position: 1 << 40}),
		"inside the header":     entry(segment.Entry{Position: 10}),
		"wrong, and consistent": shifted.Append(nil),
	} {
		for _, reopen := range []bool{true, false} {
			put(t, fs, index, data)
			if reopen {
				_, d, _ = open(t, fs)
			}
			if got := answers(t, d); !equalAnswers(got, want) {
				t.Errorf("%s, reopened %v: answers differ", name, reopen)
			}
			if reopen && !bytes.Equal(fileBytes(t, fs, index), whole) {
				t.Errorf("%s: not rebuilt", name)
			}
		}
	}
	if err := fs.Remove(path.Join(dir, index)); err != nil {
		t.Fatal(err)
	}
	_, d, report := open(t, fs)
	if got := answers(t, d); !equalAnswers(got, want) || len(report.Rebuilt) != 1 {
		t.Errorf("missing: answers differ, or %v", report.Rebuilt)
	}
	if !bytes.Equal(fileBytes(t, fs, segment.Name(1)), segs) {
		t.Error("the segment was changed")
	}
}

func answers(t *testing.T, d *storage.Disk) []uint64 {
	t.Helper()
	var out []uint64
	for offset := uint64(0); offset < d.State().NextOffset; offset += 97 {
		seq, err := d.FindOffset(offset)
		if err != nil {
			t.Fatal(err)
		}
		at, err := d.FindTime(int64(1000 + offset/3))
		if err != nil {
			t.Fatal(err)
		}
		p, err := d.Read(seq, seq+1, 1)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, seq, at, batch.Batch(p).BaseOffset())
	}
	return out
}

func equalAnswers(a, b []uint64) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// Case ST-06: a crash at the moment of a roll leaves a newest file without a checkpoint, or an index alone.
func TestUnbornNewestSegment(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.fill(1, 5)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	want := all2(t, fs)
	next := d.State().Length
	whole := func(parts uint32) []byte {
		l.log = d
		out := segment.Header{ID: logID, Base: next}.Append(nil)
		for _, b := range l.checkpoint(parts) {
			out = append(out, b...)
		}
		return out
	}
	two := whole(2)
	cases := map[string][]byte{"empty": nil, "header": two[:segment.HeaderSize], "zeros": make([]byte, 5000)}
	for k := 1; k < len(two); k += 7 {
		cases["cut "+string(rune('0'+k%10))] = two[:k]
	}
	header := bytes.Clone(two)
	header[5] ^= 1
	cases["whole but for the header"] = header
	second := bytes.Clone(two)
	second[segment.HeaderSize+20] ^= 1 // of two parts only the second reached the disk
	cases["second part only"] = second
	for name, data := range cases {
		fs := fs.Crash(nil)
		put(t, fs, segment.Name(next), data)
		put(t, fs, segment.IndexName(next+50), []byte("stray"))
		var replayed []byte
		d, report, err := storage.Open(options(fs), func(b batch.Batch) error { replayed = append(replayed, b...); return nil })
		if err != nil {
			t.Fatal(err)
		}
		l := &leader{t: t, log: d, gen: 1, time: 5000}
		if got := all(t, d); !bytes.Equal(got, want) || len(report.Dropped) != 1 || report.Tail != nil {
			t.Errorf("%s: %+v", name, report)
		}
		if newest := d.Segments()[1]; !bytes.HasSuffix(want, replayed) || int64(len(replayed)) != newest.Bytes-segment.HeaderSize {
			t.Errorf("%s: %d bytes were replayed of %d", name, len(replayed), newest.Bytes)
		}
		l.must(l.checkpoint(1)...)
		l.must(l.records(1)...)
		all(t, d)
		names, _ := fs.List(dir)
		if len(names) != 5 {
			t.Errorf("%s: files %v", name, names)
		}
	}
}

func all2(t *testing.T, fs vfs.FS) []byte {
	t.Helper()
	_, d, _ := open(t, fs)
	out := all(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Case ST-15: a length on disk is not believed.
func TestWildSizes(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.fill(1, 10)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole := fileBytes(t, fs, segment.Name(1))
	var at []int
	for pos := segment.HeaderSize; pos < len(whole); {
		at = append(at, pos)
		pos += batch.Batch(whole[pos:]).Size()
	}
	for _, pos := range []int{at[0], at[5], at[10]} {
		for _, size := range [][]byte{{255, 255, 255, 255}, {255, 255, 255, 127}, {0, 0, 0, 0}, {1, 0, 0, 0}} {
			bad := bytes.Clone(whole)
			copy(bad[pos+52:], size)
			put(t, fs, segment.Name(1), bad)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, report, err := storage.Open(options(fs), nil)
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
				t.Errorf("size %v at %d: %d bytes were allocated", size, pos, grown)
			}
			var damage *storage.CorruptError
			if pos == at[0] && !errors.As(err, &damage) || pos != at[0] && (err != nil || report.Tail == nil || report.Tail.Pos != int64(pos)) {
				t.Errorf("size %v at %d: %+v, %v", size, pos, report, err)
			}
			if d != nil {
				_ = d.Close()
			}
		}
	}
}

// What a newer release wrote is neither read nor cut, wherever it lies.
func TestNewerFormats(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.must(l.records(1, 1)...)
	newer := l.records(1)[0]
	newer[58] |= 1 << 6 // an attribute of a later release, under good checksums
	seal(newer)
	whole := append(fileBytes(t, fs, segment.Name(0)), newer...)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	tail := append(bytes.Clone(whole), make([]byte, 100)...)
	header := bytes.Clone(whole)
	header[8] = 2
	sealHeader(header)
	for name, data := range map[string][]byte{"batch": whole, "batch under a torn tail": tail, "header": header} {
		put(t, fs, segment.Name(0), data)
		if _, _, err := storage.Open(options(fs), nil); !errors.Is(err, storage.ErrNewerFormat) {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(fileBytes(t, fs, segment.Name(0)), data) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}

func TestForeign(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	l.fill(1, 3)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	o := options(fs)
	o.ID = batch.LogID{9}
	if _, _, err := storage.Open(o, nil); !errors.Is(err, storage.ErrForeign) {
		t.Errorf("another log: %v", err)
	}
	o = options(fs)
	o.Shard = 7
	if _, _, err := storage.Open(o, nil); !errors.Is(err, storage.ErrForeign) {
		t.Errorf("another shard: %v", err)
	}
	o.Dir = "data/nothing"
	if _, _, err := storage.Open(o, nil); !errors.Is(err, storage.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
