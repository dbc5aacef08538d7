// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"slices"
)

// cursorEvent is a commit of a cursor, or a place at which one was found.
type cursorEvent struct {
	name         string
	shard        Shard
	offset       uint64
	began, ended int
	found        bool
}

// startEvent is where a log was said to begin.
type startEvent struct {
	shard        Shard
	offset       uint64
	began, ended int
}

// Moment is now, to be handed over when what begins now has ended.
func (r *Recorder) Moment() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	return r.moment
}

// Commit records that a cursor's commit, which began at a moment, was acknowledged. Call it with ended false for one
// whose outcome is unknown.
func (r *Recorder) Commit(name string, s Shard, offset uint64, began int, acked bool) {
	e := cursorEvent{name: name, shard: s, offset: offset, began: began}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moment++; acked {
		e.ended = r.moment
	}
	r.cursors = append(r.cursors, e)
}

// Found records where an opening that began at a moment found a cursor.
func (r *Recorder) Found(name string, s Shard, offset uint64, began int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.cursors = append(r.cursors, cursorEvent{name: name, shard: s, offset: offset, began: began, ended: r.moment, found: true})
}

// Begins records where a shard was said to begin, by an answer to what was asked at a moment.
func (r *Recorder) Begins(s Shard, offset uint64, began int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.starts = append(r.starts, startEvent{shard: s, offset: offset, began: began, ended: r.moment})
}

// checkCursors demands that nothing finds a cursor behind what was acknowledged before it asked, nor beyond what anybody
// asked for. A shard that was cut is left out: its cursors went with what it lost.
func (c *checker) checkCursors() {
	for _, f := range c.cursors {
		if !f.found || slices.ContainsFunc(c.cuts, func(x cut) bool { return x.shard == f.shard }) {
			continue
		}
		var least, most uint64
		for _, e := range c.cursors {
			if e.name != f.name || e.shard != f.shard {
				continue
			}
			if e.ended != 0 && e.ended < f.began {
				least = max(least, e.offset)
			}
			if !e.found && e.began < f.ended {
				most = max(most, e.offset)
			}
		}
		switch {
		case f.offset < least:
			c.report(CursorBack, f.shard, f.offset, "cursor %s was committed at %d, and is found at %d", f.name, least, f.offset)
		case f.offset > most:
			c.report(CursorBack, f.shard, f.offset, "cursor %s is found at %d, and nobody moved it beyond %d", f.name, f.offset, most)
		}
	}
}

// checkStarts demands that a log's start only rises.
func (c *checker) checkStarts() {
	for _, s := range c.starts {
		for _, before := range c.starts {
			if before.shard == s.shard && before.ended < s.began && before.offset > s.offset &&
				!slices.ContainsFunc(c.cuts, func(x cut) bool { return x.shard == s.shard && x.offset < before.offset }) {
				c.report(StartBack, s.shard, s.offset, "the log was said to begin at %d before", before.offset)
				return
			}
		}
	}
}

// checkConditions holds conditional attempts to the order in which the log has the records of their key.
func (c *checker) checkConditions() {
	type keyed struct {
		shard Shard
		key   string
	}
	type stored struct {
		*attempt
		offset uint64
	}
	byKey := map[keyed][]stored{}
	from := map[Shard]uint64{}
	for i := range c.attempts {
		a := &c.attempts[i]
		if at, ok := c.placeOf(a); ok {
			k := keyed{at.shard, a.Key}
			byKey[k] = append(byKey[k], stored{a, at.offset})
		}
	}
	for _, a := range c.audits {
		from[a.shard] = max(from[a.shard], a.from)
	}
	for i := range c.attempts {
		a := &c.attempts[i]
		if a.If == nil {
			continue
		}
		at, ok := c.placeOf(a)
		if !ok {
			continue
		}
		log := byKey[keyed{at.shard, a.Key}]
		slices.SortFunc(log, func(x, y stored) int { return cmp.Compare(x.offset, y.offset) })
		n := slices.IndexFunc(log, func(s stored) bool { return s.attempt == a })
		var have uint64
		if n > 0 && !log[n-1].Tombstone {
			have = log[n-1].offset + 1
		}
		if want := uint64(*a.If); have != want && (want != 0 || have > from[at.shard]) {
			c.report(Condition, at.shard, at.offset, "%s was to follow version %d, and follows %d", a, want, have)
		}
	}
	for i := range c.attempts {
		if a := &c.attempts[i]; a.If != nil && a.Have != nil {
			c.checkConflict(a)
		}
	}
}

// checkConflict demands that the version that a conflict names was the key's at some time before the answer, and that the
// version that was asked for was not the key's for all of the attempt.
func (c *checker) checkConflict(a *attempt) {
	want, have := uint64(*a.If), uint64(*a.Have)
	if want == have {
		c.report(Condition, a.Shard, have, "%s conflicts with the very version that it asked for", a)
		return
	}
	if have == 0 {
		return // a tombstone, retention or a loss
	}
	known := false
	for i := range c.attempts {
		b := &c.attempts[i]
		if b.Key != a.Key || b.began > a.ended {
			continue
		}
		if at, ok := c.placeOf(b); !ok || at.shard == a.Shard && at.offset+1 == have {
			known = true // what has no place may have been there
		}
	}
	if !known && len(c.cuts) == 0 {
		c.report(Condition, a.Shard, have, "%s was told of version %d, which no record of its key has", a, have)
	}
}
