// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// MaxEntries bounds the entries of one frame: few bytes of a frame can be an entry, which takes more in memory.
const MaxEntries = 10_000

// EntryKind says what stands at a key.
type EntryKind uint8

// The kinds of entry.
const (
	EntryNone    EntryKind = 0 // nothing: the key was asked for and has no value
	EntryValue   EntryKind = 1 // a value
	EntryDeleted EntryKind = 2 // a change: the key was deleted
	EntryExpired EntryKind = 3 // a change: the time to live of the key's value ended
	EntryKey     EntryKind = 4 // a value that was not asked for
)

// Entry is the newest record of a key, or a change of one.
type Entry struct {
	Kind EntryKind
	Key  []byte
	// Offset and Generation are those of the record, AppendTime (Unix microseconds) when it was appended.
	Offset, Generation uint64
	AppendTime         int64
	// Expires is when its time to live ends, in Unix microseconds; 0 for never.
	Expires int64
	// Value of EntryValue; nil otherwise.
	Value []byte
	// Headers is the header section of the record as its batch has it (batch.ParseHeaders reads it), empty when it has
	// none. Of EntryValue and EntryDeleted.
	Headers []byte
}

// Version is what a condition on the key demands to find this record; 0 of a key that has none.
func (e *Entry) Version() uint64 {
	if e.Kind == EntryNone {
		return 0
	}
	return e.Offset + 1
}

// kinds is a set of entry kinds.
type kinds uint8

func kindsOf(list ...EntryKind) (set kinds) {
	for _, k := range list {
		set |= 1 << k
	}
	return set
}

func (e *Entry) hasHeaders() bool { return e.Kind == EntryValue || e.Kind == EntryDeleted }

// Size is what the entry takes in a frame, in bytes: for who keeps a frame below a bound.
func (e *Entry) Size() int {
	if e.Kind == EntryNone {
		return 1
	}
	n := 1 + blobSize(e.Key) + uvarintSize(e.Offset) + uvarintSize(e.Generation) + varintSize(e.AppendTime) + uvarintSize(uint64(e.Expires))
	if e.Kind == EntryValue {
		n += blobSize(e.Value)
	}
	if e.hasHeaders() {
		n += blobSize(e.Headers)
	}
	return n
}

func entriesSize(entries []Entry) int {
	n := 4
	for i := range entries {
		n += entries[i].Size()
	}
	return n
}

func appendEntries(dst []byte, entries []Entry) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(entries)))
	for i := range entries {
		e := &entries[i]
		dst = append(dst, byte(e.Kind))
		if e.Kind == EntryNone {
			continue
		}
		dst = appendBlob(dst, e.Key)
		dst = binary.AppendUvarint(dst, e.Offset)
		dst = binary.AppendUvarint(dst, e.Generation)
		dst = binary.AppendUvarint(dst, zigzag(e.AppendTime))
		dst = binary.AppendUvarint(dst, uint64(e.Expires))
		if e.Kind == EntryValue {
			dst = appendBlob(dst, e.Value)
		}
		if e.hasHeaders() {
			dst = appendBlob(dst, e.Headers)
		}
	}
	return dst
}

// entries reads up to most of them, of these kinds. What they hold aliases the body.
func (c *cursor) entries(into []Entry, most int, may kinds) []Entry {
	n := c.count(1)
	if n > most {
		c.fail(ErrValue)
	}
	for ; n > 0 && c.err == nil; n-- {
		into = append(into, c.entry(may))
	}
	return into
}

func (c *cursor) entry(may kinds) Entry {
	at := c.pos
	e := Entry{Kind: EntryKind(c.enum(uint8(EntryKey)))}
	if c.err == nil && may&kindsOf(e.Kind) == 0 {
		c.pos = at
		c.fail(ErrValue)
	}
	if c.err != nil || e.Kind == EntryNone {
		return e
	}
	e.Key = c.blob()
	e.Offset = c.uvarint()
	e.Generation = c.uvarint()
	e.AppendTime = c.varint()
	e.Expires = c.unsigned63()
	if e.Kind == EntryValue {
		e.Value = c.blob()
	}
	if e.hasHeaders() {
		e.Headers = c.blob()
	}
	return e
}
