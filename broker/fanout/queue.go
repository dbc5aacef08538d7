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
	limits    Limits
	policy    Policy
	selection *Selection
	ready     chan struct{} // holds one token while there may be something to take

	mu      sync.Mutex
	items   []item // items[head:] are queued
	head    int
	records int
	bytes   int
	dropped map[uint32]Range // by shard: what was dropped behind its last item
	passed  map[uint32]Range // by shard: what was dropped before its first item
	left    []uint32         // shards whose hub this queue has left by overflow
	ended   map[uint32]error
}

// NewQueue makes an empty queue for what is selected; nil selects everything. Limits of 0 take the defaults.
func NewQueue(l Limits, p Policy, s *Selection) *Queue {
	if l.Records <= 0 {
		l.Records = DefaultLimits.Records
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	return &Queue{limits: l, policy: p, selection: s, ready: make(chan struct{}, 1)}
}

// Ready holds a token when there may be something to take: one wake-up for all that was offered since.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Wake makes who takes look again.
func (q *Queue) Wake() { q.wake() }

func (q *Queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// offer queues what fits and says whether the queue stays with the hub.
func (q *Queue) offer(shard uint32, items []item) (stay bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.wake()
	for i := range items {
		it := items[i]
		if q.fits(&it) {
			q.push(shard, it)
			continue
		}
		switch q.policy {
		case DropOld:
			for !q.fits(&it) {
				old := q.pop()
				q.passed = note(q.passed, old.envelope.Shard, old.lost.with(old.offsets()))
			}
			q.push(shard, it)
		case CatchUp, Disconnect:
			// Everything from here on is in the log; the taker goes on from there once the queue is empty.
			q.left = append(q.left, shard)
			return false
		case DropNew:
			q.dropped = note(q.dropped, shard, it.offsets())
		}
	}
	return true
}

// note adds a loss: the delivery that follows it states it.
func note(m map[uint32]Range, shard uint32, lost Range) map[uint32]Range {
	if m == nil {
		m = map[uint32]Range{}
	}
	m[shard] = m[shard].with(lost)
	return m
}

func (q *Queue) fits(it *item) bool {
	if q.head == len(q.items) {
		return true
	}
	return q.records+it.records() <= q.limits.Records && q.bytes+it.size() <= q.limits.Bytes
}

func (q *Queue) push(shard uint32, it item) {
	if lost, ok := q.dropped[shard]; ok {
		it.lost = lost
		delete(q.dropped, shard)
	}
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, it)
	q.records += it.records()
	q.bytes += it.size()
}

func (q *Queue) pop() item {
	it := q.items[q.head]
	q.items[q.head] = item{}
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	q.records -= it.records()
	q.bytes -= it.size()
	return it
}

// Delivery is one thing to send.
type Delivery struct {
	Frame      []byte // nil when the producer's bytes cannot be read, which concerns nobody else
	Shard      uint32
	Sequence   uint64
	BaseOffset uint64
	NextOffset uint64
	AppendTime int64
	Records    int
	Lost       Range // was dropped before it
}

// Taken is what one Take hands over.
type Taken struct {
	Deliveries []Delivery
	Left       []uint32         // shards to go on reading from the log; only with an empty queue behind it
	Ended      map[uint32]error // shards whose hub ended

	items []item
}

// Take fills t with up to maxBytes of what is queued, at least one batch. What the queue left or what ended is
// told only once the queue is empty, since it lies behind what was queued.
func (q *Queue) Take(t *Taken, maxBytes int) {
	q.take(t, maxBytes)
	clear(t.Deliveries)
	t.Deliveries = t.Deliveries[:0]
	for i := range t.items { // outside the lock: the first to need a cut encodes it
		it := &t.items[i]
		frame, err := it.frame()
		if err != nil {
			frame = nil
		}
		b := it.envelope.Batch
		t.Deliveries = append(t.Deliveries, Delivery{
			Frame: frame, Shard: it.envelope.Shard, Sequence: b.Sequence(), BaseOffset: b.BaseOffset(), NextOffset: b.NextOffset(),
			AppendTime: b.AppendTime(), Records: it.records(), Lost: it.lost,
		})
	}
	clear(t.items)
}

func (q *Queue) take(t *Taken, maxBytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.Left, t.Ended, t.items = nil, nil, t.items[:0]
	for n := 0; q.head < len(q.items) && (n == 0 || n+q.items[q.head].size() <= maxBytes); {
		it := q.pop()
		if lost, ok := q.passed[it.envelope.Shard]; ok {
			it.lost = lost.with(it.lost)
			delete(q.passed, it.envelope.Shard)
		}
		n += it.size()
		t.items = append(t.items, it)
	}
	if q.head < len(q.items) {
		q.wake()
		return
	}
	t.Left, q.left = q.left, nil
	t.Ended, q.ended = q.ended, nil
}

// caught says whether nothing is queued and no shard was left, and if so hands over what was dropped of a shard
// behind the last delivery.
func (q *Queue) caught(shard uint32) (lost Range, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head < len(q.items) || len(q.left) > 0 || len(q.ended) > 0 {
		return Range{}, false
	}
	lost = q.passed[shard].with(q.dropped[shard])
	delete(q.passed, shard)
	delete(q.dropped, shard)
	return lost, true
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
