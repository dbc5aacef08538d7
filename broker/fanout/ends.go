// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"maps"
	"slices"
)

// ends are who is told that a hub ended and has no queue there.
type ends struct {
	next uint64
	told map[uint64]func(error)
}

// OnEnd calls f once when the hub ends, at once if it has, on the goroutine that ends it: f must not wait. Who no longer
// wants to know calls forget; f may be running then.
func (h *Hub) OnEnd(f func(error)) (forget func()) {
	h.mu.Lock()
	if h.ended != nil {
		err := h.ended.Err
		h.mu.Unlock()
		f(err)
		return func() {}
	}
	defer h.mu.Unlock()
	if h.ends.told == nil {
		h.ends.told = map[uint64]func(error){}
	}
	id := h.ends.next
	h.ends.next++
	h.ends.told[id] = f
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.ends.told, id)
	}
}

// tell tells them. No lock is held: they may ask the hub.
func (e *ends) tell(err error) {
	for _, id := range slices.Sorted(maps.Keys(e.told)) { // in the same order in each run of a simulation
		e.told[id](err)
	}
}
