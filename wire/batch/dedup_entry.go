// SPDX-License-Identifier: Apache-2.0

package batch

import "slices"

// Dedup is what a checkpoint remembers of dedup ids. Outside of checkpoints nothing is written: the batches themselves
// carry their ids.
type Dedup struct {
	Stored []DedupStored // oldest first, by convention
}

// DedupStored is where the first record with a dedup id went.
type DedupStored struct {
	ID         string
	Offset     uint64
	AppendTime int64
}

// maxDedupRows keeps one entry well below a part of a checkpoint, also when every id is as long as it may be.
const maxDedupRows = 4096

// Dedups spreads what is remembered over as many entries as it needs: BuildCheckpoint can part entries, not what is
// in one.
func Dedups(stored []DedupStored) []Entry {
	var out []Entry
	for rows := range slices.Chunk(stored, maxDedupRows) {
		out = append(out, Dedup{Stored: rows})
	}
	return out
}

// Type returns TypeDedup.
func (Dedup) Type() EntryType { return TypeDedup }

// AppendTo appends the entry's bytes; offset and append time of each row as the difference to the row before it.
// Differences wrap, so any values come back.
func (e Dedup) AppendTo(dst []byte) []byte {
	dst = appendUvarint(dst, uint64(len(e.Stored)))
	var last DedupStored
	for _, s := range e.Stored {
		dst = appendString(dst, s.ID)
		dst = appendVarint(dst, int64(s.Offset-last.Offset))
		dst = appendVarint(dst, int64(uint64(s.AppendTime)-uint64(last.AppendTime)))
		last = s
	}
	return dst
}

func parseDedup(c *cursor) Dedup {
	n := c.length()
	if n > c.left()/3 { // a row takes at least three bytes
		c.fail(ErrSize)
	}
	if n == 0 || c.err != nil {
		return Dedup{}
	}
	e := Dedup{Stored: make([]DedupStored, 0, n)}
	var s DedupStored
	for range n {
		s.ID = c.str()
		s.Offset += uint64(c.varint())
		s.AppendTime += c.varint()
		if c.err != nil {
			return e
		}
		e.Stored = append(e.Stored, s)
	}
	return e
}
