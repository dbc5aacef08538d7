// SPDX-License-Identifier: Apache-2.0

// Package caches_test holds what clients of caches are promised to a whole node, over QUIC and over TLS.
package caches_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"margay.dev/client"
	"margay.dev/cluster/history"
	"margay.dev/cluster/history/cache"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/router/hash"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t testing.TB) context.Context {
	t.Helper()
	return await.Within(t)
}

// clock is a node's wall clock, which stands still until a test moves it.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Now().UnixMicro())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(d.Microseconds()) }
func (c *clock) node() margaytest.Option {
	return margaytest.With(func(cfg *node.Config) { cfg.Wall = c.now })
}

// create makes a cache.
func create(t testing.TB, n *margaytest.Node, spec control.CacheSpec) {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.CreateCache(within(t), cc.Tenant, cc.Namespace, spec); err != nil {
		t.Fatal(err)
	}
}

// small is a cache whose segments are so small that they are reclaimed all the time.
func small(shards int) control.CacheSpec {
	return control.CacheSpec{Name: "c", Shards: &shards, SegmentBytes: new(int64(4 << 10))}
}

// book is a cache whose operations are written down.
type book struct {
	t      testing.TB
	shards int
	rec    *cache.Recorder
	unique *atomic.Int64
	clk    *clock // nil for the machine's
}

func newBook(t testing.TB, shards int, clk *clock) *book {
	return &book{t: t, shards: shards, rec: &cache.Recorder{}, unique: &atomic.Int64{}, clk: clk}
}

func (b *book) now() int64 {
	if b.clk != nil {
		return b.clk.now().UnixMicro()
	}
	return time.Now().UnixMicro()
}

func (b *book) shard(key string) uint32 { return hash.Shard([]byte(key), b.shards) }

// value is one that no other put has.
func (b *book) value() string { return fmt.Sprintf("v%d", b.unique.Add(1)) }

func (b *book) begin(who string, a cache.Attempt) cache.ID {
	a.Client, a.NotBefore = who, b.now()
	return b.rec.Begin(a)
}

func (b *book) end(id cache.ID, key string, err error, a cache.Answer) {
	a.Shard, a.NotAfter = b.shard(key), b.now()
	a.Outcome = history.Acked
	if e := client.AsError(err); e != nil {
		a.Outcome = history.Unknown
		switch e.Class {
		case code.ClassRefused:
			a.Outcome = history.Refused
		case code.ClassFatal:
			a.Outcome = history.Fatal
		default:
		}
		if have, _, ok := client.CurrentVersion(err); ok {
			a.Have = &have
		}
	}
	b.rec.End(id, a)
}

// put puts a value; the version is the condition, nil for none.
func (b *book) put(ctx context.Context, who string, k *client.Cache, key string, ttl time.Duration, version *uint64) (uint64, error) {
	v := b.value()
	var opts []client.PutOption
	if ttl > 0 {
		opts = append(opts, client.TTL(ttl))
	}
	if version != nil {
		opts = append(opts, condition(*version))
	}
	id := b.begin(who, cache.Attempt{Op: cache.Put, Key: key, Value: v, If: version, TTL: ttl})
	got, err := k.Put(ctx, key, []byte(v), opts...)
	b.end(id, key, err, cache.Answer{Version: got})
	return got, err
}

func condition(version uint64) client.Condition {
	if version == 0 {
		return client.IfAbsent()
	}
	return client.IfVersion(version)
}

func (b *book) del(ctx context.Context, who string, k *client.Cache, key string) (uint64, error) {
	id := b.begin(who, cache.Attempt{Op: cache.Delete, Key: key})
	got, err := k.Delete(ctx, key)
	b.end(id, key, err, cache.Answer{Version: got})
	return got, err
}

func (b *book) add(ctx context.Context, who string, k *client.Cache, key string, delta int64) (int64, error) {
	id := b.begin(who, cache.Attempt{Op: cache.Add, Key: key, Delta: delta, KeepTTL: true})
	sum, got, err := k.Add(ctx, key, delta)
	b.end(id, key, err, cache.Answer{Version: got, Sum: sum})
	return sum, err
}

func (b *book) get(ctx context.Context, who string, k *client.Cache, key string) (client.Entry, error) {
	id := b.begin(who, cache.Attempt{Op: cache.Get, Key: key})
	e, err := k.Get(ctx, key)
	a := cache.Answer{Version: e.Version, Got: string(e.Value), Expires: expires(e)}
	if errors.Is(err, client.ErrNotFound) {
		b.end(id, key, nil, cache.Answer{})
		return e, err
	}
	b.end(id, key, err, a)
	return e, err
}

func expires(e client.Entry) *int64 {
	var at int64
	if !e.Expires.IsZero() {
		at = e.Expires.UnixMicro()
	}
	return &at
}

// check judges what was written down.
func (b *book) check() {
	b.t.Helper()
	found := b.rec.Check()
	for i, v := range found {
		if i == 10 {
			b.t.Errorf("and %d more", len(found)-i)
			return
		}
		b.t.Error(v)
	}
}

// written says whether what happens to a key is written down: fillers only make reclaim have something to do.
func written(key string) bool { return !strings.HasPrefix(key, "filler/") }

// store writes down what the cache holds, which must be at rest.
func (b *book) store(c *client.Client) []cache.Store {
	b.t.Helper()
	ctx := within(b.t)
	offsets, err := c.Offsets(ctx, "c")
	if err != nil {
		b.t.Fatal(err)
	}
	stores := make([]cache.Store, b.shards)
	for i := range stores {
		stores[i] = cache.Store{Shard: uint32(i), AsOf: offsets[i].Latest, Match: written, NotAfter: b.now()}
	}
	for e, err := range c.Cache("c").List(ctx) {
		if err != nil {
			b.t.Fatal(err)
		}
		if s := &stores[b.shard(e.Key)]; s.Match(e.Key) {
			s.Entries = append(s.Entries, b.change(e))
		}
	}
	for _, s := range stores {
		b.rec.Store(s)
	}
	return stores
}

func (b *book) change(e client.Entry) cache.Change {
	return cache.Change{
		Shard: b.shard(e.Key), Version: e.Version, Key: e.Key, Kind: cache.Value, Value: string(e.Value), Expires: expires(e), NotAfter: b.now(),
	}
}

// watcher is a watch that is written down.
type watcher struct {
	b     *book
	match func(key string) bool
	w     *client.Watch
	log   *cache.Watcher
	done  sync.WaitGroup
	stop  context.CancelFunc

	mu        sync.Mutex
	snapshot  bool // it is being told one
	fold      map[string]client.Entry
	seen      []client.Change
	completes int
	resets    int
	err       error
}

func all(string) bool { return true }

func under(prefix string) func(string) bool {
	return func(key string) bool { return strings.HasPrefix(key, prefix) }
}

// watch begins a watch and follows it until the test ends.
func (b *book) watch(name string, k *client.Cache, match func(string) bool, snapshot bool, opts ...client.WatchOption) *watcher {
	b.t.Helper()
	x := &watcher{b: b, match: match, log: b.rec.Watch(name, match), snapshot: snapshot, fold: map[string]client.Entry{}}
	x.begin()
	if snapshot {
		opts = append(opts, client.WithSnapshot())
	}
	w, err := k.Watch(within(b.t), opts...)
	if err != nil {
		b.t.Errorf("%s: %v", name, err)
		return x
	}
	for s := range b.shards {
		x.log.Ready(uint32(s))
	}
	x.w = w
	ctx, cancel := context.WithCancel(context.Background())
	x.stop = cancel
	x.done.Go(func() { x.follow(ctx) })
	b.t.Cleanup(x.close)
	return x
}

func (x *watcher) begin() {
	for s := range x.b.shards {
		x.log.Begin(uint32(s), x.snapshot, nil)
	}
}

func (x *watcher) close() {
	if x.stop != nil {
		x.stop()
		x.done.Wait()
		x.w.Close()
	}
}

func (x *watcher) follow(ctx context.Context) {
	for ch, err := range x.w.Changes(ctx) {
		if ctx.Err() != nil {
			return
		}
		x.mu.Lock()
		if err != nil {
			x.err = err
			x.mu.Unlock()
			return
		}
		x.take(&ch)
		x.mu.Unlock()
	}
}

func (x *watcher) take(ch *client.Change) {
	kinds := map[client.ChangeKind]cache.ChangeKind{client.Put: cache.Value, client.Deleted: cache.Deleted, client.Expired: cache.Expired}
	x.seen = append(x.seen, *ch)
	if !written(ch.Entry.Key) {
		return
	}
	switch ch.Kind {
	case client.SnapshotComplete:
		x.snapshot = false
		x.completes++
		for s := range x.b.shards {
			x.log.Complete(uint32(s))
		}
		return
	case client.Reset:
		x.snapshot = true
		x.resets++
		clear(x.fold)
		x.begin()
		for s := range x.b.shards {
			x.log.Ready(uint32(s))
		}
		return
	case client.Put:
		x.fold[ch.Entry.Key] = ch.Entry
	default:
		delete(x.fold, ch.Entry.Key)
	}
	c := x.b.change(ch.Entry)
	c.Kind, c.Skipped = kinds[ch.Kind], uint64(ch.Skipped)
	if c.Kind != cache.Value {
		c.Expires = nil
	}
	if x.snapshot {
		x.log.Entry(c)
		return
	}
	x.log.Change(c)
}

// equals says whether the watcher comes to what the stores have of its keys.
func (x *watcher) equals(stores []cache.Store) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.snapshot {
		return false
	}
	n := 0
	for _, s := range stores {
		for _, e := range s.Entries {
			if !x.match(e.Key) {
				continue
			}
			n++
			if x.fold[e.Key].Version != e.Version {
				return false
			}
		}
	}
	return n == len(x.fold)
}

// has waits until a change has come.
func (x *watcher) has(what string, cond func(ch client.Change) bool) client.Change {
	x.b.t.Helper()
	var found client.Change
	await.True(x.b.t, what, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, ch := range x.seen {
			if cond(ch) {
				found = ch
				return true
			}
		}
		return false
	})
	return found
}

// told counts changes of a key.
func (x *watcher) told(kind client.ChangeKind, key string) (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, ch := range x.seen {
		if ch.Kind == kind && ch.Entry.Key == key {
			n++
		}
	}
	return n
}

// marks counts complete snapshots, and new beginnings.
func (x *watcher) marks() (completes, resets int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.completes, x.resets
}

// settle waits until every watcher comes to what the cache holds, which must be at rest, and judges all of it.
func (b *book) settle(c *client.Client, watchers ...*watcher) {
	b.t.Helper()
	stores := b.store(c)
	for i, x := range watchers {
		await.True(b.t, fmt.Sprintf("watcher %d to come to what the cache holds", i), func() bool { return x.equals(stores) })
		for _, s := range stores {
			x.log.Upto(s.Shard, s.AsOf)
		}
		x.mu.Lock()
		if x.err != nil {
			b.t.Errorf("watcher %d: %v", i, x.err)
		}
		x.mu.Unlock()
	}
	b.check()
}
