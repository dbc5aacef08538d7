// SPDX-License-Identifier: Apache-2.0

package client

import "cmp"

// Fence orders the hand-outs of a group in one shard: a message that is handed out again has a greater one. Whoever stores what
// comes of a message can keep the greatest that it has seen of it, and refuse those who come late with a lesser one.
type Fence struct {
	Resets     uint32 // how often the group had begun again
	Generation uint64 // of the shard's leader
	HandOut    uint64 // counts from 1 within the above
}

// Compare returns -1, 0 or 1: f came before, is the same as, or came behind the other.
func (f Fence) Compare(other Fence) int {
	return cmp.Or(cmp.Compare(f.Resets, other.Resets), cmp.Compare(f.Generation, other.Generation), cmp.Compare(f.HandOut, other.HandOut))
}

// Fence tells this hand-out of the message from others.
func (m *Message) Fence() Fence {
	return Fence{Resets: m.from.claims.Resets, Generation: m.from.claims.Generation, HandOut: m.handOut}
}
