// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"math"
	"slices"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Bounds of a shard's cursors.
const (
	MaxCursors = 10_000
	CursorIdle = 30 * 24 * time.Hour // by append time; a cursor that nobody opened or moved for longer is forgotten
	// CursorTouch is how old a cursor is when a commit is written that does not move it, so that one with a holder on a
	// quiet shard does not count as unused.
	CursorTouch = 24 * time.Hour

	maxCommits = 4096 // entries of one control batch
)

// Cursor is how far the holder of a durable subscription has got in this shard. It lies in the log, behind every record
// that it has passed: whatever cuts those off takes it along, so it never points beyond the end.
type Cursor struct {
	Name       string
	Offset     uint64 // of the next record to read
	Generation uint64 // of the record before it; 0 when not known
	// Epoch tells the holders of a name apart: a commit of another than the newest is refused. It is taken from the
	// sequence of the opening's batch, so that it rises, also over a deletion.
	Epoch   uint64
	Updated int64 // append time (us) when it was last opened or moved
	// Resumed, of an answer: there was a cursor of this name.
	Resumed bool
}

// OpenCursor makes its sender the holder of a cursor; whoever held it holds it no more. The answer has the cursor.
type OpenCursor struct {
	Name string
	// Start is where a cursor begins that does not exist. Without Create that is answered not_found instead.
	Start  uint64
	Create bool
	To     any
}

// CommitCursors moves cursors; each is answered for itself. They come together so that one round costs one batch,
// however many consumers there are.
type CommitCursors struct{ List []CursorCommit }

// CursorCommit moves one cursor forward. One that lies behind where the cursor is has been overtaken, by a later commit
// of the same holder, and is answered as done: nothing moves a cursor back but deleting it (ID-07).
type CursorCommit struct {
	Name   string
	Epoch  uint64
	Offset uint64
	To     any
}

// DeleteCursor forgets a cursor. A holder's commits are refused from then on.
type DeleteCursor struct {
	Name string
	To   any
}

func (*OpenCursor) shardEvent()    {}
func (*CommitCursors) shardEvent() {}
func (*DeleteCursor) shardEvent()  {}

// cursors is the table of a shard, and when to look for those that nobody uses.
type cursors struct {
	table[string, Cursor]
	max      int
	expireAt int64 // no cursor expires at an append time below
}

func newCursors(limit int) cursors { return cursors{table: newTable[string, Cursor](), max: limit} }

func (t *cursors) set(sequence uint64, is Cursor) {
	t.put(sequence, is.Name, is)
	t.expireAt = min(t.expireAt, is.Updated+CursorIdle.Microseconds()+1)
}

// full says whether there are as many as there may be. Those whose removal is not committed do not count: what comes now
// lies behind it.
func (t *cursors) full() bool {
	if t.len() < t.max {
		return false
	}
	n := 0
	for name := range t.rows {
		if _, ok := t.get(name); ok {
			n++
		}
	}
	return n >= t.max
}

func (c *Core) openCursor(now int64, ev *OpenCursor, eff *Effects) {
	if c.lost != nil {
		eff.Answers = append(eff.Answers, Answer{To: ev.To, Err: c.lost})
		return
	}
	was, resumed := c.cursors.get(ev.Name)
	if !resumed {
		if err := c.admitCursor(now, ev, eff); err != nil {
			c.refuseCursor(ev.Name, ev.To, err, eff)
			return
		}
	}
	sequence, at := c.beginControl(now, entrySize, eff)
	is := Cursor{Name: ev.Name, Offset: ev.Start, Epoch: sequence + 1, Updated: at}
	if resumed {
		is.Offset = was.value.Offset
	}
	is.Generation = c.gens.of(is.Offset)
	c.cursors.set(sequence, is)
	c.control(now, eff, is.entry())
	is.Resumed = resumed
	c.answerBehind(sequence, Answer{To: ev.To, Cursor: &is}, eff)
}

// admitCursor refuses a cursor that must not be made.
func (c *Core) admitCursor(now int64, ev *OpenCursor, eff *Effects) *code.Error {
	if !ev.Create {
		return code.New(code.NotFound, "the shard has no cursor %q", ev.Name)
	}
	if ev.Start > c.nextOffset {
		return code.New(code.OutOfRange, "cursor %q would start at offset %d: the next record is %d", ev.Name, ev.Start, c.nextOffset).
			With(code.DetailEarliest, c.start.Offset).With(code.DetailLatest, c.ceiling)
	}
	if c.cursors.full() {
		c.expireCursors(now, c.at(now), eff)
	}
	if c.cursors.full() {
		return code.New(code.TooMany, "the shard keeps %d cursors, all of them used within %s", c.cursors.max, CursorIdle).
			With(code.DetailLimit, uint64(c.cursors.max))
	}
	return nil
}

// refuseCursor answers with an error that rests on what is known of a name, pending or not.
func (c *Core) refuseCursor(name string, to any, err *code.Error, eff *Effects) {
	if v, known := c.cursors.newest(name); known {
		c.answerBehind(v.sequence, Answer{To: to, Err: err}, eff)
		return
	}
	eff.Answers = append(eff.Answers, Answer{To: to, Err: err})
}

func (c *Core) commitCursors(now int64, ev *CommitCursors, eff *Effects) {
	for from := 0; from < len(ev.List); from += maxCommits {
		c.commitSome(now, ev.List[from:min(from+maxCommits, len(ev.List))], eff)
	}
}

// commitSome writes one batch with the furthest commit of each name.
func (c *Core) commitSome(now int64, list []CursorCommit, eff *Effects) {
	var (
		moves []CursorCommit // the furthest of each name, in the order the names came
		index = make(map[string]int, len(list))
		wait  []any
	)
	for _, m := range list {
		is, err := c.judgeCommit(&m)
		switch {
		case err != nil:
			c.refuseCursor(m.Name, m.To, err, eff)
			continue
		case !is.moves(c.at(now), m.Offset):
			c.answerBehind(is.sequence, Answer{To: m.To}, eff)
			continue
		}
		m.Offset = max(m.Offset, is.value.Offset)
		wait = append(wait, m.To)
		if i, ok := index[m.Name]; ok {
			moves[i].Offset = max(moves[i].Offset, m.Offset)
			continue
		}
		index[m.Name] = len(moves)
		moves = append(moves, m)
	}
	if len(moves) == 0 {
		return
	}
	sequence, at := c.beginControl(now, entrySize*int64(len(moves)), eff)
	entries := make([]batch.Entry, len(moves))
	for i, m := range moves {
		is := Cursor{Name: m.Name, Offset: m.Offset, Generation: c.gens.of(m.Offset), Epoch: m.Epoch, Updated: at}
		c.cursors.set(sequence, is)
		entries[i] = is.entry()
	}
	c.control(now, eff, entries...)
	for _, to := range wait {
		c.answerBehind(sequence, Answer{To: to}, eff)
	}
}

// cursorVersion is a cursor as of one batch.
type cursorVersion version[Cursor]

// moves says whether a commit is worth a batch.
func (v *cursorVersion) moves(now int64, offset uint64) bool {
	return offset > v.value.Offset || now-v.value.Updated >= CursorTouch.Microseconds()
}

// judgeCommit refuses what is not the newest holder's, or lies where nobody can have read.
func (c *Core) judgeCommit(m *CursorCommit) (*cursorVersion, *code.Error) {
	if c.lost != nil {
		return nil, c.lost
	}
	v, ok := c.cursors.get(m.Name)
	switch {
	case !ok:
		return nil, code.New(code.NotFound, "the shard has no cursor %q: it was deleted, or nobody used it for %s", m.Name, CursorIdle)
	case v.value.Epoch != m.Epoch:
		return nil, code.New(code.TakenOver, "cursor %q was opened again after this subscription", m.Name)
	case m.Offset > c.ceiling:
		return nil, code.New(code.OutOfRange, "cursor %q cannot stand at offset %d: the log holds records up to %d", m.Name, m.Offset, c.ceiling).
			With(code.DetailEarliest, c.start.Offset).With(code.DetailLatest, c.ceiling)
	}
	return (*cursorVersion)(&v), nil
}

func (c *Core) deleteCursor(now int64, ev *DeleteCursor, eff *Effects) {
	if c.lost != nil {
		eff.Answers = append(eff.Answers, Answer{To: ev.To, Err: c.lost})
		return
	}
	is, ok := c.cursors.get(ev.Name)
	if !ok {
		c.refuseCursor(ev.Name, ev.To, code.New(code.NotFound, "the shard has no cursor %q", ev.Name), eff)
		return
	}
	sequence, _ := c.beginControl(now, entrySize, eff)
	c.cursors.remove(sequence, ev.Name, is.value)
	c.control(now, eff, is.value.removal())
	c.answerBehind(sequence, Answer{To: ev.To}, eff)
}

// expireCursors forgets what nobody has used, as of an append time. It is the log's time and not the clock's, so that a
// clock that jumps ahead costs nobody its place as long as nothing is appended by it.
func (c *Core) expireCursors(now, asOf int64, eff *Effects) {
	if c.lost != nil || asOf < c.cursors.expireAt {
		return
	}
	idle := CursorIdle.Microseconds()
	next := int64(math.MaxInt64)
	var unused []Cursor
	for _, name := range c.cursors.keys() {
		switch v, ok := c.cursors.get(name); {
		case !ok:
		case asOf-v.value.Updated <= idle:
			next = min(next, v.value.Updated+idle+1)
		default:
			unused = append(unused, v.value)
		}
	}
	c.cursors.expireAt = next
	for some := range slices.Chunk(unused, maxCommits) {
		sequence, _ := c.beginControl(now, entrySize*int64(len(some)), eff)
		entries := make([]batch.Entry, len(some))
		for i := range some {
			c.cursors.remove(sequence, some[i].Name, some[i])
			entries[i] = some[i].removal()
		}
		c.control(now, eff, entries...)
	}
	eff.CursorsExpired += len(unused)
}

// Cursors lists the committed cursors by name.
func (c *Core) Cursors() []Cursor {
	var list []Cursor
	for _, name := range c.cursors.keys() {
		if is, ok := c.cursors.committed(name, c.mark); ok {
			list = append(list, is)
		}
	}
	return list
}

func (x *Cursor) entry() batch.Cursor {
	return batch.Cursor{Name: x.Name, Offset: x.Offset, Generation: x.Generation, Epoch: x.Epoch, Updated: x.Updated}
}

func (x *Cursor) removal() batch.Cursor {
	e := x.entry()
	e.Removed = true
	return e
}

// replayCursor takes one entry of the log.
func (c *Core) replayCursor(sequence uint64, e batch.Cursor) {
	if e.Removed {
		if is, ok := c.cursors.get(e.Name); ok {
			c.cursors.remove(sequence, e.Name, is.value)
		}
		return
	}
	c.cursors.set(sequence, Cursor{Name: e.Name, Offset: e.Offset, Generation: e.Generation, Epoch: e.Epoch, Updated: e.Updated})
}

// entries is the newest state as control entries, in order.
func (t *cursors) entries() []batch.Entry {
	var out []batch.Entry
	for _, name := range t.keys() {
		if v, ok := t.get(name); ok {
			out = append(out, v.value.entry())
		}
	}
	return out
}
