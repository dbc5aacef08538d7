// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// Offsets asks the leader which offsets of a shard can be read. Answered by OffsetsOk.
type Offsets struct {
	Log   batch.LogID
	Shard uint32
}

// Type returns TypeOffsets.
func (*Offsets) Type() Type { return TypeOffsets }

// Size returns the size of the body.
func (*Offsets) Size() int { return 16 + 4 }

// Append appends the body.
func (f *Offsets) Append(dst []byte) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
}

// Parse reads the body.
func (f *Offsets) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeOffsets}
	f.Log = c.logID()
	f.Shard = c.u32()
	return c.done()
}
