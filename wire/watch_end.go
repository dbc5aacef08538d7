// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/code"
)

// WatchEnd is the last frame of a watch: nothing of it comes behind it.
type WatchEnd struct {
	Shard uint32
	// ID of the watch; 0 for every watch of the shard.
	ID uint64
	// Code says why; 0 when Unwatch asked for it.
	Code    code.Code
	Message string
	// Resume is the offset to watch again from, Generation that of the record before it.
	Resume, Generation uint64
}

// Type returns TypeWatchEnd.
func (*WatchEnd) Type() Type { return TypeWatchEnd }

// Size returns the size of the body.
func (f *WatchEnd) Size() int { return 4 + 8 + 2 + stringSize(f.Message) + 2*8 }

// Append appends the body.
func (f *WatchEnd) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.ID)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(f.Code))
	dst = appendString(dst, f.Message)
	dst = binary.LittleEndian.AppendUint64(dst, f.Resume)
	return binary.LittleEndian.AppendUint64(dst, f.Generation)
}

// Parse reads the body.
func (f *WatchEnd) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeWatchEnd}
	f.Shard = c.u32()
	f.ID = c.u64()
	f.Code = code.Code(c.u16())
	f.Message = c.string()
	f.Resume = c.u64()
	f.Generation = c.u64()
	return c.done()
}
