// SPDX-License-Identifier: Apache-2.0

package fanout

import (
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
	index   *Index[bool]  // of this selection alone, for reading the log; made when that is first done
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
// and says whether the batch goes out whole: those are all, and nothing stands beside them that is for the leader only. It
// is what reading the log asks of each batch.
func (s *Selection) Select(b batch.Batch, now int64, keep []int) (selected []int, all bool) {
	if s == nil && !b.Scheduled() && !b.HasSettlement() {
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
	return keep, len(keep) == b.Count() && !b.HasSettlement()
}

func (s *Selection) matches(key []byte) bool {
	if key == nil {
		return false
	}
	if len(s.filters) <= fewFilters {
		return slices.ContainsFunc(s.filters, func(f wire.Filter) bool { return f.Matches(key) })
	}
	if s.index == nil {
		s.index = NewIndex[bool]()
		s.index.Add(true, s.filters)
	}
	hit := false
	s.index.Match(key, func(bool) { hit = true })
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
	switch n := len(g.keep); {
	case n == 0:
		return
	case n == e.Batch.Count() && !e.Batch.HasSettlement():
		g.items = append(g.items, item{envelope: e})
		g.keep = g.keep[:0]
	default:
		g.items = append(g.items, item{envelope: e, cut: &cut{keep: g.keep}})
		g.keep = nil // the cut has it now
	}
}
