// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// MarkedSize is how many bytes a value begins with, its stamp among them, that say which put it is of. No value that is
// watched is shorter.
const MarkedSize = StampSize + 8

// revisions follows each put until all watchers have it. Whether one has been told of all of them is counted, not believed:
// a watch that leaves out a change, or tells of another twice in its place, is no watch of every revision.
type revisions struct {
	watchers int64
	slots    []revision
	tallies  []tally // of watchers

	mu   sync.Mutex
	free []uint32
	put  tally // of all that were handed over
	next uint32
}

// revision is a put under way. A slot is used again for another once all watchers have it.
type revision struct {
	number atomic.Uint32
	seen   atomic.Int64
	_      [48]byte // two slots on one cache line would have receivers wait for each other
}

// tally is what there was of puts: how many, and the sum of what their marks are mixed to.
type tally struct {
	n, sum uint64
	_      [48]byte
}

func (t *tally) add(slot, number uint32) {
	t.n++
	t.sum += (uint64(slot)<<32 | uint64(number)) * 0x9e3779b97f4a7c15
}

func newRevisions(window, watchers int) *revisions {
	// Each put that failed keeps a slot, since nobody knows whether it was stored; a run ends at maxErrors of them.
	r := &revisions{watchers: int64(watchers), slots: make([]revision, window+2*maxErrors), tallies: make([]tally, watchers)}
	for i := range r.slots {
		r.free = append(r.free, uint32(len(r.slots)-1-i))
	}
	return r
}

var errSlots = errors.New("more puts have failed than can be told from those under way")

// begin marks a value as that of a put that is handed over now.
func (r *revisions) begin(value []byte) (slot uint32, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) == 0 {
		return 0, errSlots
	}
	slot = r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	r.next++
	s := &r.slots[slot]
	s.seen.Store(0)
	s.number.Store(r.next)
	binary.LittleEndian.PutUint32(value[StampSize:], slot)
	binary.LittleEndian.PutUint32(value[StampSize+4:], r.next)
	r.put.add(slot, r.next)
	return slot, nil
}

// cancel takes back a put that was not taken.
func (r *revisions) cancel(slot uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var gone tally
	gone.add(slot, r.slots[slot].number.Load())
	r.put.n, r.put.sum = r.put.n-gone.n, r.put.sum-gone.sum
	r.free = append(r.free, slot)
}

var (
	errForeign = errors.New("was told of a value that nobody has put in this run")
	errAgain   = errors.New("was told of a put that all watchers have had")
)

// seen says that a watcher got this value, and whether it was the last one to.
func (r *revisions) seen(value []byte, t *tally) (last bool, err error) {
	if len(value) < MarkedSize {
		return false, errForeign
	}
	slot, number := binary.LittleEndian.Uint32(value[StampSize:]), binary.LittleEndian.Uint32(value[StampSize+4:])
	if int(slot) >= len(r.slots) {
		return false, errForeign
	}
	s := &r.slots[slot]
	if s.number.Load() != number {
		return false, errAgain
	}
	t.add(slot, number)
	if s.seen.Add(1) < r.watchers {
		return false, nil
	}
	s.number.Store(0)
	r.mu.Lock()
	r.free = append(r.free, slot)
	r.mu.Unlock()
	return true, nil
}

// even says whether every watcher was told of every put. Nothing may be under way.
func (r *revisions) even() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.tallies {
		if t := &r.tallies[i]; t.n != r.put.n || t.sum != r.put.sum {
			return fmt.Errorf("watcher %d was told of %d changes, and not of each of %d puts once", i, t.n, r.put.n)
		}
	}
	return nil
}
