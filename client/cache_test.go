// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// cached is a broker with a cache of some shards, and a client's handle to it.
func cached(t *testing.T, shards int) (*fakebroker.Broker, *fakebroker.Log, *client.Cache) {
	t.Helper()
	b := fakebroker.New(t)
	l := b.AddLog(stream, shards)
	return b, l, connect(t, b).Cache("orders")
}

func put(t testing.TB, k *client.Cache, key, value string, opts ...client.PutOption) uint64 {
	t.Helper()
	v, err := k.Put(within(t), key, []byte(value), opts...)
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return v
}

func TestCachePutGetDelete(t *testing.T) {
	_, _, k := cached(t, 3)
	ctx := within(t)
	if _, err := k.Get(ctx, "a"); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("get of nothing: %v", err)
	}
	v := put(t, k, "a", "one", client.TTL(time.Hour), client.Headers(client.Header{Key: "h", Value: []byte("x")}))
	e, err := k.Get(ctx, "a")
	if err != nil || string(e.Value) != "one" || e.Version != v || e.Key != "a" || len(e.Headers) != 1 {
		t.Fatalf("got %+v, %v, want version %d", e, err, v)
	}
	if d := e.Expires.Sub(e.AppendTime); d != time.Hour {
		t.Fatalf("lives for %v", d)
	}
	put(t, k, "a", "two")
	if e, err = k.Get(ctx, "a", client.AtLeast(v+1)); err != nil || string(e.Value) != "two" || !e.Expires.IsZero() || e.Version <= v {
		t.Fatalf("got %+v, %v", e, err)
	}
	if _, err := k.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Get(ctx, "a", client.Stale()); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("get of a deleted key: %v", err)
	}
}

// CA-08: an empty value is a value, and nil is an empty one; an empty key is none.
func TestCacheEmptyValueIsNoDelete(t *testing.T) {
	_, _, k := cached(t, 1)
	ctx := within(t)
	for _, v := range [][]byte{nil, {}, {0}} {
		if _, err := k.Put(ctx, "k", v); err != nil {
			t.Fatal(err)
		}
		e, err := k.Get(ctx, "k")
		if err != nil || e.Value == nil || string(e.Value) != string(v) {
			t.Fatalf("put %v, got %v, %v", v, e.Value, err)
		}
		for e, err := range k.List(ctx) {
			if err != nil || e.Value == nil || string(e.Value) != string(v) {
				t.Fatalf("put %v, listed %v, %v", v, e.Value, err)
			}
		}
	}
	_, err := k.Put(ctx, "", []byte("v"))
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	_, err = k.Get(ctx, "")
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	_, err = k.Delete(ctx, "")
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	_, err = k.Put(ctx, strings.Repeat("k", 5000), nil)
	wantError(t, err, client.ErrTooLarge, client.Fatal)
}

// CA-13: a time to live is honored or refused, and never becomes none or over at once.
func TestCacheExtremeTTLs(t *testing.T) {
	b, _, k := cached(t, 1)
	ctx := within(t)
	for _, d := range []time.Duration{0, -1, math.MinInt64, math.MaxInt64, (1<<53)*time.Microsecond + 1} {
		_, err := k.Put(ctx, "k", nil, client.TTL(d))
		wantError(t, err, client.ErrBadRequest, client.Fatal)
		_, err = k.Touch(ctx, "k", d)
		wantError(t, err, client.ErrBadRequest, client.Fatal)
		_, _, err = k.Add(ctx, "k", 1, client.TTL(d))
		wantError(t, err, client.ErrBadRequest, client.Fatal)
	}
	for _, d := range []time.Duration{
		1 << 31 * time.Millisecond, 1 << 32 * time.Millisecond, 100 * 365 * 24 * time.Hour, (1 << 53) * time.Microsecond,
	} {
		put(t, k, "k", "v", client.TTL(d))
		if e, err := k.Get(ctx, "k"); err != nil || e.Expires.UnixMicro()-e.AppendTime.UnixMicro() != d.Microseconds() {
			t.Fatalf("TTL %v: from %v to %v, %v", d, e.AppendTime, e.Expires, err)
		}
	}
	put(t, k, "short", "v", client.TTL(1)) // one nanosecond: over when it is read, and not for ever
	if e, err := k.Get(ctx, "short"); err == nil && e.Expires.IsZero() {
		t.Fatal("a nanosecond has become for ever")
	}
	b.Script(func(s *fakebroker.Script) { s.DefaultTTL = 5_000_000 })
	k = connect(t, b).Cache("orders")
	lives := func(want time.Duration, opts ...client.PutOption) {
		t.Helper()
		put(t, k, "k", "v", opts...)
		e, err := k.Get(ctx, "k")
		if err != nil || want == 0 != e.Expires.IsZero() || want > 0 && e.Expires.Sub(e.AppendTime) != want {
			t.Fatalf("from %v to %v, %v, want %v", e.AppendTime, e.Expires, err, want)
		}
	}
	lives(5 * time.Second)
	lives(time.Minute, client.TTL(time.Minute))
	lives(0, client.NoTTL())
}

func TestCacheCounters(t *testing.T) {
	_, _, k := cached(t, 2)
	ctx := within(t)
	put(t, k, "word", "hello")
	var wg sync.WaitGroup
	var mu sync.Mutex
	sums := map[int64]bool{}
	for range 8 {
		wg.Go(func() {
			for range 50 {
				sum, _, err := k.Add(ctx, "n", 2)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				sums[sum] = true
				mu.Unlock()
				// One that cannot be added must not take with it those that are in its batch by chance.
				if _, _, err := k.Add(ctx, "word", 1); !errors.Is(err, client.ErrNotANumber) {
					t.Errorf("add to a word: %v", err)
				}
			}
		})
	}
	wg.Wait()
	e, err := k.Get(ctx, "n")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := e.Int64(); err != nil || n != 800 || len(sums) != 400 {
		t.Fatalf("800 is %d (%v), with %d different sums", n, err, len(sums))
	}
	if e, _ := k.Get(ctx, "word"); string(e.Value) != "hello" {
		t.Fatalf("the word is %q", e.Value)
	}
	_, err = k.Touch(ctx, "nothing", time.Second)
	wantError(t, err, client.ErrNotFound, client.Fatal)
	if v, err := k.Touch(ctx, "n", time.Hour); err != nil || v <= e.Version {
		t.Fatalf("touched: version %d, %v", v, err)
	}
	if e, err = k.Get(ctx, "n"); err != nil || string(e.Value) != "800" || e.Expires.Sub(e.AppendTime) != time.Hour {
		t.Fatalf("touched: %+v, %v", e, err)
	}
	if _, err := k.Persist(ctx, "n"); err != nil {
		t.Fatal(err)
	}
	if e, err = k.Get(ctx, "n"); err != nil || string(e.Value) != "800" || !e.Expires.IsZero() {
		t.Fatalf("persisted: %+v, %v", e, err)
	}
}

// An increment whose answer is lost is sent again and counts once, with the sum of the first.
func TestCacheAddCountsOnce(t *testing.T) {
	b, _, k := cached(t, 1)
	var once sync.Once
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) (v fakebroker.Verdict) {
			once.Do(func() { v.Apply, v.Kill = true, true })
			return v
		}
	})
	for want := int64(5); want <= 15; want += 5 {
		if sum, _, err := k.Add(within(t), "n", 5); err != nil || sum != want {
			t.Fatalf("sum %d, %v, want %d", sum, err, want)
		}
	}
}

func TestCacheGetsShareFrames(t *testing.T) {
	b, _, k := cached(t, 1)
	const n = 64
	for i := range n {
		k.PutAsync(within(t), fmt.Sprint("k", i), []byte(value(i)))
	}
	if err := k.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	b.Script(func(s *fakebroker.Script) {
		s.MaxEntries = 7
		s.Get = func(*wire.Get) error { <-release; return nil }
	})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			e, err := k.Get(within(t), fmt.Sprint("k", i))
			if err != nil || string(e.Value) != value(i) {
				t.Errorf("get %d: %q, %v", i, e.Value, err)
			}
		})
	}
	eventually(t, "a get", func() bool { return len(b.Gets()) > 0 })
	close(release)
	wg.Wait()
	if frames := b.Gets(); len(frames) > 2*n/3 || slices.Max(frames) < n/4 {
		t.Fatalf("%d gets came in frames of %v keys", n, frames)
	}
	keys := []string{"not there"}
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	if many, err := k.GetMany(within(t), keys...); err != nil || len(many) != n || string(many["k9"].Value) != value(9) {
		t.Fatalf("get many: %d, %v", len(many), err)
	}
}

func TestCacheGetEndsWithItsContext(t *testing.T) {
	b, _, k := cached(t, 1)
	put(t, k, "k", "v")
	release := make(chan struct{})
	b.Script(func(s *fakebroker.Script) { s.Get = func(*wire.Get) error { <-release; return nil } })
	for range 3 { // beyond the window too
		ctx, cancel := context.WithCancel(within(t))
		time.AfterFunc(5*time.Millisecond, cancel)
		_, err := k.Get(ctx, "k")
		wantError(t, err, client.ErrCancelled, client.Refused)
	}
	close(release)
	if e, err := k.Get(within(t), "k"); err != nil || string(e.Value) != "v" {
		t.Fatalf("%q, %v", e.Value, err)
	}
}

func TestCacheGetOverLostConnections(t *testing.T) {
	b, _, k := cached(t, 2)
	put(t, k, "k", "v")
	refusals := 2
	var mu sync.Mutex
	b.Script(func(s *fakebroker.Script) {
		s.Get = func(*wire.Get) error {
			mu.Lock()
			defer mu.Unlock()
			if refusals--; refusals >= 0 {
				return code.New(code.Opening, "not yet")
			}
			return nil
		}
	})
	for range 3 {
		if e, err := k.Get(within(t), "k"); err != nil || string(e.Value) != "v" {
			t.Fatalf("%q, %v", e.Value, err)
		}
		b.KillConnections()
	}
	b.Stop()
	b.Start()
	if e, err := k.Get(within(t), "k"); err != nil || string(e.Value) != "v" {
		t.Fatalf("%q, %v", e.Value, err)
	}
}

func TestCacheList(t *testing.T) {
	b, _, k := cached(t, 4)
	ctx := within(t)
	var want []string
	for i := range 300 {
		key := fmt.Sprintf("user/%03d/name", i)
		k.PutAsync(ctx, key, []byte(value(i)))
		k.PutAsync(ctx, fmt.Sprintf("vser/%03d", i), nil)
		want = append(want, key)
	}
	if err := k.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	b.Script(func(s *fakebroker.Script) { s.MaxEntries = 9 })
	list := func(opts ...client.ListOption) (keys []string) {
		t.Helper()
		for e, err := range k.List(ctx, opts...) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
		}
		return keys
	}
	if got := list(client.Prefix("user/")); !slices.Equal(got, want) {
		t.Fatalf("listed %d of %d: %v", len(got), len(want), got)
	}
	if got := list(client.Pattern("user/+/name"), client.KeysOnly(), client.After("user/100/name")); !slices.Equal(got, want[101:]) {
		t.Fatalf("listed %d of %d: %v", len(got), len(want[101:]), got)
	}
	if got := list(client.Key("user/007/name")); !slices.Equal(got, want[7:8]) {
		t.Fatal(got)
	}
	if n, err := k.Count(ctx); err != nil || n != 600 {
		t.Fatalf("count %d, %v", n, err)
	}
	if n, err := k.DeletePrefix(ctx, "vser/"); err != nil || n != 300 {
		t.Fatalf("deleted %d, %v", n, err)
	}
	if n, err := k.Count(ctx, client.Prefix("vser/")); err != nil || n != 0 {
		t.Fatalf("count %d, %v", n, err)
	}
	if got := list(); len(got) != 300 {
		t.Fatalf("%d are left", len(got))
	}
	_, err := k.Count(ctx, client.Prefix("a"), client.Key("b"))
	wantError(t, err, client.ErrBadRequest, client.Fatal)
}

// The name of a cache that is deleted and made anew stands for the new one.
func TestCacheMadeAnew(t *testing.T) {
	b, _, k := cached(t, 1)
	put(t, k, "k", "old")
	b.AddLog(stream, 2)
	if _, err := k.Get(within(t), "k"); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("get from the new one: %v", err)
	}
	put(t, k, "k", "new")
	if e, err := k.Get(within(t), "k"); err != nil || string(e.Value) != "new" {
		t.Fatalf("%q, %v", e.Value, err)
	}
}
