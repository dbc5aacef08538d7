// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"margay.dev/cluster/history"
)

// place is where a change lies.
type place struct {
	shard   uint32
	version uint64
}

// committed is a change that is known to be in the log, and who says so.
type committed struct {
	Change

	by    string
	blank bool // the value is not known
	// written is when the attempt that made it began, 0 when nobody knows; ended when it was acknowledged, 0 when not.
	written, ended int
}

// checker holds one history and what was gathered from it. Each check is one promise.
type checker struct {
	attempts []attempt
	watchers []*Watcher
	stores   []store
	skew     int64
	steps    int
	moments  int

	byKey map[string][]*attempt
	keys  []string // sorted: reports must not depend on map order
	truth map[place]*committed
	order map[uint32][]*committed // truth, by shard, in order of versions
	found []Violation
}

func (c *checker) report(k Kind, key, format string, args ...any) {
	c.found = append(c.found, Violation{Kind: k, Key: key, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) check() []Violation {
	c.gather()
	c.resolve()
	c.checkRising()
	for _, key := range c.keys {
		c.checkKey(key)
	}
	c.sortTruth()
	c.checkExpiries()
	c.checkStale()
	for _, w := range c.watchers {
		c.checkWatcher(w)
	}
	return c.found
}

// gather collects every change that somebody knows of. Those who know of one agree.
func (c *checker) gather() {
	c.byKey = map[string][]*attempt{}
	c.truth = map[place]*committed{}
	for i := range c.attempts {
		a := &c.attempts[i]
		c.byKey[a.Key] = append(c.byKey[a.Key], a)
		if a.Outcome == history.Unknown {
			a.NotAfter = 0 // that is when its client gave up
		}
		if a.denied() && a.If != nil && a.Have != nil && *a.If == *a.Have {
			c.report(Condition, a.Key, "[%s] conflicts with the very version that it asked for", a)
		}
		if !a.binding() {
			continue
		}
		a.version = a.Version
		at := place{a.Shard, a.version}
		if other, ok := c.truth[at]; ok {
			c.report(Clash, a.Key, "[%s] has the version of %s, by %s", a, &other.Change, other.by)
			continue
		}
		made := &committed{by: "[" + a.String() + "]", written: a.began, ended: a.ended}
		made.Change = Change{Shard: a.Shard, Version: a.version, Key: a.Key, Kind: Value, Value: a.Value}
		switch a.Op {
		case Delete:
			made.Kind = Deleted
		case Add:
			made.Value = strconv.FormatInt(a.Sum, 10)
		case Touch:
			made.blank = true
		default:
		}
		if d, ok := a.deadline(); ok {
			made.Expires = &d
		}
		c.truth[at] = made
	}
	c.keys = slices.Sorted(maps.Keys(c.byKey))
	for i := range c.attempts {
		if a := &c.attempts[i]; a.Op == Get && a.Outcome == history.Acked && a.Version != 0 {
			c.sight(Change{
				Shard: a.Shard, Version: a.Version, Key: a.Key, Kind: Value, Value: a.Got, Expires: a.Expires,
			}, "["+a.String()+"]")
		}
	}
	for _, w := range c.watchers {
		for i := range w.events {
			if e := &w.events[i]; e.kind == eventEntry || e.kind == eventChange {
				c.sight(e.change, "watcher "+w.name)
			}
		}
	}
	for i, s := range c.stores {
		for _, e := range s.Entries {
			c.sight(e, fmt.Sprintf("store %d", i))
		}
	}
}

// deadline of the value, as far as it is known for certain.
func (a *attempt) deadline() (int64, bool) {
	switch {
	case a.Op == Delete || a.KeepTTL:
		return 0, false
	case a.TTL == 0:
		return 0, true
	case a.AppendTime != 0:
		return a.AppendTime + a.TTL.Microseconds(), true
	}
	return 0, false
}

func (c *checker) sight(x Change, by string) {
	at := place{x.Shard, x.Version}
	have, ok := c.truth[at]
	if !ok {
		c.truth[at] = &committed{Change: x, by: by}
		return
	}
	if have.blank && have.Key == x.Key && have.Kind == x.Kind {
		have.Value, have.blank = x.Value, false
	}
	switch {
	case have.Key != x.Key, have.Kind != x.Kind, have.Value != x.Value:
		c.report(Altered, x.Key, "%s got %s, and by %s it is %s", by, &x, have.by, &have.Change)
	case x.Expires != nil && have.Expires == nil:
		have.Expires = x.Expires
	case x.Expires != nil && *x.Expires != *have.Expires:
		c.report(Early, x.Key, "%s was told that %s ends at %d, and by %s it does at %d", by, &x, *x.Expires, have.by, *have.Expires)
	}
}

// resolve finds out which attempts were applied of those that nobody told so, by the values that were seen.
func (c *checker) resolve() {
	seen := map[string]map[string][]*committed{} // by key and value
	for _, x := range c.truth {
		if x.Kind != Value || x.blank {
			continue
		}
		if seen[x.Key] == nil {
			seen[x.Key] = map[string][]*committed{}
		}
		seen[x.Key][x.Value] = append(seen[x.Key][x.Value], x)
	}
	for _, key := range slices.Sorted(maps.Keys(seen)) {
		attempts := c.byKey[key]
		if slices.ContainsFunc(attempts, func(a *attempt) bool { return a.Op == Add || a.Op == Touch }) {
			continue // their values are not one attempt's
		}
		writer := map[string]*attempt{}
		for _, a := range attempts {
			if a.Op != Put {
				continue
			}
			if other, ok := writer[a.Value]; ok {
				c.report(Unusable, key, "[%s] and [%s] wrote the same value", other, a)
			}
			writer[a.Value] = a
		}
		for _, value := range slices.Sorted(maps.Keys(seen[key])) {
			at := seen[key][value]
			slices.SortFunc(at, func(x, y *committed) int { return cmp.Compare(x.Version, y.Version) })
			c.resolveOne(key, value, writer[value], at)
		}
	}
}

func (c *checker) resolveOne(key, value string, a *attempt, at []*committed) {
	switch {
	case a == nil:
		c.report(Phantom, key, "%s got %s, which nobody wrote", at[0].by, short(value))
	case a.denied():
		c.report(Stored, key, "%s got %s, [%s]", at[0].by, short(value), a)
	case len(at) > 1:
		c.report(Twice, key, "[%s] is there at versions %d and %d, by %s", a, at[0].Version, at[1].Version, at[1].by)
	case a.version == 0:
		a.version = at[0].Version
		at[0].written = a.began
	}
}

// checkRising demands that what began after something was acknowledged has a higher version, whatever the keys.
func (c *checker) checkRising() {
	byShard := map[uint32][]*attempt{}
	for i := range c.attempts {
		if a := &c.attempts[i]; a.binding() {
			byShard[a.Shard] = append(byShard[a.Shard], a)
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		all := byShard[shard]
		ended := slices.SortedFunc(slices.Values(all), func(x, y *attempt) int { return cmp.Compare(x.ended, y.ended) })
		slices.SortFunc(all, func(x, y *attempt) int { return cmp.Compare(x.began, y.began) })
		var highest *attempt // of those that had ended
		for _, a := range all {
			for len(ended) > 0 && ended[0].ended < a.began {
				if highest == nil || ended[0].version > highest.version {
					highest = ended[0]
				}
				ended = ended[1:]
			}
			if highest != nil && highest.version > a.version {
				c.report(VersionBack, a.Key, "[%s] began behind [%s]", a, highest)
			}
		}
	}
}

func (c *checker) sortTruth() {
	c.order = map[uint32][]*committed{}
	for _, x := range c.truth {
		c.order[x.Shard] = append(c.order[x.Shard], x)
	}
	for _, all := range c.order {
		slices.SortFunc(all, func(x, y *committed) int { return cmp.Compare(x.Version, y.Version) })
	}
}

// checkExpiries demands that what expired had a deadline, and had come to it. A value that expired does so once.
func (c *checker) checkExpiries() {
	for _, shard := range slices.Sorted(maps.Keys(c.order)) {
		newest := map[string]*committed{}
		for _, x := range c.order[shard] {
			before := newest[x.Key]
			newest[x.Key] = x
			if x.Kind != Expired || before == nil {
				continue
			}
			switch {
			case before.Kind != Value:
				c.report(Repeated, x.Key, "%s got %s, behind %s by %s", x.by, &x.Change, &before.Change, before.by)
			case before.Expires != nil && *before.Expires == 0:
				c.report(Early, x.Key, "%s got %s, and %s, by %s, is for ever", x.by, &x.Change, &before.Change, before.by)
			case before.Expires != nil && x.NotAfter != 0 && x.NotAfter+c.skew < *before.Expires:
				c.report(Early, x.Key, "%s got %s before %d, and %s, by %s, ends at %d", x.by, &x.Change, x.NotAfter, &before.Change,
					before.by, *before.Expires)
			}
		}
	}
}

// mayBeGone says whether somebody may have ended the key and nobody knows.
func (c *checker) mayBeGone(key string) bool {
	return slices.ContainsFunc(c.byKey[key], func(a *attempt) bool {
		return a.version == 0 && !a.denied() && a.Outcome != history.Acked && (a.Op == Delete || a.TTL > 0)
	})
}

// checkStale demands that what was read as of an offset is what the key had there.
func (c *checker) checkStale() {
	byKey := map[string][]*committed{}
	for _, shard := range slices.Sorted(maps.Keys(c.order)) {
		for _, x := range c.order[shard] {
			byKey[x.Key] = append(byKey[x.Key], x)
		}
	}
	for i := range c.attempts {
		a := &c.attempts[i]
		if !a.Stale || a.Outcome != history.Acked {
			continue
		}
		if a.AsOf < a.AtLeast || a.Version > a.AsOf {
			c.report(Order, a.Key, "[%s] was asked for at least offset %d, and answered as of %d", a, a.AtLeast, a.AsOf)
		}
		var newest *committed
		for _, x := range byKey[a.Key] {
			if x.Version <= a.AsOf {
				newest = x
			}
		}
		switch {
		case newest == nil && a.Version == 0, newest != nil && newest.Version == a.Version:
		case newest == nil: // its sight is what is known
		case a.Version == 0 && (newest.Kind != Value || c.over(&newest.Change, a.NotAfter) || c.mayBeGone(a.Key)):
		default:
			c.report(Order, a.Key, "[%s] as of offset %d, where it has %s, by %s", a, a.AsOf, &newest.Change, newest.by)
		}
	}
}
