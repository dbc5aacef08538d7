// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Commit moves the cursor of the lane's durable subscription. Answered by Committed once that is durable.
type Commit struct {
	Shards []Committing
}

// Committing is where the cursor goes in one shard.
type Committing struct {
	Shard uint32
	// Offset of the next record to read.
	Offset uint64
}

const committingSize = 4 + 8

// Type returns TypeCommit.
func (*Commit) Type() Type { return TypeCommit }

// Size returns the size of the body.
func (f *Commit) Size() int { return 4 + committingSize*len(f.Shards) }

// Append appends the body.
func (f *Commit) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Shards)))
	for i := range f.Shards {
		dst = binary.LittleEndian.AppendUint32(dst, f.Shards[i].Shard)
		dst = binary.LittleEndian.AppendUint64(dst, f.Shards[i].Offset)
	}
	return dst
}

// Parse reads the body. A commit of no shard makes no sense and is refused.
func (f *Commit) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeCommit}
	f.Shards = f.Shards[:0]
	n := c.count(committingSize)
	if n == 0 {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Shards = append(f.Shards, Committing{Shard: c.u32(), Offset: c.u64()})
	}
	return c.done()
}
