// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/broker/host"
	"margay.dev/router"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// open returns a shard if it is open now.
func (r *rig) open(id batch.LogID, n uint32) *host.Shard {
	s, _ := r.table.Load().Resolve(router.LogID(id), n).Shard.(*host.Shard)
	return s
}

// turns counts the turns of the host's loop: each lists the shards' directories. A loop that spins is stopped, since
// the bubble's time would never pass.
func turns(r *rig, fs *faultfs.FS) *atomic.Int64 {
	const many = 1000
	n := &atomic.Int64{}
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.List}, Hook: func(faultfs.Call) {
		if n.Add(1) > many {
			r.cancel()
		}
	}})
	return n
}

// What waits to be opened again and is not wanted any more, or turns out to be damaged, keeps no loop busy.
func TestNothingIsRetriedForEver(t *testing.T) {
	inDir := func(r *rig, l *control.Log) func(string) bool {
		dir := r.dir.ShardDir(l.ID, 0)
		return func(name string) bool { return strings.HasPrefix(name, dir) }
	}
	for name, happens := range map[string]func(t *testing.T, r *rig, mem *memfs.FS, fs *faultfs.FS, l control.Log){
		"deleted": func(t *testing.T, r *rig, _ *memfs.FS, fs *faultfs.FS, l control.Log) {
			t.Helper()
			refused := &faultfs.Rule{Ops: []faultfs.Op{faultfs.OpenFile}, Path: inDir(r, &l), Err: syscall.EIO}
			fs.Add(refused)
			l.MaxAge = time.Hour
			r.plane.set(l) // closed, and not to be opened
			eventually(t, "an opening that fails", func() bool { return refused.Seen() > 0 && r.open(l.ID, 0) == nil })
			l.Deleted = true
			r.plane.set(l)
		},
		"damaged": func(t *testing.T, r *rig, mem *memfs.FS, fs *faultfs.FS, l control.Log) {
			t.Helper()
			fs.Add(
				&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: inDir(r, &l), Err: syscall.EIO, Max: 1},
				&faultfs.Rule{Ops: []faultfs.Op{faultfs.OpenFile}, Path: inDir(r, &l), Max: 1, Hook: func(c faultfs.Call) {
					f, err := mem.OpenFile(c.Name)
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { _ = f.Close() }()
					if _, err := f.WriteAt([]byte{1, 2, 3, 4, 5}, 700); err != nil { // in what was flushed
						t.Error(err)
					}
				}})
			if err := r.shard(l.ID, 0).Submit(request(t, newAnswers(), 9)); err != nil { // its flush fails
				t.Fatal(err)
			}
			eventually(t, "the quarantine", func() bool { return len(r.host.Report().Quarantined) == 1 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
				fs := faultfs.Wrap(mem)
				l := aLog(nil)
				r := start(t, fs, newPlane(l))
				n, a := turns(r, fs), newAnswers()
				for i := range uint64(5) {
					if err := put(t, r.shard(l.ID, 0), a, i); err != nil {
						t.Fatal(err)
					}
				}
				happens(t, r, mem, fs, l)
				time.Sleep(time.Minute) // in which nothing happens
				if got := n.Load(); got > 100 {
					t.Errorf("the host took %d turns in a minute of rest", got)
				}
				r.stop()
			})
		})
	}
}

// An idle shard sleeps, whatever its settings: one in memory has nothing to flush, also with an interval to do it in.
func TestIdleMemoryShardSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := aLog(func(l *control.Log) {
			l.Storage, l.Fsync, l.FsyncInterval = control.StorageMemory, control.FsyncInterval, 100*time.Millisecond
		})
		var asked atomic.Int64 // for the time, by every step
		r := start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), newPlane(l), func(c *host.Config) {
			c.Wall = func() time.Time { asked.Add(1); return time.Now() }
		})
		a := newAnswers()
		if err := put(t, r.shard(l.ID, 0), a, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := asked.Load()
		time.Sleep(time.Minute)
		if n := asked.Load() - before; n > 200 { // a look at retention every 10 s asks a few times
			t.Errorf("an idle shard asked for the time %d times in a minute", n)
		}
		r.stop()
	})
}

// A change of settings is no restart: a stream in memory keeps its records, its offsets and its start.
func TestSettingsChangeKeepsMemory(t *testing.T) {
	l := aLog(func(l *control.Log) { l.Storage = control.StorageMemory })
	p := newPlane(l)
	r := start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), p)
	a := newAnswers()
	for i := range uint64(10) {
		if err := put(t, r.shard(l.ID, 0), a, i); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.shard(l.ID, 0).Trim(within(t), 4); err != nil || got != 4 {
		t.Fatalf("trimmed to %d, %v", got, err)
	}
	for i := range uint64(4) {
		delete(a.acks, i)
	}
	for n := range uint64(3) {
		s := r.shard(l.ID, 0)
		l.MaxAge += time.Hour
		p.set(l)
		eventually(t, "the next opening", func() bool { now := r.open(l.ID, 0); return now != nil && now != s })
		s = r.shard(l.ID, 0)
		if v := s.View(); v.Start.Offset != 4 || v.NextOffset != 10+n {
			t.Fatalf("after change %d: %+v", n+1, v)
		}
		checkAcked(t, s, a)
		if err := put(t, s, a, 10+n); err != nil {
			t.Fatal(err)
		}
		if ack := a.acks[10+n]; ack.BaseOffset != 10+n || ack.Generation != n+2 {
			t.Fatalf("the record behind change %d: %+v", n+1, ack)
		}
	}
	checkAcked(t, r.shard(l.ID, 0), a)
}

// GC-08: a shard that hangs in its flush while its log's settings change holds up neither its neighbors' opening
// nor another log's.
func TestStuckShardDoesNotHoldUpTheCatalog(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := aLog(func(l *control.Log) { l.Shards = 8 })
	p := newPlane(l)
	r := start(t, fs, p)
	a, stuck := newAnswers(), newAnswers()
	for n := range uint32(8) {
		if err := put(t, r.shard(l.ID, n), a, uint64(n)); err != nil {
			t.Fatal(err)
		}
	}
	entered, release := make(chan struct{}, 100), make(chan struct{})
	free := func() { close(release) }
	defer func() { free() }()
	dir := r.dir.ShardDir(l.ID, 0)
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: func(n string) bool { return strings.HasPrefix(n, dir) }, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}})
	if err := r.shard(l.ID, 0).Submit(request(t, stuck, 100)); err != nil {
		t.Fatal(err)
	}
	<-entered
	l.MaxAge = time.Hour
	p.set(l)
	for n := uint32(1); n < 8; n++ {
		eventually(t, "the neighbors to be opened again", func() bool { s := r.open(l.ID, n); return s != nil && s.View().Generation == 2 })
	}
	other := aLog(func(l *control.Log) { l.Name = "another" })
	p.set(l, other)
	if err := put(t, r.shard(other.ID, 0), a, 200); err != nil {
		t.Fatal(err)
	}
	if stuck.n.Load() != 0 {
		t.Error("the stuck shard answered before its flush")
	}
	close(release)
	free = func() {}
	eventually(t, "the stuck shard to be opened again", func() bool { s := r.open(l.ID, 0); return s != nil && s.View().Generation == 2 })
	eventually(t, "its answer", func() bool { return stuck.n.Load() == 1 })
	checkAcked(t, r.shard(l.ID, 0), stuck)
}

// ST-11: a flush that fails while a shard is closed for its settings is a failed flush: the shard comes back cut to
// what is known flushed, not with what the page cache shows.
func TestFailedFlushOfAClosingShard(t *testing.T) {
	const shards = 16
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := aLog(func(l *control.Log) { l.Shards, l.Fsync = shards, control.FsyncNever })
	p := newPlane(l)
	r := start(t, fs, p)
	a := newAnswers()
	for n := range uint32(shards) {
		for i := range uint64(3) { // the first is flushed with the opening, the others are not
			if err := put(t, r.shard(l.ID, n), a, uint64(n)*10+i); err != nil {
				t.Fatal(err)
			}
		}
	}
	failing := &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: func(n string) bool { return strings.HasSuffix(n, ".seg") }, Err: syscall.EIO, Max: shards}
	fs.Add(failing)
	l.MaxAge = time.Hour
	p.set(l)
	for n := range uint32(shards) {
		eventually(t, "a shard to be opened again", func() bool { s := r.open(l.ID, n); return s != nil && s.View().Generation > 1 })
		if got := len(records(t, r.shard(l.ID, n))); got != 1 {
			t.Errorf("shard %d shows %d records after its closing flush failed, one was flushed", n, got)
		}
	}
	if failing.Seen() < shards {
		t.Errorf("%d flushes of %d shards: the test has not reached what it tests", failing.Seen(), shards)
	}
}

// A round that comes to a new segment which cannot be made answers everybody: what stands before it is flushed and
// acknowledged, what was to go into it is refused and leaves no trace.
func TestFailedRollAnswersEverybody(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := aLog(func(l *control.Log) { l.SegmentBytes = 8 << 10 })
	r := start(t, fs, newPlane(l))
	s := r.shard(l.ID, 0)
	a := newAnswers()
	if err := put(t, s, a, 0); err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}, 100), make(chan struct{})
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Max: 1, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}})
	if err := s.Submit(request(t, a, 1)); err != nil {
		t.Fatal(err)
	}
	<-entered // the next round will hold all that comes now
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Create}, Path: func(n string) bool { return strings.HasSuffix(n, ".seg") }, Err: syscall.EIO})
	const n = 60
	for i := uint64(2); i < n; i++ {
		if err := s.Submit(request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	eventually(t, "an answer to everybody", func() bool { return a.n.Load() == n })
	if len(a.acks) <= 2 || len(a.errs) == 0 {
		t.Fatalf("%d are acknowledged, %d refused: the test has not reached what it tests", len(a.acks), len(a.errs))
	}
	for corr, ack := range a.acks {
		if !ack.Flushed || !ack.Committed {
			t.Errorf("publish %d is acknowledged with %+v", corr, ack)
		}
	}
	if got := len(records(t, s)); got != len(a.acks) {
		t.Errorf("%d records are seen, %d are acknowledged", got, len(a.acks))
	}
	fs.Clear()
	if err := put(t, s, a, 1000); err != nil {
		t.Fatal(err)
	}
	if again := a.acks[1000]; again.BaseOffset != uint64(len(a.acks)-1) {
		t.Errorf("the next record has offset %d behind %d records", again.BaseOffset, len(a.acks)-1)
	}
	checkAcked(t, s, a)
}
