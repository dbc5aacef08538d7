// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// generation is where a generation's opening batch stands.
type generation struct {
	id       uint64
	sequence uint64
	offset   uint64
}

// generations is the table of openings, ascending. Every offset that leaves a shard carries its
// generation, so a resume beyond where that generation was cut can be told the truth.
type generations []generation

func (g *generations) add(n generation) {
	*g = append(*g, n)
	if len(*g) > MaxGenerations {
		*g = (*g)[len(*g)-MaxGenerations:]
	}
}

func (g *generations) last() uint64 {
	if len(*g) == 0 {
		return 0
	}
	return (*g)[len(*g)-1].id
}

func (g *generations) cut(at uint64) {
	for len(*g) > 0 && (*g)[len(*g)-1].sequence >= at {
		*g = (*g)[:len(*g)-1]
	}
}

func (g *generations) entry() batch.Generations {
	e := batch.Generations{}
	for _, x := range *g {
		e.Table = append(e.Table, batch.GenerationStart{Generation: x.id, Sequence: x.sequence, Offset: x.offset})
	}
	return e
}

// CheckResume says whether offset, learned at generation gen (0 for not known), can be gone on from: it
// may have been reclaimed, lie beyond the end, or beyond where that generation was cut off.
func (c *Core) CheckResume(offset, gen uint64) *code.Error {
	if gen != 0 && gen < c.cfg.Generation {
		if cut := c.cutOf(gen); offset > cut {
			return code.New(code.Cut, "offset %d of generation %d was lost: that generation was cut at %d", offset, gen, cut).
				With(code.DetailResumeAt, cut).At("", c.cfg.Generation)
		}
	}
	if offset < c.start.Offset || offset > c.nextOffset {
		return c.View().OutOfRange(offset)
	}
	return nil
}

// of is the generation of the record before offset, 0 when the table does not reach back to it.
func (g generations) of(offset uint64) uint64 {
	for _, x := range slices.Backward(g) {
		if x.offset < offset {
			return x.id
		}
	}
	return 0
}

// at is the generation of the last batch below a sequence, 0 when the table does not reach back to it.
func (g generations) at(sequence uint64) uint64 {
	for _, x := range slices.Backward(g) {
		if x.sequence < sequence {
			return x.id
		}
	}
	return 0
}

// cutOf is the offset up to which gen's records stand: where the next generation began.
func (c *Core) cutOf(gen uint64) uint64 {
	for _, g := range c.gens {
		if g.id > gen {
			return g.offset
		}
	}
	if c.cfg.Memory && c.length == 0 {
		return 0 // nothing of an earlier start remains
	}
	return c.nextOffset
}
