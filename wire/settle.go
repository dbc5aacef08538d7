// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Bounds of one Settle and one Extend.
const (
	MaxSettleRuns   = 4096
	MaxSettleTokens = 65_536  // messages of all runs together
	MaxReason       = 4 << 10 // bytes of a reason; batch.MaxGroupReason of them are kept
	maxExtendUs     = uint64(batch.MaxAckWait / time.Microsecond)
	maxAfterUs      = uint64(batch.MaxSchedule / time.Microsecond)
)

// SettleOp says what becomes of a message.
type SettleOp uint8

// The operations.
const (
	SettleAck     SettleOp = 1 // it is done
	SettleNack    SettleOp = 2 // it failed: the attempt counts, and it comes again
	SettleReject  SettleOp = 3 // it never will be done: a dead letter
	SettleRelease SettleOp = 4 // it was not begun: it comes again, and no attempt counts
)

// SettleRun settles consecutive hand-outs of consecutive offsets.
type SettleRun struct {
	Op              SettleOp
	HandOut, Offset uint64 // of the first
	Count           uint32 // at least 1
	// AfterUs, of SettleNack: how long until it comes again, in microseconds; 0 as the group's backoff says.
	AfterUs uint64
	// Reason, of SettleNack and SettleReject: why; at most MaxReason bytes.
	Reason string
}

const minSettleRun = 1 + 8 + 8 + 4

func (r *SettleRun) size() int {
	n := minSettleRun
	if r.Op == SettleNack {
		n += 8
	}
	if r.Op == SettleNack || r.Op == SettleReject {
		n += stringSize(r.Reason)
	}
	return n
}

func (r *SettleRun) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(append(dst, byte(r.Op)), r.HandOut)
	dst = binary.LittleEndian.AppendUint64(dst, r.Offset)
	dst = binary.LittleEndian.AppendUint32(dst, r.Count)
	if r.Op == SettleNack {
		dst = binary.LittleEndian.AppendUint64(dst, r.AfterUs)
	}
	if r.Op == SettleNack || r.Op == SettleReject {
		dst = appendString(dst, r.Reason)
	}
	return dst
}

func (c *cursor) settleRun() SettleRun {
	r := SettleRun{Op: SettleOp(c.enum(uint8(SettleRelease))), HandOut: c.u64(), Offset: c.u64(), Count: c.u32()}
	if last := uint64(r.Count) - 1; r.Op == 0 || r.Count == 0 || r.HandOut > math.MaxUint64-last || r.Offset > math.MaxUint64-last {
		c.fail(ErrValue)
	}
	if r.Op == SettleNack {
		r.AfterUs = c.within(c.u64(), 0, maxAfterUs)
	}
	if r.Op == SettleNack || r.Op == SettleReject {
		r.Reason = c.text(MaxReason)
	}
	return r
}

// Settle says what becomes of messages of one shard that were handed out. Answered by Settled when it is durable; by Error
// when all of it is refused.
type Settle struct {
	GroupID    uint64
	Shard      uint32
	Resets     uint32
	Generation uint64
	// Runs has 1 to MaxSettleRuns, of at most MaxSettleTokens messages.
	Runs []SettleRun
}

// Type returns TypeSettle.
func (*Settle) Type() Type { return TypeSettle }

// Size returns the size of the body.
func (f *Settle) Size() int {
	n := 8 + 4 + 4 + 8 + 4
	for i := range f.Runs {
		n += f.Runs[i].size()
	}
	return n
}

// Append appends the body.
func (f *Settle) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, f.GroupID)
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint32(dst, f.Resets)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Runs)))
	for i := range f.Runs {
		dst = f.Runs[i].append(dst)
	}
	return dst
}

// Parse reads the body.
func (f *Settle) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeSettle}
	f.GroupID = c.id()
	f.Shard = c.u32()
	f.Resets = c.u32()
	f.Generation = c.u64()
	f.Runs = f.Runs[:0]
	n := c.count(minSettleRun)
	if n == 0 || n > MaxSettleRuns {
		c.fail(ErrValue)
	}
	var tokens uint64
	for ; n > 0 && c.err == nil; n-- {
		r := c.settleRun()
		if tokens += uint64(r.Count); tokens > MaxSettleTokens {
			c.fail(ErrValue)
		}
		f.Runs = append(f.Runs, r)
	}
	return c.done()
}

// Settled answers Settle: all that it does not name is done.
type Settled struct {
	Failed []SettleFailed // at most MaxSettleTokens
}

// SettleFailed is a message that was not settled: that of a run, counted from 0, and in it.
type SettleFailed struct {
	Run, Index uint32
	Code       code.Code // never 0
}

const settleFailedSize = 4 + 4 + 2

// Type returns TypeSettled.
func (*Settled) Type() Type { return TypeSettled }

// Size returns the size of the body.
func (f *Settled) Size() int { return 4 + settleFailedSize*len(f.Failed) }

// Append appends the body.
func (f *Settled) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Failed)))
	for _, x := range f.Failed {
		dst = binary.LittleEndian.AppendUint32(dst, x.Run)
		dst = binary.LittleEndian.AppendUint32(dst, x.Index)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(x.Code))
	}
	return dst
}

// Parse reads the body.
func (f *Settled) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeSettled}
	f.Failed = f.Failed[:0]
	n := c.count(settleFailedSize)
	if n > MaxSettleTokens {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Failed = append(f.Failed, SettleFailed{Run: c.u32(), Index: c.u32(), Code: c.code()})
	}
	return c.done()
}

// code reads an error code, which is never 0 where one must be.
func (c *cursor) code() code.Code {
	v := c.u16()
	if v == 0 {
		c.fail(ErrValue)
	}
	return code.Code(v)
}
