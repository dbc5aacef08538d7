// SPDX-License-Identifier: Apache-2.0

package caches_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/history/cache"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// CA-06: what is absent can be created, whether it was deleted, has expired, or never was, also over a restart and after
// reclaim; of two that create at once, one does.
func TestCreateIfAbsent(t *testing.T) {
	clk := newClock()
	n := margaytest.Start(t, clk.node())
	create(t, n, small(1))
	k := n.Connect().Cache("c")
	b := newBook(t, 1, clk)
	ctx := within(t)
	absent := new(uint64(0))
	must := func(_ uint64, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	refused := func(_ uint64, err error) {
		t.Helper()
		if !errors.Is(err, client.ErrConflict) {
			t.Errorf("created over what is there: %v", err)
		}
	}
	for round := range 3 {
		must(b.put(ctx, "w", k, "deleted", 0, absent))
		refused(b.put(ctx, "w", k, "deleted", 0, absent))
		must(b.del(ctx, "w", k, "deleted"))
		must(b.put(ctx, "w", k, "expired", time.Second, absent))
		refused(b.put(ctx, "w", k, "expired", time.Second, absent))
		clk.advance(time.Second)
		switch round {
		case 1:
			n.Restart()
		case 2:
			overwrite(t, k, 300)
			reclaimed(t, n.Connect(), 0, 20)
			n.Restart()
		}
		must(b.put(ctx, "w", k, "deleted", 0, absent))
		must(b.put(ctx, "w", k, "expired", 0, absent))
		refused(b.put(ctx, "w", k, "expired", 0, absent))
		must(b.del(ctx, "w", k, "deleted"))
		must(b.del(ctx, "w", k, "expired"))
	}
	other := n.Connect().Cache("c")
	for i := range 100 {
		var won atomic.Int32
		var wg sync.WaitGroup
		for _, x := range []*client.Cache{k, other} {
			wg.Go(func() {
				switch _, err := b.put(ctx, "pair", x, fmt.Sprint("pair ", i), 0, absent); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, client.ErrConflict):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("pair %d: %d have created", i, won.Load())
		}
	}
	b.settle(n.Connect())
}

// CA-07: of fifty that compare and set on one version, one wins each round; a counter that is kept so counts every win, and
// Add counts every call. Gets see each of them, or none.
func TestCompareAndSet(t *testing.T) {
	const writers = 50
	rounds := 12
	if !testing.Short() {
		rounds = 200
	}
	n := margaytest.Start(t)
	create(t, n, small(3))
	b := newBook(t, 3, nil)
	var caches []*client.Cache
	for range 5 {
		caches = append(caches, n.Connect().Cache("c"))
	}
	ctx := within(t)
	var version uint64
	for round := range rounds {
		if round == rounds/2 {
			n.Restart()
		}
		var won, unknown atomic.Int32
		var next atomic.Uint64
		var wg sync.WaitGroup
		for w := range writers {
			k, who, seen := caches[w%len(caches)], fmt.Sprint("writer ", w), version
			wg.Go(func() {
				v, err := b.put(ctx, who, k, "counter", 0, &seen)
				switch {
				case err == nil:
					won.Add(1)
					next.Store(v)
				case !errors.Is(err, client.ErrConflict):
					unknown.Add(1)
				}
				if w%10 == 0 {
					if _, err := b.add(ctx, who, k, "sum", 1); err != nil {
						unknown.Add(1)
					}
					_, _ = b.get(ctx, who, k, "sum")
				}
				_, _ = b.get(ctx, who, k, "counter")
			})
		}
		wg.Wait()
		if won.Load() > 1 || won.Load() == 0 && unknown.Load() == 0 {
			t.Errorf("round %d: %d have won", round, won.Load())
		}
		if version = next.Load(); won.Load() == 0 {
			e, err := b.get(ctx, "reader", caches[0], "counter")
			if err != nil {
				t.Fatal(err)
			}
			version = e.Version
		}
	}
	b.settle(n.Connect())
	if b.rec.Counts()[cache.Add] < rounds*writers/10/2 {
		t.Errorf("a history without substance proves nothing: %v", b.rec.Counts())
	}
}

// CA-08: an empty value is a value; only a delete deletes, and a key is not empty.
func TestEmptyValues(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, small(1))
	c := n.Connect()
	k := c.Cache("c")
	ctx := within(t)
	b := newBook(t, 1, nil)
	w := b.watch("w", k, written, true)
	want := map[string][]byte{"empty": {}, "nil": {}, "zero": {0}}
	versions := map[string]uint64{}
	for key, value := range map[string][]byte{"empty": {}, "nil": nil, "zero": {0}} {
		v, err := k.Put(ctx, key, value)
		if err != nil {
			t.Fatal(err)
		}
		versions[key] = v
		if _, err := k.Put(ctx, key, value, client.IfAbsent()); !errors.Is(err, client.ErrConflict) {
			t.Errorf("%s is taken for absent: %v", key, err)
		}
	}
	if _, err := k.Put(ctx, "", []byte("x")); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("an empty key: %v", err)
	}
	look := func(when string) {
		t.Helper()
		listed := map[string]bool{}
		for e, err := range k.List(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			listed[e.Key] = true
		}
		many, err := k.GetMany(ctx, "empty", "nil", "zero", "none")
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range want {
			e, err := k.Get(ctx, key)
			if err != nil || e.Value == nil || !bytes.Equal(e.Value, value) || e.Version != versions[key] {
				t.Errorf("%s: %s is %v at version %d, %v", when, key, e.Value, e.Version, err)
			}
			if m, ok := many[key]; !ok || !bytes.Equal(m.Value, value) || !listed[key] {
				t.Errorf("%s: %s is %v among many, %v; listed %v", when, key, m.Value, ok, listed[key])
			}
		}
		if _, ok := many["none"]; ok {
			t.Errorf("%s: what was never put is there", when)
		}
	}
	look("at first")
	n.Restart()
	look("after a restart")
	overwrite(t, k, 300)
	reclaimed(t, c, 0, 20)
	look("after reclaim")
	n.Restart()
	look("after reclaim and a restart")
	late := b.watch("late", k, written, true)
	for _, x := range []*watcher{w, late} {
		for key := range want {
			ch := x.has("a put of "+key, func(ch client.Change) bool { return ch.Kind == client.Put && ch.Entry.Key == key })
			if ch.Entry.Value == nil || !bytes.Equal(ch.Entry.Value, want[key]) {
				t.Errorf("told that %s is %v", key, ch.Entry.Value)
			}
		}
	}
	for key := range want {
		if _, err := k.Put(ctx, key, nil, client.IfVersion(versions[key])); err != nil {
			t.Errorf("%s on its version: %v", key, err)
		}
		if _, err := k.Delete(ctx, key); err != nil {
			t.Error(err)
		}
		if _, err := k.Get(ctx, key); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s is deleted, and there: %v", key, err)
		}
		w.has("the deletion of "+key, isDelete(key))
	}
}

// The largest value that can be put comes back on every path: alone, with others, in a list, as history, live.
func TestTheLargestValues(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.CacheSpec{Name: "c"})
	k := n.Connect().Cache("c")
	ctx := within(t)
	live, err := k.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	value := bytes.Repeat([]byte("v"), batch.MaxRecord-1024)
	for _, key := range []string{"a", "b"} {
		if _, err := k.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	same := func(what string, e client.Entry) {
		t.Helper()
		if !bytes.Equal(e.Value, value) {
			t.Errorf("%s: %s has %d bytes of %d", what, e.Key, len(e.Value), len(value))
		}
	}
	e, err := k.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	same("get", e)
	many, err := k.GetMany(ctx, "a", "none", "b")
	if err != nil || len(many) != 2 {
		t.Fatalf("%d entries, %v", len(many), err)
	}
	same("get many", many["b"])
	for e, err := range k.List(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		same("list", e)
	}
	history, err := k.Watch(ctx, client.FromVersion(0))
	if err != nil {
		t.Fatal(err)
	}
	defer history.Close()
	for what, w := range map[string]*client.Watch{"live": live, "history": history} {
		for _, want := range []string{"a", "b"} {
			for ch, err := range w.Changes(ctx) {
				if err != nil || ch.Entry.Key != want {
					t.Fatalf("%s: %q, %v; want %s", what, ch.Entry.Key, err, want)
				}
				same(what, ch.Entry)
				break
			}
		}
	}
}
