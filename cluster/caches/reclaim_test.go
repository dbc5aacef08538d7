// SPDX-License-Identifier: Apache-2.0

package caches_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

// RT-09: when everything has expired and the log has given all of it up, versions go on where they were, also after a
// restart, and who stood at the end gets what comes.
func TestVersionsGoOnWhenEverythingIsGone(t *testing.T) {
	clk := newClock()
	n := margaytest.Start(t, clk.node())
	create(t, n, small(1))
	c := n.Connect()
	k := c.Cache("c")
	ctx := within(t)
	w, err := k.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var last uint64
	for i := range 100 {
		if last, err = k.Put(ctx, fmt.Sprint("gone/", i), make([]byte, 200), client.TTL(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	clk.advance(time.Hour)
	tick(t, k)
	overwrite(t, k, 200)
	if _, err := k.DeletePrefix(ctx, ""); err != nil {
		t.Fatal(err)
	}
	reclaimed(t, c, 0, 100)
	o, err := c.Offsets(ctx, "c")
	if err != nil || o[0].Latest <= last {
		t.Fatalf("%+v, %v", o, err)
	}
	n.Restart()
	if got, err := k.Count(ctx); err != nil || got != 0 {
		t.Errorf("%d keys, %v", got, err)
	}
	v, err := k.Put(ctx, "new", []byte("x"))
	if err != nil || v != o[0].Latest+1 {
		t.Errorf("the next version is %d, %v; the log ended at %d", v, err, o[0].Latest)
	}
	for ch, err := range w.Changes(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if ch.Kind == client.Reset {
			t.Error("a watch that was never behind is told to begin anew")
		}
		if ch.Entry.Key == "new" {
			break
		}
	}
}

// RT-10: what reclaim took is no loss: who reads the log from its beginning is told of no gap and comes to its end, at
// which nothing is left to read; carried records and tombstones of the broker do not show as offsets that are missing.
func TestReclaimIsNoLoss(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, small(1))
	c := n.Connect()
	k := c.Cache("c")
	ctx := within(t)
	for i := range 20 {
		if _, err := k.Put(ctx, fmt.Sprint("stays/", i), make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	overwrite(t, k, 2000)
	reclaimed(t, c, 0, 1000)
	s, err := c.Subscribe(ctx, "c", client.FromEarliest(), client.UntilMark())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	o, err := c.Offsets(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	var next uint64
	for r, err := range s.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Gap != nil && r.Gap.From >= o[0].Earliest {
			t.Errorf("told of a gap %+v", *r.Gap)
		}
		if next != 0 && r.Offset != next && r.Gap == nil {
			t.Errorf("led from %d to %d", next, r.Offset)
		}
		next = r.Offset + 1
	}
	if next != o[0].Latest {
		t.Errorf("read up to %d of %d", next, o[0].Latest)
	}
	for i := range 20 {
		if _, err := k.Get(ctx, fmt.Sprint("stays/", i)); err != nil {
			t.Errorf("stays/%d: %v", i, err)
		}
	}
}

// RT-12: damage in a segment of one shard is told of that shard's keys, by file; the other shards are served and reclaimed.
func TestDamageInOneShard(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, small(2))
	b := newBook(t, 2, nil)
	c := n.Connect()
	k := c.Cache("c")
	ctx := within(t)
	keys := [2][]string{}
	for i := range 200 {
		key := fmt.Sprint("key", i)
		keys[b.shard(key)] = append(keys[b.shard(key)], key)
		if _, err := k.Put(ctx, key, make([]byte, 300)); err != nil {
			t.Fatal(err)
		}
	}
	n.Stop()
	segments, err := filepath.Glob(filepath.Join(n.Dir(), "shards", "*", strconv.Itoa(0), "*.seg"))
	if err != nil || len(segments) < 3 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	holds, err := os.ReadFile(segments[1])
	if err != nil {
		t.Fatal(err)
	}
	holds[len(holds)/2] ^= 0x10
	if err := os.WriteFile(segments[1], holds, 0o600); err != nil {
		t.Fatal(err)
	}
	snapshots, err := filepath.Glob(filepath.Join(n.Dir(), "shards", "*", "0", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range snapshots { // with it nobody would have to look at the damage
		if !strings.HasSuffix(name, ".seg") {
			_ = os.Remove(name)
		}
	}
	n.StartAgain()
	sound, err := filepath.Glob(filepath.Join(n.Dir(), "shards", "*", "1", "*.seg"))
	if err != nil || len(sound) < 2 {
		t.Fatalf("%d segments, %v", len(sound), err)
	}
	for i := range 300 {
		if _, err := k.Put(ctx, keys[1][i%3], make([]byte, 300)); err != nil {
			t.Fatalf("the sound shard: %v", err)
		}
	}
	for _, key := range keys[1] {
		if _, err := k.Get(ctx, key); err != nil {
			t.Errorf("the sound shard: %s: %v", key, err)
		}
	}
	await.True(t, "the sound shard to be reclaimed", func() bool {
		_, err := os.Stat(sound[0])
		return errors.Is(err, os.ErrNotExist)
	})
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var told error
	for _, key := range keys[0] {
		if _, err := k.Get(short, key); err != nil {
			told = err
			break
		}
	}
	if told == nil || errors.Is(told, client.ErrNotFound) {
		t.Errorf("keys of a shard that is damaged: %v", told)
	}
	t.Log(told)
	after, err := os.ReadFile(segments[1])
	if err != nil || string(after) != string(holds) {
		t.Errorf("the damaged file was changed, %v", err)
	}
}

// RT-03: a cache whose segments would be nothing but their heads is refused, with the least named.
func TestTinySegmentsAreRefused(t *testing.T) {
	n := margaytest.Start(t)
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	for _, size := range []int64{-1, 1, 64, 1000, control.MinSegmentBytes - 1} {
		_, err := api.CreateCache(within(t), cc.Tenant, cc.Namespace, control.CacheSpec{Name: "tiny", SegmentBytes: &size})
		if err == nil || !strings.Contains(err.Error(), strconv.Itoa(control.MinSegmentBytes)) {
			t.Errorf("segments of %d bytes: %v", size, err)
		}
	}
}
