// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// Count asks how many keys of a shard a filter lets through. Answered by Counted.
type Count struct {
	Log   batch.LogID
	Shard uint32
	// Filter may be FilterAll.
	Filter Filter
}

// Type returns TypeCount.
func (*Count) Type() Type { return TypeCount }

// Size returns the size of the body.
func (f *Count) Size() int { return 16 + 4 + filterSize(&f.Filter) }

// Append appends the body.
func (f *Count) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	return appendFilter(dst, &f.Filter)
}

// Parse reads the body.
func (f *Count) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeCount}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Filter = c.keys()
	return c.done()
}
