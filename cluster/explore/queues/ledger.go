// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"fmt"

	"margay.dev/wire/batch"
)

// fate is what the log says has become of a message in a group.
type fate uint8

const (
	outstanding fate = iota
	passedOver       // it lies before the group's beginning
	acked
	expired
	cancelled
	lost
	dead
	discarded
	fates
)

var fateNames = [fates]string{"outstanding", "passed over", "acked", "expired", "cancelled", "lost", "dead", "discarded"}

func (f fate) String() string { return fateNames[f] }

// told is what the log says of a message in a group.
type told struct {
	fate     fate
	attempts uint32
	due      int64  // of its next attempt; 0: as it was published
	parked   bool   // by an entry of its own
	moved    uint64 // sequence of the last batch with which nothing ended: that redrove or rescheduled it; 0: none did
	expires  int64  // of one that is: redriven, it does not expire again
	retry    bool   // it has been tried, and has its key until it ends
	at       uint64 // sequence of the batch that says so
}

// message is one that is in the log.
type message struct {
	sequence   uint64 // of its batch
	key        string
	due        int64 // 0: at once
	expires    int64 // 0: never
	appendTime int64
	priority   uint8
	told       told
}

// expiresAt is when a message may not be handed out any more; 0 for never.
func (m *message) expiresAt() int64 {
	if m.told.parked {
		return m.told.expires
	}
	return m.expires
}

// expired says whether that is over.
func (m *message) expired(now int64) bool { return m.expiresAt() != 0 && m.expiresAt() <= now }

// ledger is what the whole log says, read naively from its beginning: no checkpoint, no cursor, no ranges. There is one group.
type ledger struct {
	messages []message // by offset
	group    uint64    // id; 0: none yet
	resets   uint32
	paused   bool
	start    uint64 // of the log: offset
	commands uint64 // carried out
	cursor   uint64 // where the group began
	// late says that something became of a dead letter from before that: it is counted, and is none of what came since.
	late bool
}

// take adds a batch.
func (l *ledger) take(b batch.Batch) error {
	switch {
	case b.IsCheckpoint():
		return nil // it says nothing new
	case b.IsControl():
		entries, err := b.Entries()
		if err != nil {
			return err
		}
		for _, e := range entries {
			l.entry(b.Sequence(), e)
		}
		return nil
	case !b.HasOffsets():
		return nil
	}
	if err := l.records(b); err != nil {
		return err
	}
	x, ok, err := b.Settlement()
	if err != nil || !ok {
		return err
	}
	for _, t := range x.Tokens {
		m := &l.messages[t.Offset].told
		m.fate, m.at = acked, b.Sequence()
	}
	return nil
}

func (l *ledger) records(b batch.Batch) error {
	records := b.Records()
	for {
		var r batch.Record
		more, err := records.Next(&r)
		if err != nil || !more {
			return err
		}
		m := message{sequence: b.Sequence(), key: string(r.Key), appendTime: b.AppendTime(), priority: r.Priority}
		if r.Delay > 0 {
			m.due = b.AppendTime() + r.Delay.Microseconds()
		}
		if r.TTL > 0 {
			m.expires = b.AppendTime() + r.TTL.Microseconds()
		}
		if records.Offset() != uint64(len(l.messages)) {
			return fmt.Errorf("a record of offset %d, where %d is next (S3)", records.Offset(), len(l.messages))
		}
		l.messages = append(l.messages, m)
	}
}

func (l *ledger) entry(sequence uint64, e batch.Entry) {
	switch e := e.(type) {
	case batch.LogStart:
		l.start = e.Offset
	case batch.Group:
		l.describe(e)
	case batch.Settled:
		how := map[batch.How]fate{
			batch.SettledAcked: acked, batch.SettledExpired: expired, batch.SettledCancelled: cancelled, batch.SettledLost: lost,
		}[e.How]
		for _, r := range e.Ranges {
			for o := r.From; o < r.To; o++ {
				if t := &l.messages[o].told; t.fate == outstanding {
					t.fate, t.at = how, sequence
				}
			}
		}
	case batch.Attempt:
		moved := l.messages[e.Offset].told.moved
		if e.Count == 0 {
			moved = sequence
		}
		l.messages[e.Offset].told = told{moved: moved, attempts: e.Attempts, due: e.Due, expires: e.Expires, parked: true, retry: e.Retry, at: sequence}
	case batch.Dead:
		m := &l.messages[e.Offset]
		l.late = l.late || e.Removed != batch.DeadKept && e.Offset < l.cursor
		switch e.Removed {
		case batch.DeadKept:
			m.told = told{fate: dead, attempts: e.Attempts, at: sequence}
		case batch.DeadDiscarded:
			m.told.fate = discarded
		case batch.DeadLost:
			m.told.fate = lost
		case batch.DeadRedriven: // what becomes of it stands beside this
			m.told.fate = passedOver
		}
	case batch.Command:
		l.commands++
	}
}

func (l *ledger) describe(e batch.Group) {
	again := l.group != e.ID || l.resets != e.Resets
	l.group, l.resets, l.paused = e.ID, e.Resets, e.Settings.Paused
	if !again {
		return
	}
	l.cursor, l.late = e.Cursor, false
	for o := range l.messages {
		t := &l.messages[o].told
		switch {
		case uint64(o) >= e.Cursor:
			*t = told{}
		case t.fate == outstanding:
			t.fate = passedOver
		}
	}
}

// ledgerOf reads a log.
func ledgerOf(batches []batch.Batch) (l ledger, err error) {
	for _, b := range batches {
		if err := l.take(b); err != nil {
			return l, err
		}
	}
	return l, nil
}
