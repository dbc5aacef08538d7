// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// slowDisk is a disk on which each flush takes this long.
func slowDisk(flush time.Duration) (*faultfs.FS, *faultfs.Rule) {
	rule := &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) { time.Sleep(flush) }}
	return faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))), rule), rule
}

// publishers publish one record after another, each for itself, and return how long all of them took.
func publishers(t *testing.T, s *host.Shard, count, each int) time.Duration {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for p := range count {
		all.Go(func() {
			answered := make(chan struct{}, 1)
			a := hosttest.NewAnswers()
			a.Each = func(uint64) { answered <- struct{}{} }
			for i := range each {
				corr := uint64(p*each + i)
				if err := s.Submit(hosttest.Request(t, a, corr)); err != nil {
					t.Errorf("publisher %d, record %d: %v", p, i, err)
					return
				}
				<-answered
			}
			if len(a.Errs) > 0 {
				t.Errorf("publisher %d: %d records were refused", p, len(a.Errs))
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// GC-02: publishers that wait for one answer each share the flushes, and a metric says how many records one flush took.
// The bubble's time passes only while everybody waits, so the speed of the machine has no part in it.
func TestFanIn(t *testing.T) {
	for name, of := range map[string]struct{ publishers, each int }{"64 publishers": {64, 10}, "one after the other": {1, 64}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const flush = 20 * time.Millisecond
				fs, rule := slowDisk(flush)
				l := hosttest.Log(nil)
				r := hosttest.Start(t, fs, hosttest.NewPlane(l))
				s := r.Shard(l.ID, 0)
				before := rule.Seen()
				took := publishers(t, s, of.publishers, of.each)
				flushes := rule.Seen() - before
				if most := 2*of.each + 4; flushes > most || took > time.Duration(most)*flush {
					t.Errorf("%d publishers of %d records took %d flushes and %v, want at most %d", of.publishers, of.each, flushes, took, most)
				}
				if sum, n := histogram(t, r, "margay_flush_records"); sum != float64(of.publishers*of.each) || n > uint64(flushes) {
					t.Errorf("the metric says %v records in %d flushes, want %d in at most %d", sum, n, of.publishers*of.each, flushes)
				}
			})
		})
	}
}

// histogram is the sum and the number of what a metric has observed.
func histogram(t *testing.T, r *hosttest.Rig, name string) (sum float64, count uint64) {
	t.Helper()
	families, err := r.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum(), h.GetSampleCount()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0, 0
}

// GC-06: a publisher that is alone waits for its flush and for nothing else.
func TestALonelyPublisherWaitsForItsFlushOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flush, records = 5 * time.Millisecond, 1000
		fs, _ := slowDisk(flush)
		l := hosttest.Log(nil)
		r := hosttest.Start(t, fs, hosttest.NewPlane(l))
		s := r.Shard(l.ID, 0)
		publishers(t, s, 1, 1) // makes the file
		if took := publishers(t, s, 1, records); took != records*flush {
			t.Errorf("%d records one after the other took %v, want %v: their flushes", records, took, records*flush)
		}
	})
}

// GC-08: whatever hangs in one shard's directory (a flush, the next segment, its space), the other shards go on at their
// own pace, and none loses its leadership.
func TestAHangingFileHoldsUpItsShardOnly(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.Sync, faultfs.Create, faultfs.Preallocate, faultfs.WriteAt, faultfs.SyncDir} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hang(t, op) })
		})
	}
}

func hang(t *testing.T, op faultfs.Op) {
	t.Helper()
	const shards, each, flush, hangs = 16, 50, 5 * time.Millisecond, time.Hour
	fs, _ := slowDisk(flush)
	l := hosttest.Log(func(l *control.Log) { l.Shards, l.SegmentBytes = shards, 4<<10 })
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	// The same records without a fault tell what is the others' own pace.
	calm := roundOf(t, r, l.ID, 1, shards, each)
	stuck := r.Dir.ShardDir(l.ID, 0)
	rule := &faultfs.Rule{
		Ops: []faultfs.Op{op}, Path: func(p string) bool { return strings.HasPrefix(p, stuck) }, Max: 1,
		Hook: func(faultfs.Call) { time.Sleep(hangs) },
	}
	fs.Add(rule)
	slow := make(chan time.Duration, 1)
	go func() { slow <- roundOf(t, r, l.ID, 0, 1, each) }() // enough for segments to be closed
	synctest.Wait()
	if took := roundOf(t, r, l.ID, 1, shards, each); took > 2*calm {
		t.Errorf("beside a %s that hangs the others took %v, and %v without", op, took, calm)
	}
	if took := <-slow; took < hangs || rule.Seen() == 0 {
		t.Errorf("the shard whose %s hangs took %v: the test has not reached what it tests", op, took)
	}
	for n := range uint32(shards) {
		if v := r.Shard(l.ID, n).View(); v.Generation != 1 {
			t.Errorf("shard %d is led at generation %d", n, v.Generation)
		}
	}
}

// roundOf publishes to the shards from..to at the same time and returns how long that took.
func roundOf(t *testing.T, r *hosttest.Rig, id batch.LogID, from, to uint32, each int) time.Duration {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for n := from; n < to; n++ {
		s := r.Shard(id, n)
		all.Go(func() { publishers(t, s, 1, each) })
	}
	all.Wait()
	return time.Since(began)
}
