// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/router"
	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

const patience = 20 * time.Second // that a condition is waited for; no test passes by it

// plane is a control plane in memory: one node, generations that only rise.
type plane struct {
	mu      sync.Mutex
	snap    control.Snapshot
	changed chan struct{}
	gens    map[control.ShardRef]uint64
}

func newPlane(logs ...control.Log) *plane {
	p := &plane{changed: make(chan struct{}), gens: map[control.ShardRef]uint64{}}
	p.set(logs...)
	return p
}

func (p *plane) set(logs ...control.Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snap.Version++
	p.snap.Logs = logs
	p.snap.Nodes = []control.Node{{ID: "n1", Address: "127.0.0.1:1"}}
	p.snap.Assignments = nil
	for _, l := range logs {
		for i := range l.Shards {
			if !l.Deleted {
				p.snap.Assignments = append(p.snap.Assignments, control.Assignment{Log: l.ID, Shard: uint32(i), Leader: "n1"})
			}
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *plane) Watch(ctx context.Context, after uint64) (control.Snapshot, error) {
	for {
		p.mu.Lock()
		s, changed := p.snap, p.changed
		p.mu.Unlock()
		if s.Version > after {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return control.Snapshot{}, ctx.Err()
		}
	}
}

func (p *plane) Lead(_ context.Context, node string, refs []control.ShardRef) ([]control.Assignment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []control.Assignment
	for _, r := range refs {
		p.gens[r]++
		out = append(out, control.Assignment{Log: r.Log, Shard: r.Shard, Leader: node, Generation: p.gens[r]})
	}
	return out, nil
}

func (p *plane) Forget(context.Context, ...batch.LogID) error { return nil }

// rig is a host over a file system.
type rig struct {
	t        *testing.T
	plane    *plane
	table    *router.Table
	host     *host.Host
	registry *prometheus.Registry
	stop     func()
	cancel   func() // begins the stop and does not wait
	dir      *storage.Dir
	fs       vfs.FS
}

func start(t *testing.T, fs vfs.FS, p *plane, edits ...func(*host.Config)) *rig {
	t.Helper()
	dir, err := storage.OpenDir(fs, "/data", storage.Identity{Node: "n1", Cluster: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, plane: p, table: router.NewTable("n1"), registry: prometheus.NewRegistry(), dir: dir, fs: fs}
	ready := make(chan struct{})
	cfg := host.Config{
		Node: "n1", FS: fs, Dir: dir, ControlPlane: p, Table: r.table, Registerer: r.registry, Reserve: 64 << 10,
		Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)), OnReady: func() { close(ready) },
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	r.host = host.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.host.Run(ctx) }()
	r.cancel = cancel
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("host: %v", err)
			}
			if err := dir.Close(); err != nil {
				t.Errorf("close directory: %v", err)
			}
		})
	}
	t.Cleanup(r.stop)
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the host was not ready in time")
	}
	return r
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

func (r *rig) shard(id batch.LogID, n uint32) *host.Shard {
	r.t.Helper()
	var s *host.Shard
	eventually(r.t, "the shard to be open", func() bool {
		s, _ = r.table.Load().Resolve(router.LogID(id), n).Shard.(*host.Shard)
		return s != nil
	})
	return s
}

// answers collects what a lane is told.
type answers struct {
	mu    sync.Mutex
	acks  map[uint64]shard.Ack
	errs  map[uint64]*code.Error
	order []uint64
	n     atomic.Int64
	// before, when set, says whether what is acknowledged now still counts: the power has not gone yet.
	before func() bool
}

func newAnswers() *answers {
	return &answers{acks: map[uint64]shard.Ack{}, errs: map[uint64]*code.Error{}}
}

func (a *answers) Answer(r *host.Request, ack shard.Ack, err *code.Error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.errs[r.Correlation] = err
	} else if a.before == nil || a.before() {
		a.acks[r.Correlation] = ack
		a.order = append(a.order, r.Correlation)
	}
	a.n.Add(1)
	return true
}

func (a *answers) Flush() {}

func value(corr uint64) []byte { return fmt.Appendf(nil, "value-%06d-%0100d", corr, corr) }

func request(t *testing.T, a *answers, corr uint64, values ...[]byte) *host.Request {
	t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	if len(values) == 0 {
		values = [][]byte{value(corr)}
	}
	for _, v := range values {
		if err := bl.Add(batch.Record{Value: v, Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	buf := append(make([]byte, wire.PublishHead), b...)
	r := &host.Request{Buffer: buf, Head: wire.PublishHead, Correlation: corr, Lane: a}
	r.Publish = shard.Publish{Batch: batch.Batch(buf[wire.PublishHead:]), To: r}
	return r
}

// records reads all that the shard's readers may see: offset to value.
func records(t *testing.T, s *host.Shard) map[uint64]string {
	t.Helper()
	out := map[uint64]string{}
	seq := s.View().Start.Sequence
	for seq < s.Hub().Sequence() {
		chunk, err := s.Read(seq, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for len(chunk) > 0 {
			b, err := batch.CheckStored(chunk)
			if err != nil {
				t.Fatal(err)
			}
			chunk = chunk[b.Size():]
			seq = b.Sequence() + 1
			if b.IsControl() {
				continue
			}
			it := b.Records()
			for {
				var rec batch.Record
				ok, err := it.Next(&rec)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				out[it.Offset()] = string(rec.Value)
			}
		}
	}
	return out
}

func aLog(edit func(*control.Log)) control.Log {
	l := control.Log{ID: batch.NewLogID(), Name: "orders"}
	l.SetDefaults()
	if edit != nil {
		edit(&l)
	}
	return l
}

// GC-02: while a flush is under way all that comes is written behind it and shares the next one.
func TestGroupCommit(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := aLog(nil)
	r := start(t, fs, newPlane(l))
	s := r.shard(l.ID, 0)
	a := newAnswers()
	if err := s.Submit(request(t, a, 0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first answer", func() bool { return a.n.Load() == 1 })

	release := make(chan struct{})
	entered := make(chan struct{}, 100)
	slow := &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) {
		entered <- struct{}{}
		<-release
	}}
	fs.Add(slow)
	const n = 640
	if err := s.Submit(request(t, a, 1)); err != nil {
		t.Fatal(err)
	}
	<-entered // the disk is flushing the first
	for i := uint64(2); i <= n; i++ {
		if err := s.Submit(request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	eventually(t, "all answers", func() bool { return a.n.Load() == n+1 })
	if f := slow.Seen(); f > 3 {
		t.Errorf("%d publishes took %d flushes", n, f)
	}
	for i := range uint64(n) {
		if a.acks[i].BaseOffset != i || !a.acks[i].Flushed {
			t.Fatalf("publish %d: %+v, %v", i, a.acks[i], a.errs[i])
		}
	}
	for i, corr := range a.order {
		if corr != uint64(i) {
			t.Fatalf("answers are out of order at %d: %d", i, corr)
		}
	}
}

// GC-08: a disk that is slow for one shard's file holds up no other shard.
func TestSlowShardDoesNotHoldUpOthers(t *testing.T) {
	fs := faultfs.Wrap(memfs.New(rand.New(rand.NewPCG(1, 1))))
	l := aLog(func(l *control.Log) { l.Shards = 16 })
	r := start(t, fs, newPlane(l))
	release := make(chan struct{})
	stuck := r.dir.ShardDir(l.ID, 0)
	fs.Add(&faultfs.Rule{
		Ops: []faultfs.Op{faultfs.Sync}, Path: func(p string) bool { return strings.HasPrefix(p, stuck) },
		Hook: func(faultfs.Call) { <-release },
	})
	slow, a := newAnswers(), newAnswers()
	if err := r.shard(l.ID, 0).Submit(request(t, slow, 0)); err != nil {
		t.Fatal(err)
	}
	for round := range uint64(20) {
		for n := uint32(1); n < 16; n++ {
			if err := r.shard(l.ID, n).Submit(request(t, a, round*16+uint64(n))); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "the other shards' answers", func() bool { return a.n.Load() == 20*15 })
	if slow.n.Load() != 0 {
		t.Error("the stuck shard answered before its flush")
	}
	close(release)
	eventually(t, "the stuck shard's answer", func() bool { return slow.n.Load() == 1 })
}

// ST-11: after a failed flush its waiters are told unknown, the shard opens again at a higher generation,
// cut to what is known flushed, and no acknowledged record is missing, ever.
func TestFailedFlush(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	fs := faultfs.Wrap(mem)
	l := aLog(func(l *control.Log) { l.Shards = 2 })
	p := newPlane(l)
	r := start(t, fs, p)
	s := r.shard(l.ID, 0)
	a, other := newAnswers(), newAnswers()
	for i := range uint64(10) {
		if err := s.Submit(request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.shard(l.ID, 1).Submit(request(t, other, 0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first answers", func() bool { return a.n.Load() == 10 && other.n.Load() == 1 })
	broken := r.dir.ShardDir(l.ID, 0)
	fs.Add(&faultfs.Rule{
		Ops: []faultfs.Op{faultfs.Sync}, Path: func(p string) bool { return strings.HasPrefix(p, broken) },
		Err: syscall.EIO, Max: 1,
	})
	for i := uint64(10); i < 18; i++ {
		if err := s.Submit(request(t, a, i)); err != nil && !errors.Is(err, code.Opening) {
			t.Fatal(err)
		} else if err != nil {
			a.Answer(&host.Request{Correlation: i}, shard.Ack{}, err)
		}
	}
	eventually(t, "the answers after the failed flush", func() bool { return a.n.Load() == 18 })
	unknown := 0
	for i := uint64(10); i < 18; i++ {
		if e := a.errs[i]; e != nil && e.Class == code.ClassUnknown {
			unknown++
		}
	}
	if unknown == 0 {
		t.Error("nobody was told that the outcome is unknown")
	}
	eventually(t, "the shard to be led again", func() bool {
		n, _ := r.table.Load().Resolve(router.LogID(l.ID), 0).Shard.(*host.Shard)
		return n != nil && n != s && n.View().Generation > 1
	})
	// What nobody was told of is gone: it was read back from the page cache otherwise, which proves nothing.
	if got := len(records(t, r.shard(l.ID, 0))); got != len(a.acks) {
		t.Errorf("%d records stand after the reopening, %d were acknowledged", got, len(a.acks))
	}
	if err := r.shard(l.ID, 1).Submit(request(t, other, 1)); err != nil {
		t.Fatal(err)
	}
	s = r.shard(l.ID, 0)
	if err := s.Submit(request(t, a, 100)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answers after the reopening", func() bool { return a.n.Load() == 19 && other.n.Load() == 2 })
	r.stop()
	r = start(t, mem.Crash(rand.New(rand.NewPCG(2, 2))), p) // a power cut on top
	checkAcked(t, r.shard(l.ID, 0), a)
	checkAcked(t, r.shard(l.ID, 1), other)
}

// checkAcked demands every acknowledged record at its offset, once, with its bytes (S2, S3).
func checkAcked(t *testing.T, s *host.Shard, a *answers) {
	t.Helper()
	got := records(t, s)
	seen := map[uint64]uint64{}
	for corr, ack := range a.acks {
		if v := got[ack.BaseOffset]; v != string(value(corr)) {
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
			l := aLog(func(l *control.Log) { l.SegmentBytes = 4 << 10 })
			p := newPlane(l)
			a := newAnswers()
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
				r := start(t, fs, p)
				s := r.shard(l.ID, 0)
				now := newAnswers()
				now.before = func() bool { return crashed.Load() == nil }
				for sent := int64(1); sent <= 60 && crashed.Load() == nil; sent++ {
					corr++
					if err := s.Submit(request(t, now, corr)); err != nil {
						t.Fatal(err)
					}
					if rng.IntN(3) > 0 { // alone or in company
						eventually(t, "an answer", func() bool { return now.n.Load() == sent })
					}
				}
				r.stop()
				maps.Copy(a.acks, now.acks)
				if c := crashed.Load(); c != nil {
					mem = c
				} else {
					mem = mem.Crash(rng)
				}
			}
			r := start(t, mem, p)
			checkAcked(t, r.shard(l.ID, 0), a)
			if len(a.acks) < 10 {
				t.Errorf("only %d records were acknowledged: the test has not reached what it tests", len(a.acks))
			}
		})
	}
}

// A log of fsync interval is flushed within it, though nothing more comes.
func TestFsyncInterval(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	var syncs atomic.Int64
	fs := faultfs.Wrap(mem, &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Hook: func(faultfs.Call) { syncs.Add(1) }})
	l := aLog(func(l *control.Log) { l.Fsync, l.FsyncInterval = control.FsyncInterval, 20*time.Millisecond })
	r := start(t, fs, newPlane(l))
	a := newAnswers()
	for i := range uint64(3) {
		before := syncs.Load()
		if err := r.shard(l.ID, 0).Submit(request(t, a, i)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "an answer", func() bool { return a.n.Load() == int64(i)+1 })
		if i > 0 && a.acks[i].Flushed {
			t.Error("the answer says flushed and did not wait for it")
		}
		if i > 0 { // the first was flushed with its opening
			eventually(t, "a flush", func() bool { return syncs.Load() > before })
		}
	}
}

// RT-04: a full disk refuses records with its own code and nothing half stored; reads go on; writes resume
// by themselves.
func TestFullDisk(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	mem.SetCapacity(512 << 10)
	l := aLog(func(l *control.Log) { l.SegmentBytes = 32 << 10 })
	r := start(t, mem, newPlane(l))
	s := r.shard(l.ID, 0)
	a := newAnswers()
	var corr uint64
	for round := range 2 {
		full := func() bool {
			corr++
			if err := s.Submit(request(t, a, corr)); err != nil {
				t.Fatal(err)
			}
			n := corr
			var refused *code.Error
			eventually(t, "an answer", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				refused = a.errs[n]
				_, ok := a.acks[n]
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
		if !r.host.Report().DiskFull {
			t.Error("the report does not say that the disk is full")
		}
		checkAcked(t, s, a)
		mem.SetCapacity(int64(round+3) * 256 << 10)
		eventually(t, "writes to resume", func() bool { return !full() })
	}
	r.stop()
	r = start(t, mem, r.plane)
	checkAcked(t, r.shard(l.ID, 0), a)
}

// RT-05: a node starts on a disk without a free byte and serves what it has.
func TestStartOnFullDisk(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := aLog(nil)
	p := newPlane(l)
	r := start(t, mem, p)
	a := newAnswers()
	for i := range uint64(50) {
		if err := r.shard(l.ID, 0).Submit(request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the answers", func() bool { return a.n.Load() == 50 })
	r.stop()
	mem.SetCapacity(1)
	r = start(t, mem, p)
	s := r.shard(l.ID, 0)
	checkAcked(t, s, a)
	if err := s.Submit(request(t, a, 50)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a refusal", func() bool { return a.n.Load() == 51 })
	if !errors.Is(a.errs[50], code.StorageFull) {
		t.Errorf("a publish to a full disk: %v", a.errs[50])
	}
	mem.SetCapacity(1 << 30)
	eventually(t, "writes to resume", func() bool { return !r.host.Report().DiskFull })
}

// PL-12: a log that is deleted is removed from disk on the catalog's word; one that the catalog does not
// know is kept and counted (S11).
func TestDeleteIsNotInferred(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l, m := aLog(nil), aLog(func(l *control.Log) { l.Name = "other" })
	p := newPlane(l, m)
	r := start(t, mem, p)
	a := newAnswers()
	for i, id := range []batch.LogID{l.ID, m.ID} {
		if err := r.shard(id, 0).Submit(request(t, a, uint64(i))); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "two answers", func() bool { return a.n.Load() == 2 })
	gone := l
	gone.Deleted = true
	p.set(gone) // and m is forgotten
	eventually(t, "the unknown directory to be counted", func() bool { return r.host.Report().Unknown == 1 })
	dirs, err := r.dir.List()
	if err != nil || len(dirs) != 1 || dirs[0].Log != m.ID {
		t.Fatalf("on disk are %v, %v", dirs, err)
	}
}

// A change of settings opens the shard again, at a higher generation, and loses nothing.
func TestSettingsChange(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := aLog(nil)
	p := newPlane(l)
	r := start(t, mem, p)
	a := newAnswers()
	if err := r.shard(l.ID, 0).Submit(request(t, a, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer", func() bool { return a.n.Load() == 1 })
	l.MaxAge, l.Version = time.Hour, 2
	p.set(l)
	eventually(t, "a higher generation", func() bool {
		s, _ := r.table.Load().Resolve(router.LogID(l.ID), 0).Shard.(*host.Shard)
		return s != nil && s.View().Generation == 2
	})
	checkAcked(t, r.shard(l.ID, 0), a)
}

// RT-01, RT-09: a quiet log expires, and its offsets go on where they were, also after a restart.
func TestQuietLogExpires(t *testing.T) {
	mem := memfs.New(rand.New(rand.NewPCG(1, 1)))
	l := aLog(func(l *control.Log) { l.MaxAge = 200 * time.Millisecond })
	p := newPlane(l)
	r := start(t, mem, p)
	a := newAnswers()
	for i := range uint64(5) {
		if err := r.shard(l.ID, 0).Submit(request(t, a, i)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the records to expire", func() bool { return r.shard(l.ID, 0).View().Start.Offset == 5 })
	r.stop()
	r = start(t, mem, p)
	if v := r.shard(l.ID, 0).View(); v.Start.Offset != 5 || v.NextOffset != 5 {
		t.Fatalf("after the restart %+v", v)
	}
	if err := r.shard(l.ID, 0).Submit(request(t, a, 9)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer", func() bool { return a.n.Load() == 6 })
	if a.acks[9].BaseOffset != 5 {
		t.Fatalf("the next record got offset %d, want 5", a.acks[9].BaseOffset)
	}
}
