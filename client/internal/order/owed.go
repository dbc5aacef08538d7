// SPDX-License-Identifier: Apache-2.0

package order

import (
	"slices"
	"time"
)

// owed is the answer to one writing of a batch. It holds a place in the window until it comes, also when the batch was
// given up since: whoever is slow is not sent more for that.
type owed struct {
	ticket   uint64
	deadline time.Time // of the batch
	due      time.Time // zero while the batch is being written
}

// Written says that everything taken so far is on its way: from now on its answers can be late.
func (l *Line[T]) Written(now time.Time) {
	for i := range l.owed {
		if o := &l.owed[i]; o.due.IsZero() {
			asked := min(max(o.deadline.Sub(now), 0), l.cfg.AnswerWait)
			o.due = now.Add(asked + l.cfg.Margin)
		}
	}
}

// Overdue reports whether an answer is so late that it may never come. The window would stay shut for as long as the
// connection lives, so the owner has to give that up (Lost) and ask again over another.
func (l *Line[T]) Overdue(now time.Time) bool {
	due, ok := l.due()
	return ok && !now.Before(due)
}

// due is when the oldest answer that is owed is late: what was written first is due first.
func (l *Line[T]) due() (at time.Time, ok bool) {
	if len(l.owed) == 0 || l.owed[0].due.IsZero() {
		return time.Time{}, false
	}
	return l.owed[0].due, true
}

// Outstanding is the number of answers the connection owes, also for batches given up since.
func (l *Line[T]) Outstanding() int { return len(l.owed) }

// Owed reports whether an answer under the ticket is owed.
func (l *Line[T]) Owed(ticket uint64) bool { return l.owes(ticket) >= 0 }

func (l *Line[T]) owes(ticket uint64) int {
	return slices.IndexFunc(l.owed, func(o owed) bool { return o.ticket == ticket })
}
