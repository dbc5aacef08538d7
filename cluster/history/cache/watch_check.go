// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"fmt"
	"maps"
	"slices"
)

// life is what a watcher was told of one shard from one beginning on.
type life struct {
	c       *checker
	w       *Watcher
	shard   uint32
	begun   int // moments of the beginning and of the answer
	ready   int
	from    *uint64
	whole   bool // it began with a snapshot
	waiting bool // for the end of it
	marked  int  // the moment when that was said to be complete
	entries map[string]*Change
	last    map[string]*Change // by key: the newest it was told
	got     map[uint64]*Change // changes, by version
	first   uint64             // version of the first change
	next    uint64             // above the last
	upto    uint64             // offset below which everything must have been told
	told    bool               // Unmarked is reported once
}

// checkWatcher holds a watcher to the state where it began and then every change, once and in order.
func (c *checker) checkWatcher(w *Watcher) {
	lives := map[uint32]*life{}
	for i := range w.events {
		e := &w.events[i]
		l := lives[e.shard]
		if e.kind == eventBegin {
			if l != nil {
				l.end()
			}
			lives[e.shard] = &life{
				c: c, w: w, shard: e.shard, begun: e.moment, from: e.from, whole: e.snapshot,
				waiting: e.snapshot, entries: map[string]*Change{}, last: map[string]*Change{}, got: map[uint64]*Change{},
			}
			continue
		}
		if l == nil {
			c.report(Unusable, e.change.Key, "watcher %s was told of shard %d before it began", w.name, e.shard)
			return
		}
		l.take(e)
	}
	for _, shard := range slices.Sorted(maps.Keys(lives)) {
		lives[shard].end()
		lives[shard].compare()
	}
}

func (l *life) report(k Kind, key, format string, args ...any) {
	l.c.report(k, key, "watcher %s %s", l.w.name, fmt.Sprintf(format, args...))
}

func (l *life) take(e *event) {
	x := &e.change
	switch e.kind {
	case eventReady:
		l.ready = e.moment
	case eventEntry:
		switch {
		case !l.waiting:
			l.report(Unmarked, x.Key, "got the entry %s outside of a snapshot", x)
		case l.entries[x.Key] != nil:
			l.report(Repeated, x.Key, "got the entries %s and %s", l.entries[x.Key], x)
		}
		l.entries[x.Key], l.last[x.Key] = x, x
		l.foreign(x)
	case eventComplete:
		if !l.waiting {
			l.report(Repeated, "", "was told twice that its snapshot of shard %d is complete", l.shard)
		}
		l.waiting, l.marked = false, e.moment
		l.ready = max(l.ready, l.begun)
	case eventChange:
		l.change(x)
	case eventUpto:
		l.unmarked("")
		l.upto = max(l.upto, e.upto)
	case eventBegin:
	}
}

func (l *life) unmarked(key string) {
	if l.waiting && !l.told {
		l.told = true
		l.report(Unmarked, key, "was never told that its snapshot of shard %d is complete", l.shard)
	}
}

func (l *life) foreign(x *Change) {
	if !l.w.match(x.Key) {
		l.report(Phantom, x.Key, "got %s, and watches other keys", x)
	}
}

func (l *life) change(x *Change) {
	l.unmarked(x.Key)
	l.foreign(x)
	last := l.last[x.Key]
	switch {
	case l.got[x.Version] != nil:
		l.report(Repeated, x.Key, "got %s twice", x)
		return
	case x.Version < l.next && !l.w.conflates:
		l.report(Repeated, x.Key, "got %s behind version %d", x, l.next-1)
	case last != nil && x.Version <= last.Version:
		l.report(Repeated, x.Key, "got %s behind %s", x, last)
	case l.from != nil && x.Version <= *l.from:
		l.report(Repeated, x.Key, "got %s, and begins at offset %d", x, *l.from)
	}
	l.got[x.Version] = x
	if l.first == 0 || x.Version < l.first {
		l.first = x.Version
	}
	l.next = max(l.next, x.Version+1)
	l.last[x.Key] = x
}

// end looks for what the watcher was not told. Where it began is what it was told, or else follows from what was
// acknowledged before it asked, and from what was begun after it was answered.
func (l *life) end() {
	truth := l.c.order[l.shard]
	var least, most uint64 // versions: all below least lies before the beginning, all from most on behind it
	for _, x := range truth {
		if x.ended != 0 && x.ended < l.begun {
			least = max(least, x.Version+1)
		}
	}
	most = max(l.first, 1)
	if l.first == 0 {
		most = ^uint64(0)
	}
	for _, x := range truth {
		if l.ready != 0 && x.written > l.ready {
			most = min(most, x.Version)
		}
	}
	if l.from != nil {
		least, most = *l.from+1, *l.from+1
	}
	if l.whole {
		if !l.waiting {
			l.checkSnapshot(truth, least)
		}
		return
	}
	last := max(l.next, l.upto+1) // version from which on it may be still to come
	skipped := map[string]uint64{}
	for _, x := range truth {
		if x.Version >= most && x.Version < last && l.w.match(x.Key) {
			skipped[x.Key] = l.owes(x, skipped[x.Key], last)
		}
	}
}

// owes looks at one change that the watcher is to be told of, behind so many of the key that it was not; and returns how
// many there are then.
func (l *life) owes(x *committed, skipped, last uint64) uint64 {
	got := l.got[x.Version]
	switch {
	case got != nil:
		if got.Skipped < skipped || got.Skipped > 0 && !l.w.conflates {
			l.report(Missed, x.Key, "got %s with %d skipped, and did not get %d", got, got.Skipped, skipped)
		}
		return 0
	case l.w.conflates && l.last[x.Key] != nil && l.last[x.Key].Version > x.Version:
		return skipped + 1
	}
	l.report(Missed, x.Key, "stands at version %d and did not get %s, by %s", last-1, &x.Change, x.by)
	return skipped
}

// checkSnapshot demands that each key has an entry that is no older than where the watch began, and then every change. An
// entry may be newer; and a key that was there and is gone by the time of the snapshot has none.
func (l *life) checkSnapshot(truth []*committed, least uint64) {
	byKey := map[string][]*committed{}
	for _, x := range truth {
		if l.w.match(x.Key) {
			byKey[x.Key] = append(byKey[x.Key], x)
		}
	}
	last := max(l.next, l.upto+1)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		e := l.entries[key]
		var before, newest *committed // the newest that the snapshot has in it, and that it must
		var rest []*committed
		for _, x := range byKey[key] {
			switch {
			case x.Version < least:
				newest, before = x, x
			case e != nil && x.Version <= e.Version:
				before = x
			case e == nil && len(rest) == 0 && l.got[x.Version] == nil && x.Version < last && x.written < l.marked:
				before = x
			case x.Version < last:
				rest = append(rest, x)
			}
		}
		switch {
		case e != nil && newest != nil && e.Version < newest.Version:
			l.report(Snapshot, key, "has %s in its snapshot, and begins behind %s, by %s", e, &newest.Change, newest.by)
		case e == nil && len(rest) > 0 && rest[0].Kind != Value && rest[0].written < l.marked:
			// It was gone when the snapshot came to it, and that it went came live as well.
		case e == nil && before != nil && before.Kind == Value && !l.c.over(&before.Change, 0) && !l.c.mayBeGone(key):
			kind := Missed
			if before == newest {
				kind = Snapshot
			}
			l.report(kind, key, "has a snapshot without it, and did not get what is behind %s, by %s", &before.Change, before.by)
		}
		var skipped uint64
		for _, x := range rest {
			skipped = l.owes(x, skipped, last)
		}
	}
}

// compare holds what the watcher comes to against what the store was said to hold at an offset that it has been told up to.
func (l *life) compare() {
	for _, s := range l.c.stores {
		if s.Shard != l.shard || l.waiting || max(l.upto+1, l.next) <= s.AsOf || l.w.conflates && l.next > s.AsOf+1 {
			continue
		}
		have := map[string]*Change{}
		for i := range s.Entries {
			have[s.Entries[i].Key] = &s.Entries[i]
		}
		fold := l.fold(s.AsOf)
		for _, key := range slices.Sorted(maps.Keys(fold)) {
			x, e := fold[key], have[key]
			switch {
			case !s.Match(key) || x.Version > s.AsOf: // a snapshot is newer than the store was
			case x.Kind != Value && e == nil || e == nil && l.c.over(x, s.NotAfter):
			case e == nil:
				l.report(Folded, key, "comes to %s, and the store at offset %d does not have it", x, s.AsOf)
			case e.Version != x.Version || e.Value != x.Value || x.Kind != Value:
				l.report(Folded, key, "comes to %s, and the store at offset %d has %s", x, s.AsOf, e)
			}
		}
		if !l.whole && (l.from == nil || *l.from > 0) {
			continue // it was not told what was there before
		}
		for _, key := range slices.Sorted(maps.Keys(have)) {
			if fold[key] == nil && l.w.match(key) && s.Match(key) {
				l.report(Folded, key, "does not have %s, and the store at offset %d does", have[key], s.AsOf)
			}
		}
	}
}

// fold is the newest that the watcher was told of each key, up to an offset.
func (l *life) fold(upto uint64) map[string]*Change {
	fold := maps.Clone(l.entries)
	for v, x := range l.got {
		if old := fold[x.Key]; v <= upto && (old == nil || old.Version < v) {
			fold[x.Key] = x
		}
	}
	return fold
}

// over says whether a value may have expired before a time.
func (c *checker) over(x *Change, at int64) bool {
	expires := x.Expires
	if known := c.truth[place{x.Shard, x.Version}]; expires == nil && known != nil {
		expires = known.Expires
	}
	return expires == nil || *expires != 0 && (at == 0 || at+c.skew >= *expires)
}
