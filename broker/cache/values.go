// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/storage/keyindex"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// values is where the records of keys lie.
type values interface {
	View() shard.View
	Now() int64
	// Batch is the committed batch of a sequence, perhaps in buf; storage.ErrDropped for one that the log no longer holds.
	Batch(buf []byte, seq uint64) (batch.Batch, error)
}

// keepBuffer is the largest buffer that is kept for another reading.
const keepBuffer = 256 << 10

// wanted is a value to read.
type wanted struct {
	at   keyindex.Entry
	into int // its place among the entries
}

// reader reads the values of keys from the log. It is for one goroutine, and reuses what it has allocated: what it returned
// is overwritten by the next reading.
type reader struct {
	buf     []byte
	arena   []byte // what the entries hold
	records batch.Reader
	rec     batch.Record
	want    []wanted
	entries []wire.Entry
	bytes   int // that the entries take in a frame
	limit   int // of bytes
	first   int // the entry that is read whatever it takes; -1 for none
}

func (x *reader) reset() {
	if cap(x.buf) > keepBuffer {
		x.buf = nil
	}
	if cap(x.arena) > keepBuffer {
		x.arena = nil
	}
	clear(x.entries)
	x.arena, x.want, x.entries, x.bytes = x.arena[:0], x.want[:0], x.entries[:0], 0
	x.records.Reset(nil)
}

// add adds an entry for a key. at is where its value lies; nil for a key that has none.
func (x *reader) add(key []byte, at *keyindex.Entry) {
	if at != nil {
		x.want = append(x.want, wanted{*at, len(x.entries)})
	}
	x.entries = append(x.entries, wire.Entry{Key: key})
}

// fill reads the values that are wanted, each batch once and in their order in the log, as long as the entries take no more
// than limit; the first of them whatever it takes, with first. It returns how many of the first entries are complete. An
// entry whose key has lost its value meanwhile is EntryNone. Unreadable says what becomes of an entry whose batch its
// producer compressed beyond repair.
func (x *reader) fill(r *reading, limit int, first bool, unreadable func(key []byte) error) (complete int, err error) {
	x.limit, x.first = limit, -1
	if first && len(x.want) > 0 {
		x.first = x.want[0].into
	}
	for tries := 0; len(x.want) > 0; tries++ {
		if tries == maxMoved {
			return 0, code.New(code.Unavailable, "the record is moved faster than it can be read").Retry(100 * time.Millisecond)
		}
		if len(x.want) > 1 {
			slices.SortFunc(x.want, x.order)
		}
		over, err := x.pass(r, unreadable)
		if err != nil {
			return 0, err
		}
		if over {
			return x.unread(), nil
		}
	}
	return len(x.entries), nil
}

// order is that of the log, behind the entry that must be read.
func (x *reader) order(a, b wanted) int {
	switch {
	case a.into == b.into:
		return 0
	case a.into == x.first:
		return -1
	case b.into == x.first:
		return 1
	}
	return cmp.Or(cmp.Compare(a.at.Sequence, b.at.Sequence), cmp.Compare(a.at.Offset, b.at.Offset))
}

// unread is the first entry whose value has not been read.
func (x *reader) unread() int {
	least := len(x.entries)
	for i := range x.want {
		least = min(least, x.want[i].into)
	}
	return least
}

// pass reads what is wanted once. What is still wanted then was moved by reclaim meanwhile, and has been looked up again, or
// it is too much for the answer.
func (x *reader) pass(r *reading, unreadable func(key []byte) error) (over bool, err error) {
	todo := x.want
	var moved []wanted
	for len(todo) > 0 {
		n := 1
		for n < len(todo) && todo[n].at.Sequence == todo[0].at.Sequence && todo[n].at.Offset > todo[n-1].at.Offset {
			n++
		}
		switch err := x.take(r.shard, todo[:n]); {
		case errors.Is(err, storage.ErrDropped):
			moved = x.again(r, todo[:n], moved)
		case errors.Is(err, batch.ErrCompression):
			for _, w := range todo[:n] {
				if err := unreadable(x.entries[w.into].Key); err != nil {
					return false, err
				}
			}
		case errors.Is(err, errOver):
			x.want = append(moved, x.left(todo)...)
			return true, nil
		case err != nil:
			return false, host.ReadError(err)
		}
		todo = todo[n:]
	}
	x.want = append(x.want[:0], moved...)
	return false, nil
}

// left are those whose entry has not been filled.
func (x *reader) left(todo []wanted) []wanted {
	return slices.DeleteFunc(todo, func(w wanted) bool { return x.entries[w.into].Kind != wire.EntryNone })
}

// again looks up keys whose records are no longer where they were.
func (x *reader) again(r *reading, gone, moved []wanted) []wanted {
	r.absent = absentOf(r.shard)
	for _, w := range gone {
		if at, ok := r.lookup(x.entries[w.into].Key); ok {
			moved = append(moved, wanted{at, w.into})
		}
	}
	return moved
}

var (
	errOver   = errors.New("the answer is full")
	errAbsent = errors.New("the record is not in the batch that the index names")
)

// take reads the batch that holds these records, which rise, and fills their entries.
func (x *reader) take(s values, group []wanted) error {
	b, err := s.Batch(x.buf[:cap(x.buf)], group[0].at.Sequence)
	if err != nil {
		return err
	}
	if len(b) > cap(x.buf) { // never b itself: of a log in memory that is the log
		x.buf = make([]byte, 0, max(len(b), 2*4096))
	}
	x.records.Reset(b)
	if !b.IsCarried() || len(group) == 1 {
		return x.find(group)
	}
	for left := len(group); left > 0; { // what is carried need not rise
		ok, err := x.records.Next(&x.rec)
		switch {
		case err != nil:
			return err
		case !ok:
			return errAbsent
		}
		i, found := slices.BinarySearchFunc(group, x.records.Offset(), func(w wanted, offset uint64) int { return cmp.Compare(w.at.Offset, offset) })
		if !found {
			continue
		}
		if !x.set(&group[i]) {
			return errOver
		}
		left--
	}
	return nil
}

// find fills the entries of records that rise as those of their batch do.
func (x *reader) find(group []wanted) error {
	for i := range group {
		ok, err := x.records.Find(group[i].at.Offset, &x.rec)
		switch {
		case err != nil:
			return err
		case !ok:
			return errAbsent
		case !x.set(&group[i]):
			return errOver
		}
	}
	return nil
}

// set fills an entry with the record that was read, if there is room for it.
func (x *reader) set(w *wanted) bool {
	e := x.entries[w.into]
	e.Kind, e.Offset, e.Expires = wire.EntryValue, w.at.Offset, w.at.Until
	e.Generation, e.AppendTime = x.records.Generation(), x.records.AppendTime()
	e.Value = x.rec.Value
	e.Headers = x.records.HeaderSection()
	if n := e.Size(); w.into == x.first || x.bytes+n <= x.limit {
		x.bytes += n
		e.Headers, e.Value = x.keep(e.Headers), x.keep(e.Value)
		x.entries[w.into] = e
		return true
	}
	return false
}

// keep copies bytes out of a buffer that the next batch is read into.
func (x *reader) keep(p []byte) []byte {
	at := len(x.arena)
	x.arena = append(x.arena, p...)
	return x.arena[at:len(x.arena):len(x.arena)]
}
