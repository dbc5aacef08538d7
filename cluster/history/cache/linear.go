// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"

	"margay.dev/cluster/history"
)

const defaultSteps = 2_000_000

// keyState is what a key may be between two operations.
type keyState struct {
	there bool
	value string
	// version of the newest record, or, when that one's is not known (floating), one that it is above.
	version  uint64
	floating bool
	ends     bool  // it has a deadline, which lies
	lo, hi   int64 // from lo up to hi, inclusive
	rank     int   // of the next record whose version is known
	// lapsed says that the value is gone since until: a write decides by when it was appended, and one that was under way
	// by then may find the old value, though a reader who came before it was committed did not.
	lapsed bool
	old    string
	until  int64
	// loose says that what happened last may not have happened at all, and that nobody has seen yet that it did. Only
	// what is seen need be tried: all else is as good as never, and over, behind everything that was answered, it is that.
	loose, over bool
	chain       chain
}

// chain is a run of writes that may not have happened, and that nobody has seen yet. One that is over before anybody did
// is as good as one write, or as none. Sums that leave the deadline alone come last in it, and in one order.
type chain struct {
	n     int
	last  int  // the number of the last sum that leaves the deadline alone, from 1 on; 0 while there is none
	empty bool // there was no value before
}

// model is one key as a thing that does one operation at a time.
type model struct {
	known []uint64 // versions, rising
	skew  int64
	steps int // left
}

// input is an attempt, and its place among those whose version is known. Without an attempt it is the end of all that was
// answered.
type input struct {
	*attempt
	rank, id int
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
	blind := a.attempt == nil || a.If == nil && !a.denied() && (a.Op == Put || a.Op == Delete)
	switch {
	case s.loose && blind:
		return nil
	case a.attempt == nil:
		s.over = true
		return []keyState{s}
	case a.loose() && s.over:
		return []keyState{s}
	}
	after := m.does(s, a)
	for i := range after {
		if after[i].loose = a.loose(); !a.loose() {
			after[i].chain = chain{}
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
	if s.there && (!s.ends || at != 0 && at+m.skew < s.lo || s.loose && (s.chain.n > 1 || s.chain.empty)) {
		return nil
	}
	if s.there {
		s.lapsed, s.old, s.until = true, s.value, s.hi
	}
	s.there, s.value, s.ends, s.lo, s.hi = false, "", false, 0, 0
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
		s.lapsed, s.old, s.until = false, "", 0
		if a.Op != Add {
			s.chain = chain{n: 1, empty: !s.there}
		}
		switch a.Op {
		case Delete:
			s.there, s.value, s.ends, s.lo, s.hi = false, "", false, 0, 0
			after = append(after, m.at(s, a))
		case Put:
			s.value = a.Value
			after = append(after, m.at(m.lives(s, a), a))
		case Touch:
			if s, ok := m.present(s, a.NotBefore); ok {
				after = append(after, m.at(m.lives(s, a), a))
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
	if !s.lapsed || a.NotBefore-m.skew >= s.until {
		return s, false
	}
	s.there, s.value, s.ends, s.lo, s.hi = true, s.old, true, s.until, s.until
	return s, true
}

// add returns the states after a sum, from what there was and from 0.
func (m *model) add(s keyState, a input) (after []keyState) {
	try := func(s keyState, from int64) {
		sum := from + a.Delta
		if a.Outcome == history.Acked && sum != a.Sum {
			return
		}
		s.value = strconv.FormatInt(sum, 10)
		after = append(after, m.at(m.lives(s, a), a))
	}
	run := chain{n: 1}
	if s.loose {
		run = s.chain
		run.n++
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
		s.chain = chain{n: 1, empty: true}
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

// at gives the record its version.
func (m *model) at(s keyState, a input) keyState {
	if s.floating = a.version == 0; !s.floating {
		s.version, s.rank = a.version, s.rank+1
	}
	return s
}

// checkKey looks for an order in which the attempts of a key can have happened.
func (c *checker) checkKey(key string, attempts []*attempt) {
	m := &model{skew: c.skew}
	for _, a := range attempts {
		if a.version != 0 && a.writes() {
			m.known = append(m.known, a.version)
		}
	}
	slices.Sort(m.known)
	if len(slices.Compact(slices.Clone(m.known))) < len(m.known) {
		return // a clash, and reported
	}
	var ops []porcupine.Operation
	for i, a := range attempts {
		if a.denied() && (a.Have == nil || a.If != nil && *a.If == *a.Have) || !a.writes() && (a.Outcome != history.Acked || a.Stale) {
			continue // nothing of it is there, nor was anything learned
		}
		rank, _ := slices.BinarySearch(m.known, a.version)
		end := a.ended
		if a.ended == 0 || a.Outcome == history.Unknown {
			end = math.MaxInt // it may be applied at any later time, or never, which is the same as last
		}
		ops = append(ops, porcupine.Operation{
			ClientId: i, Input: input{a, rank, i + 1}, Call: int64(a.began), Return: int64(end),
		})
	}
	ops = append(ops, porcupine.Operation{Input: input{}, Call: int64(c.moments) + 1, Return: int64(c.moments) + 2})
	nm := porcupine.NondeterministicModel{
		Init: func() []any { return []any{keyState{}} },
		Step: func(s, in, _ any) []any {
			var out []any
			for _, after := range m.step(s.(keyState), in.(input)) {
				out = append(out, after)
			}
			return out
		},
	}
	search := func(run func(porcupine.Model)) {
		m.steps = cmp.Or(c.steps, defaultSteps)
		run(nm.ToModel())
	}
	good := false
	search(func(p porcupine.Model) { good = porcupine.CheckOperations(p, ops) })
	switch {
	case good:
	case m.spent():
		c.report(Undecided, key, "no order of its %d operations was found within the steps of the search", len(ops))
	default:
		search(func(p porcupine.Model) {
			_, info := porcupine.CheckOperationsVerbose(p, ops, 0)
			c.report(Order, key, "%s", m.explain(ops, info))
		})
	}
}

// explain shows how far the longest order goes, and what does not fit behind it.
func (m *model) explain(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, key := range info.PartialLinearizationsOperations() {
		for _, partial := range key {
			if len(partial) > len(longest) {
				longest = partial
			}
		}
	}
	done := map[*attempt]bool{}
	var b strings.Builder
	b.WriteString("behind")
	for i, op := range longest {
		a := op.Input.(input)
		if done[a.attempt] = true; a.attempt == nil {
			continue
		}
		if i >= len(longest)-5 {
			fmt.Fprintf(&b, " [%s]", a)
		}
	}
	b.WriteString(" nothing can follow of")
	end, shown := int64(math.MaxInt64), 0
	for _, op := range ops {
		if !done[op.Input.(input).attempt] {
			end = min(end, op.Return)
		}
	}
	for _, op := range ops {
		if a := op.Input.(input); a.attempt != nil && !done[a.attempt] && op.Call <= end && shown < 10 {
			fmt.Fprintf(&b, " [%s]", a)
			shown++
		}
	}
	return b.String()
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
