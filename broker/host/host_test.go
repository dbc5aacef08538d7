// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/shard"
	"margay.dev/router"
	"margay.dev/storage"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// GC-02: while a flush is under way all that comes is written behind it and shares the next one.
func TestGroupCommit(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(nil)
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	if err := s.Submit(hosttest.Request(t, a, 0)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the first answer", func() bool { return a.N.Load() == 1 })

	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	slow := &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}}
	fs.Add(slow)
	const n = 640
	if err := s.Submit(hosttest.Request(t, a, 1)); err != nil {
		t.Fatal(err)
	}
	<-entered // the disk is flushing the first
	for i := uint64(2); i <= n; i++ {
		if err := s.Submit(hosttest.Request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	hosttest.Eventually(t, "all answers", func() bool { return a.N.Load() == n+1 })
	if f := slow.Seen(); f > 3 {
		t.Errorf("%d publishes took %d flushes", n, f)
	}
	for i := range uint64(n) {
		if a.Acks[i].BaseOffset != i || !a.Acks[i].Flushed {
			t.Fatalf("publish %d: %+v, %v", i, a.Acks[i], a.Errs[i])
		}
	}
	for i, corr := range a.Order {
		if corr != uint64(i) {
			t.Fatalf("answers are out of order at %d: %d", i, corr)
		}
	}
}

// GC-08: a disk that is slow for one shard's file holds up no other shard.
func TestSlowShardDoesNotHoldUpOthers(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := hosttest.Log(func(l *control.Log) { l.Shards = 16 })
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	release := make(chan struct{})
	stuck := r.Dir.ShardDir(l.ID, 0)
	fs.Add(&faultfs.Rule{
		Ops: []faultfs.Op{faultfs.Sync}, Path: func(p string) bool { return strings.HasPrefix(p, stuck) },
		Hook: func(faultfs.Call) { <-release },
	})
	slow, a := hosttest.NewAnswers(), hosttest.NewAnswers()
	if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, slow, 0)); err != nil {
		t.Fatal(err)
	}
	for round := range uint64(20) {
		for n := uint32(1); n < 16; n++ {
			if err := r.Shard(l.ID, n).Submit(hosttest.Request(t, a, round*16+uint64(n))); err != nil {
				t.Fatal(err)
			}
		}
	}
	hosttest.Eventually(t, "the other shards' answers", func() bool { return a.N.Load() == 20*15 })
	if slow.N.Load() != 0 {
		t.Error("the stuck shard answered before its flush")
	}
	close(release)
	hosttest.Eventually(t, "the stuck shard's answer", func() bool { return slow.N.Load() == 1 })
}

// ST-11: after a failed flush its waiters are told unknown, the shard opens again at a higher generation,
// cut to what is known flushed, and no acknowledged record is missing, ever.
func TestFailedFlush(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	fs := faultfs.Wrap(mem)
	l := hosttest.Log(func(l *control.Log) { l.Shards = 2 })
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, fs, p)
	s := r.Shard(l.ID, 0)
	a, other := hosttest.NewAnswers(), hosttest.NewAnswers()
	for i := range uint64(10) {
		if err := s.Submit(hosttest.Request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Shard(l.ID, 1).Submit(hosttest.Request(t, other, 0)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the first answers", func() bool { return a.N.Load() == 10 && other.N.Load() == 1 })
	broken := r.Dir.ShardDir(l.ID, 0)
	fs.Add(&faultfs.Rule{
		Ops: []faultfs.Op{faultfs.Sync}, Path: func(p string) bool { return strings.HasPrefix(p, broken) },
		Err: syscall.EIO, Max: 1,
	})
	for i := uint64(10); i < 18; i++ {
		if err := s.Submit(hosttest.Request(t, a, i)); err != nil && !errors.Is(err, code.Opening) {
			t.Fatal(err)
		} else if err != nil {
			a.Answer(&host.Request{Correlation: i}, shard.Ack{}, err)
		}
	}
	hosttest.Eventually(t, "the answers after the failed flush", func() bool { return a.N.Load() == 18 })
	unknown := 0
	for i := uint64(10); i < 18; i++ {
		if e := a.Errs[i]; e != nil && e.Class == code.ClassUnknown {
			unknown++
		}
	}
	if unknown == 0 {
		t.Error("nobody was told that the outcome is unknown")
	}
	hosttest.Eventually(t, "the shard to be led again", func() bool {
		n, _ := r.Table.Load().Resolve(router.LogID(l.ID), 0).Shard.(*host.Shard)
		return n != nil && n != s && n.View().Generation > 1
	})
	// What nobody was told of is gone: it was read back from the page cache otherwise, which proves nothing.
	if got := len(hosttest.Records(t, r.Shard(l.ID, 0))); got != len(a.Acks) {
		t.Errorf("%d records stand after the reopening, %d were acknowledged", got, len(a.Acks))
	}
	if err := r.Shard(l.ID, 1).Submit(hosttest.Request(t, other, 1)); err != nil {
		t.Fatal(err)
	}
	s = r.Shard(l.ID, 0)
	if err := s.Submit(hosttest.Request(t, a, 100)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the answers after the reopening", func() bool { return a.N.Load() == 19 && other.N.Load() == 2 })
	r.Stop()
	r = hosttest.Start(t, mem.Crash(rand.New(rand.NewPCG(2, 2))), p) // a power cut on top
	checkAcked(t, r.Shard(l.ID, 0), a)
	checkAcked(t, r.Shard(l.ID, 1), other)
}

// checkAcked demands every acknowledged record at its offset, once, with its bytes (S2, S3).
func checkAcked(t *testing.T, s *host.Shard, a *hosttest.Answers) {
	t.Helper()
	got := hosttest.Records(t, s)
	seen := map[uint64]uint64{}
	for corr, ack := range a.Acks {
		if v := got[ack.BaseOffset]; v != string(hosttest.Value(corr)) {
			t.Errorf("publish %d was acknowledged at offset %d, which holds %.20q", corr, ack.BaseOffset, v)
		}
		if was, twice := seen[ack.BaseOffset]; twice {
			t.Errorf("offset %d was acknowledged to %d and to %d", ack.BaseOffset, was, corr)
		}
		seen[ack.BaseOffset] = corr
	}
}

// S2: a power cut at any moment loses nothing acknowledged.
func TestPowerCutAtAnyMoment(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			mem := memfs.New(rng)
			l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 4 << 10 })
			p := hosttest.NewPlane(l)
			a := hosttest.NewAnswers()
			var corr uint64
			for range 4 {
				// The power goes in the middle of the nth call that changes the disk: what is done then is
				// not on the disk that the next start finds, and nobody is answered after it.
				var crashed atomic.Pointer[memfs.FS]
				count, at := 0, 1+rng.IntN(120)
				crashRng := rand.New(rand.NewPCG(rng.Uint64(), 3))
				var mu sync.Mutex
				fs := faultfs.Wrap(mem, &faultfs.Rule{Hook: func(c faultfs.Call) {
					if !c.Op.Mutates() || c.Op == faultfs.Lock {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if count++; count == at {
						crashed.Store(mem.Crash(crashRng))
					}
				}})
				r := hosttest.Start(t, fs, p)
				s := r.Shard(l.ID, 0)
				now := hosttest.NewAnswers()
				now.Before = func() bool { return crashed.Load() == nil }
				for sent := int64(1); sent <= 60 && crashed.Load() == nil; sent++ {
					corr++
					if err := s.Submit(hosttest.Request(t, now, corr)); err != nil {
						t.Fatal(err)
					}
					if rng.IntN(3) > 0 { // alone or in company
						hosttest.Eventually(t, "an answer", func() bool { return now.N.Load() == sent })
					}
				}
				r.Stop()
				maps.Copy(a.Acks, now.Acks)
				if c := crashed.Load(); c != nil {
					mem = c
				} else {
					mem = mem.Crash(rng)
				}
			}
			r := hosttest.Start(t, mem, p)
			checkAcked(t, r.Shard(l.ID, 0), a)
			if len(a.Acks) < 10 {
				t.Errorf("only %d records were acknowledged: the test has not reached what it tests", len(a.Acks))
			}
		})
	}
}

// A log of fsync interval is flushed within it, though nothing more comes.
func TestFsyncInterval(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	var syncs atomic.Int64
	fs := faultfs.Wrap(mem, &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) { syncs.Add(1) }})
	l := hosttest.Log(func(l *control.Log) { l.Fsync, l.FsyncInterval = control.FsyncInterval, 20*time.Millisecond })
	r := hosttest.Start(t, fs, hosttest.NewPlane(l))
	a := hosttest.NewAnswers()
	for i := range uint64(3) {
		before := syncs.Load()
		if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, a, i)); err != nil {
			t.Fatal(err)
		}
		hosttest.Eventually(t, "an answer", func() bool { return a.N.Load() == int64(i)+1 })
		if i > 0 && a.Acks[i].Flushed {
			t.Error("the answer says flushed and did not wait for it")
		}
		if i > 0 { // the first was flushed with its opening
			hosttest.Eventually(t, "a flush", func() bool { return syncs.Load() > before })
		}
	}
}

// RT-04: a full disk refuses records with its own code and nothing half stored; reads go on; writes resume
// by themselves.
func TestFullDisk(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	mem.SetCapacity(512 << 10)
	l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 32 << 10 })
	r := hosttest.Start(t, mem, hosttest.NewPlane(l))
	s := r.Shard(l.ID, 0)
	a := hosttest.NewAnswers()
	var corr uint64
	for round := range 2 {
		full := func() bool {
			corr++
			if err := s.Submit(hosttest.Request(t, a, corr)); err != nil {
				t.Fatal(err)
			}
			n := corr
			var refused *code.Error
			hosttest.Eventually(t, "an answer", func() bool {
				a.Mu.Lock()
				defer a.Mu.Unlock()
				refused = a.Errs[n]
				_, ok := a.Acks[n]
				return ok || refused != nil
			})
			if refused != nil && !errors.Is(refused, code.StorageFull) {
				t.Fatalf("refused with %v", refused)
			}
			return refused != nil
		}
		for n := 0; !full(); n++ {
			if n > 5000 {
				t.Fatal("the disk never fills")
			}
		}
		if !r.Host.Report().DiskFull {
			t.Error("the report does not say that the disk is full")
		}
		checkAcked(t, s, a)
		mem.SetCapacity(int64(round+3) * 256 << 10)
		hosttest.Eventually(t, "writes to resume", func() bool { return !full() })
	}
	r.Stop()
	r = hosttest.Start(t, mem, r.Plane)
	checkAcked(t, r.Shard(l.ID, 0), a)
}

// RT-05: a node starts on a disk without a free byte and serves what it has.
func TestStartOnFullDisk(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(nil)
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, mem, p)
	a := hosttest.NewAnswers()
	for i := range uint64(50) {
		if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Eventually(t, "the answers", func() bool { return a.N.Load() == 50 })
	r.Stop()
	mem.SetCapacity(1)
	r = hosttest.Start(t, mem, p)
	s := r.Shard(l.ID, 0)
	checkAcked(t, s, a)
	if err := s.Submit(hosttest.Request(t, a, 50)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "a refusal", func() bool { return a.N.Load() == 51 })
	if !errors.Is(a.Errs[50], code.StorageFull) {
		t.Errorf("a publish to a full disk: %v", a.Errs[50])
	}
	mem.SetCapacity(1 << 30)
	hosttest.Eventually(t, "writes to resume", func() bool { return !r.Host.Report().DiskFull })
}

// PL-12: a log that is deleted is removed from disk on the catalog's word; one that the catalog does not
// know is kept and counted (S11).
func TestDeleteIsNotInferred(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l, m := hosttest.Log(nil), hosttest.Log(func(l *control.Log) { l.Name = "other" })
	p := hosttest.NewPlane(l, m)
	r := hosttest.Start(t, mem, p)
	a := hosttest.NewAnswers()
	for i, id := range []batch.LogID{l.ID, m.ID} {
		if err := r.Shard(id, 0).Submit(hosttest.Request(t, a, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Eventually(t, "two answers", func() bool { return a.N.Load() == 2 })
	gone := l
	gone.Deleted = true
	p.Set(gone) // and m is forgotten
	hosttest.Eventually(t, "the unknown directory to be counted", func() bool { return r.Host.Report().Unknown == 1 })
	var dirs []storage.ShardRef
	hosttest.Eventually(t, "the deleted log's directory to go", func() bool {
		var err error
		if dirs, err = r.Dir.List(); err != nil {
			t.Fatal(err)
		}
		return len(dirs) <= 1
	})
	if len(dirs) != 1 || dirs[0].Log != m.ID {
		t.Fatalf("on disk are %v, want the one that the catalog forgot", dirs)
	}
}

// A change of settings opens the shard again, at a higher generation, and loses nothing.
func TestSettingsChange(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(nil)
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, mem, p)
	a := hosttest.NewAnswers()
	if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, a, 1)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "an answer", func() bool { return a.N.Load() == 1 })
	l.MaxAge, l.Version = time.Hour, 2
	p.Set(l)
	hosttest.Eventually(t, "a higher generation", func() bool {
		s, _ := r.Table.Load().Resolve(router.LogID(l.ID), 0).Shard.(*host.Shard)
		return s != nil && s.View().Generation == 2
	})
	checkAcked(t, r.Shard(l.ID, 0), a)
}

// RT-01, RT-09: a quiet log expires, and its offsets go on where they were, also after a restart.
func TestQuietLogExpires(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := hosttest.Log(func(l *control.Log) { l.MaxAge = 200 * time.Millisecond })
	p := hosttest.NewPlane(l)
	r := hosttest.Start(t, mem, p)
	a := hosttest.NewAnswers()
	for i := range uint64(5) {
		if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Eventually(t, "the records to expire", func() bool { return r.Shard(l.ID, 0).View().Start.Offset == 5 })
	r.Stop()
	r = hosttest.Start(t, mem, p)
	if v := r.Shard(l.ID, 0).View(); v.Start.Offset != 5 || v.NextOffset != 5 {
		t.Fatalf("after the restart %+v", v)
	}
	if err := r.Shard(l.ID, 0).Submit(hosttest.Request(t, a, 9)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "an answer", func() bool { return a.N.Load() == 6 })
	if a.Acks[9].BaseOffset != 5 {
		t.Fatalf("the next record got offset %d, want 5", a.Acks[9].BaseOffset)
	}
}
