// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

// What is cut by offsets or by a range is what is cut by indexes, behind what dst held.
func TestSlicesByOffset(t *testing.T) {
	const n, base = 50, 100
	for _, c := range []batch.Compression{batch.None, batch.Zstd} {
		b := many(t, n, c)
		s, err := batch.NewSlicer(b)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(t *rapid.T) {
			var (
				keep    []int
				offsets []uint64
			)
			from := rapid.Uint64Range(base, base+n-1).Draw(t, "from")
			to := rapid.Uint64Range(from+1, base+n).Draw(t, "to")
			for i := from; i < to; i++ {
				keep = append(keep, int(i-base))
			}
			want, err := s.Slice(keep)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := s.AppendRange([]byte("head"), from, to); err != nil || !bytes.Equal(got, append([]byte("head"), want...)) {
				t.Fatalf("records [%d, %d): %x, want %x, %v", from, to, got, want, err)
			}
			keep = keep[:0]
			for i := range n {
				if rapid.Bool().Draw(t, "keep") {
					keep, offsets = append(keep, i), append(offsets, base+uint64(i))
				}
			}
			want, wantErr := s.Slice(keep)
			got, err := s.AppendOffsets([]byte("head"), offsets)
			if (err == nil) != (wantErr == nil) || err == nil && !bytes.Equal(got, append([]byte("head"), want...)) {
				t.Fatalf("records %v: %x, want %x, %v", offsets, got, want, err)
			}
		})
	}
}

func TestSlicesByOffsetRefuseWhatIsNotThere(t *testing.T) {
	b := many(t, 3, batch.None) // 100 to 102
	s, err := batch.NewSlicer(b)
	if err != nil {
		t.Fatal(err)
	}
	whole := slice(t, b, 0, 1, 2)
	if got, err := s.AppendRange(nil, 0, math.MaxUint64); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("a range around the batch: %x, %v", got, err)
	}
	for _, r := range [][2]uint64{{100, 100}, {103, 200}, {0, 100}, {102, 101}, {math.MaxUint64, 0}} {
		if got, err := s.AppendRange([]byte("head"), r[0], r[1]); !errors.Is(err, batch.ErrCount) || string(got) != "head" {
			t.Errorf("range %v: %q, %v", r, got, err)
		}
	}
	for _, list := range [][]uint64{{99}, {103}, {100, 100}, {101, 100}, {0}, {math.MaxUint64}, {100, 100 + 1<<33}} {
		if got, err := s.AppendOffsets([]byte("head"), list); !errors.Is(err, batch.ErrSlice) || string(got) != "head" {
			t.Errorf("offsets %v: %q, %v", list, got, err)
		}
	}
	if _, err := s.AppendOffsets(nil, nil); !errors.Is(err, batch.ErrCount) {
		t.Errorf("no offset: %v", err)
	}
}

// Handing out cuts a slice for each hand.
func TestCuttingDoesNotAllocate(t *testing.T) {
	s, err := batch.NewSlicer(many(t, 1000, batch.Zstd))
	if err != nil {
		t.Fatal(err)
	}
	var dst []byte
	offsets := []uint64{100, 107, 108, 109, 900}
	if n := testing.AllocsPerRun(100, func() {
		if dst, err = s.AppendOffsets(dst[:0], offsets); err == nil {
			dst, err = s.AppendRange(dst, 200, 264)
		}
	}); n != 0 || err != nil {
		t.Errorf("cutting allocates %v times, %v", n, err)
	}
}

// A carried record is cut as it would be of a batch of it alone.
func TestSliceCarried(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const base = 1000
		var records []batch.Carried
		for _, offset := range rapid.SliceOfNDistinct(rapid.Uint64Max(base-1), 1, 8, rapid.ID[uint64]).Draw(t, "offsets") {
			records = append(records, batch.Carried{
				Record: drawRecord(t), Offset: offset, Generation: rapid.Uint64Max(4).Draw(t, "generation"),
				AppendTime: rapid.Int64().Draw(t, "append time"),
			})
		}
		compression := rapid.SampledFrom([]batch.Compression{batch.None, batch.Zstd}).Draw(t, "compression")
		b, err := batch.BuildCarried(records, compression)
		if err != nil {
			t.Fatal(err)
		}
		b.Assign(batch.Assigned{Sequence: 9, BaseOffset: base, Generation: 4})
		if b, err = batch.CheckStored(b); err != nil {
			t.Fatal(err)
		}
		for _, want := range records {
			s, ok, err := batch.SliceCarried(b, want.Offset)
			if err != nil || !ok {
				t.Fatalf("offset %d: %v, %v", want.Offset, ok, err)
			}
			builder := batch.NewBuilder(batch.Limits{})
			if err := builder.Add(want.Record); err != nil {
				t.Skip("a dedup id of a size that no producer may give")
			}
			alone, err := builder.Build(0, 0, batch.None)
			if err != nil {
				t.Fatal(err)
			}
			alone.Assign(batch.Assigned{Sequence: 9, BaseOffset: want.Offset, Generation: want.Generation, AppendTime: want.AppendTime})
			cut, err := batch.BuildSlice(alone, []int{0})
			if err != nil || !bytes.Equal(cut, s) {
				t.Fatalf("offset %d: %x, want %x, %v", want.Offset, s, cut, err)
			}
			if s, err = batch.CheckSlice(s); err != nil {
				t.Fatal(err)
			}
			back, offsets, err := readSlice(s)
			if err != nil || len(back) != 1 || offsets[0] != want.Offset {
				t.Fatalf("offset %d: %d records at %v, %v", want.Offset, len(back), offsets, err)
			}
			sameRecords(t, back, []batch.Record{want.Record})
		}
		if _, ok, err := batch.SliceCarried(b, base); ok || err != nil {
			t.Fatalf("a record that was not carried: %v, %v", ok, err)
		}
	})
	if _, _, err := batch.SliceCarried(many(t, 1, batch.None), 100); !errors.Is(err, batch.ErrCarried) {
		t.Errorf("of a batch that is not carried: %v", err)
	}
}
