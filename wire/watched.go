// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// WatchHow says what a watch gets before the changes that come live.
type WatchHow uint8

// What comes first.
const (
	HowLive     WatchHow = 0 // nothing
	HowHistory  WatchHow = 1 // the changes below From that were asked for
	HowSnapshot WatchHow = 2 // what there is
	HowReset    WatchHow = 3 // what there is, because the offset that was asked for is no more in the log
)

// Watched answers Watch.
type Watched struct {
	Shard      uint32
	ID         uint64
	Generation uint64
	// From is the offset of the first change that comes live; those below it are none of this watch's.
	From uint64
	How  WatchHow
}

// Type returns TypeWatched.
func (*Watched) Type() Type { return TypeWatched }

// Size returns the size of the body.
func (*Watched) Size() int { return 4 + 3*8 + 1 }

// Append appends the body.
func (f *Watched) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.ID)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, f.From)
	return append(dst, byte(f.How))
}

// Parse reads the body.
func (f *Watched) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeWatched}
	f.Shard = c.u32()
	f.ID = c.id()
	f.Generation = c.u64()
	f.From = c.u64()
	f.How = WatchHow(c.enum(uint8(HowReset)))
	return c.done()
}
