// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/code"
)

// AllShards in End.Shard ends the whole subscription.
const AllShards = 0xffffffff

// Resume is where reading a shard can go on.
type Resume struct {
	Shard      uint32
	Offset     uint64
	Generation uint64
}

// End is the terminal answer of Subscribe, for one shard or for all.
type End struct {
	Shard uint32
	// Code says why; 0 when the end that was asked for is reached (UntilMark, Unsubscribe).
	Code    code.Code
	Message string
	Resume  []Resume
}

const resumeSize = 4 + 2*8

// Type returns TypeEnd.
func (*End) Type() Type { return TypeEnd }

// Size returns the size of the body.
func (f *End) Size() int { return 4 + 2 + stringSize(f.Message) + 4 + resumeSize*len(f.Resume) }

// Append appends the body.
func (f *End) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(f.Code))
	dst = appendString(dst, f.Message)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Resume)))
	for i := range f.Resume {
		dst = binary.LittleEndian.AppendUint32(dst, f.Resume[i].Shard)
		dst = binary.LittleEndian.AppendUint64(dst, f.Resume[i].Offset)
		dst = binary.LittleEndian.AppendUint64(dst, f.Resume[i].Generation)
	}
	return dst
}

// Parse reads the body.
func (f *End) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeEnd}
	f.Shard = c.u32()
	f.Code = code.Code(c.u16())
	f.Message = c.string()
	f.Resume = f.Resume[:0]
	for n := c.count(resumeSize); n > 0 && c.err == nil; n-- {
		f.Resume = append(f.Resume, Resume{Shard: c.u32(), Offset: c.u64(), Generation: c.u64()})
	}
	return c.done()
}
