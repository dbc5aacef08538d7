// SPDX-License-Identifier: Apache-2.0

package keyindex

import "math/bits"

// What the index takes, in bytes:
//
//	for each key     its own bytes as the allocator rounds them
//	               + 48 for its item
//	               + 16 for its place in the order: a pointer in a node that is half to wholly full
//	               + 16 more when it expires, for its place among what is due
//	for each slot    12, of which there are 1.25 to 1.6 for each key
//	once             4 KiB
//
// That is 79 to 99 bytes beside the key. A snapshot that is being written adds what changes meanwhile, at most as much
// again; TestMemoryIsAsTold holds the figures.
const (
	itemBytes  = 48
	orderBytes = 16
	baseBytes  = 4 << 10
)

// Bytes is the memory that the index takes, within some 15 percent.
func (x *Index) Bytes() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return baseBytes + x.keyBytes + int64(x.items.slots)*slotBytes +
		int64(x.items.count)*(itemBytes+orderBytes) + int64(x.due.Len())*orderBytes
}

// allocated is what the allocator takes for n bytes: an eighth of the power of two below is about the step between its
// sizes.
func allocated(n int) int64 {
	step := max(8, 1<<max(0, bits.Len(uint(n))-4))
	return int64((n + step - 1) / step * step)
}
