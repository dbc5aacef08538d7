// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Groups are the groups of one shard. Not safe for concurrent use.
type Groups struct {
	generation uint64
	byID       map[uint64]*Group
	byName     map[string]*Group
	commands   commands
	undo       undoLog

	start uint64 // of the log, committed
	gone  uint64 // exclusive: what the log is giving up; committed once start is there
	mark  uint64 // sequence, exclusive: what is committed
	end   uint64 // exclusive: what is committed
	asOf  int64  // the shard's time when it was last stepped

	carried Carried  // nil when nothing is ever carried
	taking  []*Group // that know what is outstanding: those with consumers, or looked at
	sweep   sweep
	scans   uint64 // the id of the last
	expired []expiredMessage
	ended   []ended

	parkedOld bool     // a claim of an earlier generation was of a message that is parked
	freeing   []*Group // that have keys to be freed
	dirty     bool     // there may be something to be done
	wake      int64    // when there is, otherwise
	fx        *Effects
}

// Carried finds messages that lie where they were carried to.
type Carried interface {
	// Place is the sequence of the batch that holds a message; 0 when it lies where it was appended.
	Place(offset uint64) uint64
	// Below gives the messages below an offset, in order.
	Below(offset uint64, f func(Message) bool)
	// Ready says whether they are known.
	Ready() bool
}

// New makes the groups of a shard that is led at this generation.
func New(generation uint64, carried Carried) *Groups {
	return &Groups{
		generation: generation, byID: map[uint64]*Group{}, byName: map[string]*Group{}, commands: newCommands(), carried: carried,
	}
}

// Group is one of them.
type Group struct {
	state
	handOut uint64 // the last number given in this generation
	handed  ranges // offsets handed out in this generation
	freed   []freed
	work    *work // nil while nobody consumes
}

// state is what the log holds of a group.
type state struct {
	id       uint64
	name     string
	resets   uint32
	created  int64
	updated  int64
	settings *batch.GroupSettings
	totals   batch.GroupTotals

	passed ranges
	parked map[uint64]batch.Attempt
	dead   map[uint64]batch.Dead
}

// Len counts the groups.
func (s *Groups) Len() int { return len(s.byID) }

// ids are those of the groups, in order.
func (s *Groups) ids() []uint64 {
	out := make([]uint64, 0, len(s.byID))
	for id := range s.byID {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func (s *Groups) named(name string) (*Group, *code.Error) {
	if g := s.byName[name]; g != nil {
		return g, nil
	}
	return nil, code.New(code.NotFound, "the log has no group %q: create it first", name)
}

// unsettled is how many messages are neither settled nor dead.
func (g *Group) unsettled(end uint64) uint64 {
	n := g.passed.missing(0, end)
	return n + uint64(len(g.parked))
}

// Outstanding says whether a message is neither settled nor dead.
func (g *Group) outstanding(offset uint64) bool {
	if !g.passed.has(offset) {
		return true
	}
	_, parked := g.parked[offset]
	return parked
}

// Live says whether a message is still needed by a group: outstanding, or dead.
func (s *Groups) Live(offset uint64) bool {
	for _, g := range s.byID {
		if g.outstanding(offset) {
			return true
		}
		if _, dead := g.dead[offset]; dead {
			return true
		}
	}
	return false
}

// LiveWithin is about how many messages of [from, to) are still needed by a group.
func (s *Groups) LiveWithin(from, to uint64) (n uint64) {
	for _, g := range s.byID {
		m := g.passed.missing(from, to)
		for o := range g.parked {
			if from <= o && o < to {
				m++
			}
		}
		for o := range g.dead {
			if from <= o && o < to {
				m++
			}
		}
		if n = max(n, m); n >= to-from {
			return to - from
		}
	}
	return n
}

// Lowest is the first offset that a group still needs, or end.
func (s *Groups) Lowest() uint64 {
	low := s.end
	for _, g := range s.byID {
		low = min(low, g.lowest(s.end))
		for o := range g.dead {
			low = min(low, o)
		}
	}
	return low
}

// lowest is the first offset that is outstanding, or end.
func (g *Group) lowest(end uint64) uint64 {
	low := min(g.passed.gap(0), end)
	for o := range g.parked {
		low = min(low, o)
	}
	return low
}

// Span is offsets from From up to To, exclusive.
type Span struct{ From, To uint64 }

// LiveSpans are the messages of [from, to) that a group still needs, rising.
func (s *Groups) LiveSpans(from, to uint64) []Span {
	if len(s.byID) == 0 {
		return []Span{{from, to}}
	}
	var all ranges
	for _, g := range s.byID {
		for gap := range g.passed.gaps(from, to) {
			all.add(gap.from, gap.to)
		}
		for o := range g.parked {
			if from <= o && o < to {
				all.add(o, o+1)
			}
		}
		for o := range g.dead {
			if from <= o && o < to {
				all.add(o, o+1)
			}
		}
	}
	var out []Span
	for r := range all.all() {
		out = append(out, Span{r.from, r.to})
	}
	return out
}

// Known says that it is known now where messages lie that were carried.
func (s *Groups) Known() { s.dirty = true }
