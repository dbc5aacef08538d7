// SPDX-License-Identifier: Apache-2.0

package batch

import "cmp"

// Position says how far a log goes: the generation of its last batch and the sequence after it. Of two logs of
// one shard the one with the greater position holds every committed batch that the other holds.
type Position struct {
	Generation uint64
	Length     uint64
}

// Compare orders by generation first: a short log of a newer generation is ahead of a long one of an older.
func (p Position) Compare(q Position) int {
	if c := cmp.Compare(p.Generation, q.Generation); c != 0 {
		return c
	}
	return cmp.Compare(p.Length, q.Length)
}
