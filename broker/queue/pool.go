// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"

	"margay.dev/wire/code"
)

const (
	// maxUnwritten is how many bytes of messages may have been handed to a lane and not been written to it. What waits longer
	// than that is better handed to somebody who reads.
	maxUnwritten = 16 << 20
	// firstSize is what a message is taken to have until the lane has seen some.
	firstSize = 16 << 10
)

// pool is the credit of a lane: how many unsettled messages it may have, over all its shards. Shards take of it and give back
// on their own goroutines, so that no call waits for anything but the lock, and nothing is called with that held.
//
// A shard that gets nothing waits in a line. What comes back is promised to who has waited longest, and nobody
// else is given it: a shard that settles and hands out in one step would otherwise take back for ever what it gave.
type pool struct {
	mu       sync.Mutex
	max      int
	out      int // taken
	promised int // of what is free, to who has been woken for it
	seats    int // that are not gone
	waiting  []*seat
	owed     bool // somebody could not be woken: try again

	unsent int // messages that were handed and not written yet
	size   int // bytes of one of them, about
	busy   int // bytes of those that are being written
}

// seat is a shard's part of the pool: the group.Credit of the lane's consumer there.
type seat struct {
	pool *pool
	// wake tells the shard that there is credit again, and calls over when it has had its turn.
	wake func(over func()) *code.Error

	// With the pool's lock.
	out      int
	wanted   int
	promised int
	waits    bool
	turns    uint64 // how often it was woken
	gone     bool
}

func newPool(most int) *pool { return &pool{max: most, size: firstSize} }

func (p *pool) sit(wake func(over func()) *code.Error) *seat {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seats++
	return &seat{pool: p, wake: wake}
}

// Take takes credit for n messages, or for as many as there is.
func (s *seat) Take(n int) int {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.gone || n <= 0 {
		return 0
	}
	p.promised -= s.promised
	s.promised = 0
	got := max(0, min(n, p.free()))
	s.out += got
	p.out += got
	if got > 0 {
		return got // who wants more asks again
	}
	s.wanted = n
	if !s.waits {
		s.waits = true
		p.waiting = append(p.waiting, s)
	}
	return 0
}

// free is how many messages may be taken by who was promised none. Called with mu held.
func (p *pool) free() int {
	room := (maxUnwritten-p.busy)/p.size - p.unsent
	if p.busy == 0 && p.unsent <= 0 {
		room = max(room, 1) // however large the next one is
	}
	return min(p.max-p.out-p.promised, room)
}

// Give gives credit back.
func (s *seat) Give(n int) {
	p := s.pool
	p.mu.Lock()
	n = min(n, s.out) // of a seat that is gone all was given back
	s.out -= n
	p.out -= n
	if p.seats == 1 && !s.gone {
		s.waits, p.waiting = false, nil // it comes back for it in the same step
		p.mu.Unlock()
		return
	}
	p.wake()
}

// leave gives back all that the seat has, for good.
func (s *seat) leave() {
	p := s.pool
	p.mu.Lock()
	if !s.gone {
		s.gone = true
		p.seats--
	}
	p.out -= s.out
	p.promised -= s.promised
	s.out, s.promised = 0, 0
	p.wake()
}

// limit changes how many messages may be out.
func (p *pool) limit(most int) {
	p.mu.Lock()
	p.max = most
	p.wake()
}

// wake promises what is free to who waits, in turn, and tells them. It is called with mu held, and lets go of it.
func (p *pool) wake() {
	var told []*seat
	p.owed = false
	for free := p.free(); free > 0 && len(p.waiting) > 0; {
		share := (free + len(p.waiting) - 1) / len(p.waiting)
		s := p.waiting[0]
		p.waiting = p.waiting[1:]
		s.waits = false
		if s.gone {
			continue
		}
		s.turns++
		if p.seats > 1 { // who is alone needs no promise
			s.promised = min(share, s.wanted)
			p.promised += s.promised
			free -= s.promised
		}
		told = append(told, s)
	}
	p.mu.Unlock()
	for _, s := range told {
		s.tell()
	}
}

// tell wakes a shard. One that has too much to do already is told later.
func (s *seat) tell() {
	p := s.pool
	p.mu.Lock()
	turn := s.turns
	p.mu.Unlock()
	if s.wake(func() { s.passed(turn) }) == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.promised -= s.promised
	s.promised = 0
	if !s.gone && !s.waits {
		s.waits, p.owed = true, true
		p.waiting = append([]*seat{s}, p.waiting...)
	}
}

// passed takes back what a shard had no use for in its turn.
func (s *seat) passed(turn uint64) {
	p := s.pool
	p.mu.Lock()
	if s.turns != turn || s.promised == 0 {
		p.mu.Unlock()
		return
	}
	p.promised -= s.promised
	s.promised = 0
	p.wake()
}

// again tries to wake who could not be woken, and says whether there is still somebody.
func (p *pool) again() (owed bool) {
	p.mu.Lock()
	if !p.owed {
		p.mu.Unlock()
		return false
	}
	p.wake()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.owed
}

// handed counts messages that wait to be written; fewer than none of them when they will not be.
func (p *pool) handed(n int) {
	p.mu.Lock()
	if p.unsent += n; n < 0 {
		p.wake()
		return
	}
	p.mu.Unlock()
}

// writing says that so many of them are being written.
func (p *pool) writing(messages, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsent -= messages
	p.busy += bytes
	if messages > 0 {
		p.size = max(1, (7*p.size+bytes/messages)/8)
	}
}

// written says that they are.
func (p *pool) written() {
	p.mu.Lock()
	p.busy = 0
	p.wake()
}

// taken is how many messages are out, and how many of them wait to be written.
func (p *pool) taken() (out, unsent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out, p.unsent
}
