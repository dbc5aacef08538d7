// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// LogStart is where a log begins: what is below was given up.
type LogStart struct{ Sequence, Offset uint64 }

// Cause is why a log's start moved.
type Cause uint8

// The causes. Nothing else ever gives up a record (S11).
const (
	ByRetention Cause = iota // its age, or the log's size
	ByTrim                   // somebody asked for it
	ByFullDisk               // the disk is full and the log is to drop its oldest
	ByLiveness               // nothing there is the newest of its key any more
)

// Move is a move of the log's start that is committed.
type Move struct {
	From, To LogStart
	Cause    Cause
}

// move is one that is appended.
type move struct {
	sequence uint64 // of its control batch
	to       LogStart
	cause    Cause
}

// Trim asks for the log to begin at Offset, and is answered with the offset at which it then does.
type Trim struct {
	Offset   uint64 // of the first record to keep; may lie inside a batch
	Sequence uint64 // of the batch that holds it, or of the first one behind it
	To       any    // whom to answer; the ack's BaseOffset is where the log begins
}

// Reclaim says that so many bytes are missing on a full disk, and what the log holds, the newest last.
type Reclaim struct {
	Segments []Segment
	Bytes    int64
}

func (*Trim) shardEvent()   {}
func (Reclaim) shardEvent() {}

// pendingStart is where the log will begin once all that is appended is committed.
func (c *Core) pendingStart() LogStart {
	if n := len(c.moves); n > 0 {
		return c.moves[n-1].to
	}
	return c.start
}

// moveStart appends the control batch of a new start. It takes effect once that is committed, never before: a
// crash in between would leave a log that begins where nobody said.
func (c *Core) moveStart(now int64, to LogStart, cause Cause, eff *Effects) {
	c.open(now, eff)
	entries := c.giveUp(now, to, cause, eff)
	c.moves = append(c.moves, move{sequence: c.length, to: to, cause: cause})
	c.control(now, eff, append(entries, batch.LogStart{Sequence: to.Sequence, Offset: to.Offset})...)
	eff.Flush = eff.Flush || !c.cfg.Memory // whatever the fsync mode: files are removed on the strength of it
}

// BeginAt ends a replay with where the files begin: what they do not hold cannot be read, whoever removed it.
func (c *Core) BeginAt(files LogStart) {
	if files.Sequence > c.start.Sequence {
		c.start = LogStart{files.Sequence, max(files.Offset, c.start.Offset)}
	}
	c.groups.Bounds(c.start.Offset, c.ceiling)
}

// started applies a new start that is committed.
func (c *Core) started(to LogStart, eff *Effects) {
	m := Move{From: c.start, To: to}
	if len(c.moves) > 0 { // always: a pending start is one of this core's own
		m.Cause = c.moves[0].cause
		c.moves = c.moves[1:]
	}
	c.start = to
	c.groups.Bounds(to.Offset, c.ceiling)
	eff.Moves = append(eff.Moves, m)
	eff.Drop = to.Sequence
}

// cutMoves forgets the starts whose batches are cut off.
func (c *Core) cutMoves(at uint64) {
	for n := len(c.moves); n > 0 && c.moves[n-1].sequence >= at; n-- {
		c.moves = c.moves[:n-1]
	}
}

// trim moves the start to where it is asked to be: never above what is committed, or a record that is still to
// be answered would be gone, and never back.
func (c *Core) trim(now int64, t *Trim, eff *Effects) {
	switch {
	case c.lost != nil:
		eff.Answers = append(eff.Answers, Answer{To: t.To, Err: c.lost})
		return
	case t.Offset > c.ceiling:
		// Not cut down to the end: whoever names an offset that nobody was given is mistaken about the log, and
		// would lose all of it.
		eff.Answers = append(eff.Answers, Answer{To: t.To, Err: c.View().OutOfRange(t.Offset)})
		return
	case c.cfg.KeepUnsettled && !c.places.ready:
		eff.Answers = append(eff.Answers, Answer{To: t.To, Err: code.New(code.Opening, "the shard reads its log to learn what was carried").Retry(keysSoon)})
		return
	case c.cfg.KeepNewest:
		eff.Answers = append(eff.Answers, Answer{To: t.To, Err: code.New(code.BadRequest,
			"the log keeps the newest record of each key and gives up the others by itself: delete keys, or give them a time to live")})
		return
	}
	if t.Offset > c.pendingStart().Offset {
		to := LogStart{Sequence: t.Sequence, Offset: t.Offset}
		c.open(now, eff)
		if t.Offset == c.nextOffset && c.segment.records {
			// Nothing is left, and the newest segment is never dropped: what was given up would stay on the disk
			// for as long as nobody publishes.
			to.Sequence = c.length
			c.checkpoint(now, eff)
		}
		c.moveStart(now, to, ByTrim, eff)
	}
	a := Answer{To: t.To, Ack: Ack{BaseOffset: c.pendingStart().Offset, Generation: c.cfg.Generation}}
	if n := len(c.moves); n > 0 {
		c.answerBehind(c.moves[n-1].sequence, a, eff)
		return
	}
	eff.Answers = append(eff.Answers, a)
}

// reclaim makes room on a full disk for a log that is to drop its oldest: head segments go, as many as are
// needed, never the newest. One that is alone is closed first, if dropping it would be enough: emptying a log
// does not help when it is others that fill the disk.
func (c *Core) reclaim(now int64, r Reclaim, eff *Effects) {
	if c.lost != nil || !c.cfg.DropOldest || len(r.Segments) == 0 || c.cfg.KeepUnsettled && !c.places.ready {
		return
	}
	if len(r.Segments) == 1 {
		if s := c.segment; s.records && s.bytes >= max(r.Bytes, checkpointShare*s.checkpoint) {
			c.open(now, eff)
			c.checkpoint(now, eff)
		}
		return
	}
	start := c.pendingStart()
	to := start
	var freed int64
	for i := 0; i+1 < len(r.Segments) && freed < r.Bytes; i++ {
		next := r.Segments[i+1]
		if next.BaseSequence > c.mark {
			break
		}
		freed += r.Segments[i].Bytes
		if next.BaseSequence > to.Sequence {
			to = LogStart{next.BaseSequence, next.BaseOffset}
		}
	}
	if to != start {
		c.moveStart(now, to, ByFullDisk, eff)
	}
}

// dropAgain asks once more for what a failed removal, or a crash behind the commit, has left of segments below
// the start.
func (c *Core) dropAgain(segments []Segment, eff *Effects) {
	if len(segments) > 1 && segments[1].BaseSequence <= c.start.Sequence {
		eff.Drop = c.start.Sequence
	}
}
