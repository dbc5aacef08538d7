// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
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
	"margay.dev/broker/host"
	"margay.dev/broker/stream"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// lane is a watch lane of the bench.
type lane struct {
	*client
	w    *cache.Watcher
	stop context.CancelCauseFunc
}

func (b *bench) watcher() *lane {
	ctx, stop := context.WithCancelCause(context.Background())
	c := newClient(b.t)
	l := &lane{client: c, stop: stop}
	l.w = cache.NewWatcher(ctx, c, cache.Config{
		Resolve: func(uint32) (*host.Shard, *code.Error) {
			if s := b.rig.Open(b.log.ID, 0); s != nil {
				return s, nil
			}
			return nil, code.New(code.Opening, "not open")
		},
		Refuse: c.refuse, Ended: func(*code.Error) {}, Serving: func(*stream.Subscription) func() { return func() {} }, Held: &b.held, Stats: &b.stats,
	})
	b.t.Cleanup(func() { l.end(nil) })
	return l
}

// end ends the lane and waits for that.
func (l *lane) end(why error) {
	l.open()
	l.stop(why)
	l.w.Wait()
}

func (l *lane) watch(f *wire.Watch) error {
	l.expect(f)
	return l.w.Watch(f.ID, f)
}

// must begins a watch and waits until all that can be done is done.
func (l *lane) must(f *wire.Watch) *folded {
	l.t.Helper()
	if err := l.watch(f); err != nil {
		l.t.Fatal(err)
	}
	synctest.Wait()
	return l.watches[f.ID]
}

// step reads a write at a time until so.
func (l *lane) step(so func() bool) {
	for !so() {
		l.open()
		l.shut()
		synctest.Wait()
	}
}

// history is every record of the log that has a key.
func (b *bench) history() (all []change) {
	b.t.Helper()
	for seq := b.shard.View().Start.Sequence; seq < b.shard.Hub().Sequence(); {
		chunk, err := b.shard.Read(nil, seq, 1<<20)
		if err != nil {
			b.t.Fatal(err)
		}
		for len(chunk) > 0 {
			x, err := batch.CheckStored(chunk)
			if err != nil {
				b.t.Fatal(err)
			}
			chunk, seq = chunk[len(x):], x.Sequence()+1
			if !x.HasOffsets() {
				continue
			}
			for it, i := x.Records(), x.BaseOffset(); ; i++ {
				var r batch.Record
				ok, err := it.Next(&r)
				if err != nil {
					b.t.Fatal(err)
				}
				if !ok {
					break
				}
				if r.Key != nil {
					all = append(all, change{string(r.Key), string(r.Value), r.Value == nil, x.IsExpired(), i})
				}
			}
		}
	}
	return all
}

// settled checks that a watch which has not ended has come to what the log says, and was told of each change once.
func (x *folded) settled(t *testing.T, id uint64, start wire.WatchStart, offset uint64, log []change) {
	t.Helper()
	if x.watched == nil || !x.done || len(x.held) > 0 {
		t.Fatalf("watch %d is not done: %+v", id, x.watched)
	}
	from := x.watched.From
	if start == wire.WatchOffset && x.watched.How != wire.HowReset {
		from = offset
	}
	snapshot := x.watched.How == wire.HowSnapshot || x.watched.How == wire.HowReset
	is := map[string]string{}
	var due []change
	for _, y := range log {
		if !x.filter.Matches([]byte(y.key)) || !snapshot && y.offset < from {
			continue
		}
		if delete(is, y.key); !y.null {
			is[y.key] = y.value
		}
		due = append(due, y)
	}
	if !maps.Equal(is, x.is) {
		t.Fatalf("watch %d (%v, %+v) has come to %d keys, want %d", id, x.filter, x.watched, len(x.is), len(is))
	}
	if !snapshot && !slices.EqualFunc(due, x.events, sameChange) {
		t.Fatalf("watch %d (%v, %+v) was told of %d changes, want %d", id, x.filter, x.watched, len(x.events), len(due))
	}
}

func sameChange(a, b change) bool {
	return a.key == b.key && a.value == b.value && a.null == b.null && a.offset == b.offset
}

// Whatever is put while watches come and go, and however slowly a lane is read: what each watch has been told comes to
// what the log holds, and of what came live each record came once.
func TestWatchesFoldToTheLog(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, b *bench) { foldRandomly(t, b, rand.New(rand.NewPCG(seed, 9))) })
		})
	}
}

var filling = strings.Repeat("x", 600_000)

func foldRandomly(t *testing.T, b *bench, rng *rand.Rand) {
	type started struct {
		start  wire.WatchStart
		offset uint64
	}
	lanes := []*lane{b.watcher(), b.watcher(), b.watcher()}
	begun := []map[uint64]started{{}, {}, {}}
	var id uint64
	put := func(size int) {
		recs := make([]batch.Record, 1+rng.IntN(3))
		for i := range recs {
			recs[i] = rec(fmt.Sprintf("%c/%d", 'a'+rng.IntN(3), rng.IntN(6)), fmt.Sprintf("%d %d %s", b.n, i, filling[:size]))
			if rng.IntN(5) == 0 {
				recs[i].Value = nil
			}
		}
		b.put(recs...)
	}
	for range 150 {
		at := rng.IntN(len(lanes))
		l := lanes[at]
		switch rng.IntN(8) {
		case 0, 1:
			id++
			f := &wire.Watch{ID: id, Start: wire.WatchStart(rng.IntN(3)), Filter: filters[rng.IntN(len(filters))]}
			if f.Start == wire.WatchOffset {
				f.Offset = uint64(rng.Int64N(int64(b.next) + 1))
			}
			if err := l.watch(f); err != nil {
				t.Fatal(err)
			}
			begun[at][id] = started{f.Start, f.Offset}
		case 2:
			for id := range begun[at] {
				if err := l.w.Unwatch(id, &wire.Unwatch{ID: id}); err != nil {
					t.Fatal(err)
				}
				delete(begun[at], id)
				break
			}
		case 3:
			l.open()
			l.shut()
		case 4:
			l.open()
		case 5:
			for range rng.IntN(9) { // more than a queue holds
				put(600_000)
			}
		default:
			put(0)
		}
		if rng.IntN(3) == 0 {
			synctest.Wait()
		}
	}
	log := b.history()
	for at, l := range lanes {
		l.open()
		synctest.Wait()
		for id, x := range begun[at] {
			l.watches[id].settled(t, id, x.start, x.offset, log)
		}
		if !slices.IsSortedFunc(l.live, func(a, b change) int { return int(a.offset) - int(b.offset) }) {
			t.Error("what is live came out of order")
		}
		if n := len(l.live); n != len(slices.CompactFunc(slices.Clone(l.live), func(a, b change) bool { return a.offset == b.offset })) {
			t.Error("what is live came twice")
		}
		if len(l.gaps) > 0 || len(l.refused) > 0 {
			t.Errorf("gaps %+v, refusals %v", l.gaps, l.refused)
		}
		l.end(nil)
	}
}

// A watch is registered before its snapshot is read: what is put while that goes out comes live.
func TestWatchIsRegisteredBeforeItsSnapshot(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for i := range 40 {
			b.put(rec(fmt.Sprintf("k%02d", i), strings.Repeat("v", 20_000)))
		}
		l := b.watcher()
		l.must(&wire.Watch{ID: 1, Filter: wire.Filter{Kind: wire.FilterExact, Value: "other"}})
		l.shut()
		x := l.must(&wire.Watch{ID: 2, Start: wire.WatchSnapshot, Filter: wire.Filter{Kind: wire.FilterPrefix, Value: "k"}})
		l.step(func() bool { return len(x.entries) > 0 })
		if x.done || l.waits == 0 {
			t.Fatal("the snapshot does not wait for its reader")
		}
		b.put(rec("k00", "new"), rec("k39", "newer"), rec("k40", "one more"))
		l.open()
		synctest.Wait()
		x.settled(t, 2, wire.WatchSnapshot, 0, b.history())
		if x.is["k00"] != "new" || x.is["k39"] != "newer" || x.is["k40"] != "one more" {
			t.Errorf("%q, %q, %q", x.is["k00"], x.is["k39"], x.is["k40"])
		}
	})
}

// A snapshot that nothing is in is complete too, and one that is long does not hold up what is live.
func TestSnapshots(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for i := range 200 {
			b.put(rec(fmt.Sprintf("k%03d", i), strings.Repeat("v", 20_000)))
		}
		l := b.watcher()
		if x := l.must(&wire.Watch{ID: 1, Start: wire.WatchSnapshot, Filter: wire.Filter{Kind: wire.FilterPrefix, Value: "none"}}); !x.done || x.watched.How != wire.HowSnapshot || len(x.entries) > 0 {
			t.Fatalf("an empty snapshot: %+v", x)
		}
		l.must(&wire.Watch{ID: 2, Filter: wire.Filter{Kind: wire.FilterExact, Value: "live"}})
		l.shut()
		x := l.must(&wire.Watch{ID: 3, Start: wire.WatchSnapshot})
		b.put(rec("live", "1"))
		l.step(func() bool { return len(l.live) > 0 })
		if x.done || len(x.entries) > 100 {
			t.Errorf("the live record came behind %d entries of a snapshot of 200", len(x.entries))
		}
		l.open()
		synctest.Wait()
		x.settled(t, 3, wire.WatchSnapshot, 0, b.history())
		if most := slices.Max(l.sizes); most > 1<<20+64<<10 {
			t.Errorf("a frame of %d bytes", most)
		}
	})
}

// Who asks for an offset that is gone gets a snapshot and is told so; who asks for one gets what was deleted as such.
func TestWatchFromAnOffset(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		for i := range 300 {
			b.put(rec(fmt.Sprintf("k%d", i%10), fmt.Sprint(i, strings.Repeat("x", 500))))
		}
		at := b.next
		b.put(rec("k1", "a"), batch.Record{Key: []byte("k2"), Timestamp: 1}, batch.Record{Timestamp: 1, Value: []byte("no key")}, rec("k1", ""))
		l := b.watcher()
		x := l.must(&wire.Watch{ID: 1, Start: wire.WatchOffset, Offset: at})
		want := []change{{"k1", "a", false, false, at}, {"k2", "", true, false, at + 1}, {"k1", "", false, false, at + 3}}
		if !slices.Equal(x.events, want) || x.watched.How != wire.HowHistory {
			t.Errorf("%+v: %+v, want %+v", x.watched, x.events, want)
		}
		if x := l.must(&wire.Watch{ID: 2, Start: wire.WatchOffset, Offset: b.next}); x.watched.How != wire.HowLive || !x.done || x.watched.From != b.next {
			t.Errorf("from the end: %+v", x.watched)
		}
		b.ready()
		if _, err := b.shard.Trim(t.Context(), at-100); err != nil {
			t.Fatal(err)
		}
		for id, f := range map[uint64]*wire.Watch{
			3: {Offset: at - 200},                       // reclaimed
			4: {Offset: b.next + 5},                     // never was
			5: {Offset: b.next, Generation: 1 << 40},    // not known here
			6: {Offset: at - 100, Filter: filters[4]},   // still there
			7: {Offset: at, Generation: b.generation()}, // of this generation
		} {
			f.ID, f.Start = id, wire.WatchOffset
			x := l.must(f)
			if reset := x.watched.How == wire.HowReset; reset != (id < 5) || !x.done {
				t.Errorf("watch %d: %+v", id, x.watched)
			}
		}
	})
}

func (b *bench) generation() uint64 { return b.shard.View().Generation }

// Ends: by its client, by a token, by the lane, by the shard; each says where to go on.
func TestWatchEnds(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.put(rec("a/1", "1"))
		l := b.watcher()
		for id := range uint64(4) {
			l.must(&wire.Watch{ID: id + 1, Filter: filters[id]})
		}
		if err := l.watch(&wire.Watch{ID: 4}); !errors.Is(err, code.BadRequest) {
			t.Errorf("an id twice: %v", err)
		}
		if err := l.w.Unwatch(9, &wire.Unwatch{ID: 9}); !errors.Is(err, code.NotFound) {
			t.Errorf("unwatch of nothing: %v", err)
		}
		if err := l.w.Unwatch(8, &wire.Unwatch{ID: 1}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		b.put(rec("a/1", "2"), rec("b/1", "2"))
		l.w.Regrant(func(f wire.Filter) error {
			if f.Kind == wire.FilterPrefix {
				return code.New(code.PermissionDenied, "no more")
			}
			return nil
		})
		synctest.Wait()
		l.end(code.New(code.ShuttingDown, "going"))
		if len(l.ends) != 3 {
			t.Fatalf("ends: %+v", l.ends)
		}
		for i, want := range []wire.WatchEnd{{ID: 1, Resume: 1}, {ID: 4, Code: code.PermissionDenied, Resume: 3}, {ID: 0, Code: code.ShuttingDown, Resume: 3}} {
			if got := l.ends[i]; got.ID != want.ID || got.Code != want.Code || got.Resume != want.Resume || got.Generation == 0 {
				t.Errorf("end %+v, want %+v", got, want)
			}
		}
		if err := l.watch(&wire.Watch{ID: 20}); !errors.Is(err, code.Closed) {
			t.Errorf("a watch behind the end: %v", err)
		}
	})
}

// A shard that is opened again ends its watches, with where to go on, and takes new ones of the same lane.
func TestShardIsOpenedAgain(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, b *bench) {
		b.put(rec("k", "1"))
		l := b.watcher()
		l.must(&wire.Watch{ID: 1, Start: wire.WatchSnapshot})
		changed := b.log
		changed.Version++
		changed.SegmentBytes *= 2
		b.rig.Plane.Set(changed)
		synctest.Wait()
		if len(l.ends) != 1 || l.ends[0].ID != 0 || l.ends[0].Code != code.Opening || l.ends[0].Resume != 1 {
			t.Fatalf("ends: %+v", l.ends)
		}
		b.shard = b.rig.Shard(b.log.ID, 0)
		b.ready()
		x := l.must(&wire.Watch{ID: 2, Start: wire.WatchOffset, Offset: l.ends[0].Resume, Generation: l.ends[0].Generation})
		b.put(rec("k", "2"))
		if x.watched.How == wire.HowReset || len(x.events) != 1 || x.events[0].value != "2" {
			t.Errorf("%+v: %+v", x.watched, x.events)
		}
	})
}

// In a log that keeps the newest of each key: keys that end are told of once, as ended, to who is live and to who comes
// back, and what every watch has come to is what is there.
func TestWatchesSeeKeysEnd(t *testing.T) {
	newest := func(l *control.Log) {
		l.Preset, l.Keep = "", ""
		*l = control.Log{ID: l.ID, Name: l.Name, Preset: control.PresetCache}
		l.SetDefaults()
		l.SegmentBytes = 16 << 10
	}
	inBubble(t, newest, func(t *testing.T, b *bench) {
		rng := rand.New(rand.NewPCG(5, 6))
		l := b.watcher()
		live := l.must(&wire.Watch{ID: 1, Start: wire.WatchSnapshot})
		var late []uint64
		ends := map[string]int{}
		for n := range 400 {
			r := rec(fmt.Sprintf("a/%d", rng.IntN(20)), fmt.Sprint(n))
			switch rng.IntN(4) {
			case 0:
				r.Value = nil
			case 1:
				r.TTL = time.Duration(1+rng.IntN(5)) * time.Second
			}
			if was, ok := b.is[string(r.Key)]; ok && !was.expires.IsZero() && !was.expires.After(time.Now()) {
				ends[string(r.Key)]++
				delete(b.is, string(r.Key))
			}
			b.put(r)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			if n%40 == 0 {
				id := uint64(n + 2)
				late = append(late, id)
				l.must(&wire.Watch{ID: id, Start: wire.WatchStart(1 + n/40%2), Filter: filters[3]})
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := map[string]string{}
		for key, v := range b.is {
			if _, ok := b.present(key); ok {
				want[key] = v.value
			} else {
				ends[key]++
			}
		}
		for _, id := range append(late, 1) {
			if x := l.watches[id]; !maps.Equal(x.is, want) || !x.done {
				t.Errorf("watch %d (%+v) has come to %v, want %v", id, x.watched, x.is, want)
			}
		}
		got := map[string]int{}
		for _, y := range live.events {
			if y.expired {
				got[y.key]++
			}
		}
		if !maps.Equal(got, ends) {
			t.Errorf("ends told: %v, want %v", got, ends)
		}
	})
}
