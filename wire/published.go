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
	// Sums has what each OpAdd of the publish came to, in order. Flag FlagSums.
	Sums []int64
}

// Type returns TypePublished.
func (*Published) Type() Type { return TypePublished }

// Flags says whether there are sums.
func (f *Published) Flags() uint8 {
	if len(f.Sums) > 0 {
		return FlagSums
	}
	return 0
}

// Size returns the size of the body.
func (f *Published) Size() int {
	n := 3*8 + 4 + 2
	if len(f.Sums) > 0 {
		n += 4 + 8*len(f.Sums)
	}
	return n
}

// Append appends the body.
func (f *Published) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, f.BaseOffset)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.AppendTime))
	dst = binary.LittleEndian.AppendUint32(dst, f.Count)
	dst = append(dst, f.Replicas, byte(f.Reached))
	if len(f.Sums) == 0 {
		return dst
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Sums)))
	for _, sum := range f.Sums {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(sum))
	}
	return dst
}

// Parse reads a body without flags.
func (f *Published) Parse(body []byte) error { return f.ParseFlags(0, body) }

// ParseFlags reads the body.
func (f *Published) ParseFlags(flags uint8, body []byte) error {
	c := cursor{body: body, typ: TypePublished}
	c.flags(flags)
	f.BaseOffset = c.u64()
	f.Generation = c.u64()
	f.AppendTime = int64(c.u64())
	f.Count = c.u32()
	f.Replicas = c.u8()
	f.Reached = Reached(c.enum(uint8(reachedAll)))
	f.Sums = f.Sums[:0]
	if flags&FlagSums != 0 {
		n := c.count(8)
		if n == 0 {
			c.fail(ErrValue)
		}
		for ; n > 0 && c.err == nil; n-- {
			f.Sums = append(f.Sums, int64(c.u64()))
		}
	}
	return c.done()
}
