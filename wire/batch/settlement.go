// SPDX-License-Identifier: Apache-2.0

package batch

import "fmt"

// MaxSettled is how many messages one batch can settle.
const MaxSettled = 10_000

// Settlement names messages of the batch's own shard that are acknowledged when the batch is stored: both or neither.
type Settlement struct {
	Group      uint64 // the group's id
	Resets     uint32
	Generation uint64
	Tokens     []SettledToken // 1 to MaxSettled
}

// SettledToken is one message that was handed out.
type SettledToken struct{ HandOut, Offset uint64 }

// minSettlement is the smallest settlement: group, resets, generation, count and a token.
const minSettlement = 8 + 1 + 1 + 1 + 2

// HasSettlement reports whether the batch settles messages of a group. What it says of them is for the leader only: such a
// batch never goes to clients whole.
func (b Batch) HasSettlement() bool { return b.Attributes()&AttrSettlement != 0 }

// Settlement returns what the batch settles; ok is false when it settles nothing.
func (b Batch) Settlement() (s Settlement, ok bool, err error) {
	if !b.HasSettlement() {
		return Settlement{}, false, nil
	}
	c := cursor{b: b.meta()}
	in := settlementSection(&c)
	s.Group, s.Resets, s.Generation = in.u64(), in.u32(), in.uvarint()
	n := settlementCount(&in)
	if in.err == nil {
		s.Tokens = make([]SettledToken, 0, n)
	}
	for ; n > 0 && in.err == nil; n-- {
		s.Tokens = append(s.Tokens, SettledToken{HandOut: in.uvarint(), Offset: in.uvarint()})
	}
	if in.end(); in.err != nil {
		return Settlement{}, false, fault("read settlement", HeaderSize+c.pos-len(in.b)+in.at, in.err)
	}
	return s, true, nil
}

// settlementSection takes the settlement off the front of the meta section. One that cannot stand there is not there: then
// the attributes say what is not so.
func settlementSection(c *cursor) cursor {
	start := c.pos
	n := c.length()
	if c.err != nil || n < minSettlement {
		c.pos, c.err, c.at = start, ErrAttributes, start
		return cursor{err: ErrAttributes}
	}
	return cursor{b: c.bytes(n)}
}

func settlementCount(c *cursor) int {
	n := c.uvarint()
	if n == 0 || n > MaxSettled || n > uint64(c.left()/2) { // a token takes at least two bytes
		c.fail(ErrSettlement)
		return 0
	}
	return int(n)
}

// checkSettlement walks the settlement of a batch that says it has one, and returns what the meta section has behind it, or
// the position of what is wrong.
func (b Batch) checkSettlement() (left, pos int, err error) {
	c := cursor{b: b.meta()}
	in := settlementSection(&c)
	if c.err != nil {
		return 0, HeaderSize, c.err
	}
	if in.u64() == 0 { // a group's id is never 0
		in.fail(ErrSettlement)
	}
	in.u32()
	in.uvarint()
	for n := settlementCount(&in); n > 0; n-- {
		in.uvarint()
		in.uvarint()
	}
	if in.end(); in.err != nil {
		return 0, HeaderSize + c.pos - len(in.b) + in.at, in.err
	}
	return c.left(), 0, nil
}

// SetSettlement has the batch settle messages when it is stored. It holds until Reset; ErrFull means that it does not fit
// beside the records there are, ErrTooLarge that it fits no batch. A batch with a dedup id settles nothing: as a duplicate it
// would not be stored, and the messages not settled.
func (b *Builder) SetSettlement(s Settlement) error {
	if s.Group == 0 || len(s.Tokens) == 0 || len(s.Tokens) > MaxSettled {
		return fmt.Errorf("settle %d messages of group %d, 1 to %d of a group: %w", len(s.Tokens), s.Group, MaxSettled, ErrSettlement)
	}
	if b.dedup {
		return fmt.Errorf("settle messages beside a dedup id: %w", ErrSettlement)
	}
	n := 8 + uvarintSize(uint64(s.Resets)) + uvarintSize(s.Generation) + uvarintSize(uint64(len(s.Tokens)))
	for _, t := range s.Tokens {
		n += uvarintSize(t.HandOut) + uvarintSize(t.Offset)
	}
	whole := uvarintSize(uint64(n)) + n
	switch {
	case HeaderSize+whole > b.lim.Batch:
		return fmt.Errorf("settle %d messages: %d bytes encoded, a batch takes %d: %w", len(s.Tokens), HeaderSize+whole, b.lim.Batch, ErrTooLarge)
	case b.Size()-len(b.settlement)+whole > b.lim.Batch:
		return ErrFull
	}
	dst := le.AppendUint64(appendUvarint(b.settlement[:0], uint64(n)), s.Group)
	dst = appendUvarint(appendUvarint(dst, uint64(s.Resets)), s.Generation)
	dst = appendUvarint(dst, uint64(len(s.Tokens)))
	for _, t := range s.Tokens {
		dst = appendUvarint(appendUvarint(dst, t.HandOut), t.Offset)
	}
	b.settlement = dst
	return nil
}
