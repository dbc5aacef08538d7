// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

func readSlice(s batch.Slice) (records []batch.Record, offsets []uint64, err error) {
	r := s.Records()
	for {
		var rec batch.Record
		ok, err := r.Next(&rec)
		if err != nil || !ok {
			return records, offsets, err
		}
		records, offsets = append(records, rec.Clone()), append(offsets, r.Offset())
	}
}

// TestSliceHoldsTheRecordsItWasCutFrom: a slice of any records of any batch equals those records.
func TestSliceHoldsTheRecordsItWasCutFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		compression := rapid.SampledFrom([]batch.Compression{batch.None, batch.Zstd}).Draw(t, "compression")
		builder := batch.NewBuilder(batch.Limits{})
		for _, r := range records {
			if err := builder.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		b, err := builder.Build(0, 0, compression)
		if err != nil {
			t.Fatal(err)
		}
		b.Assign(batch.Assigned{
			Sequence: rapid.Uint64().Draw(t, "s"), BaseOffset: rapid.Uint64Max(1<<63).Draw(t, "o"),
			Generation: rapid.Uint64().Draw(t, "g"), AppendTime: rapid.Int64().Draw(t, "t"),
		})
		var (
			keep  []int
			want  []batch.Record
			whole = bytes.Clone(b)
		)
		for i, r := range records {
			if rapid.Bool().Draw(t, "keep") {
				keep, want = append(keep, i), append(want, r)
			}
		}
		built, err := batch.BuildSlice(b, keep)
		if len(keep) == 0 {
			if !errors.Is(err, batch.ErrCount) {
				t.Fatalf("a slice of nothing: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := batch.CheckSlice(append(bytes.Clone(built), 1, 2, 3))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(whole, b) || len(s) != len(built) || s.Size() != len(s) || s.Count() != len(keep) ||
			s.Sequence() != b.Sequence() || s.BaseOffset() != b.BaseOffset() || s.NextOffset() != b.NextOffset() ||
			s.Generation() != b.Generation() || s.AppendTime() != b.AppendTime() || s.FirstTimestamp() != b.FirstTimestamp() {
			t.Fatal("the header does not say what the source does, or the source has changed")
		}
		got, offsets, err := readSlice(s)
		if err != nil {
			t.Fatal(err)
		}
		sameRecords(t, got, want)
		metas := s.Metas()
		var m batch.Meta
		for i, index := range keep {
			if ok, err := metas.Next(&m); !ok || err != nil || offsets[i] != b.BaseOffset()+uint64(index) || metas.Offset() != offsets[i] ||
				!sameBytes(m.Key, want[i].Key) {
				t.Fatalf("record %d has offset %d in the walk over records and %d in that over metas %+v, %v", index, offsets[i], metas.Offset(), m, err)
			}
		}
		if ok, err := metas.Next(&m); ok || err != nil {
			t.Fatalf("metas go on: %v", err)
		}
	})
}

func TestBuildSliceRefuses(t *testing.T) {
	b := sliceSource(t, batch.None)
	for name, keep := range map[string][]int{
		"falling": {2, 1}, "twice": {1, 1}, "negative": {-1}, "beyond": {0, b.Count()}, "far beyond": {1 << 40},
	} {
		if _, err := batch.BuildSlice(b, keep); !errors.Is(err, batch.ErrSlice) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := batch.BuildSlice(batch.BuildControl(batch.LogStart{}), []int{0}); !errors.Is(err, batch.ErrCount) {
		t.Errorf("of a control batch: %v", err)
	}
	lying := bytes.Clone(sliceSource(t, batch.Zstd))
	binary.LittleEndian.PutUint32(lying[88:], binary.LittleEndian.Uint32(lying[88:])+1)
	if _, err := batch.BuildSlice(lying, []int{0}); !errors.Is(err, batch.ErrCompression) {
		t.Errorf("of a body of another size: %v", err)
	}
}

func TestSliceReaderIsReusable(t *testing.T) {
	b := sliceSource(t, batch.None)
	first, second := slice(t, b, 0, 2, 4), slice(t, b, 3)
	r := first.Records()
	var rec batch.Record
	for _, want := range []struct {
		s       batch.Slice
		offsets []uint64
	}{{first, []uint64{20, 22, 24}}, {second, []uint64{23}}, {nil, nil}, {first, []uint64{20, 22, 24}}} {
		r.Reset(want.s)
		for _, offset := range want.offsets {
			if ok, err := r.Next(&rec); !ok || err != nil || r.Offset() != offset {
				t.Fatalf("offset %d, want %d: %v", r.Offset(), offset, err)
			}
		}
		if ok, err := r.Next(&rec); ok || err != nil {
			t.Fatalf("goes on: %v", err)
		}
	}
	if n := testing.AllocsPerRun(10, func() {
		r.Reset(first)
		for {
			if ok, err := r.Next(&rec); err != nil || !ok {
				return
			}
		}
	}); n != 0 {
		t.Errorf("reading allocates %v times", n)
	}
}

func TestEveryFlippedBitOfASliceIsSeen(t *testing.T) {
	s := slice(t, sliceSource(t, batch.None), 0, 2)
	for i := range len(s) * 8 {
		s[i/8] ^= 1 << (i % 8)
		if _, err := batch.CheckSlice(s); err == nil {
			t.Fatalf("bit %d", i)
		}
		s[i/8] ^= 1 << (i % 8)
	}
	binary.LittleEndian.PutUint32(s[8:], batch.MaxSlice+1)
	if _, err := batch.CheckSlice(s); !errors.Is(err, batch.ErrSize) {
		t.Errorf("above the bound: %v", err)
	}
	binary.LittleEndian.PutUint32(s[8:], uint32(len(s)))
	for n := range len(s) {
		if _, err := batch.CheckSlice(s[:n]); !errors.Is(err, batch.ErrShort) {
			t.Fatalf("cut to %d: %v", n, err)
		}
	}
}

// TestLargestSlice: what is added to a batch for the places of its records is within the bound.
func TestLargestSlice(t *testing.T) {
	const n = 1 << 20
	builder := batch.NewBuilder(batch.Limits{Records: n})
	keep := make([]int, n)
	for i := range keep {
		keep[i] = i
		if err := builder.Add(batch.Record{}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := builder.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	s, err := batch.CheckSlice(slice(t, b, keep...))
	if err != nil || s.Count() != n || s.Size() > batch.MaxSlice {
		t.Fatalf("%d records in %d bytes: %v", s.Count(), s.Size(), err)
	}
}

// FuzzCheckSlice: whatever comes behind a good checksum, reading it survives within its bounds; what can be read is in
// the one form that BuildSlice writes.
func FuzzCheckSlice(f *testing.F) {
	seedVectors(f, "slice_", "refused_slice_")
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= batch.SliceHeaderSize {
			copy(raw[4:], "MGL1")
			binary.LittleEndian.PutUint32(raw[8:], uint32(len(raw)))
			resealSlice(raw)
		}
		s, err := batch.CheckSlice(raw)
		if err != nil {
			return
		}
		var (
			records []batch.Record
			offsets []uint64
		)
		boundAllocation(t, uint64(64*len(raw)), func() { records, offsets, err = readSlice(s) })
		if err != nil {
			return
		}
		if again := cutAgain(s, records, offsets); again != nil && !bytes.Equal(again, s) {
			t.Fatalf("%x is written as %x", []byte(s), []byte(again))
		}
	})
}

// cutAgain makes a source in which the records stand where the slice says, and cuts them from it; nil when no builder
// would make that source.
func cutAgain(s batch.Slice, records []batch.Record, offsets []uint64) batch.Slice {
	span := int(s.NextOffset() - s.BaseOffset())
	if span > 1000 {
		return nil
	}
	source := make([]batch.Record, span)
	for i := range source {
		if source[i].Timestamp = s.FirstTimestamp(); s.IsExpired() {
			source[i].Key = []byte{}
		}
	}
	keep := make([]int, len(records))
	for i, offset := range offsets {
		keep[i] = int(offset - s.BaseOffset())
		source[keep[i]] = records[i]
	}
	const most = batch.MaxBatch
	builder := batch.NewBuilder(batch.Limits{Key: most, Headers: most, HeaderBytes: most})
	for _, r := range source {
		if builder.Add(r) != nil {
			return nil
		}
	}
	b, err := builder.Build(0, 0, batch.None)
	if err != nil {
		return nil
	}
	if s.IsExpired() {
		b[59] |= 2
		reseal(b, false)
	}
	b.Assign(batch.Assigned{Sequence: s.Sequence(), BaseOffset: s.BaseOffset(), Generation: s.Generation(), AppendTime: s.AppendTime()})
	again, err := batch.BuildSlice(b, keep)
	if err != nil {
		return nil
	}
	return again
}

func BenchmarkBuildSlice(b *testing.B) {
	stored := hundred(b)
	keep := make([]int, 0, 50)
	for i := range 50 {
		keep = append(keep, 2*i)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(slice(b, stored, keep...))))
	for b.Loop() {
		if _, err := batch.BuildSlice(stored, keep); err != nil {
			b.Fatal(err)
		}
	}
}
