// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"

	"margay.dev/wire/batch"
)

// List asks for the keys of a shard that a filter lets through, and their values, in the order of the keys' bytes.
// Answered by Listed.
type List struct {
	Log   batch.LogID
	Shard uint32
	// Stale: a replica that does not know whether it is up to date may answer.
	Stale bool
	// KeysOnly: the values are not wanted.
	KeysOnly bool
	// Filter may be FilterAll.
	Filter Filter
	// HasAfter: begin behind the key After, which need not be there.
	HasAfter bool
	After    string
	// Limit is the most entries to answer, 1 to MaxEntries.
	Limit uint32
}

// Type returns TypeList.
func (*List) Type() Type { return TypeList }

// Size returns the size of the body.
func (f *List) Size() int {
	n := 16 + 4 + 2 + filterSize(&f.Filter) + 1 + 4
	if f.HasAfter {
		n += stringSize(f.After)
	}
	return n
}

// Append appends the body.
func (f *List) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, f.Log[:]...), f.Shard)
	dst = appendBool(appendBool(dst, f.Stale), f.KeysOnly)
	dst = appendFilter(dst, &f.Filter)
	if dst = appendBool(dst, f.HasAfter); f.HasAfter {
		dst = appendString(dst, f.After)
	}
	return binary.LittleEndian.AppendUint32(dst, f.Limit)
}

// Parse reads the body.
func (f *List) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeList}
	f.Log = c.logID()
	f.Shard = c.u32()
	f.Stale = c.bool()
	f.KeysOnly = c.bool()
	f.Filter = c.keys()
	f.After = ""
	if f.HasAfter = c.bool(); f.HasAfter {
		f.After = c.string()
	}
	if f.Limit = c.u32(); f.Limit == 0 || f.Limit > MaxEntries {
		c.fail(ErrValue)
	}
	return c.done()
}
