// SPDX-License-Identifier: Apache-2.0

package batch

// CheckpointPart stands first in every batch of a checkpoint. The checkpoint is valid when its last part is.
type CheckpointPart struct {
	Index uint32
	Total uint32
}

// Type returns TypeCheckpointPart.
func (CheckpointPart) Type() EntryType { return TypeCheckpointPart }

// Last reports whether this part completes the checkpoint.
func (e CheckpointPart) Last() bool { return e.Index+1 == e.Total }

// AppendTo appends the entry's bytes.
func (e CheckpointPart) AppendTo(dst []byte) []byte {
	return appendUvarint(appendUvarint(dst, uint64(e.Index)), uint64(e.Total))
}

func parseCheckpointPart(c *cursor) CheckpointPart {
	e := CheckpointPart{Index: c.u32(), Total: c.u32()}
	if e.Index >= e.Total {
		c.fail(ErrEntry)
	}
	return e
}

// CheckpointPart returns the part that this batch is of its checkpoint, without reading the other entries; ok is
// false when it is not part of one.
func (b Batch) CheckpointPart() (part CheckpointPart, ok bool) {
	if !b.IsCheckpoint() {
		return CheckpointPart{}, false
	}
	c := cursor{b: b.meta()}
	part, ok = parseEntry(&c).(CheckpointPart)
	return part, ok && b.partMatches(part)
}
