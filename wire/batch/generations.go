// SPDX-License-Identifier: Apache-2.0

package batch

// Generations tells where each generation of the shard began, oldest first. It is how two copies find the place
// where they part, and how a reader learns that what it had read was cut.
type Generations struct {
	Table []GenerationStart
}

// GenerationStart is where one generation began.
type GenerationStart struct {
	Generation uint64
	Sequence   uint64
	Offset     uint64
}

// Type returns TypeGenerations.
func (Generations) Type() EntryType { return TypeGenerations }

// AppendTo appends the entry's bytes, each row as the difference to the one before it.
func (e Generations) AppendTo(dst []byte) []byte {
	dst = appendUvarint(dst, uint64(len(e.Table)))
	var last GenerationStart
	for _, g := range e.Table {
		dst = appendVarint(dst, int64(g.Generation-last.Generation))
		dst = appendVarint(dst, int64(g.Sequence-last.Sequence))
		dst = appendVarint(dst, int64(g.Offset-last.Offset))
		last = g
	}
	return dst
}

func parseGenerations(c *cursor) Generations {
	n := c.length()
	if n > c.left()/3 { // a row takes at least three bytes
		c.fail(ErrSize)
	}
	if n == 0 || c.err != nil {
		return Generations{}
	}
	e := Generations{Table: make([]GenerationStart, 0, n)}
	var g GenerationStart
	for range n {
		g.Generation += uint64(c.varint())
		g.Sequence += uint64(c.varint())
		g.Offset += uint64(c.varint())
		if c.err != nil {
			return e
		}
		e.Table = append(e.Table, g)
	}
	return e
}
