// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// WatchStart says where a watch begins.
type WatchStart uint8

// The starts of a watch.
const (
	WatchNow      WatchStart = 0 // with what changes from now on
	WatchOffset   WatchStart = 1 // with the changes from an offset on
	WatchSnapshot WatchStart = 2 // with what there is, and then what changes
)

// Watch asks for the changes of some keys of a shard. Answered by Watched, then WatchEntries and WatchDone, and at last
// WatchEnd; or by Error instead of Watched. All watches of a lane are of one log; what changes is sent once for all of
// them, as Deliver, DeliverSlice, Gap and Progress, and the client tells them apart.
type Watch struct {
	Log   batch.LogID
	Shard uint32
	// ID is the client's, not 0, and no other watch of the lane has it.
	ID    uint64
	Start WatchStart
	// Offset of the first change wanted and Generation of the record before it (0 when not known): of WatchOffset,
	// otherwise 0.
	Offset, Generation uint64
	// Filter may be FilterAll.
	Filter Filter
}

// Type returns TypeWatch.
func (*Watch) Type() Type { return TypeWatch }

// Size returns the size of the body.
func (f *Watch) Size() int { return 16 + 4 + 8 + 1 + 2*8 + filterSize(&f.Filter) }

// Append appends the body.
func (f *Watch) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	dst = append(binary.LittleEndian.AppendUint64(dst, f.ID), byte(f.Start))
	dst = binary.LittleEndian.AppendUint64(dst, f.Offset)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	return appendFilter(dst, &f.Filter)
}

// Parse reads the body.
func (f *Watch) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeWatch}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.ID = c.id()
	f.Start = WatchStart(c.enum(uint8(WatchSnapshot)))
	f.Offset = c.u64()
	f.Generation = c.u64()
	if f.Start != WatchOffset && f.Offset|f.Generation != 0 {
		c.fail(ErrValue)
	}
	f.Filter = c.keys()
	return c.done()
}
