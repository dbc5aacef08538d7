// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// Trim asks to give up the records of a shard before an offset or a time. Answered by Trimmed.
type Trim struct {
	Log   batch.LogID
	Shard uint32
	// Kind is StartOffset or StartTime.
	Kind StartKind
	// At is the offset or the Unix microseconds of the first record to keep.
	At uint64
}

// Type returns TypeTrim.
func (*Trim) Type() Type { return TypeTrim }

// Size returns the size of the body.
func (*Trim) Size() int { return 16 + 4 + 1 + 8 }

// Append appends the body.
func (f *Trim) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	return binary.LittleEndian.AppendUint64(append(dst, byte(f.Kind)), f.At)
}

// Parse reads the body.
func (f *Trim) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeTrim}
	f.Log = c.logID()
	f.Shard = c.u32()
	if f.Kind = StartKind(c.enum(uint8(StartTime))); f.Kind < StartOffset {
		c.fail(ErrValue)
	}
	f.At = c.u64()
	return c.done()
}
