// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history"
	"margay.dev/cluster/history/cache"
	"margay.dev/cluster/process"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// scribe works on a few keys of a cache, and writes down what it did and what it was told.
type scribe struct {
	rec  *cache.Recorder
	k    *client.Cache
	name string
	rng  *rand.Rand
	n    *atomic.Int64 // of all values
	good *atomic.Int64 // operations that were acknowledged
	seen map[string]uint64
}

// one does one thing.
func (s *scribe) one(ctx context.Context) {
	key := string(rune('a' + s.rng.IntN(4)))
	a := cache.Attempt{Client: s.name, Key: key, NotBefore: time.Now().UnixMicro()}
	var r cache.Answer
	var err error
	switch s.rng.IntN(6) {
	case 0, 1:
		a.Op, a.Value = cache.Put, fmt.Sprint("v", s.n.Add(1))
		opts := []client.PutOption{}
		if s.rng.IntN(2) == 0 {
			v := s.seen[key]
			a.If = &v
			opts = append(opts, client.IfAbsent())
			if v != 0 {
				opts[0] = client.IfVersion(v)
			}
		}
		id := s.rec.Begin(a)
		r.Version, err = s.k.Put(ctx, key, []byte(a.Value), opts...)
		s.end(id, key, r, err)
	case 2:
		a.Op = cache.Delete
		id := s.rec.Begin(a)
		r.Version, err = s.k.Delete(ctx, key)
		s.end(id, key, r, err)
	case 3:
		a.Op, a.Key, a.Delta, a.KeepTTL = cache.Add, "n", int64(1+s.rng.IntN(5)), true
		id := s.rec.Begin(a)
		r.Sum, r.Version, err = s.k.Add(ctx, a.Key, a.Delta)
		s.end(id, a.Key, r, err)
	default:
		if a.Op = cache.Get; s.rng.IntN(3) == 0 {
			a.Key = "n"
		}
		id := s.rec.Begin(a)
		e, err := s.k.Get(ctx, a.Key)
		r.Version, r.Got = e.Version, string(e.Value)
		if errors.Is(err, client.ErrNotFound) {
			r, err = cache.Answer{}, nil
		}
		s.end(id, a.Key, r, err)
	}
}

func (s *scribe) end(id cache.ID, key string, r cache.Answer, err error) {
	r.Outcome, r.NotAfter = history.Acked, time.Now().UnixMicro()
	if e := client.AsError(err); e != nil {
		r.Outcome = map[code.Class]history.Outcome{code.ClassRefused: history.Refused, code.ClassFatal: history.Fatal}[e.Class]
		if have, _, ok := client.CurrentVersion(err); ok {
			r.Have = &have
			s.seen[key] = have
		}
	} else {
		s.good.Add(1)
		s.seen[key] = r.Version
	}
	s.rec.End(id, r)
}

// C1, S10: over kills of the node, what clients were told of each key fits an order in which it happened one at a time, and
// a watch that goes on by itself comes to what the cache holds.
func TestCachesOverKills(t *testing.T) {
	t.Parallel()
	kills := 3
	if !testing.Short() {
		kills = 12
	}
	p := process.Start(t, process.Config{})
	cc := p.Context()
	spec := control.CacheSpec{Name: "k", SegmentBytes: new(int64(killSegmentBytes))}
	if _, err := p.Control().CreateCache(within(t), cc.Tenant, cc.Namespace, spec); err != nil {
		t.Fatal(err)
	}
	var (
		rec     cache.Recorder
		n, good atomic.Int64
		stop    atomic.Bool
		wg      sync.WaitGroup
	)
	ctx := within(t)
	w := followCache(t, p.Connect().Cache("k"), &rec)
	for i := range 8 {
		s := &scribe{rec: &rec, k: p.Connect().Cache("k"), name: fmt.Sprint("client ", i), rng: rand.New(rand.NewPCG(5, uint64(i))), n: &n, good: &good, seen: map[string]uint64{}}
		wg.Go(func() {
			for !stop.Load() {
				s.one(ctx)
			}
		})
	}
	more := func(what string) {
		goal := good.Load() + 150
		eventually(t, what, func() bool { return good.Load() >= goal })
	}
	for i := range kills {
		more("operations before an end")
		if i%3 == 2 {
			p.Stop()
		} else {
			p.Kill()
		}
		p.Start()
	}
	more("operations after the last start")
	stop.Store(true)
	wg.Wait()
	w.settle(p.Connect())
	for _, v := range rec.Check() {
		t.Error(v)
	}
	if c := rec.Counts(); c[cache.Put] == 0 || c[cache.Add] == 0 || c[cache.Get] == 0 {
		t.Errorf("a history without substance proves nothing: %v", c)
	}
}

// follower folds what a watch of a whole cache is told.
type follower struct {
	t   *testing.T
	log *cache.Watcher
	rec *cache.Recorder

	mu   sync.Mutex
	fold map[string]client.Entry
}

func followCache(t *testing.T, k *client.Cache, rec *cache.Recorder) *follower {
	t.Helper()
	f := &follower{t: t, rec: rec, log: rec.Watch("watch", func(string) bool { return true }), fold: map[string]client.Entry{}}
	f.log.Begin(0, true, nil)
	w, err := k.Watch(within(t), client.WithSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait(); w.Close() })
	done.Go(func() {
		snapshot := true
		for ch, err := range w.Changes(ctx) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			snapshot = f.take(ch, snapshot)
		}
	})
	return f
}

func (f *follower) take(ch client.Change, snapshot bool) (still bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := cache.Change{Version: ch.Entry.Version, Key: ch.Entry.Key, Kind: cache.Value, Value: string(ch.Entry.Value)}
	switch ch.Kind {
	case client.SnapshotComplete:
		f.log.Complete(0)
		return false
	case client.Reset:
		clear(f.fold)
		f.log.Begin(0, true, nil)
		return true
	case client.Put:
		f.fold[x.Key] = ch.Entry
	case client.Deleted:
		x.Kind = cache.Deleted
		delete(f.fold, x.Key)
	case client.Expired:
		x.Kind = cache.Expired
		delete(f.fold, x.Key)
	}
	if snapshot {
		f.log.Entry(x)
	} else {
		f.log.Change(x)
	}
	return snapshot
}

// settle waits until the watch comes to what the cache, at rest, holds.
func (f *follower) settle(c *client.Client) {
	f.t.Helper()
	ctx := within(f.t)
	o, err := c.Offsets(ctx, "k")
	if err != nil {
		f.t.Fatal(err)
	}
	s := cache.Store{AsOf: o[0].Latest, Match: func(string) bool { return true }}
	for e, err := range c.Cache("k").List(ctx) {
		if err != nil {
			f.t.Fatal(err)
		}
		s.Entries = append(s.Entries, cache.Change{Version: e.Version, Key: e.Key, Kind: cache.Value, Value: string(e.Value)})
	}
	eventually(f.t, "the watch to come to what the cache holds", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range s.Entries {
			if f.fold[e.Key].Version != e.Version {
				return false
			}
		}
		return len(f.fold) == len(s.Entries)
	})
	f.rec.Store(s)
	f.log.Upto(0, s.AsOf)
}
