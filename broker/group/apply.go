// SPDX-License-Identifier: Apache-2.0

package group

import (
	"maps"

	"margay.dev/wire/batch"
)

// apply makes an entry true. It is the same for one that is appended, which may be taken back, and for one that is read from
// the log. What a checkpoint says was counted when it happened.
func (s *Groups) apply(e batch.Entry, checkpoint bool) {
	switch e := e.(type) {
	case batch.Group:
		s.applyGroup(e)
	case batch.Settled:
		if g := s.byID[e.Group]; g != nil {
			s.applySettled(g, e, checkpoint)
		}
	case batch.Attempt:
		if g := s.byID[e.Group]; g != nil {
			s.applyAttempt(g, e, checkpoint)
		}
	case batch.Dead:
		if g := s.byID[e.Group]; g != nil {
			s.applyDead(g, e, checkpoint)
		}
	case batch.Command:
		s.commands.put(&s.undo, e)
	}
}

func (s *Groups) applyGroup(e batch.Group) {
	g := s.byID[e.ID]
	if e.Removed {
		if g != nil {
			s.take(g)
		}
		return
	}
	if g == nil {
		g = &Group{state: state{id: e.ID, name: e.Name, created: e.Created}}
		g.begin(e)
		s.put(g)
		return
	}
	if e.Resets != g.resets {
		was := g.state // none of it is changed in place from here on
		s.undo.note(g, func() {
			s.endAll(g) // it was handed out by a group that never began again: nobody could settle it
			g.state = was
		})
		g.begin(e)
		return
	}
	settings, totals, updated := g.settings, g.totals, g.updated
	s.undo.note(g, func() { g.settings, g.totals, g.updated = settings, totals, updated })
	g.describe(e)
}

// describe takes over what an entry says beside the cursor.
func (g *Group) describe(e batch.Group) {
	settings := e.Settings
	g.settings, g.totals, g.updated = &settings, e.Totals, e.Updated
}

// begin makes the group stand at a cursor, with nothing outstanding below.
func (g *Group) begin(e batch.Group) {
	g.describe(e)
	g.resets = e.Resets
	g.passed, g.parked = ranges{low: e.Cursor}, nil
	dead := maps.Clone(g.dead)
	maps.DeleteFunc(dead, func(o uint64, _ batch.Dead) bool { return o >= e.Cursor })
	g.dead = dead
}

func (s *Groups) put(g *Group) {
	s.byID[g.id], s.byName[g.name] = g, g
	s.undo.note(g, func() {
		delete(s.byID, g.id)
		delete(s.byName, g.name)
	})
}

func (s *Groups) take(g *Group) {
	delete(s.byID, g.id)
	delete(s.byName, g.name)
	s.undo.note(g, func() { s.byID[g.id], s.byName[g.name] = g, g })
}

// pass puts [from, to) among what is passed, and says how many were not.
func (s *Groups) pass(g *Group, from, to uint64) (n uint64) {
	if !s.undo.on {
		n = g.passed.missing(from, to)
		g.passed.add(from, to)
		return n
	}
	var added []span
	for gap := range g.passed.gaps(from, to) {
		added = append(added, gap)
		n += gap.to - gap.from
	}
	if n == 0 {
		return 0
	}
	g.passed.add(from, to)
	s.undo.note(g, func() {
		for _, a := range added {
			g.passed.remove(a.from, a.to)
		}
	})
	return n
}

// unpark takes a message out of those that are parked.
func (s *Groups) unpark(g *Group, offset uint64) bool {
	was, ok := g.parked[offset]
	if ok {
		delete(g.parked, offset)
		s.undo.note(g, func() { g.setParked(was) })
	}
	return ok
}

func (g *Group) setParked(a batch.Attempt) {
	if g.parked == nil {
		g.parked = map[uint64]batch.Attempt{}
	}
	g.parked[a.Offset] = a
}

// count changes the totals.
func (s *Groups) count(g *Group, change func(*batch.GroupTotals)) {
	was := g.totals
	s.undo.note(g, func() { g.totals = was })
	change(&g.totals)
}

func (s *Groups) applySettled(g *Group, e batch.Settled, checkpoint bool) {
	var n uint64
	for _, r := range e.Ranges {
		n += s.pass(g, r.From, r.To)
		for _, o := range g.parkedWithin(r.From, r.To) {
			s.unpark(g, o)
			n++
		}
	}
	if checkpoint || n == 0 {
		return
	}
	s.count(g, func(t *batch.GroupTotals) {
		switch e.How {
		case batch.SettledState: // it was counted when it happened
		case batch.SettledAcked:
			t.Acked += n
		case batch.SettledExpired:
			t.Expired += n
		case batch.SettledCancelled:
			t.Cancelled += n
		case batch.SettledLost:
			t.Lost += n
		}
	})
}

// parkedWithin lists the parked messages of [from, to).
func (g *Group) parkedWithin(from, to uint64) (out []uint64) {
	if len(g.parked) == 0 {
		return nil
	}
	if to-from <= uint64(len(g.parked)) {
		for o := from; o < to; o++ {
			if _, ok := g.parked[o]; ok {
				out = append(out, o)
			}
		}
		return out
	}
	for o := range g.parked {
		if from <= o && o < to {
			out = append(out, o)
		}
	}
	return out
}

func (s *Groups) applyAttempt(g *Group, e batch.Attempt, checkpoint bool) {
	was, parked := g.parked[e.Offset]
	ended := uint64(e.Count)
	e.Count = 0
	s.undo.note(g, func() {
		if parked {
			g.parked[e.Offset] = was
		} else {
			delete(g.parked, e.Offset)
		}
		if ended == 0 { // it was put elsewhere, and handed out from there: it is not due, or expires
			s.takeBack(g, e.Offset)
		}
	})
	g.setParked(e)
	s.pass(g, e.Offset, e.Offset+1)
	if !checkpoint && ended > 0 {
		s.count(g, func(t *batch.GroupTotals) { t.Attempts += ended })
	}
}

func (s *Groups) applyDead(g *Group, e batch.Dead, checkpoint bool) {
	was, dead := g.dead[e.Offset]
	s.undo.note(g, func() {
		if !dead {
			delete(g.dead, e.Offset)
			return
		}
		g.dead[e.Offset] = was
		s.takeBack(g, e.Offset) // it was redriven, and handed out since
	})
	if e.Removed != batch.DeadKept {
		delete(g.dead, e.Offset)
	} else {
		if g.dead == nil {
			g.dead = map[uint64]batch.Dead{}
		}
		g.dead[e.Offset] = e
		s.unpark(g, e.Offset)
		s.pass(g, e.Offset, e.Offset+1)
	}
	if checkpoint {
		return
	}
	s.count(g, func(t *batch.GroupTotals) {
		switch e.Removed {
		case batch.DeadKept:
			t.Dead++
			if e.Reason != batch.DeadExpired {
				t.Attempts++
			}
		case batch.DeadRedriven:
			t.Redriven++
		case batch.DeadDiscarded:
			t.Discarded++
		case batch.DeadLost:
			t.Lost++
		}
	})
}

// Replay takes an entry of the log, which is committed.
func (s *Groups) Replay(e batch.Entry, checkpoint bool) { s.apply(e, checkpoint) }

// Entries is the newest state, as a checkpoint holds it.
func (s *Groups) Entries() []batch.Entry {
	var out []batch.Entry
	for _, id := range s.ids() {
		out = append(out, s.byID[id].entries()...)
	}
	return append(out, s.commands.entries()...)
}

const maxRangesEntry = 8192 // ranges of one entry

func (g *Group) entries() []batch.Entry {
	out := []batch.Entry{g.entry()}
	var some []batch.OffsetRange
	for r := range g.passed.all() {
		if r.from == 0 && len(out) == 1 && len(some) == 0 { // the cursor of the first entry says it
			continue
		}
		if some = append(some, batch.OffsetRange{From: r.from, To: r.to}); len(some) == maxRangesEntry {
			out = append(out, batch.Settled{Group: g.id, Ranges: some})
			some = nil
		}
	}
	if len(some) > 0 {
		out = append(out, batch.Settled{Group: g.id, Ranges: some})
	}
	for _, o := range sortedKeys(g.parked) {
		out = append(out, g.parked[o])
	}
	for _, o := range sortedKeys(g.dead) {
		out = append(out, g.dead[o])
	}
	return out
}

// entry describes the group as it is.
func (g *Group) entry() batch.Group {
	return batch.Group{
		ID: g.id, Name: g.name, Resets: g.resets, Created: g.created, Updated: g.updated, Settings: *g.settings,
		Cursor: g.passed.low, Totals: g.totals,
	}
}
