// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// DeliverSlice carries slices of stored batches to a subscriber that gets some records of them only, back to back. The
// client checks each (batch.CheckSlice) and passes over the records below its position; every offset of a slice's source
// is done with, also of those that are not in it. Correlation id as Deliver.
type DeliverSlice struct {
	Shard uint32
	// Mark is the offset after the last committed record: what the client measures its lag against.
	Mark uint64
	// Slices take the rest of the body: one slice, or several back to back. Parse neither copies nor checks them.
	Slices []byte
}

// Type returns TypeDeliverSlice.
func (*DeliverSlice) Type() Type { return TypeDeliverSlice }

// Size returns the size of the body.
func (f *DeliverSlice) Size() int { return DeliverHead + len(f.Slices) }

// Append appends the body.
func (f *DeliverSlice) Append(dst []byte) []byte { return append(f.appendFields(dst), f.Slices...) }

// AppendHead appends the frame header and the body up to the slices: for a writer that sends them from where they lie.
func (f *DeliverSlice) AppendHead(dst []byte) []byte {
	return f.appendFields(AppendHeader(dst, Header{Type: TypeDeliverSlice, Size: uint32(f.Size())}))
}

func (f *DeliverSlice) appendFields(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, f.Shard), f.Mark)
}

// Parse reads the body; Slices alias it.
func (f *DeliverSlice) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeDeliverSlice}
	f.Shard = c.u32()
	f.Mark = c.u64()
	f.Slices = c.rest()
	return c.done()
}
