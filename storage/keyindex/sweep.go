// SPDX-License-Identifier: Apache-2.0

package keyindex

// Sweep walks an index in pages and removes what retention took of the log.
type Sweep struct {
	x        *Index
	sequence uint64
	offset   uint64
	after    string
	begun    bool
}

// SweepBelow begins to remove the entries whose records are gone: the log begins at this sequence and offset now. A record
// that was carried lies where its sequence says, whatever its offset.
func (x *Index) SweepBelow(sequence, offset uint64) *Sweep {
	return &Sweep{x: x, sequence: sequence, offset: offset}
}

// Next looks at the next limit keys and returns how many of them it removed; more is false behind the last key. What is
// set meanwhile is never removed unless it, too, is gone.
func (s *Sweep) Next(limit int) (removed int, more bool) {
	x := s.x
	x.mu.Lock()
	defer x.mu.Unlock()
	var gone []*item
	looked := 0
	x.ordered.Ascend(&item{key: s.after}, func(it *item) bool {
		if s.begun && it.key == s.after {
			return true
		}
		if looked == limit {
			more = true
			return false
		}
		looked++
		s.after = it.key
		if it.Sequence < s.sequence || !it.Carried && it.Offset < s.offset {
			gone = append(gone, it)
		}
		return true
	})
	s.begun = s.begun || looked > 0
	for _, it := range gone {
		x.remove(it)
	}
	return len(gone), more
}
