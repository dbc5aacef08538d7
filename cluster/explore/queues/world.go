// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"reflect"
	"slices"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/shard"
	"margay.dev/cluster/explore/deep"
	"margay.dev/wire/batch"
)

const (
	groupID   = 7
	groupName = "workers"
	began     = int64(1_700_000_000_000_000) // us
)

// World is a shard, its shell, its consumers, and what is known of what they did. It is an explore.System.
type World struct {
	setup *Setup
	plain *deep.Kinds

	core  *shard.Core
	cfg   shard.Config
	now   int64
	eff   shard.Effects
	scans []group.Scan

	file      []batch.Batch // what is written, by sequence
	flushed   int           // of those
	unwritten []batch.Batch

	consumers []*consumer
	sent      int // messages that were published
	left      Budget
	hands     []hand
	highest   uint64 // hand-out number, in this generation
	asked     []asked
	ledger    ledger // of all that is appended

	// A core that has something pending cannot be copied, for it remembers by functions how to take that back: such a world
	// is made again from the last one that had not.
	base  *World
	since []Action
}

// consumer is one lane.
type consumer struct {
	name   string
	credit *credit
	is     *group.Consumer // nil: it is not there
}

// credit is a consumer's, of this shard alone.
type credit struct{ most, out int }

func (c *credit) Take(n int) int {
	n = max(min(n, c.most-c.out), 0)
	c.out += n
	return n
}

func (c *credit) Give(n int) { c.out -= n }

// hand is a message that was handed to a consumer, as the consumer remembers it.
type hand struct {
	generation uint64
	resets     uint32
	handOut    uint64
	offset     uint64
	attempt    uint32
	to         uint8
	moved      uint64 // sequence of the batch that redrove or rescheduled it; 0: none did
	entry      bool   // it was ended by an entry
	returns    bool   // and is there again when that is cut off
	live       bool   // nobody else may have it
	deadline   int64  // of the claim
	endedAt    uint64 // how long the log was then: its end is committed when that is flushed
}

// asked is a request that is not answered.
type asked struct {
	id      int
	what    Kind
	fails   bool // its token has to be refused
	refused bool // all of it has to be
	fresh   bool
	behind  uint64 // sequence of the batch that it rests on, exclusive: all below must be flushed when it is answered
}

// New begins.
func New(s *Setup) *World {
	w := &World{setup: s, plain: kinds(), now: began, left: s.Faults}
	w.cfg = shard.Config{
		Node: "n1", Generation: 1, KeepUnsettled: s.Unsettled,
		SegmentAge: time.Microsecond, // each Tick rolls a segment that has records
	}
	w.core = shard.New(w.cfg)
	for i := range s.Consumers {
		w.consumers = append(w.consumers, &consumer{name: string(rune('A' + i)), credit: &credit{most: s.Credit}})
	}
	w.prelude()
	return w
}

// kinds says what is special in the memory of a World.
func kinds() *deep.Kinds {
	k := deep.New()
	k.Share(reflect.TypeFor[batch.Batch]()) // what is appended never changes
	k.Share(reflect.TypeFor[*Setup]())
	k.Share(reflect.TypeFor[*deep.Kinds]())
	k.Share(reflect.TypeFor[*World]())
	k.Ignore(reflect.TypeFor[World](), "setup", "plain", "base", "since", "cfg", "eff", "ledger")
	return k
}

// quiet says whether the core has nothing pending.
func (w *World) quiet() bool { return len(w.unwritten) == 0 && w.flushed == len(w.file) }

// Clone returns a copy. The engine never changes a World that it has cloned.
func (w *World) Clone() *World {
	if !w.quiet() && w.base != nil {
		c := w.base.Clone()
		for _, a := range w.since {
			if err := c.Apply(a); err != nil {
				panic(err) // it went well before
			}
		}
		return c
	}
	c := deep.Copy(w.plain, w)
	c.base, c.since = w, nil
	return c
}

// Fingerprint is the core's memory, the shell's and the consumers'. What the log says is known by the log.
func (w *World) Fingerprint() uint64 { return deep.Sum(w.plain, w) }

func (w *World) consumerOf(c *group.Consumer) int {
	return slices.IndexFunc(w.consumers, func(x *consumer) bool { return x.is == c })
}
