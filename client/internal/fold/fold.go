// SPDX-License-Identifier: Apache-2.0

// Package fold decides what a watch tells its reader, and from where each shard goes on: what to hold back, what was seen
// before, and what to do when the reader is slow. It is stepped under its owner's lock, touches nothing, and refuses to hold
// more than its bound.
package fold

import (
	"sort"

	"margay.dev/wire"
)

// Kind says what became of a key.
type Kind uint8

// The kinds.
const (
	Put     Kind = 1
	Deleted Kind = 2
	Expired Kind = 3
)

// Change is one change of a key. All watches that it is for share it.
type Change struct {
	Kind               Kind
	Key                string
	Value              []byte
	Headers            []byte // a header section
	Offset, Generation uint64
	// Before is the generation of the record before it.
	Before              uint64
	AppendTime, Expires int64
}

// changeCost is what a change costs beside its bytes.
const changeCost = 192

func (c *Change) cost() int64 {
	return changeCost + int64(len(c.Key)+len(c.Value)+len(c.Headers))
}

// Outcome is what the owner has to do.
type Outcome uint8

// The outcomes.
const (
	GoOn Outcome = iota
	// FellBehind: nothing more of the shard fits. It is to be unwatched, until CatchUp says that it is to be asked for again.
	FellBehind
	// MustReset: the place is gone. All shards are to be unwatched, Reset called, and all asked for again.
	MustReset
)

// State says how a shard's watch is doing.
type State uint8

// The states.
const (
	Idle   State = iota // to be asked for
	Asked               // without an answer
	Replay              // what lies below from is on its way
	Live
	Behind // the reader has to catch up first
)

// shard is where the watch stands in one shard.
type shard struct {
	state State
	// next is the offset of the first change that has not come, generation that of the record before it; meaningful once
	// placed.
	placed           bool
	next, generation uint64
	// from is the first change that comes live, fromGeneration that of the record before it.
	from, fromGeneration uint64
	// base is the from of the first answer: what a list shows at or above it is in the snapshot, and may come live too.
	base uint64
	// hold keeps what comes live too early. The first that found no room is at missedAt.
	hold                []*Change
	missed              bool
	missedAt, missedGen uint64
	// covered are the parts of the snapshot that are newer than base, by their last key; asOf is the newest of them.
	covered []covered
	asOf    uint64
	// newer are those of its entries that are newer than their page says, and newest the offset of the last of them.
	newer  map[string]uint64
	newest uint64
}

// covered is a page of a list: for keys up to upTo (all further ones with last) it shows what lies below asOf.
type covered struct {
	upTo string
	last bool
	asOf uint64
}

// item is a change for the reader. In a conflating watch it stands for all from since on, skipped of them besides itself.
type item struct {
	change        *Change
	slot          int
	since, before uint64
	skipped       int
}

// Watch is not safe for concurrent use. Its shards are told apart by slots, numbers from 0 on.
type Watch struct {
	limit  int64
	shards []shard
	queue  []item
	head   int
	taken  uint64 // items that have left the queue: the number of the first in it
	held   int64
	newest map[string]uint64 // with conflation: the number of each key's item
}

// Start is where a shard's watch begins.
type Start struct{ Offset, Generation uint64 }

// New returns a watch of some shards that holds up to limit bytes. Without starts they begin now.
func New(limit int64, conflate bool, shards int, starts []Start) *Watch {
	w := &Watch{limit: limit, shards: make([]shard, shards)}
	for i, at := range starts {
		w.shards[i] = shard{placed: true, next: at.Offset, generation: at.Generation, base: at.Offset}
	}
	if conflate {
		w.newest = map[string]uint64{}
	}
	return w
}

// State returns that of a shard.
func (w *Watch) State(slot int) State { return w.shards[slot].state }

// Placed reports whether it is known of every shard where its changes begin.
func (w *Watch) Placed() bool {
	for i := range w.shards {
		if !w.shards[i].placed {
			return false
		}
	}
	return true
}

// Base is where the snapshot of a placed shard begins: what is below it is in every list from then on.
func (w *Watch) Base(slot int) uint64 { return w.shards[slot].base }

// Ask says from where an idle shard is to be watched; without ok, from now on.
func (w *Watch) Ask(slot int) (at Start, ok bool) {
	s := &w.shards[slot]
	s.state = Asked
	return Start{Offset: s.next, Generation: s.generation}, s.placed
}

// Watched takes the answer.
func (w *Watch) Watched(slot int, from, generation uint64, how wire.WatchHow) Outcome {
	s := &w.shards[slot]
	switch {
	case s.state != Asked:
		return GoOn
	case how == wire.HowReset || how == wire.HowSnapshot, s.placed && from < s.next: // it ends below what came already
		return MustReset
	case !s.placed:
		s.placed, s.base = true, from
		s.next, s.generation = from, generation
	}
	s.from, s.fromGeneration = from, generation
	if s.missed && s.missedAt < from {
		s.missedAt, s.missedGen = from, generation
	}
	if how == wire.HowHistory {
		s.state = Replay
		return GoOn
	}
	return w.live(slot)
}

// History takes a change that lies below what comes live.
func (w *Watch) History(slot int, c *Change) Outcome {
	s := &w.shards[slot]
	if s.state != Replay || c.Offset < s.next {
		return GoOn
	}
	if !w.push(slot, c, s.generation) {
		return w.fallBehind(s, c.Offset, s.generation)
	}
	s.next, s.generation = c.Offset+1, c.Generation
	return GoOn
}

// Done says that all of the history has come.
func (w *Watch) Done(slot int) Outcome {
	if w.shards[slot].state != Replay {
		return GoOn
	}
	return w.live(slot)
}

// live lets in what was held back.
func (w *Watch) live(slot int) Outcome {
	s := &w.shards[slot]
	s.state = Live
	if s.from > s.next {
		s.next, s.generation = s.from, s.fromGeneration
	}
	hold := s.hold
	s.hold = nil
	for _, c := range hold {
		w.held -= c.cost()
		if c.Offset >= s.next {
			w.append(slot, c, c.Before)
			s.next, s.generation = c.Offset+1, c.Generation
		}
	}
	if s.missed {
		return w.fallBehind(s, s.missedAt, s.missedGen)
	}
	return GoOn
}

// Live takes a change that comes live.
func (w *Watch) Live(slot int, c *Change) Outcome {
	s := &w.shards[slot]
	switch s.state {
	case Asked, Replay:
		if !s.missed && (!s.placed || c.Offset >= s.next) && (s.state == Asked || c.Offset >= s.from) {
			w.keep(s, c)
		}
	case Live:
		if c.Offset < s.next {
			return GoOn
		}
		if !w.push(slot, c, c.Before) {
			return w.fallBehind(s, c.Offset, c.Before)
		}
		s.next, s.generation = c.Offset+1, c.Generation
	case Idle, Behind:
	}
	return GoOn
}

// keep holds back what comes live before the history has.
func (w *Watch) keep(s *shard, c *Change) {
	if w.held > 0 && w.held+c.cost() > w.limit {
		s.missed, s.missedAt, s.missedGen = true, c.Offset, c.Before
		return
	}
	s.hold = append(s.hold, c)
	w.held += c.cost()
}

func (w *Watch) fallBehind(s *shard, at, generation uint64) Outcome {
	w.drop(s)
	s.state, s.next, s.generation = Behind, at, generation
	return FellBehind
}

func (w *Watch) drop(s *shard) {
	for _, c := range s.hold {
		w.held -= c.cost()
	}
	s.hold, s.missed = nil, false
}

// Ended says that nothing more comes of a shard's watch: its lane is lost, or the broker has ended it. All changes below at
// have come, if it was live.
func (w *Watch) Ended(slot int, at Start) {
	s := &w.shards[slot]
	if s.state == Live && at.Offset > s.next {
		s.next, s.generation = at.Offset, at.Generation
	}
	if s.state != Behind {
		w.drop(s)
		s.state = Idle
	}
}

// Gap says that what comes live of a shard leaves out all up to an offset, exclusive, for a reason that does not pass.
func (w *Watch) Gap(slot int, to uint64) Outcome {
	s := &w.shards[slot]
	if s.state == Asked || (s.state == Replay || s.state == Live) && s.from < to {
		return MustReset
	}
	return GoOn
}

// Reset begins anew, from now on. What the reader has not taken is in the snapshot that follows, or undone.
func (w *Watch) Reset() {
	clear(w.queue)
	w.queue, w.head, w.held = nil, 0, 0
	clear(w.newest)
	clear(w.shards)
}

// CanCatchUp reports whether CatchUp would name a shard.
func (w *Watch) CanCatchUp() bool {
	if !w.Eased() {
		return false
	}
	for i := range w.shards {
		if w.shards[i].state == Behind {
			return true
		}
	}
	return false
}

// CatchUp makes shards idle that have fallen behind, once the reader has come far enough, and names them.
func (w *Watch) CatchUp(each func(slot int)) {
	if !w.Eased() {
		return
	}
	for i := range w.shards {
		if s := &w.shards[i]; s.state == Behind {
			s.state = Idle
			each(i)
		}
	}
}

// Listed takes note of a page of the snapshot, which the reader gets in order of its keys: what comes live of the keys
// behind the page before, up to upTo (all further ones with last), is in it when it lies below asOf. It reports false for
// a page that is older than the watch, in which changes could be missing.
func (w *Watch) Listed(slot int, upTo string, last bool, asOf uint64) bool {
	s := &w.shards[slot]
	if !s.placed || asOf < s.base {
		return false
	}
	if n := len(s.covered); n > 0 && s.covered[n-1].asOf == asOf {
		s.covered[n-1].upTo, s.covered[n-1].last = upTo, last
		return true
	}
	if len(s.covered) > 0 || asOf > s.base || !last {
		s.covered = append(s.covered, covered{upTo: upTo, last: last, asOf: asOf})
		s.asOf = max(s.asOf, asOf)
	}
	return true
}

// Newer takes note of an entry of a page that does not lie below the page's asOf: a list goes on with the log while it is
// made. The change comes live too.
func (w *Watch) Newer(slot int, key string, offset uint64) {
	s := &w.shards[slot]
	if s.newer == nil {
		s.newer = map[string]uint64{}
	}
	s.newer[key], s.newest = offset, max(s.newest, offset)
}

// inSnapshot reports whether the reader has had the change with the snapshot. It is forgotten once no older change can
// follow; in a conflating queue those of other keys may stand behind.
func (s *shard) inSnapshot(c *Change, inOrder bool) bool {
	if at, ok := s.newer[c.Key]; ok && c.Offset <= at {
		return true
	}
	if inOrder && c.Offset > s.newest {
		s.newer = nil
	}
	if len(s.covered) == 0 {
		return false
	}
	if c.Offset >= s.asOf {
		if inOrder {
			s.covered = nil
		}
		return false
	}
	i := sort.Search(len(s.covered), func(i int) bool { return s.covered[i].last || s.covered[i].upTo >= c.Key })
	return i < len(s.covered) && c.Offset < s.covered[i].asOf
}

// Position is where to go on in another watch: before what the reader has not taken. At is where the shard's lane is, of
// which all has come when the watch is live.
func (w *Watch) Position(slot int, at Start) Start {
	s := &w.shards[slot]
	pos := Start{Offset: s.next, Generation: s.generation}
	if s.state == Live && at.Offset > s.next {
		pos = at
	}
	for _, it := range w.queue[w.head:] {
		if it.slot == slot && it.since < pos.Offset {
			pos = Start{Offset: it.since, Generation: it.before}
		}
	}
	return pos
}
