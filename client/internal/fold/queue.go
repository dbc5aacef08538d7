// SPDX-License-Identifier: Apache-2.0

package fold

// push puts a change behind all others if there is room.
func (w *Watch) push(slot int, c *Change, before uint64) bool {
	others := w.held // beside what c takes the place of
	if it := w.waiting(c.Key); it != nil {
		others -= it.change.cost()
	}
	if others > 0 && others+c.cost() > w.limit {
		return false
	}
	w.append(slot, c, before)
	return true
}

// append is push whether there is room or not. In a conflating watch the change takes the place of an older one of its key,
// if that waits.
func (w *Watch) append(slot int, c *Change, before uint64) {
	if it := w.waiting(c.Key); it != nil {
		w.held += c.cost() - it.change.cost()
		it.change = c
		it.skipped++
		return
	}
	if w.newest != nil {
		w.newest[c.Key] = w.taken + uint64(len(w.queue)-w.head)
	}
	w.queue = append(w.queue, item{change: c, slot: slot, since: c.Offset, before: before})
	w.held += c.cost()
}

// waiting is the item of a key that a newer change of it takes the place of; nil when there is none.
func (w *Watch) waiting(key string) *item {
	n, ok := w.newest[key]
	if !ok {
		return nil
	}
	return &w.queue[w.head+int(n-w.taken)]
}

// Crowded reports whether the watch is about to fall behind, Eased whether its reader is not far from the end.
func (w *Watch) Crowded() bool { return w.held > w.limit-w.limit/4 }

// Eased is what CatchUp waits for too.
func (w *Watch) Eased() bool { return w.held <= w.limit/2 }

// Take returns the next change for the reader, and how many older ones of its key it stands for besides itself.
func (w *Watch) Take() (c *Change, slot, skipped int, ok bool) {
	for w.head < len(w.queue) {
		it := w.queue[w.head]
		w.queue[w.head] = item{}
		w.head++
		w.taken++
		w.held -= it.change.cost()
		if w.newest != nil {
			delete(w.newest, it.change.Key)
		}
		w.compact()
		s := &w.shards[it.slot]
		seen := s.inSnapshot(it.change, w.newest == nil || len(w.queue) == 0 && len(s.hold) == 0 && s.next >= s.asOf)
		if !seen {
			return it.change, it.slot, it.skipped, true
		}
	}
	return nil, 0, 0, false
}

// compact gives back what the queue has grown to: thousands of watches are mostly empty.
func (w *Watch) compact() {
	switch {
	case w.head == len(w.queue):
		if cap(w.queue) > 64 {
			w.queue = nil
		}
		w.queue, w.head = w.queue[:0], 0
	case w.head >= 256 && w.head*2 >= len(w.queue):
		n := copy(w.queue, w.queue[w.head:])
		clear(w.queue[n:])
		w.queue, w.head = w.queue[:n], 0
	}
}
