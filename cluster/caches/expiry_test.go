// SPDX-License-Identifier: Apache-2.0

package caches_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

var massKeys = flag.Int("mass-keys", 5000, "keys of the test of mass expiry")

// tick lets a shard look at the clock, which stands still but for what a test does to it.
func tick(t *testing.T, k *client.Cache) {
	t.Helper()
	if _, err := k.Put(within(t), "filler/tick", nil); err != nil {
		t.Fatal(err)
	}
}

func isDelete(key string) func(client.Change) bool {
	return func(ch client.Change) bool { return ch.Kind == client.Deleted && ch.Entry.Key == key }
}

func isExpiry(key string) func(client.Change) bool {
	return func(ch client.Change) bool { return ch.Kind == client.Expired && ch.Entry.Key == key }
}

func wantGone(t *testing.T, b *book, k *client.Cache, key string) {
	t.Helper()
	if e, err := b.get(within(t), "reader", k, key); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("%s has version %d, %v; it is to be gone", key, e.Version, err)
	}
}

func wantThere(t *testing.T, b *book, k *client.Cache, key string) client.Entry {
	t.Helper()
	e, err := b.get(within(t), "reader", k, key)
	if err != nil {
		t.Errorf("%s is to be there: %v", key, err)
	}
	return e
}

// CA-01: each key whose time ends is told to have expired, once, whether the time was its own or the cache's; one that is
// overwritten before is not, and one that is deleted is deleted.
func TestExpiryIsTold(t *testing.T) {
	clk := newClock()
	n := margaytest.Start(t, clk.node())
	spec := small(1)
	spec.TTL = new(control.Duration(3 * time.Second))
	create(t, n, spec)
	c := n.Connect()
	k := c.Cache("c")
	b := newBook(t, 1, clk)
	w := b.watch("w", k, all, true)
	ctx := within(t)
	put := func(key string, ttl time.Duration, opts ...client.PutOption) {
		t.Helper()
		if _, err := k.Put(ctx, key, []byte(b.value()), append(opts, client.TTL(ttl))...); err != nil {
			t.Fatal(err)
		}
	}
	put("own", 2*time.Second)
	if _, err := k.Put(ctx, "default", []byte("x")); err != nil {
		t.Fatal(err)
	}
	put("deleted", 2*time.Second)
	put("overwritten", 2*time.Second)
	put("kept", 2*time.Second)
	if _, err := k.Delete(ctx, "deleted"); err != nil {
		t.Fatal(err)
	}
	put("overwritten", 20*time.Second)
	if _, err := k.Put(ctx, "kept", []byte("for ever"), client.NoTTL()); err != nil {
		t.Fatal(err)
	}
	clk.advance(2 * time.Second)
	tick(t, k)
	w.has("the expiry of a time of its own", isExpiry("own"))
	if w.told(client.Expired, "default") > 0 {
		t.Error("the cache's time was over a second early")
	}
	clk.advance(time.Second)
	tick(t, k)
	w.has("the expiry of the cache's time", isExpiry("default"))
	w.has("the deletion", isDelete("deleted"))
	clk.advance(time.Second)
	tick(t, k)
	if _, err := k.Put(ctx, "last", []byte("x"), client.NoTTL()); err != nil {
		t.Fatal(err)
	}
	w.has("the last put", func(ch client.Change) bool { return ch.Entry.Key == "last" })
	for key, want := range map[string]int{"own": 1, "default": 1, "deleted": 0, "overwritten": 0, "kept": 0} {
		if got := w.told(client.Expired, key); got != want {
			t.Errorf("%s was told to have expired %d times, want %d", key, got, want)
		}
	}
	for _, key := range []string{"overwritten", "kept"} {
		if _, err := k.Get(ctx, key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// RT-01: a cache that nobody writes to any more expires too, by itself.
func TestQuietCacheExpires(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.CacheSpec{Name: "c"})
	k := n.Connect().Cache("c")
	b := newBook(t, 1, nil)
	w := b.watch("w", k, all, false)
	if _, err := b.put(within(t), "w", k, "only", 50*time.Millisecond, nil); err != nil {
		t.Fatal(err)
	}
	w.has("its expiry", isExpiry("only"))
	wantGone(t, b, k, "only")
	b.check()
}

// CA-04, CA-05: a deadline is a point in time: it stays where it is over restarts, to the microsecond, and what ended while
// the node was down is gone at the first look, and told once to who watches on.
func TestDeadlinesOverRestarts(t *testing.T) {
	clk := newClock()
	n := margaytest.Start(t, clk.node())
	create(t, n, small(1))
	k := n.Connect().Cache("c")
	b := newBook(t, 1, clk)
	w := b.watch("w", k, written, true)
	w.has("a complete snapshot", func(ch client.Change) bool { return ch.Kind == client.SnapshotComplete })
	ctx := within(t)
	ttls := map[string]time.Duration{"5s": 5 * time.Second, "10s": 10 * time.Second, "60s": time.Minute, "30d": 30 * 24 * time.Hour}
	ends := map[string]time.Time{}
	for key, ttl := range ttls {
		if _, err := b.put(ctx, "w", k, key, ttl, nil); err != nil {
			t.Fatal(err)
		}
		e := wantThere(t, b, k, key)
		if got := e.Expires.Sub(e.AppendTime); got != ttl {
			t.Errorf("%s lives %v", key, got)
		}
		ends[key] = e.Expires
	}
	clk.advance(2 * time.Second)
	n.Restart()
	wantThere(t, b, k, "5s")
	n.Stop()
	clk.advance(3 * time.Second) // at the very end of the first
	n.StartAgain()
	wantGone(t, b, k, "5s")
	w.has("the expiry of what ended while the node was down", isExpiry("5s"))
	for _, step := range []time.Duration{time.Second, 3*time.Second + 999*time.Millisecond, time.Millisecond - time.Microsecond} {
		clk.advance(step)
		n.Restart()
		for key, end := range ends {
			if key == "5s" {
				continue
			}
			if e := wantThere(t, b, k, key); !e.Expires.Equal(end) {
				t.Errorf("%s ends at %v, and did at %v", key, e.Expires, end)
			}
		}
	}
	clk.advance(time.Microsecond)
	wantGone(t, b, k, "10s")
	wantThere(t, b, k, "60s")
	tick(t, k)
	w.has("the expiry at ten seconds", isExpiry("10s"))
	overwrite(t, k, 300)
	reclaimed(t, n.Connect(), 0, 10) // and what lives is somewhere else
	n.Restart()
	clk.advance(time.Hour)
	tick(t, k)
	w.has("the expiry at a minute", isExpiry("60s"))
	if e := wantThere(t, b, k, "30d"); !e.Expires.Equal(ends["30d"]) {
		t.Errorf("it ends at %v, and did at %v", e.Expires, ends["30d"])
	}
	for key := range ttls {
		if got := w.told(client.Expired, key); got > 1 || got == 0 && key != "30d" {
			t.Errorf("%s was told to have expired %d times", key, got)
		}
	}
	b.settle(n.Connect(), w)
}

// CA-13: a time to live is refused or honored to the microsecond, however short or long: none acts at once that should not.
func TestExtremeTimesToLive(t *testing.T) {
	clk := newClock()
	n := margaytest.Start(t, clk.node())
	create(t, n, control.CacheSpec{Name: "c"})
	k := n.Connect().Cache("c")
	ctx := within(t)
	ms := time.Millisecond
	for _, ttl := range []time.Duration{
		math.MinInt64, -1, 0, 1, 999, 1000, 999 * time.Microsecond, math.MaxInt32 * ms, (math.MaxInt32 + 1) * ms, (math.MaxUint32 + 1) * ms,
		control.MaxTTL, control.MaxTTL + 1, math.MaxInt64 / 2, math.MaxInt64,
	} {
		key := fmt.Sprint("of ", int64(ttl))
		_, err := k.Put(ctx, key, []byte("x"), client.TTL(ttl))
		switch {
		case errors.Is(err, client.ErrBadRequest):
			if ttl > 0 && ttl <= control.MaxTTL {
				t.Errorf("%d is refused: %v", ttl, err)
			}
			continue
		case err != nil || ttl <= 0:
			t.Errorf("%d: %v", ttl, err)
			continue
		}
		// The clock stands still: what is there now has a time to live, and exactly that.
		e, err := k.Get(ctx, key)
		if err != nil {
			t.Errorf("%d: %v", ttl, err)
			continue
		}
		if got := e.Expires.Sub(e.AppendTime); got < ttl || got >= ttl+time.Microsecond {
			t.Errorf("%d became %d", ttl, got)
		}
	}
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "1ms": ms, "0s": 0, "-1s": -1, "1e9h": -1, "999us": -1, "9223372036854775807ms": -1, "1": -1, "": -1, "d": -1,
	} {
		var d control.Duration
		err := d.UnmarshalText([]byte(text))
		if err == nil {
			spec := control.CacheSpec{Name: "x", TTL: &d}
			if _, problems := spec.Log("t", "n"); len(problems) > 0 {
				err = errors.New(problems[0].String())
			}
		}
		if (err != nil) != (want < 0) || err == nil && time.Duration(d) != want {
			t.Errorf("%q became %v, %v", text, time.Duration(d), err)
		}
	}
}

// CA-14: keys that end together are gone together, whatever the sweep has come to, each is told once, and what they took of
// the disk comes back; writing goes on meanwhile.
func TestMassExpiry(t *testing.T) {
	clk := newClock()
	n := margaytest.Start(t, clk.node())
	spec := small(1)
	spec.SegmentBytes = new(int64(64 << 10))
	create(t, n, spec)
	c := n.Connect()
	k := c.Cache("c")
	ctx := within(t)
	for i := range *massKeys {
		k.PutAsync(ctx, fmt.Sprint("mass/", i), []byte("x"), client.TTL(time.Minute))
	}
	if err := k.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	expired := map[string]int{}
	w, err := k.Watch(ctx, client.Prefix("mass/"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if got, err := k.Count(ctx); err != nil || got != uint64(*massKeys) {
		t.Fatalf("%d keys, %v", got, err)
	}
	clk.advance(time.Minute)
	if got, err := k.Count(ctx); err != nil || got != 0 {
		t.Errorf("%d keys are there when the time of all is over, %v", got, err)
	}
	for e, err := range k.List(ctx) {
		t.Fatalf("listed %q when the time of all is over, %v", e.Key, err)
	}
	if _, err := k.Get(ctx, "mass/1"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got one: %v", err)
	}
	if _, err := k.Put(ctx, "mass/2", []byte("again"), client.IfAbsent()); err != nil {
		t.Errorf("create one that is over: %v", err)
	}
	overwrite(t, k, 500)
	for ch, err := range w.Changes(ctx) {
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(expired), *massKeys, err)
		}
		if ch.Kind == client.Expired {
			expired[ch.Entry.Key]++
		}
		if len(expired) == *massKeys-1 {
			break
		}
	}
	for key, times := range expired {
		if times != 1 || key == "mass/2" {
			t.Errorf("%s was told to have expired %d times", key, times)
		}
	}
	if e, err := k.Get(ctx, "mass/2"); err != nil || string(e.Value) != "again" {
		t.Errorf("what was created then: %q, %v", e.Value, err)
	}
	o, err := c.Offsets(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the room of what has expired to come back", func() bool {
		overwrite(t, k, 200)
		now, err := c.Offsets(within(t), "c")
		return err == nil && now[0].Earliest > o[0].Latest-uint64(*massKeys)/2
	})
}
