// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"slices"
	"unicode/utf8"
)

// Bounds of what the entries of a group hold.
const (
	MaxGroupName   = 64  // bytes of a group's name
	MaxGroupReason = 256 // bytes that are kept of why an attempt ended
	MaxPriority    = 9
)

// Group says how a group stands in this shard, but for what it has settled. The newest entry of an id holds.
type Group struct {
	ID               uint64 // random, the same in all shards of the log
	Name             string
	Removed          bool   // the group is no more
	Resets           uint32 // how often it began again
	Created, Updated int64  // Unix microseconds
	Settings         GroupSettings
	// Cursor is where the group begins. With a new id, or another number of resets, all below it is passed, nothing above it
	// is settled, attempts are forgotten, and so are dead letters from it on.
	Cursor uint64
	Totals GroupTotals
}

// Type returns TypeGroup.
func (Group) Type() EntryType { return TypeGroup }

// AppendTo appends the entry's bytes.
func (e Group) AppendTo(dst []byte) []byte {
	dst = le.AppendUint64(dst, e.ID)
	dst = appendString(dst, cut(e.Name, MaxGroupName))
	dst = appendBool(dst, e.Removed)
	dst = appendUvarint(dst, uint64(e.Resets))
	dst = appendVarint(dst, e.Created)
	dst = appendVarint(dst, e.Updated)
	dst = e.Settings.AppendTo(dst)
	dst = appendUvarint(dst, e.Cursor)
	return e.Totals.AppendTo(dst)
}

func parseGroup(c *cursor) Group {
	return Group{
		ID: c.u64(), Name: c.most(MaxGroupName), Removed: c.bool(), Resets: c.u32(), Created: c.varint(), Updated: c.varint(),
		Settings: parseGroupSettings(c), Cursor: c.uvarint(), Totals: parseGroupTotals(c),
	}
}

// How says in which way messages were settled.
type How uint8

// The ways. SettledState is for checkpoints: what was counted when it happened.
const (
	SettledState     How = 0
	SettledAcked     How = 1
	SettledExpired   How = 2
	SettledCancelled How = 3
	SettledLost      How = 4
)

// OffsetRange is the offsets from From to To, exclusive.
type OffsetRange struct{ From, To uint64 }

// Settled says that a group is done with messages. What it says adds to what was said before.
type Settled struct {
	Group  uint64
	How    How
	Ranges []OffsetRange // rising, none empty, none into another
}

// maxSettledRanges keeps one entry well below a part of a checkpoint, also when every difference takes ten bytes.
const maxSettledRanges = 32 << 10

// Settles spreads ranges over as many entries as they need: BuildCheckpoint can part entries, not what is in one.
func Settles(group uint64, how How, ranges []OffsetRange) []Entry {
	var out []Entry
	for part := range slices.Chunk(ranges, maxSettledRanges) {
		out = append(out, Settled{Group: group, How: how, Ranges: part})
	}
	return out
}

// Type returns TypeSettled.
func (Settled) Type() EntryType { return TypeSettled }

// AppendTo appends the entry's bytes; of each range how far it begins above the end of the one before, and how far it goes.
func (e Settled) AppendTo(dst []byte) []byte {
	dst = append(le.AppendUint64(dst, e.Group), byte(e.How))
	dst = appendUvarint(dst, uint64(len(e.Ranges)))
	var last uint64
	for _, r := range e.Ranges {
		dst = appendUvarint(dst, r.From-last)
		dst = appendUvarint(dst, r.To-r.From)
		last = r.To
	}
	return dst
}

func parseSettled(c *cursor) Settled {
	e := Settled{Group: c.u64(), How: How(c.upTo(byte(SettledLost)))}
	n := c.length()
	if n > c.left()/2 { // a range takes at least two bytes
		c.fail(ErrSize)
	}
	if n == 0 || c.err != nil {
		return e
	}
	e.Ranges = make([]OffsetRange, 0, n)
	var last uint64
	for range n {
		from := last + c.uvarint()
		to := from + c.uvarint()
		if from < last || to <= from {
			c.fail(ErrEntry)
		}
		if c.err != nil {
			return e
		}
		e.Ranges = append(e.Ranges, OffsetRange{from, to})
		last = to
	}
	return e
}

// Attempt parks a message in a group: it is passed, and to be handed out again when it is due. The newest entry of a group
// and offset holds; the message being settled ends it.
type Attempt struct {
	Group, Offset uint64
	Attempts      uint32 // that have ended
	Due           int64  // Unix microseconds; 0 = now
	Expires       int64  // 0 = never
	AppendTime    int64  // of the record
	Key           uint64 // hash of the record's key; 0 = it has none
	Priority      uint8  // of the record
	Retry         bool   // it holds its key until it is settled
	Count         uint8  // attempts that ended here, for the totals; 0 in a checkpoint
	Error         string // why the last one ended
}

// Type returns TypeAttempt.
func (Attempt) Type() EntryType { return TypeAttempt }

// AppendTo appends the entry's bytes.
func (e Attempt) AppendTo(dst []byte) []byte {
	dst = appendUvarint(le.AppendUint64(dst, e.Group), e.Offset)
	dst = appendUvarint(dst, uint64(e.Attempts))
	dst = appendVarint(dst, e.Due)
	dst = appendVarint(dst, e.Expires)
	dst = appendVarint(dst, e.AppendTime)
	dst = append(le.AppendUint64(dst, e.Key), min(e.Priority, MaxPriority))
	dst = append(appendBool(dst, e.Retry), e.Count)
	return appendString(dst, cut(e.Error, MaxGroupReason))
}

func parseAttempt(c *cursor) Attempt {
	return Attempt{
		Group: c.u64(), Offset: c.uvarint(), Attempts: c.u32(), Due: c.varint(), Expires: c.varint(), AppendTime: c.varint(),
		Key: c.u64(), Priority: c.upTo(MaxPriority), Retry: c.bool(), Count: c.u8(), Error: c.most(MaxGroupReason),
	}
}

// cut keeps what is written readable: of a text that is too long the beginning, without half a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for n := most; n > most-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:most]
}
