// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"fmt"
	"slices"

	"margay.dev/wire/batch"
)

const (
	// IndexHeaderSize is the size of the header of an index file.
	IndexHeaderSize = 112
	// EntrySize is the size of one entry.
	EntrySize = 32
	// Stride is how many bytes of the segment lie between two entries at most, unless one batch is larger.
	Stride = 64 << 10

	indexMagic = "MARGAYIX"
	// maxEntries bounds what a decoder allocates; a segment of 32 GiB needs no more.
	maxEntries = 1 << 19
)

// Entry says where a batch begins.
type Entry struct {
	Offset     uint64 // base offset of the batch
	AppendTime int64
	Sequence   uint64
	Position   int64
}

// Summary is what is known of a segment without reading it.
type Summary struct {
	Base       uint64 // sequence of the first batch
	BaseOffset uint64
	Next       uint64 // sequence after the last batch
	NextOffset uint64
	Generation uint64 // of the last batch
	FirstTime  int64  // append time of the first batch
	LastTime   int64  // append time of the last batch, which is the highest
	Size       int64  // of the file
}

// Index is the sparse index of one segment. It is derived: it says how to find a batch, never what is true. Its first
// entry is the first batch, its last the last, by which a stale one is told.
type Index struct {
	ID      batch.LogID
	Shard   uint32
	Summary Summary
	Entries []Entry
}

// Append appends the bytes of the index file.
func (x *Index) Append(dst []byte) []byte {
	from := len(dst)
	dst = slices.Grow(dst, IndexHeaderSize+EntrySize*len(x.Entries))
	s := x.Summary
	dst = append(dst, indexMagic...)
	dst = le.AppendUint16(dst, Version)
	dst = le.AppendUint16(dst, 0) // flags
	dst = le.AppendUint32(dst, x.Shard)
	dst = append(dst, x.ID[:]...)
	for _, v := range []uint64{
		s.Base, s.BaseOffset, uint64(s.Size), s.Generation, s.Next - 1, s.NextOffset, uint64(s.LastTime), uint64(s.FirstTime),
	} {
		dst = le.AppendUint64(dst, v)
	}
	dst = le.AppendUint32(dst, uint32(len(x.Entries)))
	sums := len(dst)
	dst = append(dst, make([]byte, 12)...) // checksum of the entries, reserved, checksum of the header
	for _, e := range x.Entries {
		dst = le.AppendUint64(dst, e.Offset)
		dst = le.AppendUint64(dst, uint64(e.AppendTime))
		dst = le.AppendUint64(dst, e.Sequence)
		dst = le.AppendUint64(dst, uint64(e.Position))
	}
	le.PutUint32(dst[sums:], checksum(dst[from+IndexHeaderSize:]))
	le.PutUint32(dst[sums+8:], checksum(dst[from:sums+8]))
	return dst
}

// ParseIndexHeader reads the header alone, and how many entries follow it. It suffices to know what a segment holds.
func ParseIndexHeader(b []byte) (x *Index, entries int, err error) {
	if len(b) < IndexHeaderSize {
		return nil, 0, fmt.Errorf("parse index: %d bytes: %w", len(b), ErrShort)
	}
	if string(b[:8]) != indexMagic {
		return nil, 0, fmt.Errorf("parse index: %w", ErrMagic)
	}
	if checksum(b[:108]) != le.Uint32(b[108:]) {
		return nil, 0, fmt.Errorf("parse index: %w", ErrChecksum)
	}
	if v, flags := le.Uint16(b[8:]), le.Uint16(b[10:]); v != Version || flags != 0 {
		return nil, 0, fmt.Errorf("parse index: version %d, flags %#x: %w", v, flags, ErrNewer)
	}
	n := le.Uint32(b[96:])
	if n == 0 || n > maxEntries {
		return nil, 0, fmt.Errorf("parse index: %d entries: %w", n, ErrIndex)
	}
	u64 := func(at int) uint64 { return le.Uint64(b[at:]) }
	x = &Index{Shard: le.Uint32(b[12:]), Summary: Summary{
		Base: u64(32), BaseOffset: u64(40), Size: int64(u64(48)), Generation: u64(56), Next: u64(64) + 1, NextOffset: u64(72),
		LastTime: int64(u64(80)), FirstTime: int64(u64(88)),
	}}
	copy(x.ID[:], b[16:32])
	return x, int(n), nil
}

// ParseIndex reads an index file. Whatever is wrong, the answer is to rebuild it from the segment.
func ParseIndex(b []byte) (*Index, error) {
	x, n, err := ParseIndexHeader(b)
	if err != nil {
		return nil, err
	}
	if len(b) != IndexHeaderSize+EntrySize*n {
		return nil, fmt.Errorf("parse index: %d entries in %d bytes: %w", n, len(b), ErrIndex)
	}
	if checksum(b[IndexHeaderSize:]) != le.Uint32(b[100:]) {
		return nil, fmt.Errorf("parse index entries: %w", ErrChecksum)
	}
	x.Entries = make([]Entry, n)
	for i := range x.Entries {
		x.Entries[i] = ParseEntry(b[IndexHeaderSize+EntrySize*i:])
	}
	return x, x.check()
}

// ParseEntry reads one entry, of which b must hold EntrySize bytes.
func ParseEntry(b []byte) Entry {
	return Entry{
		Offset: le.Uint64(b), AppendTime: int64(le.Uint64(b[8:])), Sequence: le.Uint64(b[16:]), Position: int64(le.Uint64(b[24:])),
	}
}

// check refuses entries that a search could not go by.
func (x *Index) check() error {
	s, first, last := x.Summary, x.Entries[0], x.Entries[len(x.Entries)-1]
	if first.Sequence != s.Base || first.Position != HeaderSize || last.Sequence != s.Next-1 ||
		last.Position > s.Size-batch.HeaderSize || last.Offset > s.NextOffset {
		return fmt.Errorf("parse index: first or last entry: %w", ErrIndex)
	}
	for i, e := range x.Entries[1:] {
		if p := x.Entries[i]; e.Sequence <= p.Sequence || e.Position <= p.Position || e.Offset < p.Offset || e.AppendTime < p.AppendTime {
			return fmt.Errorf("parse index: entry %d is not behind the one before it: %w", i+1, ErrIndex)
		}
	}
	return nil
}

// Sparse collects entries while batches are appended or scanned.
type Sparse struct {
	Entries []Entry
	last    Entry
	any     bool
}

// Add notes the batch that begins at pos.
func (s *Sparse) Add(b batch.Batch, pos int64) {
	s.last = Entry{Offset: b.BaseOffset(), AppendTime: b.AppendTime(), Sequence: b.Sequence(), Position: pos}
	s.any = true
	if n := len(s.Entries); n == 0 || pos+int64(len(b))-s.Entries[n-1].Position > Stride {
		s.Entries = append(s.Entries, s.last)
	}
}

// Sealed returns the entries of a segment that takes no more batches: the last batch is the last entry.
func (s *Sparse) Sealed() []Entry {
	out := slices.Clone(s.Entries)
	if s.any && out[len(out)-1].Sequence != s.last.Sequence {
		out = append(out, s.last)
	}
	return out
}

// BySequence returns the last entry at or before the batch of this sequence.
func BySequence(entries []Entry, seq uint64) (Entry, bool) {
	return before(entries, func(e Entry) bool { return e.Sequence > seq })
}

// ByOffset returns an entry at or before the record batch that holds the offset. Control batches take no offset, so of
// several entries with one offset the first is meant.
func ByOffset(entries []Entry, offset uint64) (Entry, bool) {
	e, ok := before(entries, func(e Entry) bool { return e.Offset >= offset })
	if !ok && len(entries) > 0 {
		return entries[0], true
	}
	return e, ok
}

// ByTime returns an entry at or before the first batch appended at this time or later.
func ByTime(entries []Entry, us int64) (Entry, bool) {
	e, ok := before(entries, func(e Entry) bool { return e.AppendTime >= us })
	if !ok && len(entries) > 0 {
		return entries[0], true
	}
	return e, ok
}

// before returns the last entry for which beyond is false; beyond turns true once and stays so.
func before(entries []Entry, beyond func(Entry) bool) (Entry, bool) {
	i, _ := slices.BinarySearchFunc(entries, struct{}{}, func(e Entry, _ struct{}) int {
		if beyond(e) {
			return 1
		}
		return -1
	})
	if i == 0 {
		return Entry{}, false
	}
	return entries[i-1], true
}
