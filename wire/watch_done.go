// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// WatchDone says that a watch has all its WatchEntries: what comes live follows.
type WatchDone struct {
	Shard uint32
	ID    uint64
	// From is that of the watch's Watched.
	From uint64
}

// Type returns TypeWatchDone.
func (*WatchDone) Type() Type { return TypeWatchDone }

// Size returns the size of the body.
func (*WatchDone) Size() int { return 4 + 2*8 }

// Append appends the body.
func (f *WatchDone) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.ID)
	return binary.LittleEndian.AppendUint64(dst, f.From)
}

// Parse reads the body.
func (f *WatchDone) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeWatchDone}
	f.Shard = c.u32()
	f.ID = c.id()
	f.From = c.u64()
	return c.done()
}
