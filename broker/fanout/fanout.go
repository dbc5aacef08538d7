// SPDX-License-Identifier: Apache-2.0

// Package fanout hands committed batches to a shard's live subscribers through bounded queues; it shares
// one encoded frame among all of them and refuses to make a publisher wait for any.
package fanout

import (
	"sync"
	"sync/atomic"
)

// Envelope is one committed record batch, encoded once as the frame that every subscriber is sent.
type Envelope struct {
	Frame      []byte
	Shard      uint32
	Sequence   uint64 // of the batch
	BaseOffset uint64
	NextOffset uint64
}

// Hub is the live end of one shard: what was committed below its position has been offered to its queues.
type Hub struct {
	shard uint32

	mu     sync.Mutex
	pos    Position
	queues []*Queue
	ended  *End

	position atomic.Uint64 // pos.Sequence, for a reader that is catching up
}

// Position is a place in a shard in both spaces.
type Position struct{ Sequence, Offset uint64 }

// End says why a shard's live end is gone.
type End struct{ Err error }

// NewHub starts the live end of a shard at pos, the first batch and record that are not committed.
func NewHub(shard uint32, pos Position) *Hub {
	h := &Hub{shard: shard, pos: pos}
	h.position.Store(pos.Sequence)
	return h
}

// Sequence is the hub's position: everything below it is committed and may be read from the log.
func (h *Hub) Sequence() uint64 { return h.position.Load() }

// Position returns the hub's position in both spaces.
func (h *Hub) Position() Position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pos
}

// Subscribers counts the queues that are live here.
func (h *Hub) Subscribers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.queues)
}

// Publish offers what was just committed to every live queue and moves the hub to next.
func (h *Hub) Publish(envs []*Envelope, next Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(envs) > 0 {
		stay := h.queues[:0]
		for _, q := range h.queues {
			if q.offer(h.shard, envs) {
				stay = append(stay, q)
			}
		}
		clear(h.queues[len(stay):])
		h.queues = stay
	}
	h.pos = next
	h.position.Store(next.Sequence)
}

// Join makes q live if it has read the log up to exactly the hub's position. The comparison and the
// registration are one step: a batch committed in between would be missed or repeated (SB-04).
func (h *Hub) Join(q *Queue, at uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil || at != h.pos.Sequence {
		return false
	}
	h.queues = append(h.queues, q)
	return true
}

// JoinLatest makes q live at the hub's position and returns it.
func (h *Hub) JoinLatest(q *Queue) (Position, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return Position{}, h.ended.Err
	}
	h.queues = append(h.queues, q)
	return h.pos, nil
}

// Leave takes q out.
func (h *Hub) Leave(q *Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, x := range h.queues {
		if x == q {
			h.queues = append(h.queues[:i], h.queues[i+1:]...)
			return
		}
	}
}

// Close ends the hub: live queues are told why, later joins are refused.
func (h *Hub) Close(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended != nil {
		return
	}
	h.ended = &End{Err: err}
	for _, q := range h.queues {
		q.end(h.shard, err)
	}
	h.queues = nil
}

// Err is why the hub ended, nil while it is live.
func (h *Hub) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended == nil {
		return nil
	}
	return h.ended.Err
}
