// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// MaxGetKeys bounds the keys of one Get.
const MaxGetKeys = 1024

// Get asks for the values of some keys of a shard. Answered by Got.
type Get struct {
	Log   batch.LogID
	Shard uint32
	// Stale: a replica that does not know whether it is up to date may answer.
	Stale bool
	// AtLeast is an offset, exclusive: the answer waits until everything below it is committed. 0 for no wait.
	AtLeast uint64
	// TimeoutMs is how long the answer may wait; 0 for as long as the broker allows.
	TimeoutMs uint32
	// Keys has 1 to MaxGetKeys of them. Parse lets them alias the body.
	Keys [][]byte
}

// Type returns TypeGet.
func (*Get) Type() Type { return TypeGet }

// Size returns the size of the body.
func (f *Get) Size() int {
	n := 16 + 4 + 1 + 8 + 4 + 4
	for _, k := range f.Keys {
		n += blobSize(k)
	}
	return n
}

// Append appends the body.
func (f *Get) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	dst = appendBool(dst, f.Stale)
	dst = binary.LittleEndian.AppendUint64(dst, f.AtLeast)
	dst = binary.LittleEndian.AppendUint32(dst, f.TimeoutMs)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(f.Keys)))
	for _, k := range f.Keys {
		dst = appendBlob(dst, k)
	}
	return dst
}

// Parse reads the body.
func (f *Get) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeGet}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Stale = c.bool()
	f.AtLeast = c.u64()
	f.TimeoutMs = c.u32()
	f.Keys = f.Keys[:0]
	n := c.count(1)
	if n == 0 || n > MaxGetKeys {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		f.Keys = append(f.Keys, c.blob())
	}
	return c.done()
}
