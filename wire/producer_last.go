// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// ProducerLast answers ProducerState.
type ProducerLast struct {
	// LastSequence is the producer's last one that is stored, BaseOffset where its batch is.
	LastSequence, BaseOffset uint64
	// Known: the shard remembers the producer; otherwise the rest is 0.
	Known bool
}

// Type returns TypeProducerLast.
func (*ProducerLast) Type() Type { return TypeProducerLast }

// Size returns the size of the body.
func (*ProducerLast) Size() int { return 2*8 + 1 }

// Append appends the body.
func (f *ProducerLast) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, f.LastSequence)
	dst = binary.LittleEndian.AppendUint64(dst, f.BaseOffset)
	return appendBool(dst, f.Known)
}

// Parse reads the body.
func (f *ProducerLast) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeProducerLast}
	f.LastSequence = c.u64()
	f.BaseOffset = c.u64()
	f.Known = c.bool()
	return c.done()
}
