// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"sync"

	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Holders knows which subscription of this broker holds each cursor. The zero value is ready.
type Holders struct {
	mu    sync.Mutex
	names map[cursorName]*holding
}

type cursorName struct {
	log  batch.LogID
	name string
}

// holding is a name that somebody holds in some shard, or is opening.
type holding struct {
	// turn is taken by who opens the name, one after the other: two who opened several shards at the same time could
	// each take some of them from the other, and both would end.
	turn chan struct{}
	here int // how many hold it, open it or wait for their turn
	held map[uint32]*Hold
}

// Hold is one subscription's place among the holders.
type Hold struct {
	of   *Holders
	key  cursorName
	mine *holding
	end  func(*code.Error)
}

// open waits for its turn to open a name. end is called when a newer holder takes over, or the name is deleted; it must
// not wait. The caller releases the hold, and passes its turn on before that.
func (h *Holders) open(ctx context.Context, log batch.LogID, name string, end func(*code.Error)) (*Hold, error) {
	x := &Hold{of: h, key: cursorName{log, name}, end: end}
	h.mu.Lock()
	x.mine = h.names[x.key]
	if x.mine == nil {
		if h.names == nil {
			h.names = map[cursorName]*holding{}
		}
		x.mine = &holding{turn: make(chan struct{}, 1), held: map[uint32]*Hold{}}
		h.names[x.key] = x.mine
	}
	x.mine.here++
	h.mu.Unlock()
	select {
	case x.mine.turn <- struct{}{}:
		return x, nil
	case <-ctx.Done():
		x.release()
		return nil, context.Cause(ctx)
	}
}

// take makes x the holder in a shard and ends who was. The cursor has been opened by then: what the other commits from
// here on is refused.
func (x *Hold) take(shard uint32) {
	x.of.mu.Lock()
	was := x.mine.held[shard]
	x.mine.held[shard] = x
	x.of.mu.Unlock()
	if was != nil && was != x {
		was.end(code.New(code.TakenOver, "the durable subscription %q was opened again", x.key.name))
	}
}

// pass lets the next in turn open the name.
func (x *Hold) pass() { <-x.mine.turn }

// release gives up what x still holds.
func (x *Hold) release() {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	for shard, by := range x.mine.held {
		if by == x {
			delete(x.mine.held, shard)
		}
	}
	if x.mine.here--; x.mine.here == 0 {
		delete(x.of.names, x.key)
	}
}

// Held says whether a subscription of this broker holds the cursor.
func (h *Holders) Held(log batch.LogID, name string, shard uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.names[cursorName{log, name}]
	return x != nil && x.held[shard] != nil
}

// End ends every holder of a name.
func (h *Holders) End(log batch.LogID, name string, why *code.Error) {
	h.mu.Lock()
	var all []*Hold
	if x := h.names[cursorName{log, name}]; x != nil {
		for _, by := range x.held {
			all = append(all, by)
		}
	}
	h.mu.Unlock()
	for _, by := range all {
		by.end(why)
	}
}
