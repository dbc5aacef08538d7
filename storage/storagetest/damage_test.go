// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

// cutTail takes the last batch off the model.
func (s *shard) cutTail() { s.m.Truncate(s.m.Length() - 1) }

// TestTornTail is ST-01: the last batch torn at every point, by missing bytes and by zeros, and zeros behind a sound end.
func TestTornTail(t *testing.T) {
	base := newShard(t, 1, 20, 300)
	last := base.m.Length() - 1
	name, from, to := base.at(last)
	repaired := func(t *testing.T, s *shard, position, cut int) {
		t.Helper()
		s.cutTail()
		tail := s.sound().Tail
		if tail == nil || tail.Pos != int64(position) || tail.Bytes != int64(cut) || tail.Sequence != last || !strings.HasSuffix(tail.File, name) {
			t.Errorf("report %+v, want %d bytes at %d", tail, cut, position)
		}
		if lines := s.logs.with(name, fmt.Sprint("position=", position), fmt.Sprint("bytes=", cut)); len(lines) != 1 {
			t.Errorf("log lines %q", s.logs.lines)
		}
	}
	data := base.get(name)
	t.Run("missing bytes", func(t *testing.T) {
		for k := 1; k < to-from; k += 7 {
			s := base.copy()
			s.t = t
			s.put(name, data[:to-k])
			repaired(t, s, from, to-k-from)
		}
	})
	t.Run("whole batch missing", func(t *testing.T) {
		s := base.copy()
		s.put(name, data[:from])
		s.cutTail()
		if report := s.sound(); report.Tail != nil {
			t.Errorf("report %+v", report.Tail)
		}
	})
	t.Run("zeros", func(t *testing.T) {
		for k := to - from; k > 0; k -= 7 {
			s := base.copy()
			s.t = t
			s.put(name, append(slices.Clone(data[:to-k]), make([]byte, k)...))
			if bytes.Equal(s.get(name), data) {
				continue
			}
			if k == to-from { // nothing of it is there: it was never written
				s.cutTail()
				if report := s.sound(); report.Tail != nil {
					t.Errorf("report %+v", report.Tail)
				}
				continue
			}
			repaired(t, s, from, to-from)
		}
	})
	t.Run("last sector", func(t *testing.T) {
		sector := max(from, to/512*512)
		s := base.copy()
		s.put(name, append(slices.Clone(data[:sector]), make([]byte, to-sector)...))
		repaired(t, s, from, to-from)
	})
	t.Run("zeros behind the end", func(t *testing.T) {
		s := base.copy()
		s.put(name, append(slices.Clone(data), make([]byte, 4<<20)...))
		if tail := s.sound().Tail; tail != nil {
			t.Errorf("report %+v", tail)
		}
	})
	t.Run("garbage behind the end", func(t *testing.T) {
		s := base.copy()
		junk := make([]byte, 10_000)
		for i := range junk {
			junk[i] = byte(i * 31)
		}
		s.put(name, append(slices.Clone(data), junk...))
		if tail := s.sound().Tail; tail == nil || tail.Pos != int64(to) {
			t.Errorf("report %+v", tail)
		}
	})
	t.Run("an older batch behind the end", func(t *testing.T) {
		// Blocks that were reserved, or a file system that reuses them, may show what was there before.
		s := base.copy()
		_, a, b := s.at(3)
		s.put(name, append(slices.Clone(data), data[a:b]...))
		if tail := s.sound().Tail; tail == nil || tail.Pos != int64(to) {
			t.Errorf("report %+v", tail)
		}
	})
}

// TestFlushedDamageIsNotATornTail is the rule of the flushed field: damage in the newest segment that a later batch says
// was flushed is corruption, whatever it looks like; damage that nobody vouches for is a torn tail.
func TestFlushedDamageIsNotATornTail(t *testing.T) {
	base := newShard(t, 1, 8, 300)
	for seq := base.m.Bases[0]; seq+1 < base.m.Length(); seq++ {
		s := base.copy()
		name, from, to := s.at(seq)
		data := s.get(name)
		clear(data[from:to])
		s.put(name, data)
		s.refuses(name, from, seq)
	}
	// The same log, written without a flush: everything behind the damage goes.
	s := newShard(t, 1, 0, 0)
	l, _ := open(t, s.o)
	flushed := s.m.Length()
	for range 8 {
		b := s.w.Record(300)
		if err := l.Append(b); err != nil {
			t.Fatal(err)
		}
		s.m.Append(b)
	}
	s.close(l)
	for seq := flushed; seq < s.m.Length(); seq++ {
		c := s.copy()
		name, from, to := c.at(seq)
		data := c.get(name)
		clear(data[from:to])
		c.put(name, data)
		c.m.Truncate(seq)
		tail := c.sound().Tail
		if last := seq+1 == s.m.Length(); last { // zeros up to the end of the file: it was never written
			if tail != nil {
				t.Errorf("report %+v", tail)
			}
			continue
		}
		if tail == nil || tail.Sequence != seq || tail.Pos != int64(from) {
			t.Errorf("report %+v", tail)
		}
	}
}

// refuses holds that opening names the damage and changes nothing.
func (s *shard) refuses(name string, pos int, seq uint64) {
	s.t.Helper()
	before := s.files()
	_, _, err := storage.Open(s.o, nil)
	var corrupt *storage.CorruptError
	if !errors.As(err, &corrupt) {
		s.t.Fatalf("damage at %d of %s: %v", pos, name, err)
	}
	if corrupt.Pos != int64(pos) || corrupt.Sequence != seq || corrupt.Offset != s.m.At(seq).BaseOffset() || !strings.HasSuffix(corrupt.File, name) {
		s.t.Fatalf("damage at %d of %s, sequence %d: %v", pos, name, seq, err)
	}
	s.unchanged(before)
}

// TestFlippedBit is ST-02: one bit of a sealed segment. A reader gets what lies before the damage and then an error that
// names it, or the shard does not open; never other bytes, a gap or a shorter log.
func TestFlippedBit(t *testing.T) {
	base := newShard(t, 3, 330, 40)
	name := base.segment(1)
	data := base.get(name)
	_, from, _ := base.at(base.m.Bases[1] + 150)
	rng := rand.New(rand.NewPCG(2, 2))
	positions := []int{0, 9, 20, 46, segment.HeaderSize, len(data) - 1}
	for i := range batch.HeaderSize + 60 {
		positions = append(positions, from+i) // every byte of one batch
	}
	for range 50 {
		positions = append(positions, rng.IntN(len(data)))
	}
	refused, found := 0, 0
	for _, pos := range positions {
		s := base.copy()
		bad := slices.Clone(data)
		bad[pos] ^= 1 << rng.IntN(8)
		s.put(name, bad)
		before := s.files()
		l, _, err := storage.Open(s.o, nil)
		var corrupt *storage.CorruptError
		if err != nil {
			if !errors.As(err, &corrupt) && !errors.Is(err, storage.ErrForeign) && !errors.Is(err, storage.ErrNewerFormat) {
				t.Fatalf("bit at %d: %v", pos, err)
			}
			refused++
			s.unchanged(before)
			continue
		}
		s.readsUpToDamage(l, name, pos)
		s.close(l)
		found++
	}
	t.Logf("%d refused when opened, %d found by reading", refused, found)
}

// readsUpToDamage reads every batch alone and holds that the damaged one, and whatever can only be found by way of it, is
// answered with an error that names the damage, and everything else with its bytes.
func (s *shard) readsUpToDamage(l *storage.Disk, name string, pos int) {
	s.t.Helper()
	if st := l.State(); st.Length != s.m.Length() || st.NextOffset != s.m.NextOffset() {
		s.t.Fatalf("byte %d: the log has length %d", pos, st.Length)
	}
	found := false
	for seq := s.m.Start(); seq < s.m.Length(); seq++ {
		where, from, to := s.at(seq)
		damaged := where == name && pos >= from && pos < to
		if near := where == name && from < pos+3000 && to > pos-3000; !near && seq%23 != 0 {
			continue // far away a sample tells enough
		}
		_, err := s.m.CompareRead(l, seq, seq+1, 1)
		if err == nil && !damaged {
			continue
		}
		var corrupt *storage.CorruptError
		if !errors.As(err, &corrupt) || !strings.HasSuffix(corrupt.File, name) {
			s.t.Fatalf("byte %d, sequence %d: %v", pos, seq, err)
		}
		if damaged {
			found = true
			if corrupt.Sequence != seq || corrupt.Pos != int64(from) || corrupt.Offset != s.m.At(seq).BaseOffset() {
				s.t.Fatalf("byte %d, sequence %d: %v", pos, seq, err)
			}
			continue
		}
		// What lies behind was looked for by way of the damage. A wrong size shows only where the next batch should be.
		culprit := corrupt.Sequence
		if corrupt.Pos > int64(pos) {
			culprit--
		}
		if _, at, end := s.at(culprit); pos < at || pos >= end || where != name || from < at {
			s.t.Fatalf("byte %d, sequence %d: %v", pos, seq, err)
		}
	}
	if !found && pos >= segment.HeaderSize {
		s.t.Fatalf("byte %d: no read fails", pos)
	}
}

// TestDamageInAnOlderSegment is ST-03: a torn older segment is not a torn tail.
func TestDamageInAnOlderSegment(t *testing.T) {
	base := newShard(t, 3, 10, 200)
	name := base.segment(1)
	last := base.m.Bases[2] - 1
	_, from, to := base.at(last)
	for _, withIndex := range []bool{true, false} {
		for _, cut := range []int{1, 10, to - from, to - from + 5} {
			s := base.copy()
			s.put(name, s.get(name)[:to-cut])
			if !withIndex {
				for _, index := range s.names(segment.IndexSuffix) {
					s.remove(index)
				}
			}
			seq := last
			if cut > to-from {
				seq--
			}
			_, at, _ := s.at(seq)
			s.refuses(name, at, seq)
		}
	}
	// A segment that is gone is a hole too.
	s := base.copy()
	s.remove(name)
	before := s.files()
	if _, _, err := storage.Open(s.o, nil); err == nil {
		t.Error("a log with a hole opens")
	}
	s.unchanged(before)
}

// TestIndexDamage is ST-05: whatever happens to a derived file, the log answers as before and stays as it was.
func TestIndexDamage(t *testing.T) {
	base := newShard(t, 3, 200, 700)
	indexes := base.names(segment.IndexSuffix)
	if len(indexes) < 2 {
		t.Fatalf("indexes %q", indexes)
	}
	entry := func(sequence, position uint64) []byte {
		b := binary.LittleEndian.AppendUint64(nil, 1)
		b = binary.LittleEndian.AppendUint64(b, 1)
		b = binary.LittleEndian.AppendUint64(b, sequence)
		return binary.LittleEndian.AppendUint64(b, position)
	}
	junk := make([]byte, 4096)
	for i := range junk {
		junk[i] = byte(i*i + 3)
	}
	damages := map[string]func([]byte) []byte{
		"deleted":             func([]byte) []byte { return nil },
		"empty":               func([]byte) []byte { return []byte{} },
		"zeros":               func([]byte) []byte { return make([]byte, 4096) },
		"junk":                func([]byte) []byte { return junk },
		"half":                func(b []byte) []byte { return b[:len(b)/2] },
		"entry past the end":  func(b []byte) []byte { return append(b, entry(1<<40, 1<<40)...) },
		"entry in the header": func(b []byte) []byte { return append(b, entry(1, 4)...) },
		"sound, past the end": func(b []byte) []byte {
			return reindex(t, b, func(x *segment.Index) { x.Entries[len(x.Entries)-1].Position = 1 << 40 })
		},
		"sound, inside a batch": func(b []byte) []byte {
			return reindex(t, b, func(x *segment.Index) { x.Entries[1].Position += 11 })
		},
		"sound, of another batch": func(b []byte) []byte {
			return reindex(t, b, func(x *segment.Index) { x.Entries[1].Position = x.Entries[2].Position - 700 })
		},
		"sound, other offsets": func(b []byte) []byte {
			return reindex(t, b, func(x *segment.Index) { x.Entries[1].Offset++ })
		},
		"sound, other size": func(b []byte) []byte {
			return reindex(t, b, func(x *segment.Index) { x.Summary.Size -= 100 })
		},
	}
	for name, damage := range damages {
		for _, all := range []bool{true, false} {
			s := base.copy()
			segments := s.files()
			for i, index := range indexes {
				if i > 0 && !all {
					break
				}
				if bad := damage(s.get(index)); bad == nil {
					s.remove(index)
				} else {
					s.put(index, bad)
				}
			}
			l, _, err := storage.Open(s.o, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.t = t
			s.compareAs(name, l)
			s.close(l)
			for _, seg := range s.names(segment.Suffix) {
				if !bytes.Equal(s.get(seg), segments[seg]) {
					t.Errorf("%s: %s has changed", name, seg)
				}
			}
		}
	}
}

func (s *shard) compareAs(what string, l *storage.Disk) {
	s.t.Helper()
	if err := s.m.Compare(l); err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
	for offset := s.m.StartOffset(); offset <= s.m.NextOffset(); offset += 13 {
		if got, err := l.FindOffset(offset); err != nil || got != s.m.FindOffset(offset) {
			s.t.Fatalf("%s: find offset %d: %d, %v, want %d", what, offset, got, err, s.m.FindOffset(offset))
		}
		us := s.m.Batches[offset%uint64(len(s.m.Batches))].AppendTime()
		if got, err := l.FindTime(us); err != nil || got != s.m.FindTime(us) {
			s.t.Fatalf("%s: find time %d: %d, %v, want %d", what, us, got, err, s.m.FindTime(us))
		}
	}
}

// reindex changes an index and gives it a good checksum.
func reindex(t *testing.T, b []byte, change func(*segment.Index)) []byte {
	t.Helper()
	x, err := segment.ParseIndex(b)
	if err != nil {
		t.Fatal(err)
	}
	change(x)
	return x.Append(nil)
}

// TestCrashAtRollover is ST-06: what a crash between two segments leaves, made by hand.
func TestCrashAtRollover(t *testing.T) {
	base := newShard(t, 2, 10, 200)
	next := base.m.Length()
	header := segment.Header{ID: logID, Base: next}.Append(nil)
	part := base.w.Checkpoint(2, 100)[0]
	for name, leave := range map[string]func(s *shard){
		"empty file":             func(s *shard) { s.put(segment.Name(next), []byte{}) },
		"half a header":          func(s *shard) { s.put(segment.Name(next), header[:20]) },
		"header only":            func(s *shard) { s.put(segment.Name(next), header) },
		"zeros":                  func(s *shard) { s.put(segment.Name(next), bytes.Repeat([]byte{0}, 8192)) },
		"half a checkpoint":      func(s *shard) { s.put(segment.Name(next), append(slices.Clone(header), part...)) },
		"torn checkpoint":        func(s *shard) { s.put(segment.Name(next), append(slices.Clone(header), part[:50]...)) },
		"index without segment":  func(s *shard) { s.put(segment.IndexName(next), s.get(segment.IndexName(0))) },
		"segment without index":  func(s *shard) { s.remove(segment.IndexName(0)) },
		"unfinished replacement": func(s *shard) { s.put(segment.IndexName(0)+".tmp", []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := base.copy()
			s.t = t
			leave(s)
			s.sound()
			if names := s.names(segment.Suffix); len(names) != 2 {
				t.Errorf("segments %q", names)
			}
			if names := s.names(".tmp"); len(names) != 0 {
				t.Errorf("leftovers %q", names)
			}
			// The next segment may take the very name.
			l, _ := open(t, s.o)
			s.add(l, s.w.Checkpoint(1, 10)...)
			s.compare(l)
			s.close(l)
		})
	}
}

// TestNewestWithData is the other side of ST-06: a newest segment is not dropped for its checkpoint when a batch lies
// behind it, because nothing is written there before the checkpoint is flushed.
func TestNewestWithData(t *testing.T) {
	base := newShard(t, 2, 3, 200)
	name, from, to := base.at(base.m.Bases[1])
	s := base.copy()
	data := s.get(name)
	clear(data[from:to])
	s.put(name, data)
	s.refuses(name, from, base.m.Bases[1])
}

// TestStaleIndex is the log's part of ST-07: derived files of yesterday put back after a kill. Nothing goes back.
func TestStaleIndex(t *testing.T) {
	s := newShard(t, 3, 50, 300)
	old := map[string][]byte{}
	for _, name := range s.names(segment.IndexSuffix) {
		old[name] = s.get(name)
	}
	// Another history takes the place of the second and third segment, at the same base.
	l, _ := open(t, s.o)
	if err := l.Truncate(s.m.Bases[1]); err != nil {
		t.Fatal(err)
	}
	s.m.Truncate(s.m.Bases[1])
	s.w.Sequence, s.w.Offset, s.w.Generation = s.m.Length(), s.m.NextOffset(), 2
	for range 3 {
		s.add(l, s.w.Checkpoint(1, 60)...)
		for range 50 {
			s.add(l, s.w.Record(300)) // of the same size: positions alone tell nothing
		}
	}
	for _, killed := range []bool{true, false} {
		if !killed {
			s.close(l)
		}
		for name, data := range old {
			s.put(name, data)
		}
		l, _ = open(t, s.o)
		s.compareAs("stale indexes", l)
		if st := l.State(); st.NextOffset != s.m.NextOffset() {
			t.Errorf("next offset %d, want %d", st.NextOffset, s.m.NextOffset())
		}
	}
	s.close(l)
}

// TestWildSize is ST-15: sizes on disk that claim up to 4 GiB neither allocate nor confuse.
func TestWildSize(t *testing.T) {
	base := newShard(t, 2, 20, 300)
	newest := base.m.Bases[1]
	for _, size := range []uint32{0xFFFFFFFF, 0x7FFFFFFF, 1, 0} {
		for seq, torn := range map[uint64]bool{
			0: false, 10: false, base.m.Bases[1] - 1: false, // of a sealed segment
			newest: false, newest + 10: false, base.m.Length() - 1: true,
		} {
			s := base.copy()
			name, from, _ := s.at(seq)
			data := s.get(name)
			binary.LittleEndian.PutUint32(data[from+52:], size)
			s.put(name, data)
			before := allocated()
			switch {
			case torn:
				s.cutTail()
				if tail := s.sound().Tail; tail == nil || tail.Pos != int64(from) {
					t.Errorf("size %#x at sequence %d: %+v", size, seq, tail)
				}
			case seq >= newest:
				s.refuses(name, from, seq)
			default:
				if l, _, err := storage.Open(s.o, nil); err == nil {
					s.readsUpToDamage(l, name, from+52)
					s.close(l)
				} else if corrupt := (*storage.CorruptError)(nil); !errors.As(err, &corrupt) || corrupt.Pos != int64(from) {
					t.Errorf("size %#x at sequence %d: %v", size, seq, err)
				}
			}
			if grown := allocated() - before; grown > 64<<20 {
				t.Errorf("size %#x at sequence %d: %d bytes were allocated", size, seq, grown)
			}
		}
	}
}

// allocated returns how many bytes the process has ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
