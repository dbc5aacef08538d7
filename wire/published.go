// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Reached is a bit set that says what a published batch had reached when it was acknowledged.
type Reached uint8

const (
	// ReachedFlushed: it is flushed on the replicas that are counted.
	ReachedFlushed Reached = 1 << 0
	// ReachedCommitted: it is below the high-water mark.
	ReachedCommitted Reached = 1 << 1
	// ReachedDuplicate: it was there before; offset and generation are those of the first time.
	ReachedDuplicate Reached = 1 << 2

	reachedAll = ReachedFlushed | ReachedCommitted | ReachedDuplicate
)

// Has reports whether every bit of want is set.
func (r Reached) Has(want Reached) bool { return r&want == want }

// Published answers Publish.
type Published struct {
	// BaseOffset is the offset of the batch's first record.
	BaseOffset uint64
	Generation uint64
	// AppendTime in Unix microseconds.
	AppendTime int64
	// Count of records in the batch.
	Count uint32
	// Replicas that hold it, the leader included.
	Replicas uint8
	Reached  Reached
}

// Type returns TypePublished.
func (*Published) Type() Type { return TypePublished }

// Size returns the size of the body.
func (*Published) Size() int { return 3*8 + 4 + 2 }

// Append appends the body.
func (f *Published) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, f.BaseOffset)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.AppendTime))
	dst = binary.LittleEndian.AppendUint32(dst, f.Count)
	return append(dst, f.Replicas, byte(f.Reached))
}

// Parse reads the body.
func (f *Published) Parse(body []byte) error {
	c := cursor{body: body, typ: TypePublished}
	f.BaseOffset = c.u64()
	f.Generation = c.u64()
	f.AppendTime = int64(c.u64())
	f.Count = c.u32()
	f.Replicas = c.u8()
	f.Reached = Reached(c.enum(uint8(reachedAll)))
	return c.done()
}
