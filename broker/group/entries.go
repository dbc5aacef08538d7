// SPDX-License-Identifier: Apache-2.0

package group

import (
	"cmp"
	"slices"

	"margay.dev/wire/batch"
)

// partBytes is about what one control batch takes of what is appended together.
const partBytes = 1 << 20

// add appends an entry and makes it true.
func (s *Groups) add(e batch.Entry) {
	n := sizeOf(e)
	parts := len(s.fx.Entries)
	switch {
	case parts == 0:
		s.fx.Entries = append(s.fx.Entries, nil)
		parts = 1
	case s.fx.size+n > partBytes:
		s.fx.Entries = append(s.fx.Entries, nil)
		s.fx.size = 0
		s.undo.sequence++
		parts++
	}
	s.fx.size += n
	s.fx.Entries[parts-1] = append(s.fx.Entries[parts-1], e)
	s.apply(e, false)
	s.dirty = true
}

// sizeOf bounds what an entry takes.
func sizeOf(e batch.Entry) int {
	switch e := e.(type) {
	case batch.Settled:
		return 32 + 20*len(e.Ranges)
	case batch.Attempt:
		return 96 + len(e.Error)
	case batch.Dead:
		return 96 + len(e.Error)
	}
	return 1 << 10
}

// joined sorts ranges, and joins those that touch.
func joined(rs []batch.OffsetRange) []batch.OffsetRange {
	slices.SortFunc(rs, func(a, b batch.OffsetRange) int { return cmp.Compare(a.From, b.From) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, r.To)
			continue
		}
		out = append(out, r)
	}
	return out
}
