// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// Listed answers List.
type Listed struct {
	Shard      uint32
	Generation uint64
	// AsOf is an offset, exclusive: the entries are what everything below it came to. Pages of one list have their own each.
	AsOf uint64
	// More: there may be further keys, behind Next. Otherwise Next is empty.
	More bool
	Next string
	// Entries are EntryValue, or EntryKey where the values were not wanted, in the order of their keys.
	Entries []Entry
}

// Type returns TypeListed.
func (*Listed) Type() Type { return TypeListed }

// Size returns the size of the body.
func (f *Listed) Size() int {
	n := 4 + 2*8 + 1 + entriesSize(f.Entries)
	if f.More {
		n += stringSize(f.Next)
	}
	return n
}

// Append appends the body.
func (f *Listed) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, f.Shard)
	dst = binary.LittleEndian.AppendUint64(dst, f.Generation)
	dst = binary.LittleEndian.AppendUint64(dst, f.AsOf)
	if dst = appendBool(dst, f.More); f.More {
		dst = appendString(dst, f.Next)
	}
	return appendEntries(dst, f.Entries)
}

// Parse reads the body; the entries alias it.
func (f *Listed) Parse(body []byte) error {
	c := cursor{body: body, typ: TypeListed}
	f.Shard = c.u32()
	f.Generation = c.u64()
	f.AsOf = c.u64()
	f.Next = ""
	if f.More = c.bool(); f.More {
		f.Next = c.string()
	}
	f.Entries = c.entries(f.Entries[:0], MaxEntries, kindsOf(EntryValue, EntryKey))
	return c.done()
}
