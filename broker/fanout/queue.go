// SPDX-License-Identifier: Apache-2.0

package fanout

import "sync"

// Policy is what happens to a live queue that is full.
type Policy uint8

// The overflow policies.
const (
	DropNew    Policy = iota // what does not fit is lost to this subscriber, and said so
	DropOld                  // the oldest in the queue is lost instead, and said so
	CatchUp                  // the subscriber leaves the queue and reads the log at its own pace
	Disconnect               // the subscription ends with the offset to resume at
)

// Limits bound one queue. A batch larger than Bytes still fits into an empty queue.
type Limits struct {
	Records int
	Bytes   int
}

// DefaultLimits bound a queue that names none.
var DefaultLimits = Limits{Records: 64 << 10, Bytes: 4 << 20}

// Queue is one subscription's bounded queue over all its shards. Hubs offer, one goroutine takes.
type Queue struct {
	limits Limits
	policy Policy
	ready  chan struct{} // holds one token while there may be something to take

	mu      sync.Mutex
	items   []*Envelope // items[head:] are queued
	head    int
	records int
	bytes   int
	left    []uint32 // shards whose hub this queue has left by overflow
	ended   map[uint32]error
}

// NewQueue makes an empty queue. Limits of 0 take the defaults.
func NewQueue(l Limits, p Policy) *Queue {
	if l.Records <= 0 {
		l.Records = DefaultLimits.Records
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	return &Queue{limits: l, policy: p, ready: make(chan struct{}, 1)}
}

// Ready holds a token when there may be something to take: one wake-up for all that was offered since.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

func (q *Queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Wake makes the taking goroutine look again.
func (q *Queue) Wake() { q.wake() }

// offer queues what fits and says whether the queue stays with the hub.
func (q *Queue) offer(shard uint32, envs []*Envelope) (stay bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.wake()
	for _, e := range envs {
		if q.fits(e) {
			q.push(e)
			continue
		}
		switch q.policy {
		case DropOld:
			for !q.fits(e) {
				q.pop()
			}
			q.push(e)
		case CatchUp, Disconnect:
			// Everything from e on is in the log; the taker goes on from there once the queue is empty.
			q.left = append(q.left, shard)
			return false
		case DropNew:
			// The taker sees the hole before the next delivery and states it.
		}
	}
	return true
}

func (q *Queue) fits(e *Envelope) bool {
	if q.head == len(q.items) {
		return true
	}
	return q.records+int(e.NextOffset-e.BaseOffset) <= q.limits.Records && q.bytes+len(e.Frame) <= q.limits.Bytes
}

func (q *Queue) push(e *Envelope) {
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, e)
	q.records += int(e.NextOffset - e.BaseOffset)
	q.bytes += len(e.Frame)
}

func (q *Queue) pop() *Envelope {
	e := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	q.records -= int(e.NextOffset - e.BaseOffset)
	q.bytes -= len(e.Frame)
	return e
}

// Taken is what one Take hands over.
type Taken struct {
	Envelopes []*Envelope
	Left      []uint32         // shards to go on reading from the log; only with an empty queue behind it
	Ended     map[uint32]error // shards whose hub ended
}

// Take appends to t.Envelopes up to maxBytes of what is queued, at least one batch. What the queue left or
// what ended is told only once the queue is empty, since it lies behind what was queued.
func (q *Queue) Take(t *Taken, maxBytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.Envelopes, t.Left, t.Ended = t.Envelopes[:0], nil, nil
	for n := 0; q.head < len(q.items) && (n == 0 || n+len(q.items[q.head].Frame) <= maxBytes); {
		e := q.pop()
		n += len(e.Frame)
		t.Envelopes = append(t.Envelopes, e)
	}
	if q.head < len(q.items) {
		q.wake()
		return
	}
	t.Left, q.left = q.left, nil
	t.Ended, q.ended = q.ended, nil
}

func (q *Queue) end(shard uint32, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended == nil {
		q.ended = map[uint32]error{}
	}
	q.ended[shard] = err
	q.wake()
}

// Depth is what is queued now.
func (q *Queue) Depth() (records, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.records, q.bytes
}
