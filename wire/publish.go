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
	// Conditions of which all must hold, or nothing of the batch is stored; their records rise. Flag FlagConditions.
	Conditions []Condition
	// Derives says which records the leader is to make out of what stands in the log and in the batch; their indexes rise.
	// Flag FlagDerive.
	Derives []Derive
	// Batch takes the rest of the body. Parse neither copies nor checks it.
	Batch batch.Batch
}

// Condition demands that a key still has the version the publisher has seen.
type Condition struct {
	// Record is the index in the batch of the record whose key is meant.
	Record uint32
	// Version is one above the offset of the newest record of the key; 0 demands that the key is absent: never written,
	// a tombstone, or expired.
	Version uint64
}

const conditionSize = 4 + 8

// PublishHead is the size of the body before the batch when it has no flags; see Head.
const PublishHead = 16 + 4 + 8 + 1 + 4

// Head is the size of the body before the batch.
func (f *Publish) Head() int {
	n := PublishHead
	if len(f.Conditions) > 0 {
		n += 4 + conditionSize*len(f.Conditions)
	}
	if len(f.Derives) > 0 {
		n += 4 + deriveSize*len(f.Derives)
	}
	return n
}

// Type returns TypePublish.
func (*Publish) Type() Type { return TypePublish }

// Flags says which parts stand before the batch.
func (f *Publish) Flags() (flags uint8) {
	if len(f.Conditions) > 0 {
		flags |= FlagConditions
	}
	if len(f.Derives) > 0 {
		flags |= FlagDerive
	}
	return flags
}

// Size returns the size of the body.
func (f *Publish) Size() int { return f.Head() + len(f.Batch) }

// Append appends the body.
func (f *Publish) Append(dst []byte) []byte { return append(f.appendFields(dst), f.Batch...) }

// AppendHead appends the frame header and the body up to the batch: for a writer that sends the batch
// from where it lies.
func (f *Publish) AppendHead(dst []byte, corr uint64) []byte {
	return f.appendFields(AppendHeader(dst, Header{Type: TypePublish, Flags: f.Flags(), Size: uint32(f.Size()), Corr: corr}))
}

func (f *Publish) appendFields(dst []byte) []byte {
	dst = append(dst, f.Log[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Previous)
	dst = append(dst, byte(f.Ack))
	dst = binary.LittleEndian.AppendUint32(dst, f.TimeoutMs)
	if len(f.Conditions) > 0 {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Conditions)))
		for _, x := range f.Conditions {
			dst = binary.LittleEndian.AppendUint32(dst, x.Record)
			dst = binary.LittleEndian.AppendUint64(dst, x.Version)
		}
	}
	if len(f.Derives) > 0 {
		dst = appendDerives(dst, f.Derives)
	}
	return dst
}

// Parse reads a body without flags; Batch aliases it.
func (f *Publish) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body; Batch aliases it.
func (f *Publish) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypePublish}
	c.flags(flags)
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Previous = c.u64()
	f.Ack = Ack(c.enum(uint8(AckQuorum)))
	f.TimeoutMs = c.u32()
	f.Conditions = f.Conditions[:0]
	if flags&FlagConditions != 0 {
		f.Conditions = c.conditions(f.Conditions)
	}
	f.Derives = f.Derives[:0]
	if flags&FlagDerive != 0 {
		f.Derives = c.derives(f.Derives)
	}
	f.Batch = c.rest()
	return c.done()
}

// conditions reads at least one, on rising records: one set of conditions has one encoding.
func (c *cursor) conditions(into []Condition) []Condition {
	n := c.count(conditionSize)
	if n == 0 {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		x := Condition{Record: c.u32(), Version: c.u64()}
		if last := len(into) - 1; last >= 0 && x.Record <= into[last].Record {
			c.fail(ErrValue)
		}
		into = append(into, x)
	}
	return into
}
