// SPDX-License-Identifier: Apache-2.0

package group

// item is a message that may be handed out once its time has come, or a range of such messages that differ in nothing.
type item struct {
	offset   uint64
	to       uint64 // exclusive
	key      uint64
	at       int64 // since when it is ready; when it will be, of a delayed one (us)
	appended int64 // append time of the record
	expires  int64
	level    uint8
	parked   bool // its state is an entry of the group
	turn     bool // not a message: the turn of the messages of a key
}

func itemOf(m Message, keyed bool) item {
	it := item{
		offset: m.Offset, to: m.Offset + 1, at: max(m.AppendTime, m.Due), appended: m.AppendTime, expires: m.Expires, level: m.Priority,
	}
	if keyed {
		it.key = m.Key
	}
	return it
}

// plain says whether the item differs from others in its offset only.
func (it *item) plain() bool {
	return it.key == 0 && it.expires == 0 && it.level == 0 && !it.parked && !it.turn
}

// fifo is a queue of items, growing at its end.
type fifo struct {
	items []item
	head  int
	turns turns
}

func (q *fifo) empty() bool { return q.head == len(q.items) && len(q.turns) == 0 }

// keyFirst says whether the turn of a key comes before the first of the items. There is one of both at least.
func (q *fifo) keyFirst() bool {
	return len(q.turns) > 0 && (q.head == len(q.items) || q.turns[0].offset < q.items[q.head].offset)
}

func (q *fifo) front() *item { return &q.items[q.head] }

// at is since when the first is ready.
func (q *fifo) at() int64 {
	if q.keyFirst() {
		return q.turns[0].at
	}
	return q.front().at
}

// push appends an item; a range that follows on is joined to the last one.
func (q *fifo) push(it item) {
	if n := len(q.items); n > q.head {
		if last := &q.items[n-1]; it.offset == last.to && it.plain() && last.plain() {
			last.to = it.to
			return
		}
	}
	q.items = append(q.items, it)
}

// pushFront puts an item before all others.
func (q *fifo) pushFront(it item) {
	if q.head == 0 {
		grown := make([]item, len(q.items)+8, 2*len(q.items)+16)
		copy(grown[8:], q.items)
		q.items, q.head = grown, 8
	}
	q.head--
	q.items[q.head] = it
}

func (q *fifo) pop() {
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 1024 {
			q.items = nil
		}
	case q.head >= 1024 && q.head >= len(q.items)/2: // what is done does not stay for as long as something follows
		n := copy(q.items, q.items[q.head:])
		q.items, q.head = q.items[:n], 0
	}
}

// turns are those of keys that take none from each other: a heap by the first offset of each. So messages are handed out about
// in their order, and those that are handed out together lie together.
type turns []turn

type turn struct {
	offset, key uint64
	at          int64
}

func (h *turns) push(t turn) {
	*h = append(*h, t)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if q[up].offset <= q[i].offset {
			return
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

// pop takes the first out, and returns its key.
func (h *turns) pop() (key uint64) {
	q := *h
	key = q[0].key
	n := len(q) - 1
	q[0] = q[n]
	q = q[:n]
	for i := 0; ; {
		low := 2*i + 1
		if low >= n {
			break
		}
		if r := low + 1; r < n && q[r].offset < q[low].offset {
			low = r
		}
		if q[i].offset <= q[low].offset {
			break
		}
		q[i], q[low] = q[low], q[i]
		i = low
	}
	if *h = q; n == 0 && cap(q) > 1024 {
		*h = nil
	}
	return key
}

// delayed is a heap of items by when they are due. It takes no more than they do.
type delayed struct{ items []late }

// late is an item that is not due, without what such a one has not.
type late struct {
	due      int64
	appended int64
	offset   uint64
	expires  int64
	key      uint64
	level    uint8
	parked   bool
}

func (h *delayed) len() int { return len(h.items) }

func (h *delayed) less(i, j int) bool {
	a, b := &h.items[i], &h.items[j]
	return a.due < b.due || a.due == b.due && a.offset < b.offset
}

func (h *delayed) push(it item) {
	h.items = append(h.items, late{
		due: it.at, appended: it.appended, offset: it.offset, expires: it.expires, key: it.key, level: it.level, parked: it.parked,
	})
	for i := len(h.items) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.less(i, up) {
			return
		}
		h.items[i], h.items[up] = h.items[up], h.items[i]
		i = up
	}
}

// due is when the first is due; 0 when there is none.
func (h *delayed) due() int64 {
	if len(h.items) == 0 {
		return 0
	}
	return h.items[0].due
}

func (h *delayed) pop() item {
	top := h.items[0]
	n := len(h.items) - 1
	h.items[0] = h.items[n]
	h.items = h.items[:n]
	h.down(0)
	if n == 0 {
		h.items = nil
	}
	return item{
		offset: top.offset, to: top.offset + 1, key: top.key, at: top.due, appended: top.appended, expires: top.expires, level: top.level,
		parked: top.parked,
	}
}

func (h *delayed) down(i int) {
	for {
		low := 2*i + 1
		if low >= len(h.items) {
			return
		}
		if r := low + 1; r < len(h.items) && h.less(r, low) {
			low = r
		}
		if !h.less(low, i) {
			return
		}
		h.items[i], h.items[low] = h.items[low], h.items[i]
		i = low
	}
}

// drop takes out what is gone.
func (h *delayed) drop(gone func(offset uint64) bool) {
	rest := h.items[:0]
	for _, it := range h.items {
		if !gone(it.offset) {
			rest = append(rest, it)
		}
	}
	h.items = rest
	for i := len(rest)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}
