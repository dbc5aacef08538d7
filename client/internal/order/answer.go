// SPDX-License-Identifier: Apache-2.0

package order

import (
	"slices"
	"time"

	"margay.dev/wire/code"
)

// maxFailures bounds the exponent of the wait, not the number of tries: the deadline bounds those.
const maxFailures = 16

// Stored takes the answer that the batch written under the ticket is stored, duplicate that it had been before.
func (l *Line[T]) Stored(ticket uint64, duplicate bool) {
	i := l.answered(ticket)
	if i >= 0 {
		it := l.items[i]
		if !duplicate || !it.Elsewhere {
			l.settled = max(l.settled, it.Sequence)
		} // else the shard may not have this sequence, and its successor must not name it
		l.failures, l.notBefore = 0, time.Time{}
		l.remove(i)
		l.finish(it, nil)
	}
	l.turn()
}

// Failed takes an error as the answer to the batch written under the ticket. It reports whether the shard turned out
// to have lost what it had acknowledged.
func (l *Line[T]) Failed(ticket uint64, err *code.Error, now time.Time) (lost bool) {
	settled := l.settled
	if i := l.answered(ticket); i >= 0 {
		l.items[i].last = err
		if i > 0 && (err.Code == code.OutOfOrder || err.Code == code.ProducerUnknown) {
			// It was refused with the first one. The reason of that is the caller's; this one is between line and shard.
			l.items[i].last = l.items[0].last
		}
		l.fail(i, err, now)
	}
	lost = l.settled < settled
	l.turn()
	return lost
}

// Amend takes a refusal as the answer to the batch written under the ticket when fix has changed its value so that it may be
// stored: it is written again at once, under its name, as nothing was stored under that. It reports false, and has taken
// nothing, when the batch was given up, an earlier writing may be stored, or fix says no.
func (l *Line[T]) Amend(ticket uint64, fix func(value T) bool) bool {
	for _, it := range l.items[:l.cursor] {
		if !it.onWire || it.Ticket != ticket {
			continue
		}
		if it.maybe || !fix(it.Value) {
			return false
		}
		l.answered(ticket)
		l.rewind = true
		l.turn()
		return true
	}
	return false
}

// answered books the answer and returns the place of its batch, -1 when that was given up since.
func (l *Line[T]) answered(ticket uint64) int {
	if i := l.owes(ticket); i >= 0 {
		l.owed = slices.Delete(l.owed, i, i+1)
	}
	for i := range l.items[:l.cursor] {
		if it := l.items[i]; it.onWire && it.Ticket == ticket {
			it.onWire = false
			return i
		}
	}
	return -1
}

func (l *Line[T]) fail(i int, err *code.Error, now time.Time) {
	it := l.items[i]
	switch {
	case l.id != 0 && err.Code == code.OutOfOrder:
		it.maybe = it.maybe || err.Class == code.ClassUnknown // older than what the shard remembers: it may have it
		l.outOfOrder(i, err, now)
	case l.id != 0 && err.Code == code.ProducerUnknown:
		l.producerUnknown(i, now)
	case err.Class == code.ClassRefused:
		l.again(err.RetryAfter, now)
	case err.Class == code.ClassUnknown && l.id != 0:
		// The sequence makes sending it again safe: the shard knows whether it has it.
		it.maybe = true
		l.again(err.RetryAfter, now)
	default:
		l.refuse(i, err)
	}
}

// refuse ends a batch that trying again does not help.
func (l *Line[T]) refuse(i int, err *code.Error) {
	it := l.items[i]
	l.remove(i)
	if it.maybe {
		// This attempt was not applied; an earlier one whose answer was lost may have been.
		e := *err
		e.Class = code.ClassUnknown
		err = &e
	}
	l.finish(it, err)
	if err.Code != code.OutOfOrder && err.Code != code.Conflict { // those are decided: it is there, or not to be
		l.end(it)
	}
}

// outOfOrder: the shard's last sequence of this producer is not the one that was named.
func (l *Line[T]) outOfOrder(i int, err *code.Error, now time.Time) {
	if i > 0 {
		// A predecessor is not through: this one was bound to be refused with it.
		l.rewind = true
		return
	}
	it := l.items[0]
	last, known := err.Details.Get(code.DetailLastSequence)
	switch {
	case known && l.cfg.Named != 0 && last >= it.Sequence:
		// It was stored so long ago that the shard cannot tell, or never was and others have gone past it: the class says
		// whether the shard knows that it was not.
		l.settled = max(l.settled, last)
		l.refuse(0, err)
	case !known || last == it.Previous:
		l.again(err.RetryAfter, now)
	case last == l.settled:
		// Only what was named has changed since: a predecessor was given up or refused.
		l.rewind = true
	case last < it.Sequence:
		// Above settled: a batch that was given up is stored after all. Below: the shard lost what it had
		// acknowledged (a lossy promotion). Either way the shard does not have this batch, and the shard is
		// the authority on its own order.
		l.settled = last
		l.again(err.RetryAfter, now)
	default:
		// The shard has gone past this sequence and does not remember it: going on under this id could drop
		// batches as duplicates.
		l.renew, l.rewind = true, true
		it.maybe = true
	}
}

// producerUnknown: the shard has forgotten the producer, or has not met it yet because its first batch did
// not get through.
func (l *Line[T]) producerUnknown(i int, now time.Time) {
	l.rewind = true
	switch {
	case i > 0: // the first decides
	case l.items[0].Previous != l.settled: // what it named was given up or refused since: name what is left
	case l.items[0].Previous == 0:
		l.again(0, now) // no predecessor was named: a confused answer, so do not hurry
	default:
		l.renew = true
	}
}

// again makes the line write everything not done once more, after a wait.
func (l *Line[T]) again(after time.Duration, now time.Time) {
	if !l.rewind || l.notBefore.Before(now) {
		l.failures = min(l.failures+1, maxFailures)
		after = max(after, 0) + l.cfg.Wait(l.failures)
		if at := now.Add(after); at.After(l.notBefore) {
			l.notBefore = at
		}
	}
	l.rewind = true
}

// turn starts over once nothing more is owed: until then an answer could be about a batch that is written twice.
func (l *Line[T]) turn() {
	if l.rewind && len(l.owed) == 0 {
		l.restart()
	}
}

func (l *Line[T]) restart() {
	l.cursor, l.rewind = 0, false
	if l.renew {
		l.begin()
	}
}

// begin goes on under a new id. What the shard may hold under the old one must not be sent under the new. A named
// producer begins anew under its own.
func (l *Line[T]) begin() {
	l.renew, l.settled = false, 0
	if l.cfg.Named == 0 {
		l.id, l.next = l.cfg.NewID(), 1
	}
	var lost *Item[T]
	kept := l.items[:0]
	for _, it := range l.items {
		if it.maybe {
			lost = it
			e := code.New(code.OutcomeUnknown, "the shard no longer knows this producer, so it cannot be asked")
			l.finish(it, e)
			continue
		}
		if it.Previous, it.ID = 0, 0; l.cfg.Named == 0 {
			it.Sequence = 0
		}
		kept = append(kept, it)
	}
	clear(l.items[len(kept):])
	l.items = kept
	if lost != nil {
		l.end(lost)
	}
}

// Lost says that the connection is gone, or given up: what was written and not answered may be stored.
func (l *Line[T]) Lost() {
	kept := l.items[:0]
	for _, it := range l.items {
		if it.onWire {
			it.onWire, it.maybe = false, true
			if l.id == 0 {
				e := code.New(code.OutcomeUnknown, "the connection was lost before the answer")
				l.finish(it, e)
				continue
			}
		}
		kept = append(kept, it)
	}
	clear(l.items[len(kept):])
	l.items = kept
	l.up, l.owed = false, l.owed[:0]
	l.restart()
}
