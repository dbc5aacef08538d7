// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Started is where a subscription begins in one shard.
type Started struct {
	Shard      uint32
	Generation uint64
	// Offset of the first record that will come, Latest the mark at that moment (exclusive).
	Offset, Latest uint64
}

// Subscribed answers Subscribe.
type Subscribed struct {
	Shards []Started
}

const startedSize = 4 + 3*8

// Type returns TypeSubscribed.
func (*Subscribed) Type() Type { return TypeSubscribed }

// Size returns the size of the body.
func (f *Subscribed) Size() int { return 4 + startedSize*len(f.Shards) }

// Append appends the body.
func (f *Subscribed) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Shards)))
	for i := range f.Shards {
		s := &f.Shards[i]
		dst = binary.LittleEndian.AppendUint32(dst, s.Shard)
		dst = binary.LittleEndian.AppendUint64(dst, s.Generation)
		dst = binary.LittleEndian.AppendUint64(dst, s.Offset)
		dst = binary.LittleEndian.AppendUint64(dst, s.Latest)
	}
	return dst
}

// Parse reads the body.
func (f *Subscribed) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeSubscribed}
	f.Shards = f.Shards[:0]
	for n := c.count(startedSize); n > 0 && c.err == nil; n-- {
		f.Shards = append(f.Shards, Started{Shard: c.u32(), Generation: c.u64(), Offset: c.u64(), Latest: c.u64()})
	}
	return c.done()
}
