// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Bounds of a shard's last records. All of them stand in every checkpoint.
const (
	MaxLasts     = 10_000
	MaxLastBytes = 16 << 20

	lastRetry = time.Second // between two tries to publish one that found no room
)

// SetLast keeps a record that is published when the session it names ends other than by close. A second one takes the
// place of the first.
type SetLast struct {
	ID    uint64 // of the session; the producer of the batch
	Grace time.Duration
	Batch batch.Batch // one record, as a producer sends it; the core owns it
	To    any
}

// ClearLast forgets the record: nothing is published. It is done also when there is none.
type ClearLast struct {
	ID uint64
	To any
}

// LastAlive says that the session is there, though the shard was opened anew: its grace ends.
type LastAlive struct{ ID uint64 }

// ConnectionLost says that the session has ended other than by close: its record is published.
type ConnectionLost struct{ ID uint64 }

// Time lets time pass: what Next was waiting for is done.
type Time struct{}

func (*SetLast) shardEvent()       {}
func (*ClearLast) shardEvent()     {}
func (LastAlive) shardEvent()      {}
func (ConnectionLost) shardEvent() {}
func (Time) shardEvent()           {}

// last is a record that waits for the end of its session.
type last struct {
	grace time.Duration
	batch batch.Batch
	ended bool // of a version that took it away: it was published, not taken back
}

// lasts is the table of a shard. An entry ends with the batch that it becomes: that carries its id, so that record and
// entry cannot be told apart by a power cut, and nothing is published twice or never.
type lasts struct {
	table[uint64, last]
	max   int
	bytes int // of the newest versions
	// silent are sessions that have not shown themselves since the shard was opened, and when their grace is over (us; 0:
	// it has not begun).
	silent map[uint64]int64
	next   int64 // the earliest of silent; 1 when a grace has not begun, 0 for none
}

func newLasts(limit int) lasts {
	return lasts{table: newTable[uint64, last](), max: limit, silent: map[uint64]int64{}}
}

func (c *Core) setLast(now int64, ev *SetLast, eff *Effects) {
	if err := c.admitLast(ev); err != nil {
		eff.Answers = append(eff.Answers, Answer{To: ev.To, Err: err})
		return
	}
	c.lasts.alive(ev.ID)
	if was, ok := c.lasts.get(ev.ID); ok && was.value.grace == ev.Grace && bytes.Equal(was.value.batch, ev.Batch) {
		c.answerBehind(was.sequence, Answer{To: ev.To}, eff) // a session that is back says again what is known
		return
	}
	sequence, _ := c.beginControl(now, int64(ev.Batch.Size())+entrySize, eff)
	is := last{grace: ev.Grace, batch: ev.Batch}
	c.lasts.set(sequence, ev.ID, is)
	c.control(now, eff, is.entry(ev.ID))
	c.answerBehind(sequence, Answer{To: ev.To}, eff)
}

// admitLast refuses what would not fit. A full shard still takes another record of a session that has one.
func (c *Core) admitLast(ev *SetLast) *code.Error {
	was, known := c.lasts.get(ev.ID)
	size := len(ev.Batch)
	switch {
	case c.lost != nil:
		return c.lost
	case c.full:
		return code.New(code.StorageFull, "there is no room for records")
	case size > batch.MaxLast:
		return code.New(code.TooLarge, "a last record of %d bytes", size).With(code.DetailLimit, batch.MaxLast)
	case !known && c.lasts.len() >= c.lasts.max:
		return code.New(code.TooMany, "the shard keeps %d last records", c.lasts.len()).With(code.DetailLimit, uint64(c.lasts.max))
	case c.lasts.bytes-len(was.value.batch)+size > MaxLastBytes:
		return code.New(code.TooMany, "the shard keeps %d bytes of last records", c.lasts.bytes).With(code.DetailLimit, MaxLastBytes)
	}
	return nil
}

func (c *Core) clearLast(now int64, ev *ClearLast, eff *Effects) {
	if c.lost != nil {
		eff.Answers = append(eff.Answers, Answer{To: ev.To, Err: c.lost})
		return
	}
	c.lasts.alive(ev.ID)
	if _, ok := c.lasts.get(ev.ID); !ok {
		if v, known := c.lasts.newest(ev.ID); known {
			c.answerBehind(v.sequence, Answer{To: ev.To}, eff)
			return
		}
		eff.Answers = append(eff.Answers, Answer{To: ev.To})
		return
	}
	sequence, _ := c.beginControl(now, entrySize, eff)
	c.lasts.unset(sequence, ev.ID, false)
	c.control(now, eff, batch.Last{ID: ev.ID, Removed: true})
	c.answerBehind(sequence, Answer{To: ev.To}, eff)
}

// publishLast appends the record of a session that has ended, once: the batch takes the entry with it.
func (c *Core) publishLast(now int64, id uint64, eff *Effects) {
	is, ok := c.lasts.get(id)
	if !ok || c.lost != nil {
		return
	}
	if c.full {
		c.lasts.wait(id, now+lastRetry.Microseconds())
		return
	}
	c.lasts.alive(id)
	// A copy: what is cut off again must be found as its producer sent it.
	c.appendRecords(now, &Publish{Batch: bytes.Clone(is.value.batch)}, nil, nil, eff)
	eff.LastsPublished++
}

// endsLast says whether this batch of records is the last record of a session, and takes the entry away if it is.
func (c *Core) endsLast(b batch.Batch) bool {
	is, ok := c.lasts.get(b.ProducerID())
	if !ok || !bytes.Equal(is.value.batch.Produced(), b.Produced()) {
		return false
	}
	c.lasts.unset(b.Sequence(), b.ProducerID(), true)
	return true
}

// passTime publishes the records of sessions that have been silent for longer than their grace.
func (c *Core) passTime(now int64, eff *Effects) {
	for _, id := range slices.Sorted(maps.Keys(c.lasts.silent)) {
		due := c.lasts.silent[id]
		switch {
		case due == 0:
			is, _ := c.lasts.get(id)
			c.lasts.silent[id] = now + is.value.grace.Microseconds()
		case due <= now:
			c.publishLast(now, id, eff)
		}
	}
	c.lasts.plan()
	c.expireCursors(now, c.lastAppend, eff)
	if at := c.keysAt(); at > 0 && at <= now {
		c.buildKeys(now, eff)
	}
	c.sweep(now, eff)
}

// Next is when Time wants to be told next (us): 0 for never, and a time long past for at once.
func (c *Core) Next() int64 {
	switch {
	case c.lost != nil:
		return 0
	case c.cursors.len() > 0 && c.lastAppend >= c.cursors.expireAt:
		return 1
	}
	next := c.lasts.next
	for _, at := range [...]int64{c.KeysIdleAt(), c.keysAt(), c.sweepAt(), c.placesAt(), c.groups.Next()} {
		if at > 0 && (next == 0 || at < next) {
			next = at
		}
	}
	return next
}

// allSilent begins an opening: nobody has shown himself yet.
func (t *lasts) allSilent() {
	for id := range t.rows {
		t.silent[id] = 0
		t.next = 1
	}
}

func (t *lasts) alive(id uint64) { delete(t.silent, id) }

func (t *lasts) wait(id uint64, due int64) {
	t.silent[id] = due
	if t.next == 0 || due < t.next {
		t.next = due
	}
}

// plan finds the earliest end of a grace.
func (t *lasts) plan() {
	t.next = 0
	for id, due := range t.silent {
		if _, ok := t.get(id); !ok {
			delete(t.silent, id)
			continue
		}
		if due = max(due, 1); t.next == 0 || due < t.next {
			t.next = due
		}
	}
}

func (t *lasts) set(sequence, id uint64, is last) {
	was, _ := t.get(id)
	t.bytes += len(is.batch) - len(was.value.batch)
	t.put(sequence, id, is)
}

func (t *lasts) unset(sequence, id uint64, ended bool) {
	if was, ok := t.get(id); ok {
		t.bytes -= len(was.value.batch)
		was.value.ended = ended
		t.remove(sequence, id, was.value)
	}
}

// cut forgets what the batches from sequence at on said. A record that was published and is cut off waits until again (us).
func (t *lasts) cut(at uint64, again int64) {
	for _, p := range t.pending {
		if v, _ := t.newest(p.key); v.value.ended && v.sequence >= at {
			t.wait(p.key, again)
		}
	}
	t.table.cut(at)
	t.bytes = 0
	for id := range t.rows {
		if v, ok := t.get(id); ok {
			t.bytes += len(v.value.batch)
		}
	}
}

func (x *last) entry(id uint64) batch.Last { return batch.Last{ID: id, Grace: x.grace, Batch: x.batch} }

// replayLast takes one entry of the log.
func (c *Core) replayLast(sequence uint64, e batch.Last) error {
	if e.Removed {
		c.lasts.unset(sequence, e.ID, false)
		return nil
	}
	b, err := batch.CheckProduced(e.Batch, batch.Limits{}) // it will be appended
	if err != nil {
		return err
	}
	c.lasts.set(sequence, e.ID, last{grace: e.Grace, batch: b})
	return nil
}

// entries is the newest state as control entries, in order.
func (t *lasts) entries() []batch.Entry {
	var out []batch.Entry
	for _, id := range t.keys() {
		if v, ok := t.get(id); ok {
			out = append(out, v.value.entry(id))
		}
	}
	return out
}
