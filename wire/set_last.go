// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// SetLast gives the broker a record to publish when the session that sends it ends other than by close. A second one of
// the same session takes the place of the first. Answered by Done once it is durable.
type SetLast struct {
	Log   batch.LogID
	Shard uint32
	// ID is the session's, random and not 0.
	ID uint64
	// GraceMs is how long the session may be silent after a restart of the broker before the record is published.
	GraceMs uint32
	// Batch takes the rest of the body: one record, producer ID, sequence 1, at most batch.MaxLast bytes. Parse neither
	// copies nor checks it.
	Batch batch.Batch
}

const setLastHead = 16 + 4 + 8 + 4

// Type returns TypeSetLast.
func (*SetLast) Type() Type { return TypeSetLast }

// Size returns the size of the body.
func (f *SetLast) Size() int { return setLastHead + len(f.Batch) }

// Append appends the body.
func (f *SetLast) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.ID)
	dst = binary.LittleEndian.AppendUint32(dst, f.GraceMs)
	return append(dst, f.Batch...)
}

// Parse reads the body; Batch aliases it.
func (f *SetLast) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeSetLast}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.ID = c.id()
	f.GraceMs = c.u32()
	f.Batch = c.rest()
	return c.done()
}
