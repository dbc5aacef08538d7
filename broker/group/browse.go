// SPDX-License-Identifier: Apache-2.0

package group

import (
	"cmp"
	"container/heap"
	"slices"
)

// States is a set of states.
type States uint8

// StatesOf is the set of these.
func StatesOf(states ...State) (s States) {
	for _, x := range states {
		s |= 1 << x
	}
	return s
}

// Has says whether a state is in the set.
func (s States) Has(x State) bool { return s&(1<<x) != 0 }

// Standing is a message, and how it stands in a group.
type Standing struct {
	Offset   uint64
	Sequence uint64 // of the carried batch that holds it; 0: find it by its offset
	Parked   bool   // when it is due is the group's word, and not its record's
	MessageState
}

// Standings are messages of a group that are in these states, from an offset on, in order. It looks at no more than limit of
// them: when there are others, more says so, and next is where they begin. What a record's own delay holds back is StateReady.
func (v *View) Standings(name string, from uint64, states States, limit int) (list []Standing, next uint64, more bool) {
	g := v.s.byName[name]
	if g == nil {
		return nil, from, false
	}
	offsets := v.candidates(g, from, states, limit)
	if more = len(offsets) > limit; more {
		offsets = offsets[:limit]
	}
	next = from
	for _, o := range offsets {
		next = o + 1
		if st, _ := v.StateOf(name, o); states.Has(st.State) {
			_, parked := g.parked[o]
			list = append(list, Standing{Offset: o, Sequence: v.s.placeOf(o), Parked: parked, MessageState: st})
		}
	}
	return list, next, more
}

// candidates are the first offsets that may be in one of the states; more than limit of them when there are.
func (v *View) candidates(g *Group, from uint64, states States, limit int) (out []uint64) {
	most := limit + 1
	switch {
	case states.Has(StateReady), states.Has(StateDelayed):
		for gap := range g.passed.gaps(from, v.s.end) {
			for o := gap.from; o < gap.to && len(out) < most; o++ {
				out = append(out, o)
			}
			if len(out) == most {
				break
			}
		}
		out = append(out, lowestOf(g.parked, from, most)...)
	case states.Has(StateInFlight) && g.work != nil:
		out = lowestOf(g.work.claims, from, most)
	}
	if states.Has(StateDead) {
		out = append(out, lowestOf(g.dead, from, most)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// lowestOf are the first n keys of a map from one on, in order. It is one look at each of them, and holds no more than n.
func lowestOf[V any](m map[uint64]V, from uint64, n int) []uint64 {
	var h highest
	for o := range m {
		switch {
		case o < from:
		case len(h) < n:
			heap.Push(&h, o)
		case o < h[0]:
			h[0] = o
			heap.Fix(&h, 0)
		}
	}
	slices.SortFunc(h, cmp.Compare[uint64])
	return h
}

// highest is a heap with the highest first.
type highest []uint64

func (h highest) Len() int           { return len(h) }
func (h highest) Less(i, j int) bool { return h[i] > h[j] }
func (h highest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for container/heap.
func (h *highest) Push(x any) { *h = append(*h, x.(uint64)) }

// Pop is for container/heap.
func (h *highest) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Place is the sequence of the carried batch that holds a message; 0 when it lies where it was appended.
func (v *View) Place(offset uint64) uint64 { return v.s.placeOf(offset) }

// Has says whether there is such a group.
func (v *View) Has(name string) bool { return v.s.byName[name] != nil }
