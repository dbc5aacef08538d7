// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"margay.dev/wire/batch"
)

// readCarried reads the records of any batch with what they carry.
func readCarried(b batch.Batch) ([]batch.Carried, error) {
	var out []batch.Carried
	r := b.Records()
	for {
		var rec batch.Record
		ok, err := r.Next(&rec)
		if err != nil || !ok {
			return out, err
		}
		out = append(out, batch.Carried{Record: rec.Clone(), Offset: r.Offset(), Generation: r.Generation(), AppendTime: r.AppendTime()})
	}
}

func TestCarriedRecordsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base, generation := rapid.Uint64Min(1).Draw(t, "base"), rapid.Uint64().Draw(t, "generation")
		records := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) batch.Carried {
			return batch.Carried{
				Record: drawRecord(t), Offset: rapid.Uint64Max(base-1).Draw(t, "offset"),
				Generation: rapid.Uint64Max(generation).Draw(t, "generation"), AppendTime: rapid.Int64().Draw(t, "append time"),
			}
		}), 1, 20).Draw(t, "records")
		b, err := batch.BuildCarried(records, rapid.SampledFrom([]batch.Compression{batch.None, batch.Zstd}).Draw(t, "compression"))
		if err != nil {
			t.Fatal(err)
		}
		for _, place := range []string{"none yet", "in the log"} {
			if place == "in the log" {
				b.Assign(batch.Assigned{Sequence: 9, BaseOffset: base, Generation: generation, AppendTime: rapid.Int64().Draw(t, "now")})
				if b, err = batch.CheckStored(b); err != nil {
					t.Fatal(err)
				}
				if !b.IsCarried() || b.HasOffsets() || b.NextOffset() != base || b.VerifyRecords() != nil {
					t.Fatal("a carried batch does not say so, takes offsets, or cannot be read")
				}
			}
			back, err := readCarried(b)
			if err != nil || len(back) != len(records) {
				t.Fatalf("place %s: %d of %d records, %v", place, len(back), len(records), err)
			}
			metas, m := b.Metas(), batch.Meta{}
			for i := range records {
				got, want := back[i], records[i]
				sameRecords(t, []batch.Record{got.Record}, []batch.Record{want.Record})
				if ok, err := metas.Next(&m); !ok || err != nil {
					t.Fatalf("meta %d: %v", i, err)
				}
				for _, at := range []batch.Carried{got, {Offset: metas.Offset(), Generation: metas.Generation(), AppendTime: metas.AppendTime()}} {
					if at.Offset != want.Offset || at.Generation != want.Generation || at.AppendTime != want.AppendTime {
						t.Fatalf("record %d comes from %+v, want %+v", i, at, want)
					}
				}
			}
			if ok, err := metas.Next(&m); ok || err != nil {
				t.Fatalf("one meta too many, %v", err)
			}
		}
	})
}

func TestExpiredKeysComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 20).Draw(t, "keys")
		at := rapid.Int64().Draw(t, "at")
		b := batch.BuildExpired(keys, at)
		b.Assign(batch.Assigned{Sequence: 9, BaseOffset: 70, Generation: 2, AppendTime: 12})
		b, err := batch.CheckStored(b)
		if err != nil {
			t.Fatal(err)
		}
		if !b.IsExpired() || !b.HasOffsets() || b.IsCarried() || b.NextOffset() != 70+uint64(len(keys)) {
			t.Fatal("a batch of expired keys does not say so, or takes no offsets")
		}
		keep := make([]int, 0, len(keys))
		for i := range keys {
			if i == 0 || rapid.Bool().Draw(t, "keep") {
				keep = append(keep, i)
			}
		}
		s, err := batch.BuildSlice(b, keep)
		if err != nil || !s.IsExpired() {
			t.Fatalf("slice that does not say so, %v", err)
		}
		if s, err = batch.CheckSlice(s); err != nil {
			t.Fatal(err)
		}
		whole, err := readCarried(b)
		if err != nil || len(whole) != len(keys) {
			t.Fatalf("%d of %d records, %v", len(whole), len(keys), err)
		}
		part, offsets, err := readSlice(s)
		if err != nil || len(part) != len(keep) {
			t.Fatalf("%d of %d records of a slice, %v", len(part), len(keep), err)
		}
		for i, r := range whole {
			if !bytes.Equal(r.Key, keys[i]) || r.Key == nil || r.Value != nil || r.Timestamp != at || r.Offset != 70+uint64(i) ||
				r.Generation != 2 || r.AppendTime != 12 {
				t.Fatalf("record %d is %+v", i, r)
			}
			if n := slices.Index(keep, i); n >= 0 && (!bytes.Equal(part[n].Key, keys[i]) || part[n].Value != nil || offsets[n] != r.Offset) {
				t.Fatalf("record %d of the slice is %+v at %d", n, part[n], offsets[n])
			}
		}
	})
}

// What only a leader makes, no producer sends, whatever else is right about it; and a carried batch is in nobody's slice.
func TestLeaderBatchesAreTheLeaders(t *testing.T) {
	old := carried(t, batch.None, batch.Carried{Record: fullRecord(), Offset: 1})
	for name, b := range map[string]batch.Batch{"carried": old, "expired": batch.BuildExpired([][]byte{{1}}, 0)} {
		if _, err := batch.CheckProduced(b, batch.Limits{}); !errors.Is(err, batch.ErrAttributes) {
			t.Errorf("a producer's %s batch: %v", name, err)
		}
	}
	if _, err := batch.BuildSlice(old, []int{0}); !errors.Is(err, batch.ErrCount) {
		t.Errorf("slice of a carried batch: %v", err)
	}
	empty := batch.BuildExpired(nil, 0)
	empty.Assign(batch.Assigned{})
	if _, err := batch.CheckStored(empty); !errors.Is(err, batch.ErrCount) {
		t.Errorf("no expired keys: %v", err)
	}
}

func TestBuildCarriedRefuses(t *testing.T) {
	at := func(r batch.Record) batch.Carried { return batch.Carried{Record: r} }
	for _, tc := range []struct {
		name    string
		records []batch.Carried
		c       batch.Compression
		want    error
	}{
		{"nothing", nil, batch.None, batch.ErrCount},
		{"expires when due", []batch.Carried{at(batch.Record{Delay: 1000, TTL: 1000})}, batch.None, batch.ErrSchedule},
		{"schedule beyond all bounds", []batch.Carried{at(batch.Record{TTL: batch.MaxSchedule + 1})}, batch.None, batch.ErrSchedule},
		{"timestamps too far apart", []batch.Carried{
			at(batch.Record{Timestamp: math.MinInt64}), at(batch.Record{Timestamp: math.MaxInt64}),
		}, batch.None, batch.ErrTimestamp},
		{"more than a batch", []batch.Carried{
			at(batch.Record{Value: make([]byte, 5<<20)}), at(batch.Record{Value: make([]byte, 5<<20)}),
		}, batch.Zstd, batch.ErrTooLarge},
		{"compression without a meaning", []batch.Carried{at(batch.Record{})}, 3, batch.ErrAttributes},
	} {
		if _, err := batch.BuildCarried(tc.records, tc.c); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A record that left MaxOrigin bytes of its batch free can be carried, however far its place lies; of one that did not, a
// leader is told that it cannot.
func TestLargestCarriedRecord(t *testing.T) {
	record := batch.Record{Key: []byte("k"), Value: make([]byte, batch.MaxBatch-batch.HeaderSize-batch.MaxOrigin-8)}
	whole := build(t, 0, 0, batch.None, record)
	record.Value = record.Value[:len(record.Value)+batch.MaxBatch-batch.MaxOrigin-whole.Size()]
	if n := build(t, 0, 0, batch.None, record).Size(); n != batch.MaxBatch-batch.MaxOrigin {
		t.Fatalf("a batch of %d bytes leaves %d", n, batch.MaxBatch-n)
	}
	far := batch.Carried{Record: record, Offset: math.MaxUint64, Generation: math.MaxUint64, AppendTime: math.MinInt64}
	if b, err := batch.BuildCarried([]batch.Carried{far}, batch.None); err != nil || b.Size() != batch.MaxBatch {
		t.Errorf("%d bytes, %v", b.Size(), err)
	}
	far.Value = append(far.Value, 0)
	if _, err := batch.BuildCarried([]batch.Carried{far}, batch.None); !errors.Is(err, batch.ErrTooLarge) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestEveryFlippedBitOfLeaderBatchesIsSeen(t *testing.T) {
	old := carried(t, batch.None, origins(fullRecord())...)
	gone := batch.BuildExpired([][]byte{[]byte("k")}, start)
	for _, b := range []batch.Batch{old, gone} {
		b.Assign(leaderPlace)
		for i := range 8 * len(b) {
			b[i/8] ^= 1 << (i % 8)
			if _, err := batch.CheckStored(b); err == nil {
				t.Fatalf("bit %d of %x is flipped and nobody sees it", i, []byte(b))
			}
			b[i/8] ^= 1 << (i % 8)
		}
	}
}

func TestHeaderSection(t *testing.T) {
	want := []batch.Header{{Key: "trace", Value: []byte{0xca, 0xfe}}, {Key: "", Value: []byte{}}}
	b := build(t, 0, 0, batch.None, batch.Record{Headers: want, Value: []byte("v")}, batch.Record{Value: []byte("w")})
	r := b.Records()
	var rec batch.Record
	for _, n := range []int{len(want), 0} {
		if ok, err := r.Next(&rec); !ok || err != nil {
			t.Fatal(err)
		}
		section := r.HeaderSection()
		if !bytes.Equal(section, batch.AppendHeaders(nil, want[:n])) {
			t.Errorf("section %x of %d headers", section, n)
		}
		got, err := batch.ParseHeaders(section, nil)
		sameRecords(t, []batch.Record{{Headers: got}}, []batch.Record{{Headers: want[:n]}})
		if err != nil {
			t.Error(err)
		}
	}
	section := batch.AppendHeaders(nil, want)
	for n := 1; n < len(section); n++ {
		if _, err := batch.ParseHeaders(section[:n], nil); err == nil {
			t.Errorf("%d of %d bytes are a header section", n, len(section))
		}
	}
	if _, err := batch.ParseHeaders(append(section, 0), nil); !errors.Is(err, batch.ErrSize) {
		t.Errorf("a byte behind a header section: %v", err)
	}
}

func TestWalkOverCarriedRecordsDoesNotAllocatePerRecord(t *testing.T) {
	var records []batch.Carried
	for i := range 100 {
		records = append(records, batch.Carried{Record: batch.Record{Key: []byte("key"), Value: []byte("v"), TTL: time.Hour}, Offset: uint64(i)})
	}
	b := carried(t, batch.None, records...)
	var m batch.Meta
	if n := testing.AllocsPerRun(100, func() {
		metas := b.Metas()
		for ok := true; ok; {
			ok, _ = metas.Next(&m)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// Find comes to each record that there is, and to none that there is not.
func TestFind(t *testing.T) {
	records := make([]batch.Record, 20)
	for i := range records {
		records[i] = batch.Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i), Timestamp: 1}
		if i%3 == 0 {
			records[i].Headers = []batch.Header{{Key: "h", Value: []byte{byte(i)}}}
		}
		if i%5 == 4 {
			records[i].Value = nil
		}
	}
	for _, compression := range []batch.Compression{batch.None, batch.Zstd} {
		b := build(t, 0, 0, compression, records...)
		b.Assign(batch.Assigned{BaseOffset: 100})
		r := b.Records()
		var rec batch.Record
		for _, offset := range []uint64{100, 103, 104, 119} {
			ok, err := r.Find(offset, &rec)
			want := records[offset-100]
			if err != nil || !ok || r.Offset() != offset || !bytes.Equal(rec.Key, want.Key) || !bytes.Equal(rec.Value, want.Value) || len(rec.Headers) != len(want.Headers) {
				t.Fatalf("at %d: %v, %v, %+v", offset, ok, err, rec)
			}
		}
		r = b.Records()
		if ok, err := r.Find(120, &rec); ok || err != nil {
			t.Fatalf("beyond the end: %v, %v", ok, err)
		}
	}
}
