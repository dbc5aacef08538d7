// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"sort"
	"time"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// dedup is where the first record with an id went.
type dedup struct {
	id         string
	offset     uint64 // below the ceiling once it is committed
	appendTime int64
}

// dedups remembers the ids of records that were stored, pending ones too. An id counts for the window from the
// append time of its first record on: a duplicate does not begin it anew, and neither a restart nor retention
// changes it (ID-05). It holds what the log, read in order, says and nothing else: entries go when an append
// passes them, never by a clock.
type dedups struct {
	byID   map[string]dedup
	order  []dedup // as they were appended
	window int64   // us
	max    int
}

func newDedups(window time.Duration, limit int) dedups {
	return dedups{byID: map[string]dedup{}, window: window.Microseconds(), max: limit}
}

// check answers whether the id was stored within the window (where), is new, or would be one too many. At is the
// append time that the record would get.
func (t *dedups) check(id []byte, at int64) (was *dedup, err *code.Error) {
	if e, ok := t.byID[string(id)]; ok && at-e.appendTime < t.window {
		return &e, nil
	}
	if len(t.order) < t.max {
		return nil, nil
	}
	if left := t.order[0].appendTime + t.window - at; left > 0 {
		return nil, code.New(code.TooMany, "the shard remembers %d dedup ids of the last %s", len(t.order), time.Duration(t.window)*time.Microsecond).
			With(code.DetailLimit, uint64(t.max)).Retry(min(time.Duration(left)*time.Microsecond, time.Second))
	}
	return nil, nil
}

// store remembers the id of an appended record.
func (t *dedups) store(d dedup) {
	t.byID[d.id] = d
	t.order = append(t.order, d)
}

// pass forgets the ids whose window ends at or before an append time. What a failed write takes back later needs
// none of them: append times do not go back.
func (t *dedups) pass(at int64) {
	n := 0
	for n < len(t.order) && at-t.order[n].appendTime >= t.window {
		t.forget(t.order[n])
		n++
	}
	t.order = t.order[n:]
}

// cut forgets the records from offset on.
func (t *dedups) cut(offset uint64) {
	n := sort.Search(len(t.order), func(i int) bool { return t.order[i].offset >= offset })
	for _, d := range t.order[n:] {
		t.forget(d)
	}
	t.order = t.order[:n:n]
}

func (t *dedups) forget(d dedup) {
	if t.byID[d.id].offset == d.offset {
		delete(t.byID, d.id)
	}
}

// entries is the table for a checkpoint.
func (t *dedups) entries() []batch.Entry {
	rows := make([]batch.DedupStored, 0, len(t.order))
	for _, d := range t.order {
		rows = append(rows, batch.DedupStored{ID: d.id, Offset: d.offset, AppendTime: d.appendTime})
	}
	return batch.Dedups(rows)
}

// load takes a part of a checkpoint.
func (t *dedups) load(e batch.Dedup) {
	for _, s := range e.Stored {
		t.store(dedup{id: s.ID, offset: s.Offset, appendTime: s.AppendTime})
	}
}

// seenBefore answers a publish whose dedup id is known, or refuses it, and says whether it did. A record of the same
// id that is pending is waited for, as its own retry would.
func (c *Core) seenBefore(now int64, p *Publish, eff *Effects) bool {
	id := p.Batch.DedupID()
	if id == nil {
		return false
	}
	was, err := c.dedups.check(id, c.at(now))
	switch {
	case err != nil:
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: err})
	case was != nil:
		c.duplicate(p, &stored{base: was.offset, count: 1, appendTime: was.appendTime, generation: c.gens.of(was.offset + 1)}, eff)
	default:
		return false
	}
	return true
}

// remember takes the dedup id of a record batch that is in the log now.
func (c *Core) remember(b batch.Batch) {
	c.dedups.pass(b.AppendTime())
	if id := b.DedupID(); id != nil {
		c.dedups.store(dedup{id: string(id), offset: b.BaseOffset(), appendTime: b.AppendTime()})
	}
}
