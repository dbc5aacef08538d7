// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Got answers Get.
type Got struct {
	Shard      uint32
	Generation uint64
	// AsOf is an offset, exclusive: the entries are what everything below it came to.
	AsOf uint64
	// Entries has one for each of the first keys that were asked for, in their order: an EntryValue, or an EntryNone. Where
	// they are fewer than the keys, the rest is to be asked for again.
	Entries []Entry
}

// Type returns TypeGot.
func (*Got) Type() Type { return TypeGot }

// Size returns the size of the body.
func (f *Got) Size() int { return 4 + 2*8 + entriesSize(f.Entries) }

// Append appends the body.
func (f *Got) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, f.AsOf)
	return appendEntries(dst, f.Entries)
}

// Parse reads the body; the entries alias it. An answer about no key would have to be asked for forever, and is refused.
func (f *Got) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeGot}
	f.Shard = c.u32()
	f.Generation = c.u64()
	f.AsOf = c.u64()
	f.Entries = c.entries(f.Entries[:0], MaxGetKeys, kindsOf(EntryNone, EntryValue))
	if len(f.Entries) == 0 {
		c.fail(ErrValue)
	}
	return c.done()
}
