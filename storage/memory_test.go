// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"testing"

	"margay.dev/storage"
	"margay.dev/wire/batch"
)

// A full log takes no more records of clients, and goes on taking what its leader needs to empty it: up to a bound too.
func TestFullMemoryTakesItsLeadersBatches(t *testing.T) {
	m := storage.NewMemory(storage.Options{MemoryBytes: 16 << 10})
	l := &leader{t: t, log: m, gen: 1, time: 1000}
	l.must(l.checkpoint(1)...)
	var err error
	for n := 0; err == nil; n++ {
		if n > 1000 {
			t.Fatal("it is never full")
		}
		err = m.Append(l.records(1)...)
	}
	if !errors.Is(err, storage.ErrFull) {
		t.Fatal(err)
	}
	carried := func() []batch.Batch {
		b, err := batch.BuildCarried([]batch.Carried{{Record: batch.Record{Key: []byte("k"), Value: make([]byte, 20<<10)}}}, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		return l.assign(b)
	}
	l.must(l.assign(batch.BuildControl(batch.LogStart{}))...)
	l.must(l.assign(batch.BuildExpired([][]byte{[]byte("k")}, 0))...)
	l.must(carried()...)
	if err := m.Append(l.records(1)...); !errors.Is(err, storage.ErrFull) {
		t.Errorf("a client's record: %v", err)
	}
	for n := 0; !errors.Is(err, storage.ErrFull) || n == 0; n++ {
		if err = m.Append(carried()...); n > 100 {
			t.Fatal("it takes what its leader carries without a bound")
		}
	}
}
