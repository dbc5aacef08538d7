// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Counted answers Count.
type Counted struct {
	Shard      uint32
	Generation uint64
	// AsOf is an offset, exclusive: the count is what everything below it came to.
	AsOf  uint64
	Count uint64
}

// Type returns TypeCounted.
func (*Counted) Type() Type { return TypeCounted }

// Size returns the size of the body.
func (*Counted) Size() int { return 4 + 3*8 }

// Append appends the body.
func (f *Counted) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, f.AsOf)
	return binary.LittleEndian.AppendUint64(dst, f.Count)
}

// Parse reads the body.
func (f *Counted) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeCounted}
	f.Shard = c.u32()
	f.Generation = c.u64()
	f.AsOf = c.u64()
	f.Count = c.u64()
	return c.done()
}
