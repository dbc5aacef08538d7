// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"margay.dev/wire/batch"
)

// many is a batch of n small records.
func many(tb testing.TB, n int, c batch.Compression) batch.Batch {
	tb.Helper()
	records := make([]batch.Record, n)
	for i := range records {
		records[i] = batch.Record{Key: fmt.Appendf(nil, "device/%d", i), Value: fmt.Appendf(nil, "value %d", i*i), Timestamp: 1}
	}
	b := build(tb, 1, 1, c, records...)
	b.Assign(batch.Assigned{Sequence: 7, BaseOffset: 100})
	return b
}

// What one slicer cuts, for many at once and in any order, is what would be cut of the batch for each alone.
func TestSlicerServesManyAtOnce(t *testing.T) {
	for _, c := range []batch.Compression{batch.None, batch.Zstd} {
		const n = 1000
		b := many(t, n, c)
		s, err := batch.NewSlicer(b)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				for i := range n {
					at := (i*7 + worker*251) % n
					keep := []int{at}
					if at+worker < n && worker > 0 {
						keep = append(keep, at+worker)
					}
					got, err := s.Slice(keep)
					if err != nil {
						t.Errorf("%v: %v", keep, err)
						return
					}
					if want := slice(t, b, keep...); !bytes.Equal(got, want) {
						t.Errorf("%v is cut differently the second time", keep)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// Cutting a batch into one slice for each record: what a shard does for a subscriber each. The cost of a record must not
// grow with the batch.
func BenchmarkSlicer(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			whole := many(b, n, batch.Zstd)
			b.ReportAllocs()
			for b.Loop() {
				s, err := batch.NewSlicer(whole)
				if err != nil {
					b.Fatal(err)
				}
				for i := range n {
					if _, err := s.Slice([]int{i}); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
		})
	}
}
