// SPDX-License-Identifier: Apache-2.0

package batch

import "slices"

// EntryType names a kind of control entry. Numbers are never given twice.
type EntryType uint64

// The entry types of format version 1.
const (
	TypeOpening        EntryType = 1
	TypeLogStart       EntryType = 2
	TypeCheckpointPart EntryType = 3
	TypeProducer       EntryType = 4
	TypeGenerations    EntryType = 5
	TypeCursor         EntryType = 6
	TypeDedup          EntryType = 7
	TypeLast           EntryType = 8
	TypeGroup          EntryType = 9
	TypeSettled        EntryType = 10
	TypeAttempt        EntryType = 11
	TypeDead           EntryType = 12
	TypeCommand        EntryType = 13
)

// Entry is one statement of a control batch: Opening, LogStart, CheckpointPart, Producer, Generations, Cursor, Dedup,
// Last, Group, Settled, Attempt, Dead or Command.
type Entry interface {
	Type() EntryType
	// AppendTo appends the entry's bytes, without type and length.
	AppendTo(dst []byte) []byte
}

// BuildControl returns an unassigned control batch of these entries. A CheckpointPart in front makes it part of a
// checkpoint, and its index 0 the start of one. A batch without entries or above MaxBatch is refused by every
// check; what may grow without bound goes through BuildCheckpoint.
func BuildControl(entries ...Entry) Batch {
	var scratch []byte
	out := make([]byte, HeaderSize, 512)
	for _, e := range entries {
		scratch = e.AppendTo(scratch[:0])
		out = appendUvarint(out, uint64(e.Type()))
		out = appendUvarint(out, uint64(len(scratch)))
		out = append(out, scratch...)
	}
	attributes := AttrControl
	if len(entries) > 0 {
		if part, ok := entries[0].(CheckpointPart); ok {
			attributes |= AttrCheckpoint
			if part.Index == 0 {
				attributes |= AttrCheckpointStart
			}
		}
	}
	b := Batch(slices.Clip(out))
	b.seal(produced{attributes: attributes, count: len(entries), metaSize: len(b) - HeaderSize})
	return b
}

// partTarget is how large a part of a checkpoint grows before the next is begun.
const partTarget = 1 << 20

// BuildCheckpoint spreads the entries over as many control batches as they need, each with its CheckpointPart in
// front. There is always at least one: a segment opens with a checkpoint even when there is nothing to remember.
func BuildCheckpoint(entries ...Entry) []Batch {
	var (
		groups  [][]Entry
		scratch []byte
		from    int
		size    int
	)
	for i, e := range entries {
		scratch = e.AppendTo(scratch[:0])
		if i > from && (size+len(scratch) > partTarget || i-from >= maxDecodeCount/2) {
			groups = append(groups, entries[from:i])
			from, size = i, 0
		}
		size += len(scratch)
	}
	groups = append(groups, entries[from:])
	out := make([]Batch, len(groups))
	for i, g := range groups {
		all := make([]Entry, 0, len(g)+1)
		all = append(all, CheckpointPart{Index: uint32(i), Total: uint32(len(groups))})
		out[i] = BuildControl(append(all, g...)...)
	}
	return out
}

// Entries reads the entries of a control batch; a record batch has none. An unknown type fails with
// ErrUnknownEntry: a newer release has written what this one must not ignore.
func (b Batch) Entries() ([]Entry, error) {
	if !b.IsControl() {
		return nil, nil
	}
	c := cursor{b: b.meta()}
	out := make([]Entry, 0, min(b.Count(), 64))
	for range b.Count() {
		start := c.pos
		e := parseEntry(&c)
		if c.err != nil {
			return nil, fault("read control entry", HeaderSize+c.at, c.err)
		}
		_, isPart := e.(CheckpointPart)
		if isPart != (b.IsCheckpoint() && len(out) == 0) || isPart && !b.partMatches(e) {
			return nil, fault("read control entry", HeaderSize+start, ErrEntry)
		}
		out = append(out, e)
	}
	if c.end(); c.err != nil {
		return nil, fault("read control entry", HeaderSize+c.at, c.err)
	}
	return out, nil
}

// partMatches holds the attribute bits, which storage goes by, to the entry, which readings go by.
func (b Batch) partMatches(e Entry) bool {
	part, ok := e.(CheckpointPart)
	return ok && (part.Index == 0) == b.IsCheckpointStart()
}

func parseEntry(c *cursor) Entry {
	start := c.pos
	t := EntryType(c.uvarint())
	in := cursor{b: c.bytes(c.length())}
	if c.err != nil {
		return nil
	}
	var e Entry
	switch t {
	case TypeOpening:
		e = parseOpening(&in)
	case TypeLogStart:
		e = parseLogStart(&in)
	case TypeCheckpointPart:
		e = parseCheckpointPart(&in)
	case TypeProducer:
		e = parseProducer(&in)
	case TypeGenerations:
		e = parseGenerations(&in)
	case TypeCursor:
		e = parseCursor(&in)
	case TypeDedup:
		e = parseDedup(&in)
	case TypeLast:
		e = parseLast(&in)
	case TypeGroup:
		e = parseGroup(&in)
	case TypeSettled:
		e = parseSettled(&in)
	case TypeAttempt:
		e = parseAttempt(&in)
	case TypeDead:
		e = parseDead(&in)
	case TypeCommand:
		e = parseCommand(&in)
	default:
		c.pos = start
		c.fail(ErrUnknownEntry)
		return nil
	}
	in.end()
	if in.err != nil {
		c.pos -= len(in.b) - in.at
		c.fail(in.err)
		return nil
	}
	return e
}
