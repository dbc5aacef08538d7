// SPDX-License-Identifier: Apache-2.0

package keyindex

// Entry says where the newest record of a key lies.
type Entry struct {
	Offset   uint64 // of the record, which it keeps when it is carried; its version is one more
	Sequence uint64 // of the batch that holds it now
	Until    int64  // Unix microseconds at which it expires, 0 = never
	Size     uint32 // its share of the stored bytes of its batch
	Carried  bool   // it lies in a carried batch, and so not where its offset says
}

// replaces is the rule of the index: the higher offset wins, whatever the sequence; of one offset, the later place.
func (e Entry) replaces(old Entry) bool {
	return e.Offset > old.Offset || e.Offset == old.Offset && e.Sequence > old.Sequence
}

// item is what the trees and the table point at. It is 48 bytes, a size class of the allocator: one field more costs 16
// bytes for each key.
type item struct {
	key string
	Entry
}

func byKey(a, b *item) bool { return a.key < b.key }

// byDue orders what expires; keys break ties, so that each place in the order is one item's.
func byDue(a, b *item) bool {
	return a.Until < b.Until || a.Until == b.Until && a.key < b.key
}
