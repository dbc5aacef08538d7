// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"bytes"
	"slices"
	"strings"

	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// Selection is a set of filters: a record is selected when one of them matches. Nil selects everything. It never changes;
// Select of one selection is for one goroutine.
type Selection struct {
	name    string        // equal selections have equal names
	filters []wire.Filter // in order, each once
	index   *index        // of this selection alone, for reading the log; made when that is first done
}

// fewFilters are compared one by one faster than looked up.
const fewFilters = 4

// NewSelection compiles filters; none makes nil.
func NewSelection(filters []wire.Filter) *Selection {
	if len(filters) == 0 {
		return nil
	}
	filters = slices.Clone(filters)
	slices.SortFunc(filters, compareFilters)
	return selectionOf(slices.Compact(filters))
}

func compareFilters(a, b wire.Filter) int {
	if a.Kind != b.Kind {
		return int(a.Kind) - int(b.Kind)
	}
	return strings.Compare(a.Value, b.Value)
}

// selectionOf takes filters that are in order, each once.
func selectionOf(filters []wire.Filter) *Selection {
	size := 0
	for _, f := range filters {
		size += 3 + len(f.Value)
	}
	var name strings.Builder
	name.Grow(size)
	for _, f := range filters {
		name.WriteByte(byte(f.Kind))
		name.WriteByte(byte(len(f.Value) >> 8))
		name.WriteByte(byte(len(f.Value)))
		name.WriteString(f.Value)
	}
	return &Selection{name: name.String(), filters: filters}
}

// Select appends to keep the indexes of the records of b that are selected and have not expired at now (us),
// and says whether those are all. It is what reading the log asks of each batch.
func (s *Selection) Select(b batch.Batch, now int64, keep []int) (selected []int, all bool) {
	if s == nil && !b.Scheduled() {
		return keep, true
	}
	var m batch.Meta
	metas := b.Metas()
	n := 0
	for ; ; n++ {
		ok, err := metas.Next(&m)
		if !ok || err != nil {
			break // the batch was checked when it came
		}
		if expired(b, &m, now) || (s != nil && !s.matches(m.Key)) {
			continue
		}
		keep = append(keep, n)
	}
	return keep, len(keep) == b.Count()
}

func (s *Selection) matches(key []byte) bool {
	if key == nil {
		return false
	}
	if len(s.filters) <= fewFilters {
		return slices.ContainsFunc(s.filters, func(f wire.Filter) bool { return f.Matches(key) })
	}
	if s.index == nil {
		s.index = newIndex()
		s.index.add(&group{selection: s}, s.filters)
	}
	hit := false
	s.index.match(key, func(*group) { hit = true })
	return hit
}

// expired compares with the append time, which is stored with the batch: the deadline is the same on every
// path and at every start.
func expired(b batch.Batch, m *batch.Meta, now int64) bool {
	return m.TTL > 0 && b.AppendTime()+m.TTL.Microseconds() <= now
}

// group is the queues that share a selection: what is cut for one is cut for all.
type group struct {
	selection *Selection
	queues    []*Queue
	keep      []int // records of the batch under way
	items     []item
}

// take turns what was kept of a batch into an item.
func (g *group) take(e *Envelope) {
	switch len(g.keep) {
	case 0:
		return
	case e.Batch.Count():
		g.items = append(g.items, item{envelope: e})
		g.keep = g.keep[:0]
	default:
		g.items = append(g.items, item{envelope: e, cut: &cut{keep: g.keep}})
		g.keep = nil // the cut has it now
	}
}

// index finds the groups that a key is selected by, in time that depends on the key and not on how many
// filters there are.
type index struct {
	exact    map[string][]*group
	prefixes map[string][]*group
	lengths  []int       // of the prefixes, ascending
	ofLength map[int]int // how many prefixes there are of each length
	topics   *topic
}

func (x *index) remove(g *group, filters []wire.Filter) {
	for _, f := range filters {
		switch f.Kind {
		case wire.FilterExact:
			without(x.exact, f.Value, g)
		case wire.FilterPrefix:
			if without(x.prefixes, f.Value, g) {
				continue
			}
			n := len(f.Value)
			if x.ofLength[n]--; x.ofLength[n] == 0 {
				delete(x.ofLength, n)
				if i, found := slices.BinarySearch(x.lengths, n); found {
					x.lengths = slices.Delete(x.lengths, i, i+1)
				}
			}
		case wire.FilterPattern:
			x.topics.remove(f.Value, g)
		}
	}
}

// without takes g out of the list at key, and says whether others are left in it.
func without(m map[string][]*group, key string, g *group) (others bool) {
	left := slices.DeleteFunc(m[key], func(x *group) bool { return x == g })
	if len(left) > 0 {
		m[key] = left
		return true
	}
	delete(m, key)
	return false
}

type topic struct {
	levels map[string]*topic
	plus   *topic
	rest   []*group // patterns that end in # here
	here   []*group
}

func newIndex() *index {
	return &index{exact: map[string][]*group{}, prefixes: map[string][]*group{}, ofLength: map[int]int{}, topics: &topic{}}
}

func (x *index) add(g *group, filters []wire.Filter) {
	for _, f := range filters {
		switch f.Kind {
		case wire.FilterExact:
			x.exact[f.Value] = append(x.exact[f.Value], g)
		case wire.FilterPrefix:
			n := len(f.Value)
			if len(x.prefixes[f.Value]) == 0 {
				if x.ofLength[n]++; x.ofLength[n] == 1 {
					i, _ := slices.BinarySearch(x.lengths, n)
					x.lengths = slices.Insert(x.lengths, i, n)
				}
			}
			x.prefixes[f.Value] = append(x.prefixes[f.Value], g)
		case wire.FilterPattern:
			x.topics.add(f.Value, g)
		}
	}
}

func (t *topic) add(pattern string, g *group) {
	for level := range strings.SplitSeq(pattern, "/") {
		switch level {
		case "#":
			t.rest = append(t.rest, g)
			return
		case "+":
			if t.plus == nil {
				t.plus = &topic{}
			}
			t = t.plus
		default:
			if t.levels == nil {
				t.levels = map[string]*topic{}
			}
			next := t.levels[level]
			if next == nil {
				next = &topic{}
				t.levels[level] = next
			}
			t = next
		}
	}
	t.here = append(t.here, g)
}

// remove takes g out and says whether nothing is left here.
func (t *topic) remove(pattern string, g *group) (empty bool) {
	is := func(x *group) bool { return x == g }
	level, rest, more := strings.Cut(pattern, "/")
	if level == "#" {
		t.rest = slices.DeleteFunc(t.rest, is)
		return t.idle()
	}
	next := t.levels[level]
	if level == "+" {
		next = t.plus
	}
	if next == nil {
		return t.idle()
	}
	if more {
		empty = next.remove(rest, g)
	} else {
		next.here = slices.DeleteFunc(next.here, is)
		empty = next.idle()
	}
	if empty && level == "+" {
		t.plus = nil
	} else if empty {
		delete(t.levels, level)
	}
	return t.idle()
}

func (t *topic) idle() bool {
	return len(t.levels) == 0 && t.plus == nil && len(t.rest) == 0 && len(t.here) == 0
}

// match calls hit for every group that selects key, some of them more than once.
func (x *index) match(key []byte, hit func(*group)) {
	for _, g := range x.exact[string(key)] {
		hit(g)
	}
	for _, n := range x.lengths {
		if n > len(key) {
			break
		}
		for _, g := range x.prefixes[string(key[:n])] {
			hit(g)
		}
	}
	x.topics.match(key, hit)
}

func (t *topic) match(key []byte, hit func(*group)) {
	for _, g := range t.rest {
		hit(g)
	}
	level, rest, more := bytes.Cut(key, []byte{'/'})
	for _, next := range [2]*topic{t.levels[string(level)], t.plus} {
		if next == nil {
			continue
		}
		if more {
			next.match(rest, hit)
			continue
		}
		for _, g := range next.here {
			hit(g)
		}
		for _, g := range next.rest { // a/# stands for a too
			hit(g)
		}
	}
}
