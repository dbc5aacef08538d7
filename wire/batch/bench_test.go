// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"testing"

	"margay.dev/wire/batch"
)

func kilobyte() batch.Record {
	return batch.Record{
		Key: []byte("customer-0001"), Value: make([]byte, 1000), Timestamp: 1_700_000_000_000_000,
		Headers: []batch.Header{{Key: "type", Value: []byte("order")}},
	}
}

func hundred(tb testing.TB) batch.Batch {
	records := make([]batch.Record, 100)
	for i := range records {
		records[i] = kilobyte()
	}
	return build(tb, 1, 1, batch.None, records...)
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	b := batch.NewBuilder(batch.Limits{})
	rec := kilobyte()
	add := func() {
		b.Reset()
		for range 100 {
			if err := b.Add(rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	add()
	if n := testing.AllocsPerRun(10, add); n != 0 {
		t.Errorf("adding allocates %v times", n)
	}
	sent := hundred(t)
	if n := testing.AllocsPerRun(10, func() {
		if _, err := batch.CheckProduced(sent, batch.Limits{}); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("checking what was produced allocates %v times", n)
	}
	stored := hundred(t)
	if n := testing.AllocsPerRun(10, func() {
		stored.Assign(batch.Assigned{Sequence: 1})
		if _, err := batch.CheckStored(stored); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("assigning and checking what is stored allocates %v times", n)
	}
	r := stored.Records()
	if n := testing.AllocsPerRun(10, func() {
		r.Reset(stored)
		for {
			if ok, err := r.Next(&rec); err != nil || !ok {
				return
			}
		}
	}); n != 0 {
		t.Errorf("reading allocates %v times", n)
	}
}

func BenchmarkBuilderAdd(b *testing.B) {
	builder := batch.NewBuilder(batch.Limits{})
	rec := kilobyte()
	b.ReportAllocs()
	b.SetBytes(int64(len(rec.Value)))
	for b.Loop() {
		if builder.Len() == 100 {
			builder.Reset()
		}
		if err := builder.Add(rec); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for name, c := range map[string]batch.Compression{"none": batch.None, "zstd": batch.Zstd} {
		b.Run(name, func(b *testing.B) {
			builder := batch.NewBuilder(batch.Limits{})
			for range 100 {
				if err := builder.Add(kilobyte()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.SetBytes(int64(builder.Size()))
			for b.Loop() {
				if _, err := builder.Build(1, 1, c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheckProduced(b *testing.B) {
	sent := hundred(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(sent)))
	for b.Loop() {
		if _, err := batch.CheckProduced(sent, batch.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckStored(b *testing.B) {
	stored := hundred(b)
	stored.Assign(batch.Assigned{Sequence: 1})
	b.ReportAllocs()
	b.SetBytes(int64(len(stored)))
	for b.Loop() {
		if _, err := batch.CheckStored(stored); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecords(b *testing.B) {
	stored := hundred(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(stored)))
	r := stored.Records()
	var rec batch.Record
	for b.Loop() {
		r.Reset(stored)
		for {
			ok, err := r.Next(&rec)
			if err != nil {
				b.Fatal(err)
			}
			if !ok {
				break
			}
		}
	}
}
