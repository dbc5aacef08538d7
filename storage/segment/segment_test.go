// SPDX-License-Identifier: Apache-2.0

package segment_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

var logID = batch.LogID{0: 0xaa, 15: 0x55}

// batches are a checkpoint of two parts at sequence 7, then batches of two records at offset 100 and on; each says that
// everything up to itself less one was flushed.
func batches(t testing.TB, records int) []batch.Batch {
	t.Helper()
	out := []batch.Batch{
		batch.BuildControl(batch.CheckpointPart{Index: 0, Total: 2}, batch.LogStart{Sequence: 3, Offset: 40}),
		batch.BuildControl(batch.CheckpointPart{Index: 1, Total: 2}),
	}
	for i := range records {
		b := batch.NewBuilder(batch.Limits{})
		for range 2 {
			if err := b.Add(batch.Record{Key: []byte{'k'}, Value: bytes.Repeat([]byte{byte(i)}, 40), Timestamp: 1_700_000_000_000_000}); err != nil {
				t.Fatal(err)
			}
		}
		built, err := b.Build(0, 0, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(built))
	}
	offset := uint64(100)
	for i, b := range out {
		seq := uint64(7 + i)
		b.Assign(batch.Assigned{
			Sequence: seq, BaseOffset: offset, Generation: 3, AppendTime: 1_700_000_000_000_000 + int64(i), Flushed: max(7, seq-1),
		})
		offset = b.NextOffset()
	}
	return out
}

func file(parts []batch.Batch) []byte {
	out := segment.Header{ID: logID, Shard: 2, Base: 7}.Append(nil)
	for _, b := range parts {
		out = append(out, b...)
	}
	return out
}

func scan(t testing.TB, b []byte) segment.Scan {
	t.Helper()
	s, err := segment.Read(bytes.NewReader(b), int64(len(b)), segment.Options{Base: 7})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScanOfASoundSegment(t *testing.T) {
	bs := batches(t, 4)
	raw := file(bs)
	s := scan(t, raw)
	want := segment.Summary{
		Base: 7, BaseOffset: 100, Next: 13, NextOffset: 108, Generation: 3,
		FirstTime: 1_700_000_000_000_000, LastTime: 1_700_000_000_000_005, Size: int64(len(raw)),
	}
	if s.Summary != want || s.Damage != nil || s.HeaderErr != nil || s.Checkpoint != 9 || s.Flushed != 11 || s.Batches != 6 {
		t.Errorf("scanned %+v", s)
	}
	if s.CheckpointEnd != int64(segment.HeaderSize+len(bs[0])+len(bs[1])) {
		t.Errorf("checkpoint ends at %d", s.CheckpointEnd)
	}
	stopped, err := segment.Read(bytes.NewReader(raw), int64(len(raw)), segment.Options{Base: 7, Stop: 10})
	if err != nil || stopped.Cursor.Sequence != 10 || stopped.Damage != nil {
		t.Errorf("stopped at %+v, %v", stopped.Cursor, err)
	}
}

// What lies behind damage is found wherever it lies, and only what can be a later batch of this log counts.
func TestScanBehindDamage(t *testing.T) {
	bs := batches(t, 6)
	whole := file(bs)
	start := segment.HeaderSize + len(bs[0]) + len(bs[1])
	size := len(bs[2])
	hole := func(from, to int) []byte {
		b := bytes.Clone(whole)
		clear(b[start+from*size : start+to*size])
		return b
	}
	foreign := func(a batch.Assigned) []byte {
		b := hole(1, 3)
		fake := slices.Clone(bs[3])
		fake.Assign(a)
		copy(b[start+size+11:], fake[:min(len(fake), size)])
		copy(b[start+size+11:], fake)
		return b
	}
	for name, c := range map[string]struct {
		raw     []byte
		batches int
		flushed uint64
	}{
		"one hole":   {hole(1, 3), 3, 13},
		"to the end": {append(hole(2, 6), 1), 0, 0},
		"two holes":  {func() []byte { b := hole(1, 2); clear(b[start+3*size : start+4*size]); return b }(), 3, 13},
		// A record may hold a copy of a segment: what contradicts the log around it is not taken for a part of it.
		"a batch from far ahead":   {foreign(batch.Assigned{Sequence: 900, BaseOffset: 900, Generation: 3, Flushed: 900}), 3, 13},
		"a batch of another age":   {foreign(batch.Assigned{Sequence: 10, BaseOffset: 102, Generation: 1, Flushed: 10}), 3, 13},
		"a batch before the place": {foreign(batch.Assigned{Sequence: 4, BaseOffset: 102, Generation: 3, Flushed: 4}), 3, 13},
		"flushed before written":   {foreign(batch.Assigned{Sequence: 10, BaseOffset: 102, Generation: 3, Flushed: 99}), 3, 13},
		"that could be one":        {foreign(batch.Assigned{Sequence: 10, BaseOffset: 102, Generation: 3, Flushed: 10}), 4, 13},
	} {
		s := scan(t, c.raw)
		if s.Damage == nil || s.Damage.Sequence < 10 || s.Beyond.Batches != c.batches || s.Beyond.Flushed != c.flushed {
			t.Errorf("%s: damage %+v, beyond %+v", name, s.Damage, s.Beyond)
		}
	}
}

func TestIndexRoundTrip(t *testing.T) {
	raw := file(batches(t, 2000))
	s := scan(t, raw)
	x := &segment.Index{ID: logID, Shard: 2, Summary: s.Summary, Entries: s.Sparse.Sealed()}
	b := x.Append(nil)
	got, err := segment.ParseIndex(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != x.ID || got.Shard != x.Shard || got.Summary != x.Summary || !slices.Equal(got.Entries, x.Entries) {
		t.Errorf("parsed %+v", got)
	}
	for i, e := range x.Entries[1:] {
		if p := x.Entries[i]; e.Position-p.Position > segment.Stride {
			t.Errorf("%d bytes lie between two entries", e.Position-p.Position)
		}
	}
	for pos := range b {
		bad := bytes.Clone(b)
		bad[pos] ^= 0x10
		if _, err := segment.ParseIndex(bad); err == nil {
			t.Errorf("byte %d may be anything", pos)
		}
	}
}

func TestNames(t *testing.T) {
	for _, seq := range []uint64{0, 7, 1<<64 - 1} {
		if base, suffix, ok := segment.ParseName(segment.Name(seq)); !ok || base != seq || suffix != segment.Suffix {
			t.Errorf("%s: %d %s %v", segment.Name(seq), base, suffix, ok)
		}
	}
	for _, name := range []string{"", "0.seg", "0000000000000000000x.seg", "00000000000000000000.tmp", "99999999999999999999.seg"} {
		if _, _, ok := segment.ParseName(name); ok {
			t.Errorf("%q is a segment", name)
		}
	}
}

func TestCursorRefusesPartsOutOfPlace(t *testing.T) {
	part := func(index, total uint32, seq uint64) batch.Batch {
		b := batch.BuildControl(batch.CheckpointPart{Index: index, Total: total})
		b.Assign(batch.Assigned{Sequence: seq})
		return b
	}
	c := segment.Cursor{Fresh: true}
	for _, b := range []batch.Batch{part(1, 3, 0), part(0, 3, 1)} {
		if err := c.Accept(b); err == nil {
			t.Errorf("accepted %d", b.Sequence())
		}
	}
	if err := c.Accept(part(0, 3, 0)); err != nil || !c.InCheckpoint() {
		t.Fatal(err)
	}
	for _, b := range []batch.Batch{part(2, 3, 1), part(1, 2, 1), part(0, 3, 1), batches(t, 1)[2]} {
		before := c
		if err := c.Accept(b); !errors.Is(err, segment.ErrCheckpoint) && !errors.Is(err, segment.ErrOrder) || c != before {
			t.Errorf("inside a checkpoint: %v", err)
		}
	}
	if err := errors.Join(c.Accept(part(1, 3, 1)), c.Accept(part(2, 3, 2))); err != nil || c.InCheckpoint() {
		t.Errorf("complete: %v, %+v", err, c)
	}
}

// FuzzScan holds that no bytes make a scan fail, allocate by what they claim, or find a run that is not sound.
func FuzzScan(f *testing.F) {
	whole := file(batches(f, 3))
	f.Add(whole)
	f.Add(whole[:len(whole)-5])
	f.Add(append(bytes.Clone(whole[:300]), whole[200:]...))
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		end := int64(segment.HeaderSize)
		s, err := segment.Read(bytes.NewReader(b), int64(len(b)), segment.Options{Base: 7, Visit: func(x batch.Batch, pos int64) error {
			if _, err := batch.CheckStored(b[pos:]); err != nil || pos != end {
				t.Errorf("batch at %d behind %d: %v", pos, end, err)
			}
			end += int64(len(x))
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if s.Batches > 0 && s.Summary.Size != end {
			t.Errorf("run ends at %d, visited up to %d", s.Summary.Size, end)
		}
		if s.Damage == nil && s.Batches > 0 && (s.Summary.Size+s.Unwritten != int64(len(b)) || bytes.Trim(b[s.Summary.Size:], "\x00") != nil) {
			t.Error("no damage, but bytes are left")
		}
	})
}

// FuzzIndex holds that what parses is what was written.
func FuzzIndex(f *testing.F) {
	s := scan(f, file(batches(f, 3)))
	x := &segment.Index{ID: logID, Shard: 2, Summary: s.Summary, Entries: s.Sparse.Sealed()}
	f.Add(x.Append(nil))
	f.Add(x.Append(nil)[:segment.IndexHeaderSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := segment.ParseIndex(b)
		if err != nil {
			return
		}
		again, err := segment.ParseIndex(x.Append(nil))
		if err != nil || again.Summary != x.Summary || !slices.Equal(again.Entries, x.Entries) {
			t.Errorf("written again: %+v, %v", again, err)
		}
	})
}
