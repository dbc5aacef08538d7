// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// Publish asks for a batch to be appended to a shard. Answered by Published.
type Publish struct {
	Log   batch.LogID
	Shard uint32
	// Previous is the producer sequence that the client stands by as its last one before this batch.
	Previous uint64
	Ack      Ack
	// TimeoutMs is how long the client waits for the answer; 0 for as long as the broker allows.
	TimeoutMs uint32
	// Batch takes the rest of the body. Parse neither copies nor checks it.
	Batch batch.Batch
}

// PublishHead is the size of the body before the batch.
const PublishHead = 16 + 4 + 8 + 1 + 4

// Type returns TypePublish.
func (*Publish) Type() Type { return TypePublish }

// Size returns the size of the body.
func (f *Publish) Size() int { return PublishHead + len(f.Batch) }

// Append appends the body.
func (f *Publish) Append(dst []byte) []byte { return append(f.appendFields(dst), f.Batch...) }

// AppendHead appends the frame header and the body up to the batch: for a writer that sends the batch
// from where it lies.
func (f *Publish) AppendHead(dst []byte, corr uint64) []byte {
	return f.appendFields(AppendHeader(dst, Header{Type: TypePublish, Size: uint32(f.Size()), Corr: corr}))
}

func (f *Publish) appendFields(dst []byte) []byte {
	dst = append(dst, f.Log[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Previous)
	dst = append(dst, byte(f.Ack))
	return binary.LittleEndian.AppendUint32(dst, f.TimeoutMs)
}

// Parse reads the body; Batch aliases it.
func (f *Publish) Parse(body []byte) error {
	c := cursor{body: body, typ: TypePublish}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Previous = c.u64()
	f.Ack = Ack(c.enum(uint8(AckQuorum)))
	f.TimeoutMs = c.u32()
	f.Batch = c.rest()
	return c.done()
}
