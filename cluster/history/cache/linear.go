// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"margay.dev/cluster/history"
)

// keyState is what a key may be between two operations.
type keyState struct {
	there bool
	value string
	// version of the newest record, or, when that one's is not known (floating), one that it is above.
	version  uint64
	floating bool
	ends     bool  // it has a deadline, which lies
	lo, hi   int64 // from lo up to hi, inclusive; also of what lapsed
	rank     int   // of the next record whose version is known
	// lapsed says that the value is gone since its deadline: a write decides by when it was appended, and one that was under
	// way by then may find the old value, though a reader who came before it was committed did not.
	lapsed bool
	old    string
	// loose says that what happened last may not have happened at all, and that nobody has seen yet that it did. Only
	// what is seen need be tried: all else is as good as never.
	loose bool
	chain chain
}

// chain is a run of writes that may not have happened, and that nobody has seen yet. Sums that leave the deadline alone
// come last in it, and in one order.
type chain struct {
	last int // the number of the last sum that leaves the deadline alone, from 1 on; 0 while there is none
}

// model is one key as a thing that does one operation at a time.
type model struct {
	known []uint64 // versions, rising
	// taken has, besides those, the versions of other keys; free, for each, the first behind it that is not taken.
	taken, free []uint64
	skew        int64
	steps       int // left
}

// input is an attempt, and its place among those whose version is known.
type input struct {
	*attempt
	rank, id int
	value    string // of a Put; one for all that nobody read
}

// loose says that it may never have been applied, and that nothing says it was.
func (a *input) loose() bool { return a.version == 0 && a.Outcome != history.Acked && !a.denied() }

// spent says that the search was given up.
func (m *model) spent() bool { return m.steps < 0 }

// step returns every state that the key may be in when this is what happened to it.
func (m *model) step(s keyState, a input) []keyState {
	if m.steps--; m.steps < 0 {
		return nil // whatever is found then counts for nothing
	}
	if blind := a.If == nil && !a.denied() && (a.Op == Put || a.Op == Delete); s.loose && blind {
		return nil
	}
	after := m.does(s, a)
	for i := range after {
		if after[i].loose = a.loose(); !a.loose() {
			after[i].chain = chain{}
		}
		if x := &after[i]; x.floating && !x.there && !x.lapsed { // nobody can ask for the version of what is not there
			x.version, x.floating = m.next(x.version), false
		}
	}
	return after
}

func (m *model) does(s keyState, a input) []keyState {
	switch {
	case a.denied(): // with a version that it conflicts with, else it is no part of the search
		return m.saw(s, a, *a.Have)
	case a.Op == Get:
		return m.read(s, a)
	case a.Outcome == history.Acked && a.Version == 0:
		return m.gone(s, a.NotAfter)
	case a.Op == Delete && a.loose() && !s.there:
		return nil
	}
	return m.write(s, a)
}

// gone returns the state in which the key is not there, if it can be, at a time before at.
func (m *model) gone(s keyState, at int64) []keyState {
	if s.there && (!s.ends || at != 0 && at+m.skew < s.lo) {
		return nil
	}
	if s.there {
		if s.lapsed, s.old = true, s.value; at != 0 {
			s.hi = min(s.hi, at+m.skew)
		}
	}
	s.there, s.value, s.ends = false, "", false
	return []keyState{s}
}

// present returns the state in which the key is still there at a time after at.
func (m *model) present(s keyState, at int64) (keyState, bool) {
	if !s.there || s.ends && at-m.skew >= s.hi {
		return s, false
	}
	if s.ends {
		s.lo = max(s.lo, min(at-m.skew+1, s.hi))
	}
	return s, true
}

// has returns the state in which the newest record has this version.
func (m *model) has(s keyState, version uint64) (keyState, bool) {
	if !s.floating {
		return s, s.version == version
	}
	if version <= s.version || s.rank < len(m.known) && version >= m.known[s.rank] {
		return s, false
	}
	s.version, s.floating = version, false
	return s, true
}

// saw returns the states in which the key has this version, or none.
func (m *model) saw(s keyState, a input, version uint64) []keyState {
	if version == 0 {
		return m.gone(s, a.NotAfter)
	}
	s, ok := m.present(s, a.NotBefore)
	if ok {
		s, ok = m.has(s, version)
	}
	if !ok {
		return nil
	}
	return []keyState{s}
}

func (m *model) read(s keyState, a input) []keyState {
	if a.Version == 0 {
		return m.gone(s, a.NotAfter)
	}
	s, ok := m.present(s, a.NotBefore)
	if ok {
		s, ok = m.has(s, a.Version)
	}
	if !ok || s.value != a.Got {
		return nil
	}
	if a.Expires != nil {
		at := *a.Expires
		if (at != 0) != s.ends || s.ends && (at < s.lo-m.skew || at > s.hi+m.skew) {
			return nil
		}
		s.lo, s.hi = at, at
	}
	return []keyState{s}
}

// write returns the states after a record.
func (m *model) write(s keyState, a input) []keyState {
	if a.version != 0 && a.rank != s.rank {
		return nil // versions rise
	}
	before := []keyState{s}
	if a.If != nil {
		before = m.saw(s, a, *a.If)
	}
	if old, ok := m.unlapsed(s, a); ok && a.If == nil {
		before = append(before, old)
	} else if ok {
		before = append(before, m.saw(old, a, *a.If)...)
	}
	var after []keyState
	for _, s := range before {
		if s.lapsed {
			s.lapsed, s.old, s.lo, s.hi = false, "", 0, 0
		}
		if a.Op != Add {
			s.chain = chain{}
		}
		switch a.Op {
		case Delete:
			s.there, s.value, s.ends, s.lo, s.hi = false, "", false, 0, 0
			after = m.at(after, s, a)
		case Put:
			s.value = a.value
			after = m.at(after, m.lives(s, a), a)
		case Touch:
			if s, ok := m.present(s, a.NotBefore); ok {
				after = m.at(after, m.lives(s, a), a)
			}
		case Add:
			after = append(after, m.add(s, a)...)
		default:
		}
	}
	return after
}

// unlapsed returns the state that a write found which was under way before the value was gone.
func (m *model) unlapsed(s keyState, a input) (keyState, bool) {
	if !s.lapsed {
		return s, false
	}
	s.there, s.value, s.ends, s.lapsed, s.old = true, s.old, true, false, ""
	return m.present(s, a.NotBefore)
}

// add returns the states after a sum, from what there was and from 0.
func (m *model) add(s keyState, a input) (after []keyState) {
	try := func(s keyState, from int64) {
		sum := from + a.Delta
		if a.Outcome == history.Acked && sum != a.Sum {
			return
		}
		s.value = strconv.FormatInt(sum, 10)
		after = m.at(after, m.lives(s, a), a)
	}
	var run chain
	if s.loose {
		run = s.chain
	}
	var rises bool
	if a.TTL == 0 && a.KeepTTL {
		rises = a.id > run.last
		run.last = a.id
	} else {
		rises = run.last == 0
	}
	if now, ok := m.present(s, a.NotBefore); ok && (rises || !a.loose()) {
		if from, err := strconv.ParseInt(now.value, 10, 64); err == nil {
			now.chain = run
			try(now, from)
		}
	}
	for _, s := range m.gone(s, a.NotAfter) {
		s.chain, s.lapsed, s.old, s.lo, s.hi = chain{}, false, "", 0, 0
		try(s, 0)
	}
	return after
}

// lives gives the value its deadline.
func (m *model) lives(s keyState, a input) keyState {
	if a.KeepTTL && s.there {
		return s
	}
	s.there, s.ends, s.lo, s.hi = true, a.TTL > 0, 0, 0
	if ttl := a.TTL.Microseconds(); s.ends {
		switch {
		case a.AppendTime != 0:
			s.lo, s.hi = a.AppendTime+ttl, a.AppendTime+ttl
		case a.Outcome == history.Acked && a.NotAfter != 0:
			s.lo, s.hi = a.NotBefore+ttl, a.NotAfter+ttl
		default:
			s.lo, s.hi = a.NotBefore+ttl, math.MaxInt64-m.skew
		}
	}
	return s
}

// at adds the state in which the record has its version, if there is one for it.
func (m *model) at(after []keyState, s keyState, a input) []keyState {
	if a.version != 0 {
		s.version, s.rank, s.floating = a.version, s.rank+1, false
		return append(after, s)
	}
	if s.floating {
		s.version = m.next(s.version)
	}
	if s.floating = true; s.rank < len(m.known) && m.next(s.version) > m.known[s.rank] {
		return after
	}
	return append(after, s)
}

// next returns the first version above one that may be that of a record of which nobody knows it.
func (m *model) next(version uint64) uint64 {
	i, ok := slices.BinarySearch(m.taken, version+1)
	if !ok {
		return version + 1
	}
	return m.free[i]
}

// checkKey looks for an order in which the attempts of a key can have happened.
func (c *checker) checkKey(key string) {
	attempts := c.byKey[key]
	m := c.model(key)
	if m == nil {
		return // a clash, and reported
	}
	good, why := m.order(m.inputs(attempts))
	switch {
	case good:
		// Two judges, of which neither knows the other: what ours finds good, porcupine must not find bad.
		if m.steps = porcupineSteps; !m.porcupine(attempts) && !m.spent() {
			c.report(Order, key, "porcupine finds no order of its %d attempts, and our own search does", len(attempts))
		}
	case m.spent():
		c.report(Undecided, key, "no order of its %d attempts was found within the steps of the search", len(attempts))
	default:
		c.report(Order, key, "%s", why)
	}
}

// model gathers what is known of the versions of a key; nil if two attempts have the same.
func (c *checker) model(key string) *model {
	m := &model{skew: c.skew, steps: cmp.Or(c.steps, defaultSteps)}
	shards := map[uint32]bool{}
	for _, a := range c.byKey[key] {
		if a.version != 0 && a.writes() {
			m.known = append(m.known, a.version)
		}
		if a.binding() {
			shards[a.Shard] = true
		}
	}
	slices.Sort(m.known)
	if len(slices.Compact(slices.Clone(m.known))) < len(m.known) {
		return nil
	}
	m.taken = slices.Clone(m.known)
	for at, x := range c.truth {
		if shards[at.shard] && len(shards) == 1 && (x.Key != key || x.Kind == Expired) {
			m.taken = append(m.taken, at.version)
		}
	}
	slices.Sort(m.taken)
	m.taken = slices.Compact(m.taken)
	m.free = make([]uint64, len(m.taken))
	for i := len(m.taken) - 1; i >= 0; i-- {
		if m.free[i] = m.taken[i] + 1; i+1 < len(m.taken) && m.taken[i+1] == m.free[i] {
			m.free[i] = m.free[i+1]
		}
	}
	return m
}

// inputs are the attempts of which something may be there, or was learned.
func (m *model) inputs(attempts []*attempt) (ops []input) {
	read, sums := map[string]bool{}, false
	for _, a := range attempts {
		read[a.Got] = true
		sums = sums || a.Op == Add
	}
	for i, a := range attempts {
		if a.denied() && (a.Have == nil || a.If != nil && *a.If == *a.Have) || !a.writes() && (a.Outcome != history.Acked || a.Stale) {
			continue
		}
		rank, _ := slices.BinarySearch(m.known, a.version)
		op := input{a, rank, i + 1, a.Value}
		if op.loose() && !sums && !read[a.Value] {
			op.value = "\x00 nobody read this" // whichever it is
		}
		ops = append(ops, op)
	}
	return ops
}

// String is an attempt for whoever looks for what went wrong.
func (a *attempt) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d-%d %s %s", a.began, a.ended, a.Client, a.Op)
	switch a.Op {
	case Put:
		fmt.Fprintf(&b, " %s", short(a.Value))
	case Add:
		fmt.Fprintf(&b, " %d", a.Delta)
	default:
	}
	if a.TTL > 0 {
		fmt.Fprintf(&b, " ttl %s from %d", a.TTL, a.NotBefore)
	}
	if a.If != nil {
		fmt.Fprintf(&b, " if %d", *a.If)
	}
	fmt.Fprintf(&b, ": %s", a.Outcome)
	if a.Have != nil {
		fmt.Fprintf(&b, ", has %d", *a.Have)
	}
	switch {
	case a.Outcome != history.Acked:
	case a.Version == 0:
		b.WriteString(", not there")
	case a.Op == Get:
		fmt.Fprintf(&b, ", version %d: %s", a.Version, short(a.Got))
	case a.Op == Add:
		fmt.Fprintf(&b, ", version %d: %d", a.Version, a.Sum)
	default:
		fmt.Fprintf(&b, ", version %d", a.Version)
	}
	if a.version != 0 && a.version != a.Version {
		fmt.Fprintf(&b, ", seen as version %d", a.version)
	}
	return b.String()
}

func short(value string) string {
	if len(value) > 24 {
		return fmt.Sprintf("%q…", value[:24])
	}
	return fmt.Sprintf("%q", value)
}
