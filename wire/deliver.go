// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// Deliver carries stored batches, whole and back to back, to a subscriber: one when it is live, as many as lie
// together when it is read from the log. The client checks each (batch.CheckStored) and passes over the records
// below its position. Its correlation id is 0 and it names no subscription, so that one encoded frame serves every
// subscriber of the shard.
type Deliver struct {
	Shard uint32
	// Mark is the offset after the last committed record: what the client measures its lag against.
	Mark uint64
	// Batch takes the rest of the body. Parse neither copies nor checks it.
	Batch batch.Batch
}

// DeliverHead is the size of the body before the batch.
const DeliverHead = 4 + 8

// Type returns TypeDeliver.
func (*Deliver) Type() Type { return TypeDeliver }

// Size returns the size of the body.
func (f *Deliver) Size() int { return DeliverHead + len(f.Batch) }

// Append appends the body.
func (f *Deliver) Append(dst []byte) []byte { return append(f.appendFields(dst), f.Batch...) }

// AppendHead appends the frame header and the body up to the batch: for a writer that sends the batch
// from where it lies.
func (f *Deliver) AppendHead(dst []byte) []byte {
	return f.appendFields(AppendHeader(dst, Header{Type: TypeDeliver, Size: uint32(f.Size())}))
}

func (f *Deliver) appendFields(dst []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, f.Shard), f.Mark)
}

// Parse reads the body; Batch aliases it.
func (f *Deliver) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeDeliver}
	f.Shard = c.u32()
	f.Mark = c.u64()
	f.Batch = c.rest()
	return c.done()
}
