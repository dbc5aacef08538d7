// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// WatchEntries is a part of what a watch gets before the changes that come live.
type WatchEntries struct {
	Shard uint32
	ID    uint64
	// Entries has at least one. Those of a snapshot are EntryValue and may be newer than the watch's From; those of history
	// are in the order of their offsets.
	Entries []Entry
}

// Type returns TypeWatchEntries.
func (*WatchEntries) Type() Type { return TypeWatchEntries }

// Size returns the size of the body.
func (f *WatchEntries) Size() int { return 4 + 8 + entriesSize(f.Entries) }

// Append appends the body.
func (f *WatchEntries) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.ID)
	return appendEntries(dst, f.Entries)
}

// Parse reads the body; the entries alias it.
func (f *WatchEntries) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeWatchEntries}
	f.Shard = c.u32()
	f.ID = c.id()
	f.Entries = c.entries(f.Entries[:0], MaxEntries, kindsOf(EntryValue, EntryDeleted, EntryExpired))
	if len(f.Entries) == 0 {
		c.fail(ErrValue)
	}
	return c.done()
}
