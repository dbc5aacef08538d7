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
	outcome      Outcome
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

// Commit records that a cursor is to be moved, and returns the commit's name. Call it before the request leaves.
func (r *Recorder) Commit(name string, s Shard, offset uint64) ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.cursors = append(r.cursors, cursorEvent{name: name, shard: s, offset: offset, began: r.moment})
	return ID(len(r.cursors) - 1)
}

// Committed records how a commit ended. One without it counts as unknown.
func (r *Recorder) Committed(id ID, o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.cursors[id].ended, r.cursors[id].outcome = r.moment, o
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
			if (e.found || e.outcome == Acked) && e.ended < f.began {
				least = max(least, e.offset)
			}
			if !e.found && e.began < f.ended && e.outcome != Refused && e.outcome != Fatal {
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
		want := uint64(*a.If)
		if want > have && want <= from[at.shard] {
			continue // on what retention took before anybody read it, it may be
		}
		if have != want && (want != 0 || have > from[at.shard]) {
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
	if have == 0 || slices.ContainsFunc(c.cuts, func(x cut) bool { return x.shard == a.Shard }) {
		return // a tombstone, retention or a loss
	}
	// What was read once stays, and an audit reads all there is: a version that it does not show was never there.
	covered := slices.ContainsFunc(c.audits, func(x audit) bool { return x.shard == a.Shard && x.from < have })
	if r, ok := c.seen[place{a.Shard, have - 1}]; covered && (!ok || r.Key != a.Key) {
		c.report(Condition, a.Shard, have, "%s was told of version %d, which no record of its key has", a, have)
	}
}
