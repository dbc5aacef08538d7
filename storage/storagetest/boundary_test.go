// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"fmt"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/storagetest"
	"margay.dev/wire/batch"
)

// recordOf returns a batch of exactly so many bytes.
func recordOf(t *testing.T, w *storagetest.Writer, size int) batch.Batch {
	t.Helper()
	value := size - batch.HeaderSize - 2
	for range 8 {
		b := w.Record(value)
		if len(b) == size {
			return b
		}
		value -= len(b) - size
		w.Back(b)
	}
	t.Fatalf("no batch has %d bytes", size)
	return nil
}

// TestBoundaries is ST-18: batches that end just before, at and behind every boundary there is (segment size, blocks,
// the windows of reads and scans, the joining of writes), alone and joined, and batches larger than a whole segment.
func TestBoundaries(t *testing.T) {
	for _, boundary := range []int{4 << 10, 64 << 10, 256 << 10, 1 << 20} {
		for _, delta := range []int{-1, 0, 1} {
			for _, joined := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d%+d/%t", boundary, delta, joined), func(t *testing.T) {
					boundaryCase(t, boundary, delta, joined)
				})
			}
		}
	}
}

func boundaryCase(t *testing.T, boundary, delta int, joined bool) {
	o := onMem(t)
	if delta == 0 && joined {
		o = onOS(t)
	}
	o.SegmentBytes = 64 << 10
	l := create(t, o)
	w, m := storagetest.NewWriter(), &storagetest.Model{Whole: true}
	add := func(batches ...batch.Batch) {
		t.Helper()
		if !joined {
			for _, b := range batches {
				if err := l.Append(b); err != nil {
					t.Fatal(err)
				}
			}
		} else if err := l.Append(batches...); err != nil {
			t.Fatal(err)
		}
		m.Append(batches...)
	}
	for range 2 {
		start := w.Checkpoint(1, 10)
		used := segment.HeaderSize + len(start[0])
		batches := start
		step := max(1000, boundary/64)
		for boundary+delta-used >= 2*step {
			b := recordOf(t, w, step)
			batches, used = append(batches, b), used+step
		}
		batches = append(batches, recordOf(t, w, boundary+delta-used), w.Record(10)) // ends at the boundary
		add(batches...)
		add(recordOf(t, w, boundary+delta), w.Record(0)) // has the size of the boundary
	}
	add(w.Checkpoint(1, 10)...)
	add(w.Record(boundary*7), w.Record(3)) // up to 7 MiB: larger than a segment
	for pass := range 2 {
		if err := m.Compare(l); err != nil {
			t.Fatalf("pass %d: %v", pass, err)
		}
		for _, limit := range []int{1, boundary - 1, boundary, boundary + 1} {
			for seq := m.Start(); seq < m.Length(); {
				n, err := m.CompareRead(l, seq, m.Length(), limit)
				if err != nil {
					t.Fatalf("pass %d: %v", pass, err)
				}
				seq += n
				if limit == 1 {
					seq += uint64(boundary) >> 14 // a sample of a long log
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var report storage.Report
		if l, report = open(t, o); report.Tail != nil {
			t.Fatalf("pass %d: %+v", pass, report.Tail)
		}
	}
}
