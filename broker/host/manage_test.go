// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"math/rand/v2"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/router"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/control"
)

// turns counts the turns of the host's loop: each lists the shards' directories. A loop that spins is stopped, since
// the bubble's time would never pass.
func turns(r *hosttest.Rig, fs *faultfs.FS) *atomic.Int64 {
	const many = 1000
	n := &atomic.Int64{}
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.List}, Hook: func(faultfs.Call) {
		if n.Add(1) > many {
			r.Cancel()
		}
	}})
	return n
}

// What waits to be opened again and is not wanted any more, or turns out to be damaged, keeps no loop busy.
func TestNothingIsRetriedForEver(t *testing.T) {
	inDir := func(r *hosttest.Rig, l *control.Log) func(string) bool {
		dir := r.Dir.ShardDir(l.ID, 0)
		return func(name string) bool { return strings.HasPrefix(name, dir) }
	}
	for name, happens := range map[string]func(t *testing.T, r *hosttest.Rig, mem *memfs.FS, fs *faultfs.FS, l control.Log){
		"deleted": func(t *testing.T, r *hosttest.Rig, _ *memfs.FS, fs *faultfs.FS, l control.Log) {
			t.Helper()
			refused := &faultfs.Rule{Ops: []faultfs.Op{faultfs.OpenFile}, Path: inDir(r, &l), Err: syscall.EIO}
			fs.Add(refused)
			l.MaxAge = time.Hour
			r.Plane.Set(l) // closed, and not to be opened
			hosttest.Eventually(t, "an opening that fails", func() bool { return refused.Seen() > 0 && r.Open(l.ID, 0) == nil })
			l.Deleted = true
			r.Plane.Set(l)
		},
		"damaged": func(t *testing.T, r *hosttest.Rig, mem *memfs.FS, fs *faultfs.FS, l control.Log) {
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
			if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, hosttest.NewAnswers(), 9)); err != nil { // its flush fails
				t.Fatal(err)
			}
			hosttest.Eventually(t, "the quarantine", func() bool { return len(r.Host.Report().Quarantined) == 1 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
				fs := faultfs.Wrap(mem)
				l := hosttest.Log(nil)
				r := hosttest.Start(t, fs, hosttest.NewPlane(l))
				n, a := turns(r, fs), hosttest.NewAnswers()
				for i := range uint64(5) {
					if err := put(t, r.Shard(l.ID, 0), a, i); err != nil {
						t.Fatal(err)
					}
				}
				happens(t, r, mem, fs, l)
				time.Sleep(time.Minute) // in which nothing happens
				if got := n.Load(); got > 100 {
					t.Errorf("the host took %d turns in a minute of rest", got)
				}
				r.Stop()
			})
		})
	}
}

// An idle shard sleeps, whatever its settings: one in memory has nothing to flush, also with an interval to do it in.
func TestIdleMemoryShardSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hosttest.Log(func(l *control.Log) {
			l.Storage, l.Fsync, l.FsyncInterval = control.StorageMemory, control.FsyncInterval, 100*time.Millisecond
		})
		var asked atomic.Int64 // for the time, by every step
		r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l), func(c *host.Config) {
			c.Wall = func() time.Time { asked.Add(1); return time.Now() }
		})
		a := hosttest.NewAnswers()
		if err := put(t, r.Shard(l.ID, 0), a, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := asked.Load()
		time.Sleep(time.Minute)
		if n := asked.Load() - before; n > 200 { // a look at retention every 10 s asks a few times
			t.Errorf("an idle shard asked for the time %d times in a minute", n)
		}
		r.Stop()
	})
}

// A change of settings is no restart: a stream in memory keeps its records, its offsets and its start.
func TestSettingsChangeKeepsMemory(t *testing.T) {
	l := hosttest.Log(func(l *control.Log) { l.Storage = control.StorageMemory })
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), p)
	a := hosttest.NewAnswers()
	for i := range uint64(10) {
		if err := put(t, r.Shard(l.ID, 0), a, i); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := r.Shard(l.ID, 0).Trim(hosttest.Within(t), 4); err != nil || got != 4 {
		t.Fatalf("trimmed to %d, %v", got, err)
	}
	for i := range uint64(4) {
		delete(a.Acks, i)
	}
	for n := range uint64(3) {
		s := r.Shard(l.ID, 0)
		l.MaxAge += time.Hour
		p.Set(l)
		hosttest.Eventually(t, "the next opening", func() bool { now := r.Open(l.ID, 0); return now != nil && now != s })
		s = r.Shard(l.ID, 0)
		if v := s.View(); v.Start.Offset != 4 || v.NextOffset != 10+n {
			t.Fatalf("after change %d: %+v", n+1, v)
		}
		checkAcked(t, s, a)
		if err := put(t, s, a, 10+n); err != nil {
			t.Fatal(err)
		}
		if ack := a.Acks[10+n]; ack.BaseOffset != 10+n || ack.Generation != n+2 {
			t.Fatalf("the record behind change %d: %+v", n+1, ack)
		}
	}
	checkAcked(t, r.Shard(l.ID, 0), a)
}

// GC-08: a shard that hangs in its flush while its log's settings change holds up neither its neighbors' opening
// nor another log's.
func TestStuckShardDoesNotHoldUpTheCatalog(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(func(l *control.Log) { l.Shards = 8 })
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, fs, p)
	a, stuck := hosttest.NewAnswers(), hosttest.NewAnswers()
	for n := range uint32(8) {
		if err := put(t, r.Shard(l.ID, n), a, uint64(n)); err != nil {
			t.Fatal(err)
		}
	}
	entered, release := make(chan struct{}, 100), make(chan struct{})
	free := func() { close(release) }
	defer func() { free() }()
	dir := r.Dir.ShardDir(l.ID, 0)
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: func(n string) bool { return strings.HasPrefix(n, dir) }, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}})
	if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, stuck, 100)); err != nil {
		t.Fatal(err)
	}
	<-entered
	l.MaxAge = time.Hour
	p.Set(l)
	for n := uint32(1); n < 8; n++ {
		hosttest.Eventually(t, "the neighbors to be opened again", func() bool { s := r.Open(l.ID, n); return s != nil && s.View().Generation == 2 })
	}
	other := hosttest.Log(func(l *control.Log) { l.Name = "another" })
	p.Set(l, other)
	if err := put(t, r.Shard(other.ID, 0), a, 200); err != nil {
		t.Fatal(err)
	}
	if stuck.N.Load() != 0 {
		t.Error("the stuck shard answered before its flush")
	}
	close(release)
	free = func() {}
	hosttest.Eventually(t, "the stuck shard to be opened again", func() bool { s := r.Open(l.ID, 0); return s != nil && s.View().Generation == 2 })
	hosttest.Eventually(t, "its answer", func() bool { return stuck.N.Load() == 1 })
	checkAcked(t, r.Shard(l.ID, 0), stuck)
}

// ST-11: a flush that fails while a shard is closed for its settings is a failed flush: the shard comes back cut to
// what is known flushed, not with what the page cache shows.
func TestFailedFlushOfAClosingShard(t *testing.T) {
	const shards = 16
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(func(l *control.Log) { l.Shards, l.Fsync = shards, control.FsyncNever })
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, fs, p)
	a := hosttest.NewAnswers()
	for n := range uint32(shards) {
		for i := range uint64(3) { // the first is flushed with the opening, the others are not
			if err := put(t, r.Shard(l.ID, n), a, uint64(n)*10+i); err != nil {
				t.Fatal(err)
			}
		}
	}
	failing := &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Path: func(n string) bool { return strings.HasSuffix(n, ".seg") }, Err: syscall.EIO, Max: shards}
	fs.Add(failing)
	l.MaxAge = time.Hour
	p.Set(l)
	for n := range uint32(shards) {
		hosttest.Eventually(t, "a shard to be opened again", func() bool { s := r.Open(l.ID, n); return s != nil && s.View().Generation > 1 })
		if got := len(hosttest.Records(t, r.Shard(l.ID, n))); got != 1 {
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
	l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 8 << 10 })
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	if err := put(t, s, a, 0); err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}, 100), make(chan struct{})
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Max: 1, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}})
	if err := s.Submit(hosttest.Request(t, a, 1)); err != nil {
		t.Fatal(err)
	}
	<-entered // the next round will hold all that comes now
	fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Create}, Path: func(n string) bool { return strings.HasSuffix(n, ".seg") }, Err: syscall.EIO})
	const n = 60
	for i := uint64(2); i < n; i++ {
		if err := s.Submit(hosttest.Request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	hosttest.Eventually(t, "an answer to everybody", func() bool { return a.N.Load() == n })
	if len(a.Acks) <= 2 || len(a.Errs) == 0 {
		t.Fatalf("%d are acknowledged, %d refused: the test has not reached what it tests", len(a.Acks), len(a.Errs))
	}
	for corr, ack := range a.Acks {
		if !ack.Flushed || !ack.Committed {
			t.Errorf("publish %d is acknowledged with %+v", corr, ack)
		}
	}
	if got := len(hosttest.Records(t, s)); got != len(a.Acks) {
		t.Errorf("%d records are seen, %d are acknowledged", got, len(a.Acks))
	}
	fs.Clear()
	if err := put(t, s, a, 1000); err != nil {
		t.Fatal(err)
	}
	if again := a.Acks[1000]; again.BaseOffset != uint64(len(a.Acks)-1) {
		t.Errorf("the next record has offset %d behind %d records", again.BaseOffset, len(a.Acks)-1)
	}
	checkAcked(t, s, a)
}

// A shard whose files were removed while the node was down is not a new one: its offsets would be given again.
func TestShardWhoseFilesAreGoneStaysClosed(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(nil)
	other := hosttest.Log(func(l *control.Log) { l.Name = "other" })
	r := hosttest.Start(t, mem, hosttest.NewPlane(l, other))
	a := hosttest.NewAnswers()
	if err := put(t, r.Shard(l.ID, 0), a, 0); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	dir := path.Join("/data/shards", l.ID.String(), "0")
	names, err := mem.List(dir)
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, n := range names {
		if err := mem.Remove(path.Join(dir, n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, gone := range []string{"its files", "its directory"} {
		r = hosttest.Start(t, mem, r.Plane)
		hosttest.Eventually(t, "the shard to be called damaged without "+gone, func() bool {
			return r.Table.Load().Resolve(router.LogID(l.ID), 0).Reason == router.Quarantined
		})
		if s := r.Shard(other.ID, 0); s.View().NextOffset != 0 {
			t.Errorf("a shard that never held records: %+v", s.View())
		}
		r.Stop()
		_ = mem.Remove(dir)
	}
}

// A shard whose very first write failed holds nothing, and is a new one to the next start, not one that has lost its files.
func TestShardWhoseFirstWriteFailedIsNew(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(nil)
	fs := faultfs.Wrap(mem, &faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Path: func(n string) bool { return strings.HasSuffix(n, ".seg") }, Err: syscall.EIO, Max: 1})
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	if err := put(t, r.Shard(l.ID, 0), hosttest.NewAnswers(), 0); err == nil {
		t.Fatal("the write was to fail")
	}
	r.Stop()
	r = hosttest.Start(t, mem, r.Plane)
	if err := put(t, r.Shard(l.ID, 0), hosttest.NewAnswers(), 1); err != nil {
		t.Error(err)
	}
}
