// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Progress tells a subscriber how far it has got when no delivery does.
type Progress struct {
	Shard uint32
	// Next is the offset of the next record that can come, Mark the one after the last committed.
	Next, Mark uint64
	// Generation to resume with.
	Generation uint64
}

// Type returns TypeProgress.
func (*Progress) Type() Type { return TypeProgress }

// Size returns the size of the body.
func (*Progress) Size() int { return 4 + 3*8 }

// Append appends the body.
func (f *Progress) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Next)
	dst = binary.LittleEndian.AppendUint64(dst, f.Mark)
	return binary.LittleEndian.AppendUint64(dst, f.Generation)
}

// Parse reads the body.
func (f *Progress) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeProgress}
	f.Shard = c.u32()
	f.Next = c.u64()
	f.Mark = c.u64()
	f.Generation = c.u64()
	return c.done()
}
