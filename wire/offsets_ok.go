// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// OffsetsOk answers Offsets.
type OffsetsOk struct {
	Shard      uint32
	Generation uint64
	// Earliest is the first offset that can be read, Latest the one after the last (the mark).
	Earliest, Latest uint64
	// AppendTime is that of the last batch, in Unix microseconds; 0 when there is none.
	AppendTime int64
}

// Type returns TypeOffsetsOk.
func (*OffsetsOk) Type() Type { return TypeOffsetsOk }

// Size returns the size of the body.
func (*OffsetsOk) Size() int { return 4 + 4*8 }

// Append appends the body.
func (f *OffsetsOk) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, f.Earliest)
	dst = binary.LittleEndian.AppendUint64(dst, f.Latest)
	return binary.LittleEndian.AppendUint64(dst, uint64(f.AppendTime))
}

// Parse reads the body.
func (f *OffsetsOk) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeOffsetsOk}
	f.Shard = c.u32()
	f.Generation = c.u64()
	f.Earliest = c.u64()
	f.Latest = c.u64()
	f.AppendTime = int64(c.u64())
	return c.done()
}
