// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"

	"margay.dev/wire/batch"
)

// entryCost is what an entry costs beside its bytes, so that small ones are bounded too.
const entryCost = 128

type entryKind uint8

const (
	entryRecords entryKind = iota
	entryGap
	entryProgress
)

// entry is something for the reader of a subscription, in the order it came.
type entry struct {
	kind  entryKind
	shard *shardState
	batch batch.Batch
	slice batch.Slice // in place of a batch
	// Records from to to (exclusive) of the batch are for the reader; of a gap, the range; progress goes to to.
	from, to   uint64
	generation uint64
	reason     GapReason
	cost       int64
}

// appendTime is when the records were appended, in Unix microseconds.
func (e *entry) appendTime() int64 {
	if e.slice != nil {
		return e.slice.AppendTime()
	}
	return e.batch.AppendTime()
}

// inbox is the bounded queue between a subscription's connection and its reader. When it is full, the connection is
// not read, and the broker's queue begins to fill.
type inbox struct {
	limit int64
	ready chan struct{} // capacity 1: there may be an entry
	room  chan struct{} // capacity 1: there may be room

	mu      sync.Mutex
	entries []entry
	head    int
	held    int64
	lifted  int // somebody waits for what comes behind the deliveries
	closed  bool
}

// liftBy is how far the bound may be exceeded then: what is on its way in the connection's windows, with room to spare.
const liftBy = 32 << 20

func newInbox(limit int64) *inbox {
	return &inbox{limit: limit, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// waitRoom waits until size bytes fit. Anything fits an empty inbox.
func (q *inbox) waitRoom(ctx context.Context, size int64) error {
	for {
		q.mu.Lock()
		limit := q.limit
		if q.lifted > 0 {
			limit += liftBy
		}
		ok := q.held == 0 || q.held+size+entryCost <= limit || q.closed
		q.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-q.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lift raises the bound for a while, or ends that.
func (q *inbox) lift(up bool) {
	q.mu.Lock()
	if up {
		q.lifted++
	} else {
		q.lifted--
	}
	q.mu.Unlock()
	poke(q.room)
}

// discard throws away what is there and all that comes: nobody will read it.
func (q *inbox) discard() {
	q.mu.Lock()
	q.closed, q.entries, q.head, q.held = true, nil, 0, 0
	q.mu.Unlock()
	poke(q.room)
}

func (q *inbox) put(e entry) {
	e.cost += entryCost
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	q.entries = append(q.entries, e)
	q.held += e.cost
	q.mu.Unlock()
	poke(q.ready)
}

func (q *inbox) take() (entry, bool) {
	q.mu.Lock()
	if q.head == len(q.entries) {
		q.mu.Unlock()
		return entry{}, false
	}
	e := q.entries[q.head]
	q.entries[q.head] = entry{}
	q.head++
	q.held -= e.cost
	more := q.head < len(q.entries)
	switch {
	case !more:
		q.entries, q.head = q.entries[:0], 0
	case q.head >= 1024 && q.head*2 >= len(q.entries):
		n := copy(q.entries, q.entries[q.head:])
		clear(q.entries[n:])
		q.entries, q.head = q.entries[:n], 0
	}
	q.mu.Unlock()
	poke(q.room)
	if more {
		poke(q.ready) // for another reader of the same subscription
	}
	return e, true
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
