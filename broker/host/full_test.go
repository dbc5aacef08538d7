// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// RT-06: a disk that fills up and is emptied again and again leaves no file behind that is not a segment or its
// index, keeps retention going, and loses nothing that was acknowledged and is to be kept.
func TestFullDiskAgainAndAgain(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	capacity := int64(1 << 20)
	mem.SetCapacity(capacity)
	limited := hosttest.Log(func(l *control.Log) { l.SegmentBytes, l.MaxBytes = 16<<10, 128<<10 })
	grows := hosttest.Log(func(l *control.Log) { l.Name, l.SegmentBytes = "grows", 16<<10 })
	r := hosttest.Start(t, mem, hosttest.NewPlane(limited, grows))
	kept, grown := hosttest.NewAnswers(), hosttest.NewAnswers()
	var corr uint64
	for cycle := range 10 {
		full := false
		for n := 0; !full; n++ {
			corr++
			if err := putBatch(t, r.Shard(grows.ID, 0), grown, corr, 20); err != nil {
				if full = errors.Is(err, code.StorageFull); !full {
					t.Fatal(err)
				}
			}
			if n > 20_000 {
				t.Fatal("the disk never fills")
			}
			if err := putBatch(t, r.Shard(limited.ID, 0), kept, corr, 20); err != nil && !errors.Is(err, code.StorageFull) {
				t.Fatal(err)
			}
		}
		capacity += 256 << 10
		mem.SetCapacity(capacity)
		hosttest.Eventually(t, "writing to resume", func() bool {
			corr++
			return putBatch(t, r.Shard(limited.ID, 0), kept, corr, 20) == nil
		})
		for _, s := range []*control.Log{&limited, &grows} {
			segments := 0
			for _, name := range segmentsOf(t, r, r.Shard(s.ID, 0)) {
				if strings.HasSuffix(name, ".seg") {
					segments++
				} else if !strings.HasSuffix(name, ".idx") {
					t.Errorf("cycle %d: %s is neither a segment nor an index", cycle, name)
				}
			}
			if s == &limited && segments > 16 {
				t.Errorf("cycle %d: %d segments in a log of 128 KiB: retention has stopped", cycle, segments)
			}
		}
	}
	if r.Shard(limited.ID, 0).View().Start.Offset == 0 {
		t.Error("retention has taken nothing: the test has not reached it")
	}
	r.Stop()
	r = hosttest.Start(t, mem, r.Plane)
	checkAcked(t, r.Shard(grows.ID, 0), grown)
	begin := r.Shard(limited.ID, 0).View().Start.Offset
	for c, ack := range kept.Acks { // those that retention has left
		if ack.BaseOffset < begin {
			delete(kept.Acks, c)
		}
	}
	checkAcked(t, r.Shard(limited.ID, 0), kept)
}
