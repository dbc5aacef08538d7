// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

// TestSharedBatchesAreTheLogs: whatever order and however many ask, each batch is the one that the log has.
func TestSharedBatchesAreTheLogs(t *testing.T) {
	l := hosttest.Log(nil)
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
	s, lane := r.Shard(l.ID, 0), hosttest.NewAnswers()
	const n = 300
	for i := range uint64(n) {
		if err := s.Submit(hosttest.Request(t, lane, i, hosttest.Value(i), bytes.Repeat([]byte("x"), int(i*i)))); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Eventually(t, "the answers", func() bool { return lane.N.Load() == n })
	want := map[uint64]batch.Batch{}
	for i := range uint64(n) {
		seq, err := s.Find(2 * i)
		if err != nil {
			t.Fatal(err)
		}
		if want[seq], err = s.Batch(nil, seq); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for who := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(who), 1))
			first := s.View().Mark - n
			for i := range uint64(3 * n) {
				seq := first + i%n // through the log, and then here and there
				if who%2 == 1 {
					seq = first + rng.Uint64N(n)
				}
				got, err := s.SharedBatch(seq)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(got.Batch, want[seq]) {
					t.Errorf("the batch %d is another one", seq)
				}
				raw, err := got.AppendOffsets(nil, []uint64{got.BaseOffset() + 1})
				if err != nil {
					t.Error(err)
					return
				}
				if cut, err := batch.CheckSlice(raw); err != nil || cut.Count() != 1 || cut.Sequence() != seq {
					t.Errorf("a slice of the batch %d: %v", seq, err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := s.SharedBatch(s.View().Mark); !errors.Is(err, storage.ErrDropped) && !errors.Is(err, storage.ErrOutOfRange) {
		t.Errorf("a batch that is not there: %v", err)
	}
}
