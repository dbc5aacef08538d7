// SPDX-License-Identifier: Apache-2.0

package batch

// Cursor says how far the holder of a durable subscription has got in this shard. The newest entry of a name holds.
type Cursor struct {
	Name       string
	Offset     uint64 // of the next record to read
	Generation uint64 // of the record before it, 0 when not known: tells whether the log was cut there since
	Epoch      uint64 // grows each time the cursor is opened: a commit of an older one is refused
	Updated    int64  // Unix microseconds
	Removed    bool   // the cursor is no more: deleted, or expired unused
}

// Type returns TypeCursor.
func (Cursor) Type() EntryType { return TypeCursor }

// AppendTo appends the entry's bytes.
func (e Cursor) AppendTo(dst []byte) []byte {
	dst = appendString(dst, e.Name)
	dst = appendUvarint(dst, e.Offset)
	dst = appendUvarint(dst, e.Generation)
	dst = appendUvarint(dst, e.Epoch)
	dst = appendVarint(dst, e.Updated)
	return appendBool(dst, e.Removed)
}

func parseCursor(c *cursor) Cursor {
	return Cursor{
		Name: c.str(), Offset: c.uvarint(), Generation: c.uvarint(), Epoch: c.uvarint(), Updated: c.varint(), Removed: c.bool(),
	}
}
