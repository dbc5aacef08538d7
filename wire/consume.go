// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// MaxInFlight bounds the unsettled messages that one consumer may hold.
const MaxInFlight = 100_000

// Consume makes a lane a consumer of a group. Answered by Consumed, then Messages and Progress, and at last ConsumeEnd; or by
// Error instead of Consumed.
type Consume struct {
	Log   batch.LogID
	Group string // a name
	// Consumer is what lists call the consumer; at most MaxName bytes, and may be empty.
	Consumer string
	// MaxInFlight is how many messages may be out on the lane and not settled, over all shards: 0 to MaxInFlight. A consumer that has
	// settled messages before it was cut off begins with 0, so that they are not handed to it again before it has said so.
	MaxInFlight uint32
	// Concurrency is how many of them are worked on at a time, at least 1: when the connection dies, the attempts of no more
	// than these, and of those it said it had begun, are counted.
	Concurrency uint32
	// Shards has at least one.
	Shards []uint32
}

// Type returns TypeConsume.
func (*Consume) Type() Type { return TypeConsume }

// Size returns the size of the body.
func (f *Consume) Size() int {
	return 16 + stringSize(f.Group) + stringSize(f.Consumer) + 4 + 4 + 4 + 4*len(f.Shards)
}

// Append appends the body.
func (f *Consume) Append(dst []byte) []byte {
	dst = appendString(append(dst, f.Log[:]...), f.Group)
	dst = appendString(dst, f.Consumer)
	dst = binary.LittleEndian.AppendUint32(dst, f.MaxInFlight)
	dst = binary.LittleEndian.AppendUint32(dst, f.Concurrency)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Shards)))
	for _, s := range f.Shards {
		dst = binary.LittleEndian.AppendUint32(dst, s)
	}
	return dst
}

// Parse reads the body.
func (f *Consume) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeConsume}
	f.Log = c.logID()
	f.Group = c.name()
	f.Consumer = c.text(MaxName)
	f.MaxInFlight = uint32(c.within(uint64(c.u32()), 0, MaxInFlight))
	if f.Concurrency = c.u32(); f.Concurrency == 0 {
		c.fail(ErrValue)
	}
	f.Shards = f.Shards[:0]
	n := c.count(4)
	if n == 0 {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Shards = append(f.Shards, c.u32())
	}
	return c.done()
}

// Consumed answers Consume.
type Consumed struct {
	GroupID uint64
	// AckWaitUs is how long a message may be held without a word, in microseconds.
	AckWaitUs uint64
	Shards    []Consuming
}

// Consuming says what tokens of a shard are of.
type Consuming struct {
	Shard      uint32
	Generation uint64
	Resets     uint32
}

const consumingSize = 4 + 8 + 4

// Type returns TypeConsumed.
func (*Consumed) Type() Type { return TypeConsumed }

// Size returns the size of the body.
func (f *Consumed) Size() int { return 8 + 8 + 4 + consumingSize*len(f.Shards) }

// Append appends the body.
func (f *Consumed) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, f.GroupID)
	dst = binary.LittleEndian.AppendUint64(dst, f.AckWaitUs)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Shards)))
	for _, s := range f.Shards {
		dst = binary.LittleEndian.AppendUint32(dst, s.Shard)
		dst = binary.LittleEndian.AppendUint64(dst, s.Generation)
		dst = binary.LittleEndian.AppendUint32(dst, s.Resets)
	}
	return dst
}

// Parse reads the body.
func (f *Consumed) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeConsumed}
	f.GroupID = c.id()
	f.AckWaitUs = c.u64()
	f.Shards = f.Shards[:0]
	for n := c.count(consumingSize); n > 0 && c.err == nil; n-- {
		f.Shards = append(f.Shards, Consuming{Shard: c.u32(), Generation: c.u64(), Resets: c.u32()})
	}
	return c.done()
}

// Flow says how much more the consumer takes and how far it has got. Nothing answers it.
type Flow struct {
	// MaxInFlight takes the place of the one that Consume said, up to MaxInFlight; 0 to be handed nothing more.
	MaxInFlight uint32
	// Begun has for some shards the highest hand-out that the consumer has begun to work on.
	Begun []Begun
}

// Begun says how far the consumer has got in a shard.
type Begun struct {
	Shard   uint32
	HandOut uint64
}

const begunSize = 4 + 8

// Type returns TypeFlow.
func (*Flow) Type() Type { return TypeFlow }

// Size returns the size of the body.
func (f *Flow) Size() int { return 4 + 4 + begunSize*len(f.Begun) }

// Append appends the body.
func (f *Flow) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.MaxInFlight)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Begun)))
	for _, b := range f.Begun {
		dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, b.Shard), b.HandOut)
	}
	return dst
}

// Parse reads the body.
func (f *Flow) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeFlow}
	f.MaxInFlight = uint32(c.within(uint64(c.u32()), 0, MaxInFlight))
	f.Begun = f.Begun[:0]
	for n := c.count(begunSize); n > 0 && c.err == nil; n-- {
		f.Begun = append(f.Begun, Begun{Shard: c.u32(), HandOut: c.u64()})
	}
	return c.done()
}

// Leave asks for an end in order: what is out is given back, and no attempt is counted. Answered by ConsumeEnd of all shards.
type Leave struct{}

// Type returns TypeLeave.
func (*Leave) Type() Type { return TypeLeave }

// Size returns the size of the body.
func (*Leave) Size() int { return 0 }

// Append appends the body.
func (*Leave) Append(dst []byte) []byte { return dst }

// Parse reads the body.
func (*Leave) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeLeave}
	return c.done()
}

// ConsumeEnd is the terminal answer of Consume, for one shard or for all: nothing of it comes behind it.
type ConsumeEnd struct {
	Shard uint32 // or AllShards
	// Code says why; 0 when Leave asked for it.
	Code    code.Code
	Message string
}

// Type returns TypeConsumeEnd.
func (*ConsumeEnd) Type() Type { return TypeConsumeEnd }

// Size returns the size of the body.
func (f *ConsumeEnd) Size() int { return 4 + 2 + stringSize(f.Message) }

// Append appends the body.
func (f *ConsumeEnd) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	return appendString(binary.LittleEndian.AppendUint16(dst, uint16(f.Code)), f.Message)
}

// Parse reads the body.
func (f *ConsumeEnd) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeConsumeEnd}
	f.Shard = c.u32()
	f.Code = code.Code(c.u16())
	f.Message = c.string()
	return c.done()
}
