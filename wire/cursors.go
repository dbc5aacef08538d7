// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Cursors answers CursorList.
type Cursors struct {
	Cursors []CursorInfo
}

// CursorInfo is a durable subscription in one shard.
type CursorInfo struct {
	Name  string
	Shard uint32
	// Offset of the next record to read, Generation of the record before it.
	Offset, Generation uint64
	// Updated is when it was last opened or moved, in Unix microseconds.
	Updated int64
	// Held: a subscription has it open.
	Held bool
}

const minCursorInfo = 1 + 1 + 4 + 3*8 + 1

// Type returns TypeCursors.
func (*Cursors) Type() Type { return TypeCursors }

// Size returns the size of the body.
func (f *Cursors) Size() int {
	n := 4
	for i := range f.Cursors {
		n += stringSize(f.Cursors[i].Name) + 4 + 3*8 + 1
	}
	return n
}

// Append appends the body.
func (f *Cursors) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Cursors)))
	for i := range f.Cursors {
		x := &f.Cursors[i]
		dst = appendString(dst, x.Name)
		dst = binary.LittleEndian.AppendUint32(dst, x.Shard)
		dst = binary.LittleEndian.AppendUint64(dst, x.Offset)
		dst = binary.LittleEndian.AppendUint64(dst, x.Generation)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(x.Updated))
		dst = appendBool(dst, x.Held)
	}
	return dst
}

// Parse reads the body.
func (f *Cursors) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeCursors}
	f.Cursors = f.Cursors[:0]
	for n := c.count(minCursorInfo); n > 0 && c.err == nil; n-- {
		f.Cursors = append(f.Cursors, CursorInfo{
			Name: c.name(), Shard: c.u32(), Offset: c.u64(), Generation: c.u64(), Updated: int64(c.u64()), Held: c.bool(),
		})
	}
	return c.done()
}
