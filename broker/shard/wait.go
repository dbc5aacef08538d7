// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// waiter is an answer that rests on a batch: it is sent when that is committed, and is lost with it.
type waiter struct {
	sequence uint64
	answer   Answer
}

// answerBehind answers once the batch of this sequence is committed, at once when it is.
func (c *Core) answerBehind(sequence uint64, a Answer, eff *Effects) {
	if sequence < c.mark {
		eff.Answers = append(eff.Answers, a)
		return
	}
	c.waiters = append(c.waiters, waiter{sequence, a})
}

// answerWaiters answers those whose batch is committed by now.
func (c *Core) answerWaiters(eff *Effects) {
	rest := c.waiters[:0]
	for _, w := range c.waiters {
		if w.sequence >= c.mark {
			rest = append(rest, w)
			continue
		}
		eff.Answers = append(eff.Answers, w.answer)
	}
	clear(c.waiters[len(rest):])
	c.waiters = rest
}

// cutWaiters tells those whose batch was cut off.
func (c *Core) cutWaiters(at uint64, err *code.Error, eff *Effects) {
	rest := c.waiters[:0]
	for _, w := range c.waiters {
		if w.sequence < at {
			rest = append(rest, w)
			continue
		}
		eff.Answers = append(eff.Answers, Answer{To: w.answer.To, Err: err})
	}
	clear(c.waiters[len(rest):])
	c.waiters = rest
}

// entrySize is what an entry of a control batch is taken to need, when nobody has encoded it yet.
const entrySize = 128

// beginControl makes room for a control batch of n bytes and returns the sequence that it will have, and its append time.
func (c *Core) beginControl(now, n int64, eff *Effects) (sequence uint64, at int64) {
	c.rollFor(now, batch.HeaderSize+n, eff)
	c.open(now, eff)
	return c.length, c.at(now)
}
