// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// ClearLast takes back what SetLast gave; nothing is published. Answered by Done, also when there is nothing to take back.
type ClearLast struct {
	Log   batch.LogID
	Shard uint32
	ID    uint64
}

// Type returns TypeClearLast.
func (*ClearLast) Type() Type { return TypeClearLast }

// Size returns the size of the body.
func (*ClearLast) Size() int { return 16 + 4 + 8 }

// Append appends the body.
func (f *ClearLast) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	return binary.LittleEndian.AppendUint64(dst, f.ID)
}

// Parse reads the body.
func (f *ClearLast) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeClearLast}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.ID = c.id()
	return c.done()
}
