// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"math/rand/v2"
	"testing"

	"margay.dev/storage"
	"margay.dev/wire/batch"
)

// readOne reads one batch as who looks for a record does.
func readOne(t *testing.T, d *storage.Disk, seq uint64) batch.Batch {
	t.Helper()
	b, err := d.Read(seq, seq+1, 1)
	if err != nil {
		t.Fatal(err)
	}
	x, err := batch.CheckStored(b)
	if err != nil || x.Sequence() != seq || len(x) != len(b) {
		t.Fatalf("sequence %d: %d bytes, %v", seq, len(b), err)
	}
	return x
}

// Batches that are read one by one, in no order, are those that were appended: in every segment, while others are appended,
// behind a cut that put others in their place, and from files that were opened anew.
func TestReadingOneByOne(t *testing.T) {
	fs := newFS(t)
	l, d := create(t, fs)
	rng := rand.New(rand.NewPCG(1, 2))
	some := func(d *storage.Disk) {
		s := d.State()
		for range 300 {
			readOne(t, d, s.StartSequence+rng.Uint64N(s.Length-s.StartSequence))
		}
	}
	for range 5 {
		l.fill(1, 400)
		some(d)
	}
	length := d.State().Length
	for range 3 {
		l.flush()
		cut := length/2 + rng.Uint64N(d.State().Length-length/2)
		if err := d.Truncate(cut); err != nil {
			t.Fatal(err)
		}
		l.gen++
		for range 3 { // of other sizes than those that lay here
			l.must(l.checkpoint(1)...)
			for range 200 {
				l.must(l.records(1 + rng.IntN(5))...)
			}
			some(d)
		}
	}
	if _, err := d.DropBefore(length / 3); err != nil {
		t.Fatal(err)
	}
	some(d)
	l.flush()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, d, _ = open(t, fs)
	some(d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReadingOneByOneDoesNotAllocateMuch(t *testing.T) {
	l, d := create(t, newFS(t))
	l.fill(3, 500)
	buf := make([]byte, 0, 4<<10)
	rng := rand.New(rand.NewPCG(1, 2))
	one := func() {
		seq := rng.Uint64N(d.State().Length)
		if _, err := d.ReadTo(buf[:cap(buf)], seq, seq+1, cap(buf)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3000 { // until all places are known
		one()
	}
	if n := testing.AllocsPerRun(1000, one); n > 4 {
		t.Errorf("%v allocations for a batch", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
