// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"fmt"
	"math"
	mathbits "math/bits"
	"slices"
	"strings"

	"margay.dev/cluster/history"
)

// The search goes over a history in the order in which things began and were answered, with all the states that the key
// may be in. Nothing is put in order before it must be: when something is answered, each state goes on by what is under
// way, in every order, up to the one that was answered. What keeps the states few:
//
//   - What changes nothing where it is tried is done there and then: any order in which it comes later stays one if it
//     comes now. That is nearly every read. (A read that comes later may be the one by which a value is seen to be over;
//     but what comes behind it then has the right to see that by itself, since the time of a shard does not fall.)
//   - Versions rise, so of the writes whose version is known only the next one can follow; none can while a version below
//     it was seen by somebody who is not in order yet; and what has a version that nobody knows needs one that is free.
//   - Of two ways to the same state the one that used up less of what may never have happened is as good as the other,
//     since what is left over can be left out. So is the one that knows less of a deadline or of a version.
//   - Of attempts that are the same but for when they began, none is used before the one before it.

const defaultSteps = 2_000_000

// config is one way in which the key got to a state.
type config struct {
	state  keyState
	done   bits
	length int // of the run of what may never have happened since the last answer
	dead   bool
	path   *path
}

// path is the order so far, from its end.
type path struct {
	before *path
	id     int
}

// bits has one bit for each slot of what is under way.
type bits []uint64

func (b bits) has(slot int) bool { return b[slot/64]&(1<<(slot%64)) != 0 }
func (b bits) set(slot int)      { b[slot/64] |= 1 << (slot % 64) }
func (b bits) clear(slot int)    { b[slot/64] &^= 1 << (slot % 64) }

// sweep is one search.
type sweep struct {
	*model

	ops  []input
	twin []int // of each, the one of its kind before it, -1 for none
	slot []int
	// may has the slots of what may never have happened. They are not given to another.
	may  bits
	most bounds
	less bool // something was left out for them

	open    []int
	seen    []int // what tells of a version that the key had, rising, until it is answered
	begun   []bool
	configs []*config
	longest *path // of an order that cannot go on
}

// moment is when an attempt began, or ended.
type moment struct {
	at    int
	id    int
	began bool
}

// bounds are what a search leaves out.
type bounds struct {
	run  int // so many that may never have happened follow each other between two answers
	ways int // that are gone on with behind an answer
}

// order says whether there is an order of these attempts, and if not, what shows that. It may also have to give up.
func (m *model) order(ops []input) (good bool, why string) {
	budget := m.steps
	// An order mostly needs few of those whose outcome nobody knows, and which of them is often all the same: what tries
	// few finds it sooner. That there is none, only what left nothing out can say.
	for _, most := range []bounds{{2, 4}, {2, 16}, {4, 16}, {4, 128}, {math.MaxInt, math.MaxInt}} {
		m.steps = budget
		s := &sweep{model: m, ops: ops, most: most}
		failed := s.run()
		if failed < 0 {
			return true, ""
		}
		if why = s.explain(failed); !s.less && !m.spent() {
			break
		}
	}
	return false, why
}

// run returns the attempt that nothing led to, -1 for none.
func (s *sweep) run() int {
	moments := s.prepare()
	s.configs = []*config{{done: make(bits, len(s.may))}}
	for _, x := range moments {
		switch {
		case x.began:
			s.begun[x.id] = true
			s.open = append(s.open, x.id)
			for _, c := range s.configs {
				s.settle(c, x.id)
			}
		case !s.reach(x.id):
			return x.id
		}
	}
	return -1
}

// prepare lists what happens, and gives each attempt a slot for as long as it is under way.
func (s *sweep) prepare() []moment {
	var all []moment
	for id, a := range s.ops {
		all = append(all, moment{a.began, id, true})
		if !a.loose() {
			end := a.ended
			if end == 0 || a.Outcome == history.Unknown {
				end = math.MaxInt // and yet its version says that it was applied
			}
			all = append(all, moment{end, id, false})
		}
	}
	slices.SortStableFunc(all, func(x, y moment) int { return cmp.Compare(x.at, y.at) })
	s.slot = make([]int, len(s.ops))
	slots, free := 0, []int(nil)
	for _, x := range all {
		switch {
		case !x.began:
			free = append(free, s.slot[x.id])
		case len(free) > 0 && !s.ops[x.id].loose():
			s.slot[x.id], free = free[len(free)-1], free[:len(free)-1]
		default:
			s.slot[x.id] = slots
			slots++
		}
	}
	s.may = make(bits, slots/64+1)
	s.twin = make([]int, len(s.ops))
	s.begun = make([]bool, len(s.ops))
	last := map[kind]int{}
	for id, a := range s.ops {
		s.twin[id] = -1
		if a.sees() != 0 {
			s.seen = append(s.seen, id)
		}
		if !a.loose() {
			continue
		}
		s.may.set(s.slot[id])
		if k, ok := a.kind(); ok {
			if before, ok := last[k]; ok && s.ops[before].NotBefore <= a.NotBefore {
				s.twin[id] = before
			}
			last[k] = id
		}
	}
	slices.SortStableFunc(s.seen, func(x, y int) int { return cmp.Compare(s.ops[x].sees(), s.ops[y].sees()) })
	return all
}

// sees is the version that it tells that the key had, 0 for none.
func (a *input) sees() uint64 {
	switch {
	case a.denied():
		return *a.Have
	case a.Op == Get:
		return a.Version
	}
	return 0
}

// lost says that a version is over which somebody is still to be told of.
func (s *sweep) lost(c *config) bool {
	for _, id := range s.seen {
		if v := s.ops[id].sees(); v > c.state.version || v == c.state.version && !c.state.floating {
			return false
		}
		if !s.begun[id] || !c.done.has(s.slot[id]) {
			return true
		}
	}
	return false
}

// kind is what two attempts have in common that do the same.
type kind struct {
	op        Op
	value     string
	delta     int64
	keep, any bool
	version   uint64
}

// kind of an attempt that gives no deadline: those tell by it when they began.
func (a *input) kind() (kind, bool) {
	k := kind{op: a.Op, value: a.value, delta: a.Delta, keep: a.KeepTTL, any: a.If == nil}
	if a.If != nil {
		k.version = *a.If
	}
	return k, a.TTL == 0
}

// reach takes every way up to where an attempt is done, and says whether there is any.
func (s *sweep) reach(id int) bool {
	var next, tried frontier
	todo := make([]*config, 0, len(s.configs))
	for _, c := range s.configs {
		c.length = 0
		switch {
		case c.done.has(s.slot[id]):
			s.add(&next, c)
		case s.add(&tried, c):
			todo = append(todo, c)
		}
	}
	for len(todo) > 0 && !s.spent() {
		c := todo[0]
		todo = todo[1:]
		if c.dead {
			continue
		}
		for _, after := range s.follow(c) {
			switch {
			case after.done.has(s.slot[id]):
				s.add(&next, after)
			case s.add(&tried, after):
				todo = append(todo, after)
			}
		}
	}
	answered := func(x int) bool { return x == id }
	s.open, s.seen = slices.DeleteFunc(s.open, answered), slices.DeleteFunc(s.seen, answered)
	if s.spent() {
		return false
	}
	if s.configs = next.all(); len(s.configs) == 0 {
		for _, c := range tried.all() {
			if c.path.length() >= s.longest.length() {
				s.longest = c.path
			}
		}
		return false
	}
	if len(s.configs) > s.most.ways {
		slices.SortStableFunc(s.configs, func(x, y *config) int { return cmp.Compare(s.used(x), s.used(y)) })
		s.configs, s.less = s.configs[:s.most.ways], true
	}
	for _, c := range s.configs {
		c.done.clear(s.slot[id])
	}
	return true
}

// used counts what may never have happened of a way.
func (s *sweep) used(c *config) (n int) {
	for i, may := range s.may {
		n += mathbits.OnesCount64(c.done[i] & may)
	}
	return n
}

// follow returns every way that is one attempt longer.
func (s *sweep) follow(c *config) (longer []*config) {
	for _, id := range s.open {
		a := s.ops[id]
		loose := a.loose()
		if c.done.has(s.slot[id]) || loose && s.twin[id] >= 0 && !c.done.has(s.slot[s.twin[id]]) {
			continue
		}
		if loose && c.length >= s.most.run {
			s.less = true
			continue
		}
		for _, state := range s.step(c.state, a) {
			after := &config{state: state, done: slices.Clone(c.done), length: c.length, path: &path{c.path, id}}
			after.done.set(s.slot[id])
			if loose {
				after.length++
			}
			for _, id := range s.open {
				s.settle(after, id)
			}
			if !s.lost(after) {
				longer = append(longer, after)
			}
		}
	}
	return longer
}

// settle does an attempt at once if nothing changes by it.
func (s *sweep) settle(c *config, id int) {
	a := s.ops[id]
	if c.done.has(s.slot[id]) || a.writes() && !a.denied() && (a.Outcome != history.Acked || a.Version != 0) {
		return
	}
	after := s.step(c.state, a)
	same := c.state
	if same.loose, same.chain = false, (chain{}); len(after) != 1 || after[0] != same {
		return
	}
	c.state = same
	c.done.set(s.slot[id])
	c.path = &path{c.path, id}
}

// frontier is a set of ways of which none is as good as another.
type frontier struct {
	of    map[group][]*config
	order []group // as they came: what a search finds must not depend on the order of a map
}

type group struct {
	rank  int
	there bool
	value string
}

func (f *frontier) all() (all []*config) {
	for _, g := range f.order {
		all = append(all, f.of[g]...)
	}
	return all
}

// add puts a way into a set, if there is none that is as good.
func (s *sweep) add(f *frontier, c *config) bool {
	g := group{c.state.rank, c.state.there, c.state.value}
	if f.of == nil {
		f.of = map[group][]*config{}
	}
	have, ok := f.of[g]
	if !ok {
		f.order = append(f.order, g)
	}
	s.steps -= len(have) / 16 // so many comparisons take the time of a step
	if slices.ContainsFunc(have, func(x *config) bool { return s.covers(x, c) }) {
		return false
	}
	f.of[g] = append(slices.DeleteFunc(have, func(x *config) bool {
		x.dead = s.covers(c, x)
		return x.dead
	}), c)
	return true
}

// covers says whether all that can follow y can follow x.
func (s *sweep) covers(x, y *config) bool {
	for i, may := range s.may {
		if x.done[i]&may&^y.done[i] != 0 || y.done[i]&^may&^x.done[i] != 0 {
			return false
		}
	}
	return x.state.covers(&y.state)
}

// covers says whether all that can follow t can follow s, of states that have the same value.
func (s *keyState) covers(t *keyState) bool {
	switch {
	case s.rank != t.rank || s.there != t.there || s.value != t.value || s.loose != t.loose || s.chain != t.chain:
		return false
	case s.version > t.version || s.version == t.version && s.floating && !t.floating:
		return false
	case s.there:
		return (s.floating || !t.floating && s.version == t.version) && s.ends == t.ends && s.lo <= t.lo && s.hi >= t.hi
	case !t.lapsed:
		return true
	}
	return s.lapsed && s.old == t.old && (s.floating || !t.floating && s.version == t.version) &&
		s.lo <= t.lo && s.hi >= t.hi
}

func (p *path) length() (n int) {
	for ; p != nil; p = p.before {
		n++
	}
	return n
}

// explain shows how far the longest order goes, and what does not fit behind it.
func (s *sweep) explain(failed int) string {
	done := map[int]bool{}
	var last []string
	for p := s.longest; p != nil; p = p.before {
		if done[p.id] = true; len(last) < 5 {
			last = append(last, fmt.Sprintf(" [%s]", s.ops[p.id]))
		}
	}
	slices.Reverse(last)
	var b strings.Builder
	fmt.Fprintf(&b, "behind%s nothing can follow of [%s]", strings.Join(last, ""), s.ops[failed])
	shown := 1
	for _, id := range s.open {
		if !done[id] && shown < 10 {
			fmt.Fprintf(&b, " [%s]", s.ops[id])
			shown++
		}
	}
	return b.String()
}
