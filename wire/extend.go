// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Extend asks for more time for messages of one shard that were handed out. Answered by Extended at once.
type Extend struct {
	GroupID    uint64
	Shard      uint32
	Resets     uint32
	Generation uint64
	// ForUs is how long from now, in microseconds, at most batch.MaxAckWait; 0 for the group's ack wait.
	ForUs uint64
	// Tokens has 1 to MaxSettleTokens.
	Tokens []batch.SettledToken
}

const tokenSize = 8 + 8

// Type returns TypeExtend.
func (*Extend) Type() Type { return TypeExtend }

// Size returns the size of the body.
func (f *Extend) Size() int { return 8 + 4 + 4 + 8 + 8 + 4 + tokenSize*len(f.Tokens) }

// Append appends the body.
func (f *Extend) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, f.GroupID)
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint32(dst, f.Resets)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, f.ForUs)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Tokens)))
	for _, t := range f.Tokens {
		dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, t.HandOut), t.Offset)
	}
	return dst
}

// Parse reads the body.
func (f *Extend) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeExtend}
	f.GroupID = c.id()
	f.Shard = c.u32()
	f.Resets = c.u32()
	f.Generation = c.u64()
	f.ForUs = c.within(c.u64(), 0, maxExtendUs)
	f.Tokens = f.Tokens[:0]
	n := c.count(tokenSize)
	if n == 0 || n > MaxSettleTokens {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Tokens = append(f.Tokens, batch.SettledToken{HandOut: c.u64(), Offset: c.u64()})
	}
	return c.done()
}

// Extended answers Extend: all that it does not name has the time.
type Extended struct {
	Failed []ExtendFailed // at most MaxSettleTokens
}

// ExtendFailed is a message, counted from 0, that has no more time.
type ExtendFailed struct {
	Index uint32
	Code  code.Code // never 0
}

const extendFailedSize = 4 + 2

// Type returns TypeExtended.
func (*Extended) Type() Type { return TypeExtended }

// Size returns the size of the body.
func (f *Extended) Size() int { return 4 + extendFailedSize*len(f.Failed) }

// Append appends the body.
func (f *Extended) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Failed)))
	for _, x := range f.Failed {
		dst = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint32(dst, x.Index), uint16(x.Code))
	}
	return dst
}

// Parse reads the body.
func (f *Extended) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeExtended}
	f.Failed = f.Failed[:0]
	n := c.count(extendFailedSize)
	if n > MaxSettleTokens {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Failed = append(f.Failed, ExtendFailed{Index: c.u32(), Code: c.code()})
	}
	return c.done()
}
