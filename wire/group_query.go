// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"

	"margay.dev/wire/batch"
)

// MaxGroupInfos bounds the groups of one answer.
const MaxGroupInfos = 1000

// GroupQuery asks how the groups of a shard stand, or one of them. Answered by GroupInfos.
type GroupQuery struct {
	Log   batch.LogID
	Shard uint32
	// Group is a name; empty for all groups, in the order of their names.
	Group string
	// After is the name to begin behind when it is not empty.
	After string
	Limit uint32 // 1 to MaxGroupInfos
	// Look has the backlog looked through, so that ready and delayed are exact.
	Look bool
}

// Type returns TypeGroupQuery.
func (*GroupQuery) Type() Type { return TypeGroupQuery }

// Size returns the size of the body.
func (f *GroupQuery) Size() int { return 16 + 4 + stringSize(f.Group) + stringSize(f.After) + 4 + 1 }

// Append appends the body.
func (f *GroupQuery) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	dst = appendString(appendString(dst, f.Group), f.After)
	return appendBool(binary.LittleEndian.AppendUint32(dst, f.Limit), f.Look)
}

// Parse reads the body.
func (f *GroupQuery) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeGroupQuery}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Group = c.nameOrNone()
	f.After = c.nameOrNone()
	f.Limit = uint32(c.within(uint64(c.u32()), 1, MaxGroupInfos))
	f.Look = c.bool()
	return c.done()
}

// GroupInfos answers GroupQuery.
type GroupInfos struct {
	Shard      uint32
	Generation uint64
	// More: there are others behind the last.
	More  bool
	Infos []GroupInfo // at most MaxGroupInfos
}

// Held says why a group hands out nothing.
type Held uint8

// The reasons.
const (
	HeldNot     Held = 0
	HeldPaused  Held = 1
	HeldRanges  Held = 2 // what it has settled lies in too many pieces
	HeldDead    Held = 3 // it has as many dead letters as it may
	HeldParked  Held = 4 // too many messages wait to be handed out again
	HeldOpening Held = 5 // the shard is still being looked through
)

// GroupInfo is how a group stands in a shard.
type GroupInfo struct {
	ID       uint64
	Name     string
	Resets   uint32
	Settings batch.GroupSettings
	Totals   batch.GroupTotals
	Created  int64 // Unix microseconds
	// Start is the first offset of the log, Next the lowest that is not settled, End the one behind the last that may be
	// handed out.
	Start, Next, End uint64
	Ready, InFlight, Delayed, Dead,
	Ranges uint64 // pieces in which what is settled lies
	// OldestAppend is when the oldest was appended that is neither settled nor dead, in Unix microseconds; 0 when none is.
	OldestAppend int64
	Held         Held
	// Exact: ready and delayed were counted; otherwise they are estimates.
	Exact     bool
	Consumers []ConsumerInfo
}

// ConsumerInfo is a consumer of a group.
type ConsumerInfo struct {
	Name             string // at most MaxName bytes
	InFlight, Credit uint32
}

const (
	minGroupInfo    = 8 + 2 + 4 + 6 + 9 + 8 + 3*8 + 5*8 + 8 + 1 + 1 + 4
	minConsumerInfo = 1 + 4 + 4
)

// Size is what the info takes in a frame, in bytes: for who keeps a frame below a bound.
func (x *GroupInfo) Size() int {
	n := 8 + stringSize(x.Name) + 4 + x.Settings.Size() + x.Totals.Size() + 8 + 3*8 + 5*8 + 8 + 1 + 1 + 4
	for i := range x.Consumers {
		n += stringSize(x.Consumers[i].Name) + 4 + 4
	}
	return n
}

// counts are the fixed numbers of an info, in their order.
func (x *GroupInfo) counts() [8]*uint64 {
	return [8]*uint64{&x.Start, &x.Next, &x.End, &x.Ready, &x.InFlight, &x.Delayed, &x.Dead, &x.Ranges}
}

func (x *GroupInfo) append(dst []byte) []byte {
	dst = appendString(binary.LittleEndian.AppendUint64(dst, x.ID), x.Name)
	dst = binary.LittleEndian.AppendUint32(dst, x.Resets)
	dst = x.Totals.AppendTo(x.Settings.AppendTo(dst))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.Created))
	for _, v := range x.counts() {
		dst = binary.LittleEndian.AppendUint64(dst, *v)
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.OldestAppend))
	dst = appendBool(append(dst, byte(x.Held)), x.Exact)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(x.Consumers)))
	for i := range x.Consumers {
		dst = appendString(dst, x.Consumers[i].Name)
		dst = binary.LittleEndian.AppendUint32(dst, x.Consumers[i].InFlight)
		dst = binary.LittleEndian.AppendUint32(dst, x.Consumers[i].Credit)
	}
	return dst
}

func (c *cursor) groupInfo() GroupInfo {
	x := GroupInfo{
		ID: c.id(), Name: c.name(), Resets: c.u32(), Settings: c.groupSettings(), Totals: c.groupTotals(), Created: int64(c.u64()),
	}
	for _, v := range x.counts() {
		*v = c.u64()
	}
	x.OldestAppend = int64(c.u64())
	x.Held = Held(c.enum(uint8(HeldOpening)))
	x.Exact = c.bool()
	for n := c.count(minConsumerInfo); n > 0 && c.err == nil; n-- {
		x.Consumers = append(x.Consumers, ConsumerInfo{Name: c.text(MaxName), InFlight: c.u32(), Credit: c.u32()})
	}
	return x
}

// groupSettings reads settings as control entries have them. Whether they are within their bounds is not looked at.
func (c *cursor) groupSettings() batch.GroupSettings {
	if c.err != nil {
		return batch.GroupSettings{}
	}
	s, n, err := batch.ReadGroupSettings(c.body[c.pos:])
	c.read(n, err)
	return s
}

func (c *cursor) groupTotals() batch.GroupTotals {
	if c.err != nil {
		return batch.GroupTotals{}
	}
	t, n, err := batch.ReadGroupTotals(c.body[c.pos:])
	c.read(n, err)
	return t
}

// read passes over what package batch has read.
func (c *cursor) read(n int, err error) {
	switch {
	case err == nil:
		c.pos += n
	case errors.Is(err, batch.ErrSize):
		c.fail(ErrShort)
	case errors.Is(err, batch.ErrVarint):
		c.fail(ErrVarint)
	default:
		c.fail(ErrValue)
	}
}

// Type returns TypeGroupInfos.
func (*GroupInfos) Type() Type { return TypeGroupInfos }

// Size returns the size of the body.
func (f *GroupInfos) Size() int {
	n := 4 + 8 + 1 + 4
	for i := range f.Infos {
		n += f.Infos[i].Size()
	}
	return n
}

// Append appends the body.
func (f *GroupInfos) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(dst, f.Shard), f.Generation)
	dst = binary.LittleEndian.AppendUint32(appendBool(dst, f.More), uint32(len(f.Infos)))
	for i := range f.Infos {
		dst = f.Infos[i].append(dst)
	}
	return dst
}

// Parse reads the body.
func (f *GroupInfos) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeGroupInfos}
	f.Shard = c.u32()
	f.Generation = c.u64()
	f.More = c.bool()
	f.Infos = f.Infos[:0]
	n := c.count(minGroupInfo)
	if n > MaxGroupInfos {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Infos = append(f.Infos, c.groupInfo())
	}
	return c.done()
}
