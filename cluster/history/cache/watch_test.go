// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"strings"
	"testing"
	"time"

	"margay.dev/cluster/history"
	"margay.dev/cluster/history/cache"
)

func value(key, v string, version uint64) cache.Change {
	return cache.Change{Version: version, Key: key, Kind: cache.Value, Value: v}
}

func gone(kind cache.ChangeKind, key string, version uint64) cache.Change {
	return cache.Change{Version: version, Key: key, Kind: kind}
}

func all(string) bool        { return true }
func under(p string) matcher { return func(key string) bool { return strings.HasPrefix(key, p) } }

type matcher = func(string) bool

// Watchers of a cache in which a was put at 1, b at 2, a again at 3, b deleted at 4, c put at 5.
func TestWatchers(t *testing.T) {
	entries := func(w *cache.Watcher, list ...cache.Change) {
		for _, e := range list {
			w.Entry(e)
		}
		w.Complete(0)
	}
	changes := func(w *cache.Watcher, list ...cache.Change) {
		for _, x := range list {
			w.Change(x)
		}
	}
	a1, b2, a3, b4, c5 := value("a", "1", 1), value("b", "2", 2), value("a", "3", 3), gone(cache.Deleted, "b", 4), value("c", "5", 5)
	for name, x := range map[string]struct {
		tell  func(w *cache.Watcher)
		match matcher
		want  []cache.Kind
	}{
		"from the beginning": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, a3, b4, c5)
			w.Upto(0, 5)
		}, all, nil},
		"a snapshot and the rest": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(2)))
			entries(w, a1, b2)
			changes(w, a3, b4, c5)
			w.Upto(0, 5)
		}, all, nil},
		"a snapshot that is newer than where it begins": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(2)))
			entries(w, a3, b2)
			changes(w, b4, c5)
			w.Upto(0, 5)
		}, all, nil},
		"a snapshot of nothing": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(3)))
			entries(w)
			changes(w, c5)
			w.Upto(0, 5)
		}, under("c"), nil},
		"a snapshot that nobody says is complete": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(2)))
			w.Entry(a1)
			w.Entry(b2)
			changes(w, a3, b4, c5)
		}, all, []cache.Kind{cache.Unmarked}},
		"a snapshot of nothing that nobody says is complete": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(5)))
			w.Upto(0, 5)
		}, under("d"), []cache.Kind{cache.Unmarked}},
		"a snapshot that is complete twice": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(2)))
			entries(w, a1, b2)
			w.Complete(0)
			changes(w, a3, b4, c5)
		}, all, []cache.Kind{cache.Repeated}},
		"a snapshot older than where changes begin": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(3)))
			entries(w, a1, b2)
			changes(w, b4, c5)
			w.Upto(0, 5)
		}, all, []cache.Kind{cache.Snapshot, cache.Folded}},
		"a snapshot without a key": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(3)))
			entries(w, b2)
			changes(w, b4, c5)
			w.Upto(0, 5)
		}, all, []cache.Kind{cache.Snapshot, cache.Folded}},
		"a snapshot with what was deleted": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(5)))
			entries(w, a3, b2, c5)
			w.Upto(0, 5)
		}, all, []cache.Kind{cache.Snapshot, cache.Folded}},
		"a missed change": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, b4, c5)
		}, all, []cache.Kind{cache.Missed, cache.Folded}},
		"a missed delete": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, a3, c5)
		}, all, []cache.Kind{cache.Missed, cache.Folded}},
		"a missed change at the end": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, a3, b4)
			w.Upto(0, 5)
		}, all, []cache.Kind{cache.Missed, cache.Folded}},
		"a missed change behind a snapshot": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(2)))
			entries(w, a1, b2)
			changes(w, b4, c5)
		}, all, []cache.Kind{cache.Missed, cache.Folded}},
		"a missed change where nobody said where it begins": {func(w *cache.Watcher) {
			w.Begin(0, false, nil)
			changes(w, b2, b4, c5)
		}, all, []cache.Kind{cache.Missed}},
		"not told where it begins": {func(w *cache.Watcher) {
			w.Begin(0, false, nil)
			changes(w, a3, b4, c5)
			w.Upto(0, 5)
		}, all, nil},
		"a repeated change": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, b2, a3, b4, c5)
		}, all, []cache.Kind{cache.Repeated}},
		"a change that the snapshot had": {func(w *cache.Watcher) {
			w.Begin(0, true, new(uint64(2)))
			entries(w, a3, b2)
			changes(w, a3, b4, c5)
		}, all, []cache.Kind{cache.Repeated}},
		"changes out of order": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, a3, b2, b4, c5)
		}, all, []cache.Kind{cache.Repeated}},
		"a change from before it begins": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(3)))
			changes(w, a3, b4, c5)
		}, all, []cache.Kind{cache.Repeated}},
		"a change of another key": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, a3)
		}, under("a"), []cache.Kind{cache.Phantom}},
		"a change that nobody made": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, a3, b4, c5, value("c", "6", 6))
		}, all, []cache.Kind{cache.Phantom}},
		"another value": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, value("a", "x", 3), b4, c5)
		}, all, []cache.Kind{cache.Altered, cache.Folded}},
		"begun again with a snapshot": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2)
			w.Begin(0, true, new(uint64(4)))
			entries(w, a3)
			changes(w, c5)
			w.Upto(0, 5)
		}, all, nil},
		"begun again with a snapshot, and keeps what is gone": {func(w *cache.Watcher) {
			w.Begin(0, false, new(uint64(0)))
			changes(w, a1, b2)
			w.Begin(0, true, new(uint64(4)))
			entries(w, a3, b2)
			changes(w, c5)
			w.Upto(0, 5)
		}, all, []cache.Kind{cache.Snapshot, cache.Folded}},
		"merged": {func(w *cache.Watcher) {
			w.Conflates().Begin(0, false, new(uint64(0)))
			a := a3
			a.Skipped = 1
			b := b4
			b.Skipped = 1
			changes(w, a, b, c5)
			w.Upto(0, 5)
		}, all, nil},
		"merged without a word": {func(w *cache.Watcher) {
			w.Conflates().Begin(0, false, new(uint64(0)))
			changes(w, b2, a3, b4, c5)
			w.Upto(0, 5)
		}, all, []cache.Kind{cache.Missed}},
		"merged, and then nothing": {func(w *cache.Watcher) {
			w.Conflates().Begin(0, false, new(uint64(0)))
			changes(w, a1, b2, b4, c5)
			w.Upto(0, 5)
		}, all, []cache.Kind{cache.Missed, cache.Folded}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := &story{t: t}
			s.put("a", "1", 1)
			s.put("b", "2", 2)
			s.put("a", "3", 3)
			s.del("b", 4)
			s.put("c", "5", 5)
			w := s.Watch("w", x.match)
			x.tell(w)
			w.Ready(0)
			s.Store(cache.Store{AsOf: 5, Match: all, Entries: []cache.Change{a3, c5}})
			s.wants(x.want...)
		})
	}
}

// What began once a watch was answered, must come; and what was acknowledged before it was asked for, must be in its
// snapshot, though nobody says where it begins.
func TestWatchersWithoutAnOffset(t *testing.T) {
	s := &story{t: t}
	s.put("a", "1", 1)
	live, snap := s.Watch("live", all), s.Watch("snapshot", all)
	live.Begin(0, false, nil)
	snap.Begin(0, true, nil)
	live.Ready(0)
	snap.Complete(0)
	s.put("a", "2", 2)
	live.Upto(0, 2)
	snap.Change(value("a", "2", 2))
	s.wants(cache.Missed, cache.Snapshot)
}

// A value expires once, when it is time, and only if nothing came in between.
func TestExpiredChanges(t *testing.T) {
	for name, x := range map[string]struct {
		ttl  time.Duration
		tell func(s *story, w *cache.Watcher, expired cache.Change)
		want []cache.Kind
	}{
		"in time": {time.Second, func(_ *story, w *cache.Watcher, expired cache.Change) {
			w.Change(expired)
		}, nil},
		"too early": {time.Second + time.Microsecond, func(_ *story, w *cache.Watcher, expired cache.Change) {
			w.Change(expired)
		}, []cache.Kind{cache.Early}},
		"for ever": {0, func(_ *story, w *cache.Watcher, expired cache.Change) {
			w.Change(expired)
		}, []cache.Kind{cache.Early}},
		"put again": {time.Second, func(s *story, w *cache.Watcher, expired cache.Change) {
			s.did(put("b", nil), cache.Answer{Version: 2})
			w.Change(value("k", "b", 2))
			expired.Version = 3
			w.Change(expired)
		}, []cache.Kind{cache.Early}},
		"deleted": {time.Second, func(s *story, w *cache.Watcher, expired cache.Change) {
			s.del("k", 2)
			w.Change(gone(cache.Deleted, "k", 2))
			expired.Version = 3
			w.Change(expired)
		}, []cache.Kind{cache.Repeated}},
		"twice": {time.Second, func(_ *story, w *cache.Watcher, expired cache.Change) {
			w.Change(expired)
			expired.Version = 3
			w.Change(expired)
		}, []cache.Kind{cache.Repeated}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := &story{t: t}
			w := s.Watch("w", all)
			w.Begin(0, false, new(uint64(0)))
			a := put("a", nil)
			a.TTL = x.ttl
			s.did(a, cache.Answer{Version: 1, AppendTime: second})
			w.Change(value("k", "a", 1))
			expired := gone(cache.Expired, "k", 2)
			expired.NotAfter = 2 * second
			x.tell(s, w, expired)
			s.wants(x.want...)
		})
	}
}

// A watcher shows what came of an attempt that nobody knows the outcome of.
func TestWatchersTellWhatBecame(t *testing.T) {
	s := &story{t: t}
	s.put("k", "a", 1)
	s.lost(put("b", nil))
	w := s.Watch("w", all)
	w.Begin(0, false, new(uint64(0)))
	w.Change(value("k", "a", 1))
	w.Change(value("k", "b", 2))
	s.get("k", "b", 2)
	s.wants()
	s.End(s.Begin(put("c", nil)), cache.Answer{Outcome: history.Refused})
	w.Change(value("k", "c", 3))
	s.wants(cache.Stored)
}
