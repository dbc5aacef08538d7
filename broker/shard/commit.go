// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// reach is how far the log's own rule is met on this one copy: flushed, or written where the log does not
// flush for an answer.
func (c *Core) reach() uint64 {
	switch {
	case c.cfg.Memory:
		return c.written
	case c.cfg.Fsync == FsyncAlways:
		return c.flushed
	case len(c.moves) > 0:
		// A start counts once it is flushed, whatever the log's mode: files are removed on the strength of it, and who asked
		// for it is told that it stays (R19).
		return min(c.written, max(c.flushed, c.moves[0].sequence))
	}
	return c.written
}

// commit moves the mark in sequence, answers who waited, and hands what became visible to the fan-out.
// Nothing is fanned out before it is committed: a reader would see a record that a restart erases (S4).
func (c *Core) commit(eff *Effects) {
	c.answerEarly(eff)
	to := min(c.reach(), c.length)
	if to <= c.mark {
		return
	}
	n := int(to - c.mark)
	for i := range c.pending[:n] {
		e := &c.pending[i]
		if e.waiting {
			eff.Answers = append(eff.Answers, Answer{To: e.to, Ack: c.ack(e, true)})
		}
		c.ceiling = e.batch.NextOffset()
		switch {
		case e.batch.IsControl() && !e.batch.IsCheckpoint():
			c.committedControl(e.batch, eff)
		case e.batch.IsCarried():
			c.carriedTo(e.batch)
		case e.batch.HasOffsets():
			c.groups.Committed(e.batch)
		}
		eff.Committed = append(eff.Committed, Committed{Batch: e.batch, To: e.to})
	}
	rest := copy(c.pending, c.pending[n:])
	clear(c.pending[rest:])
	c.pending = c.pending[:rest]
	c.mark = to
	c.cursors.commit(c.mark)
	c.lasts.commit(c.mark)
	c.keys.commit(c.mark, c.ceiling)
	c.groups.Commit(c.mark)
	c.answerRetries(eff)
	c.answerWaiters(eff)
}

// answerEarly answers those who asked for less than the log's rule, as soon as the file holds their batch.
func (c *Core) answerEarly(eff *Effects) {
	if c.cfg.MinAck != AckNone { // nobody can have asked for it
		return
	}
	for i := range c.pending {
		e := &c.pending[i]
		if e.batch.Sequence() >= c.written {
			return
		}
		if e.waiting && e.level == AckNone {
			e.waiting = false
			eff.Answers = append(eff.Answers, Answer{To: e.to, Ack: c.ack(e, false)})
		}
	}
}

func (c *Core) ack(e *entry, committed bool) Ack {
	b := e.batch
	return Ack{
		BaseOffset: b.BaseOffset(), Generation: b.Generation(), AppendTime: b.AppendTime(), Count: uint32(b.Count()),
		Replicas: 1, Flushed: b.Sequence() < c.flushed, Committed: committed, Sums: e.sums,
	}
}

// allFlushed says whether every committed batch is flushed: what a retry is told about its original, which
// is not kept batch by batch.
func (c *Core) allFlushed() bool { return c.mark <= c.flushed && !c.cfg.Memory }

func (c *Core) answerRetries(eff *Effects) {
	rest := c.retries[:0]
	for _, r := range c.retries {
		if r.rests > c.ceiling {
			rest = append(rest, r)
			continue
		}
		if r.err == nil {
			r.ack.Flushed = c.allFlushed()
		}
		eff.Answers = append(eff.Answers, Answer{To: r.to, Ack: r.ack, Err: r.err})
	}
	clear(c.retries[len(rest):])
	c.retries = rest
}

// committedControl applies what takes effect only once it can no longer be lost: segments are dropped
// after the new log start is committed, never before.
func (c *Core) committedControl(b batch.Batch, eff *Effects) {
	entries, err := b.Entries()
	if err != nil {
		return // this core encoded it
	}
	for _, e := range entries {
		if s, ok := e.(batch.LogStart); ok {
			c.started(LogStart{s.Sequence, s.Offset}, eff)
		}
	}
}

// cut drops the pending layer from sequence at on: those batches are not in the log, or nobody can say.
// Everything derived from them goes with them, so that the next append takes their offsets (ST-12).
func (c *Core) cut(at uint64, err *code.Error, eff *Effects) {
	if at >= c.length {
		return
	}
	at = max(at, c.mark)
	keep := int(at - c.mark)
	for i := range c.pending[keep:] {
		e := &c.pending[keep+i]
		if e.waiting {
			eff.Answers = append(eff.Answers, Answer{To: e.to, Err: err})
		}
	}
	first := &c.pending[keep]
	c.length, c.nextOffset, c.segment = first.batch.Sequence(), first.batch.BaseOffset(), first.before
	c.needsCheckpoint = first.needed
	c.producers.cut(c.nextOffset)
	c.cursors.cut(at)
	c.lasts.cut(at, c.lastAppend+lastRetry.Microseconds())
	c.dedups.cut(c.nextOffset)
	c.keys.pending.cut(at)
	c.sums.cut(c.nextOffset)
	// What was handed out in this step rests on what is cut off, and nobody has got it yet.
	c.groups.Cut(at, eff.Hands)
	clear(eff.Hands)
	eff.Hands = eff.Hands[:0]
	c.sweepAgain = min(c.sweepAgain, at)
	c.gens.cut(at)
	if c.gens.last() != c.cfg.Generation {
		c.opened = false
	}
	clear(c.pending[keep:])
	c.pending = c.pending[:keep]
	rest := c.retries[:0]
	for _, r := range c.retries {
		if r.rests <= c.nextOffset {
			rest = append(rest, r)
			continue
		}
		// The original, or what was compared with, is gone; the retry is as lost as it.
		eff.Answers = append(eff.Answers, Answer{To: r.to, Err: err})
	}
	clear(c.retries[len(rest):])
	c.retries = rest
	c.cutWaiters(at, err, eff)
	c.cutMoves(at)
}

// expire answers those whose deadline has passed. Their batches stay: later publishes wait behind them,
// whatever becomes of the one who asked.
func (c *Core) expire(now int64, eff *Effects) {
	if c.nextDead == 0 || now < c.nextDead {
		return
	}
	c.nextDead = 0
	for i := range c.pending {
		e := &c.pending[i]
		switch {
		case !e.waiting || e.dead == 0:
		case e.dead <= now:
			e.waiting = false
			eff.Answers = append(eff.Answers, Answer{To: e.to, Err: code.New(code.Timeout, "the record is appended and not yet durable")})
		case c.nextDead == 0 || e.dead < c.nextDead:
			c.nextDead = e.dead
		}
	}
}
