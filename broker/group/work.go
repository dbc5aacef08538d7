// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"

	"margay.dev/wire/batch"
)

const levels = batch.MaxPriority + 1

// work is what a group has in hand while somebody consumes. Of the messages below scan each that is outstanding is in one
// place: ready, waiting for its key's turn, later, or claimed.
type work struct {
	ready     [levels]fifo
	keys      map[uint64]*keyed
	later     delayed
	claims    map[uint64]claim // by offset
	deadlines deadlines
	consumers []*Consumer
	turn      int // whose it is

	scan     uint64 // the next offset to be taken in
	scanning uint64 // id of the scan under way; 0: none
	scanOff  int64  // none is asked for before that
	loaded   bool   // what is parked, and what is carried, is taken in
	held     uint64 // messages in ready and keys
	lookedAt int64  // when somebody last wanted to know what is there
	handedAt int64  // when something was last handed out, or there was nothing to be
}

// keyed is what waits for a key.
type keyed struct {
	items  []item // by offset
	busy   int    // messages that hold the key: out, or waiting for their next attempt
	inTurn bool
}

// freed is a key that is free once a batch is committed.
type freed struct{ sequence, key uint64 }

func (g *Group) keyed() bool { return g.settings.OrderByKey || g.settings.FairKeys }

func newWork() *work {
	return &work{keys: map[uint64]*keyed{}, claims: map[uint64]claim{}}
}

// idle says whether there is nothing that could be handed out now.
func (w *work) idle() bool {
	for i := range w.ready {
		if !w.ready[i].empty() {
			return false
		}
	}
	return true
}

// key is what is known of a key.
func (w *work) key(k uint64) *keyed {
	x := w.keys[k]
	if x == nil {
		x = &keyed{}
		w.keys[k] = x
	}
	return x
}

// put makes a message ready.
func (g *Group) put(it item) {
	w := g.work
	w.held += it.to - it.offset
	if it.key == 0 || !g.keyed() || g.holds(&it) {
		w.ready[it.level].push(it)
		return
	}
	x := w.key(it.key)
	at, _ := slices.BinarySearchFunc(x.items, it.offset, func(a item, offset uint64) int {
		switch {
		case a.offset < offset:
			return -1
		case a.offset > offset:
			return 1
		}
		return 0
	})
	x.items = slices.Insert(x.items, at, it)
	g.giveTurn(it.key, x)
}

// holds says whether a message has its key already: it was tried, and waits for its next attempt.
func (g *Group) holds(it *item) bool {
	return it.parked && g.settings.OrderByKey && g.parked[it.offset].Retry
}

// giveTurn lets the first message of a key stand in line, unless the key is held.
func (g *Group) giveTurn(key uint64, x *keyed) {
	if x.inTurn || len(x.items) == 0 || g.settings.OrderByKey && x.busy > 0 {
		return
	}
	x.inTurn = true
	first := &x.items[0]
	q := &g.work.ready[first.level]
	if g.settings.FairKeys {
		q.push(item{key: key, at: first.at, level: first.level, turn: true})
		return
	}
	q.turns.push(turn{offset: first.offset, key: key, at: first.at})
}

// hold notes that a message that is handed out has its key.
func (g *Group) hold(key uint64) {
	if key != 0 && g.settings.OrderByKey {
		g.work.key(key).busy++
	}
}

// free lets the next message of a key have it.
func (g *Group) free(key uint64) {
	if key == 0 || g.work == nil || !g.settings.OrderByKey {
		return
	}
	x := g.work.key(key)
	if x.busy--; x.busy > 0 {
		return
	}
	x.busy = 0
	if len(x.items) == 0 {
		delete(g.work.keys, key)
		return
	}
	g.giveTurn(key, x)
}

// freeLater lets the next message of a key have it once the entry under way is committed: were it handed out before, a crash
// could bring back the one that is settled behind it.
func (s *Groups) freeLater(g *Group, key uint64) {
	if key != 0 && g.settings.OrderByKey {
		s.addFreed(g, freed{s.undo.sequence, key})
	}
}

func (s *Groups) addFreed(g *Group, f ...freed) {
	if len(g.freed) == 0 && len(f) > 0 {
		s.freeing = append(s.freeing, g)
	}
	g.freed = append(g.freed, f...)
}

// forgetFreed lets every key of a group that begins anew be free at once: what held them is nobody's. If that is cut off, those
// are held again whose ends are still not committed.
func (s *Groups) forgetFreed(g *Group) {
	if len(g.freed) == 0 {
		return
	}
	was := g.freed
	g.freed = nil
	s.undo.note(g, func() {
		g.freed = nil
		s.addFreed(g, slices.DeleteFunc(was, func(f freed) bool { return f.sequence < s.mark })...)
	})
}

// again begins anew with what is outstanding: the claims stay, all else is taken in once more.
func (s *Groups) again(g *Group) {
	w := g.work
	if w == nil {
		return
	}
	w.ready, w.keys, w.later = [levels]fifo{}, map[uint64]*keyed{}, delayed{}
	w.held, w.scanning, w.loaded = 0, 0, false
	for o, c := range w.claims {
		if !g.outstanding(o) {
			s.endClaim(g, o, c)
			continue
		}
		_, c.parked = g.parked[o] // the entry that parked it may be one of those that were cut off
		w.claims[o] = c
		g.hold(c.key)
	}
	for _, f := range g.freed {
		g.hold(f.key)
	}
	s.load(g)
}

// load takes in what is parked, and what was carried from below the beginning of the log.
func (s *Groups) load(g *Group) {
	w := g.work
	w.scan = max(g.passed.gap(0), s.start)
	if s.carried != nil {
		if !s.carried.Ready() {
			return
		}
		s.carried.Below(w.scan, func(m Message) bool {
			if !g.passed.has(m.Offset) {
				s.takeIn(g, m)
			}
			return true
		})
	}
	w.loaded = true
	for _, o := range sortedKeys(g.parked) {
		a := g.parked[o]
		if _, claimed := w.claims[o]; claimed {
			continue
		}
		if a.Retry {
			g.hold(a.Key)
		}
		s.takeParked(g, a)
	}
}

// dropLater lets go of what is not due and not outstanding any more: it is counted as what is there.
func (g *Group) dropLater() {
	if g.work == nil || g.work.later.len() == 0 {
		return
	}
	g.work.later.drop(func(o uint64) bool { return !g.outstanding(o) })
}

// takeParked puts a parked message where it belongs.
func (s *Groups) takeParked(g *Group, a batch.Attempt) {
	s.place(g, g.itemOfParked(a), a.Due)
}

func (g *Group) itemOfParked(a batch.Attempt) item {
	it := item{
		offset: a.Offset, to: a.Offset + 1, at: max(a.Due, a.AppendTime), appended: a.AppendTime, expires: a.Expires, level: a.Priority,
		parked: true,
	}
	if g.keyed() {
		it.key = a.Key
	}
	return it
}

// takeIn puts a message where it belongs that is outstanding and not claimed.
func (s *Groups) takeIn(g *Group, m Message) {
	if _, claimed := g.work.claims[m.Offset]; claimed {
		return
	}
	s.place(g, itemOf(m, g.keyed()), m.Due)
}

// place puts a message among those that are ready, or those that are not due.
func (s *Groups) place(g *Group, it item, due int64) {
	if due > s.asOf {
		g.work.later.push(it)
		return
	}
	g.put(it)
}
