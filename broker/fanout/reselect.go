// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"slices"

	"margay.dev/wire"
)

// Reselect makes q take what s selects from here on, and returns the position from which that is so: everything committed
// below it was offered by what q selected before. The change and the position are one step. A queue that is not live takes
// s when it joins. Only for a queue of this hub alone, and only for the goroutine that takes from it and joins it.
func (h *Hub) Reselect(q *Queue, s *Selection) Position {
	var gone, come []wire.Filter // before the lock: publishers wait for that
	if q.selection != nil && s != nil {
		gone, come = difference(q.selection.filters, s.filters)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.regroup(q, s, gone, come):
	case h.leave(q):
		q.selection = s
		h.join(q)
	default:
		q.selection = s
	}
	return h.pos
}

// regroup changes the selection of q's group in its place, when q is all there is in it and nobody else selects the same:
// one filter more among ten thousand costs one. Called with mu held.
func (h *Hub) regroup(q *Queue, s *Selection, gone, come []wire.Filter) bool {
	if q.selection == nil || s == nil {
		return false
	}
	g := h.filtered[q.selection.name]
	if g == nil || len(g.queues) != 1 || g.queues[0] != q || h.filtered[s.name] != nil {
		return false
	}
	h.index.Remove(g, gone)
	h.index.Add(g, come)
	delete(h.filtered, g.selection.name)
	g.selection, q.selection = s, s
	h.filtered[s.name] = g
	return true
}

// difference compares two lists in order: what only the first holds, and what only the second does.
func difference(a, b []wire.Filter) (onlyA, onlyB []wire.Filter) {
	for len(a) > 0 && len(b) > 0 {
		switch c := compareFilters(a[0], b[0]); {
		case c == 0:
			a, b = a[1:], b[1:]
		case c < 0:
			onlyA, a = append(onlyA, a[0]), a[1:]
		default:
			onlyB, b = append(onlyB, b[0]), b[1:]
		}
	}
	return append(onlyA, a...), append(onlyB, b...)
}

// Changed is the selection with some filters more and some fewer; those that are in both lists stay. What it costs beside
// them is a copy. It is never nil: who selects nothing of a log gets nothing.
func (s *Selection) Changed(more, fewer []wire.Filter) *Selection {
	more = slices.Clone(more)
	slices.SortFunc(more, compareFilters)
	gone := make(map[wire.Filter]struct{}, len(fewer))
	for _, f := range fewer {
		gone[f] = struct{}{}
	}
	for _, f := range more {
		delete(gone, f)
	}
	var had []wire.Filter
	if s != nil {
		had = s.filters
	}
	out := make([]wire.Filter, 0, len(had)+len(more))
	for len(had) > 0 || len(more) > 0 {
		var f wire.Filter
		if len(more) == 0 || len(had) > 0 && compareFilters(had[0], more[0]) <= 0 {
			f, had = had[0], had[1:]
		} else {
			f, more = more[0], more[1:]
		}
		if _, drop := gone[f]; !drop && (len(out) == 0 || out[len(out)-1] != f) {
			out = append(out, f)
		}
	}
	return selectionOf(out)
}
