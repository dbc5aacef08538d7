// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// ProducerState asks the leader for what it knows of a producer: how one with a name goes on after a restart. Answered by
// ProducerLast.
type ProducerState struct {
	Log      batch.LogID
	Shard    uint32
	Producer uint64 // not 0
}

// Type returns TypeProducerState.
func (*ProducerState) Type() Type { return TypeProducerState }

// Size returns the size of the body.
func (*ProducerState) Size() int { return 16 + 4 + 8 }

// Append appends the body.
func (f *ProducerState) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	return binary.LittleEndian.AppendUint64(dst, f.Producer)
}

// Parse reads the body.
func (f *ProducerState) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeProducerState}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Producer = c.id()
	return c.done()
}
