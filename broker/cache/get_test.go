// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/broker/cache"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

var filters = []wire.Filter{
	{},
	{Kind: wire.FilterExact, Value: "a/1"},
	{Kind: wire.FilterExact, Value: "nothing"},
	{Kind: wire.FilterPrefix, Value: "a/"},
	{Kind: wire.FilterPrefix, Value: "b/1"},
	{Kind: wire.FilterPrefix, Value: "zzz"},
	{Kind: wire.FilterPattern, Value: "+/1"},
	{Kind: wire.FilterPattern, Value: "a/#"},
	{Kind: wire.FilterPattern, Value: "a/+"},
	{Kind: wire.FilterPattern, Value: "#"},
	{Kind: wire.FilterPattern, Value: "b/2"},
}

// Whatever is put, deleted and left to expire: Get, List in pages of any size, and Count say what a map of it holds.
func TestReadsAgainstAModel(t *testing.T) {
	inBubble(t, nil, func(_ *testing.T, b *bench) {
		rng := rand.New(rand.NewPCG(3, 4))
		var names []string
		for _, p := range []string{"a", "a/", "b/", "b/1/", "c"} {
			for i := range 5 {
				names = append(names, fmt.Sprintf("%s%d", p, i))
			}
		}
		names = append(names, "a")
		for round := range 120 {
			recs := make([]batch.Record, 1+rng.IntN(4))
			for i := range recs {
				recs[i] = rec(names[rng.IntN(len(names))], fmt.Sprint("v", round, i))
				switch rng.IntN(5) {
				case 0:
					recs[i].Value = nil
				case 1:
					recs[i].TTL = time.Duration(1+rng.IntN(20)) * time.Second
				case 2:
					recs[i].Value = []byte{}
					recs[i].Headers = []batch.Header{{Key: "h", Value: []byte(fmt.Sprint(round))}}
				}
				if rng.IntN(10) == 0 {
					recs[i].Key = nil
				}
			}
			b.put(recs...)
			time.Sleep(time.Duration(rng.IntN(4)) * time.Second)
			b.same(names, rng)
		}
	})
}

// same compares all readings with the model.
func (b *bench) same(names []string, rng *rand.Rand) {
	b.t.Helper()
	got := b.get(append(slices.Clone(names), names[0], "missing")...)
	for i, key := range append(slices.Clone(names), names[0], "missing") {
		b.sameEntry(&got.Entries[i], key, wire.EntryValue)
	}
	for _, f := range filters {
		var want []string
		for _, key := range slices.Sorted(maps.Keys(b.is)) {
			if _, ok := b.present(key); ok && f.Matches([]byte(key)) {
				want = append(want, key)
			}
		}
		n, err := cache.Count(b.t.Context(), b.shard, &wire.Count{Filter: f})
		if err != nil || n.Count != uint64(len(want)) {
			b.t.Fatalf("%v: counted %+v, %v; want %d", f, n, err, len(want))
		}
		for _, keysOnly := range []bool{false, true} {
			b.sameList(&wire.List{Filter: f, KeysOnly: keysOnly, Limit: uint32(1 + rng.IntN(10))}, want)
		}
	}
}

func (b *bench) sameList(ask *wire.List, want []string) {
	b.t.Helper()
	var keys []string
	for more := true; more; {
		page, err := cache.List(b.t.Context(), b.shard, ask)
		if err != nil || len(page.Entries) > int(ask.Limit) {
			b.t.Fatalf("%+v: %v, %d entries", ask, err, len(page.Entries))
		}
		kind := wire.EntryValue
		if ask.KeysOnly {
			kind = wire.EntryKey
		}
		for i := range page.Entries {
			keys = append(keys, string(page.Entries[i].Key))
			b.sameEntry(&page.Entries[i], keys[len(keys)-1], kind)
		}
		more, ask.HasAfter, ask.After = page.More, true, page.Next
	}
	if !slices.Equal(keys, want) {
		b.t.Fatalf("%v lists %q, want %q", ask.Filter, keys, want)
	}
}

func (b *bench) sameEntry(e *wire.Entry, key string, kind wire.EntryKind) {
	b.t.Helper()
	v, ok := b.present(key)
	switch {
	case !ok && e.Kind == wire.EntryNone:
	case !ok || e.Kind != kind || e.Offset != v.offset:
		b.t.Fatalf("%q is %+v, want %+v, present %v", key, e, v, ok)
	case kind == wire.EntryValue && (string(e.Value) != v.value || e.Value == nil || e.AppendTime == 0 || e.Generation == 0):
		b.t.Fatalf("%q is %+v, want %+v", key, e, v)
	case v.expires.IsZero() != (e.Expires == 0) || e.Expires != 0 && e.Expires != v.expires.UnixMicro():
		b.t.Fatalf("%q expires at %d, want %v", key, e.Expires, v.expires)
	}
}

// What retention took is absent on every path, whatever the index still has of it.
func TestWhatRetentionTookIsAbsent(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("k%02d", i))
			b.put(rec(names[i], strings.Repeat("v", 1000)))
		}
		b.same(names, rand.New(rand.NewPCG(1, 2)))
		start, err := b.shard.Trim(t.Context(), 70)
		if err != nil || start != 70 {
			t.Fatal(start, err)
		}
		for _, key := range names[:start] {
			delete(b.is, key)
		}
		b.same(names, rand.New(rand.NewPCG(1, 2)))
		l := b.watcher()
		if x := l.must(&wire.Watch{ID: 1, Start: wire.WatchSnapshot}); len(x.is) != 30 || !x.done {
			t.Errorf("a snapshot of %d keys, done %v", len(x.is), x.done)
		}
	})
}

// An answer stays below its bound, holds one entry at least, and what it leaves out can be asked for again.
func TestAnswersAreBounded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		const keys = 12
		var names []string
		for i := range keys {
			names = append(names, fmt.Sprintf("k%02d", i))
			b.put(rec(names[i], strings.Repeat(fmt.Sprint(i%10), 900_000)))
		}
		for rest, rounds := slices.Clone(names), 0; len(rest) > 0; rounds++ {
			got := b.get(rest...)
			if size := got.Size(); size > 4<<20 || len(got.Entries) == 0 || rounds > keys {
				t.Fatalf("an answer of %d bytes with %d entries", size, len(got.Entries))
			}
			for i := range got.Entries {
				b.sameEntry(&got.Entries[i], rest[i], wire.EntryValue)
			}
			rest = rest[len(got.Entries):]
		}
		b.sameList(&wire.List{Limit: wire.MaxEntries}, names)
		page, err := cache.List(t.Context(), b.shard, &wire.List{Limit: wire.MaxEntries})
		if err != nil || page.Size() > 4<<20 || len(page.Entries) < 3 {
			t.Fatalf("a page of %d bytes with %d entries, %v", page.Size(), len(page.Entries), err)
		}
	})
}

// What a Get returns stands until the next one, whatever is read for it.
func TestAnswerIsNotOverwritten(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		var f wire.Get
		for i := range 40 {
			key := fmt.Sprint("k", i)
			b.put(rec(key, strings.Repeat(key, 1+i*17)))
			f.Keys = append(f.Keys, []byte(key))
		}
		g := &cache.Getter{}
		for range 3 {
			got, err := g.Get(t.Context(), b.shard, &f)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got.Entries {
				if want := bytes.Repeat(f.Keys[i], 1+i*17); !bytes.Equal(got.Entries[i].Value, want) {
					t.Fatalf("%q is %.40q", f.Keys[i], got.Entries[i].Value)
				}
			}
		}
	})
}

// Who waits for an offset is answered once it is committed, and told when it does not come.
func TestAwait(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.put(rec("k", "1"))
		f := &wire.Get{AtLeast: b.next + 1, TimeoutMs: 1000}
		if cache.Reached(b.shard, f.AtLeast) || !cache.Reached(b.shard, b.next) {
			t.Fatal("an offset that is not written counts as reached, or one that is does not")
		}
		began := time.Now()
		if err := cache.Await(t.Context(), b.shard, f); !errors.Is(err, code.Timeout) || time.Since(began) != time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		done := make(chan error, 1)
		go func() { done <- cache.Await(context.Background(), b.shard, f) }()
		synctest.Wait()
		b.put(rec("k", "2"))
		if err := <-done; err != nil || !cache.Reached(b.shard, f.AtLeast) {
			t.Fatal(err)
		}
		if got := b.get("k"); string(got.Entries[0].Value) != "2" || got.AsOf != f.AtLeast {
			t.Fatalf("got %+v", got)
		}
	})
}
