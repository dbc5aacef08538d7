// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// MaxCommandOffsets bounds the messages that one command names.
const MaxCommandOffsets = 10_000

// GroupOp says what a command does.
type GroupOp uint8

// The commands.
const (
	GroupCreate     GroupOp = 1
	GroupUpdate     GroupOp = 2  // its settings
	GroupDelete     GroupOp = 3  // with all that it knows
	GroupPause      GroupOp = 4  // hand out nothing
	GroupResume     GroupOp = 5  // hand out again
	GroupSeek       GroupOp = 6  // go on at a position
	GroupReset      GroupOp = 7  // begin again, dead letters and attempts forgotten
	GroupRedrive    GroupOp = 8  // hand out dead letters again
	GroupDiscard    GroupOp = 9  // settle dead letters
	GroupCancel     GroupOp = 10 // settle messages that are not out
	GroupReschedule GroupOp = 11 // move when messages that are not out are due
)

// ofAllGroups reports whether the command may be about all groups of the log.
func (op GroupOp) ofAllGroups() bool { return op == GroupCancel || op == GroupReschedule }

// PositionKind says how a position is meant.
type PositionKind uint8

// The kinds of position.
const (
	PositionNone     PositionKind = 0
	PositionEarliest PositionKind = 1
	PositionLatest   PositionKind = 2
	PositionOffset   PositionKind = 3
	PositionTime     PositionKind = 4
)

// Position is where a group begins or goes on.
type Position struct {
	Kind   PositionKind
	Offset uint64 // of PositionOffset; otherwise 0
	Time   int64  // of PositionTime, Unix microseconds; otherwise 0
}

// GroupCommand changes a group, or messages of it, in one shard. Sent again with its ID, it is done once. Answered by
// GroupDone when it is durable.
type GroupCommand struct {
	ID    [16]byte // random
	Log   batch.LogID
	Shard uint32
	Op    GroupOp
	// Group is a name; empty, of GroupCancel and GroupReschedule, for all groups of the log.
	Group string
	// GroupID is the id that the group must have; 0 for any. Of GroupCreate the one that it gets; 0 for the shard to draw it.
	GroupID  uint64
	Position Position
	// Offsets are the messages that are meant, at most MaxCommandOffsets; none for all, where that makes sense.
	Offsets []uint64
	// Rate is how many messages a second a redrive hands out; 0 for all at once.
	Rate uint32
	// AtUs is when messages are due, in Unix microseconds; of GroupReschedule.
	AtUs int64
	// Settings of the group, when HasSettings. Flag FlagSettings.
	HasSettings bool
	Settings    batch.GroupSettings
}

// Type returns TypeGroupCommand.
func (*GroupCommand) Type() Type { return TypeGroupCommand }

// Flags says whether there are settings.
func (f *GroupCommand) Flags() uint8 {
	if f.HasSettings {
		return FlagSettings
	}
	return 0
}

// Size returns the size of the body.
func (f *GroupCommand) Size() int {
	n := 16 + 16 + 4 + 1 + stringSize(f.Group) + 8 + 1 + 8 + 8 + 4 + 8*len(f.Offsets) + 4 + 8
	if f.HasSettings {
		n += f.Settings.Size()
	}
	return n
}

// Append appends the body.
func (f *GroupCommand) Append(dst []byte) []byte {
	dst = append(append(dst, f.ID[:]...), f.Log[:]...)
	dst = append(binary.LittleEndian.AppendUint32(dst, f.Shard), byte(f.Op))
	dst = binary.LittleEndian.AppendUint64(appendString(dst, f.Group), f.GroupID)
	dst = binary.LittleEndian.AppendUint64(append(dst, byte(f.Position.Kind)), f.Position.Offset)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.Position.Time))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Offsets)))
	for _, o := range f.Offsets {
		dst = binary.LittleEndian.AppendUint64(dst, o)
	}
	dst = binary.LittleEndian.AppendUint32(dst, f.Rate)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.AtUs))
	if f.HasSettings {
		dst = f.Settings.AppendTo(dst)
	}
	return dst
}

// Parse reads a body without flags.
func (f *GroupCommand) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body. Which of its parts make sense for the command is not looked at.
func (f *GroupCommand) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypeGroupCommand}
	c.flags(flags)
	copy(f.ID[:], c.take(len(f.ID)))
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Op = GroupOp(c.enum(uint8(GroupReschedule)))
	f.Group = c.nameOrNone()
	if f.Op == 0 || f.Group == "" && !f.Op.ofAllGroups() {
		c.fail(ErrValue)
	}
	f.GroupID = c.u64()
	f.Position = c.position()
	f.Offsets = f.Offsets[:0]
	n := c.count(8)
	if n > MaxCommandOffsets {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Offsets = append(f.Offsets, c.u64())
	}
	f.Rate = c.u32()
	f.AtUs = int64(c.u64())
	if f.HasSettings, f.Settings = flags&FlagSettings != 0, (batch.GroupSettings{}); f.HasSettings {
		f.Settings = c.groupSettings()
	}
	return c.done()
}

func (c *cursor) position() Position {
	p := Position{Kind: PositionKind(c.enum(uint8(PositionTime))), Offset: c.u64(), Time: int64(c.u64())}
	if p.Kind != PositionOffset && p.Offset != 0 || p.Kind != PositionTime && p.Time != 0 {
		c.fail(ErrValue)
	}
	return p
}

// GroupDone answers GroupCommand.
type GroupDone struct {
	// GroupID is the id that the group has; 0 when the command was about all groups.
	GroupID uint64
	// Count of the messages that the command was about.
	Count uint64
	// Again: it had been done before.
	Again bool
	// Created: there was no such group before.
	Created bool
}

// Type returns TypeGroupDone.
func (*GroupDone) Type() Type { return TypeGroupDone }

// Size returns the size of the body.
func (*GroupDone) Size() int { return 8 + 8 + 1 + 1 }

// Append appends the body.
func (f *GroupDone) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, f.GroupID)
	dst = binary.LittleEndian.AppendUint64(dst, f.Count)
	return appendBool(appendBool(dst, f.Again), f.Created)
}

// Parse reads the body.
func (f *GroupDone) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeGroupDone}
	f.GroupID = c.u64()
	f.Count = c.u64()
	f.Again = c.bool()
	f.Created = c.bool()
	return c.done()
}
