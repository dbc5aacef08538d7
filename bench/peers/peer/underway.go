// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"sync"

	"margay.dev/cluster/load"
)

// UnderWay keeps the stamps of the messages that have no answer yet, for a server that answers in order.
type UnderWay struct {
	done load.Done

	mu     sync.Mutex
	stamps []int64 // a ring
	first  int
	n      int
	failed error // nothing is taken anymore
}

// NewUnderWay makes room for n; more are taken, at a price.
func NewUnderWay(n int, done load.Done) *UnderWay {
	return &UnderWay{done: done, stamps: make([]int64, max(n, 1))}
}

// Add takes a stamp, before its message is sent: the answer may be there before the call that sends returns.
func (u *UnderWay) Add(at int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed != nil {
		return u.failed
	}
	if u.n == len(u.stamps) {
		grown := make([]int64, 2*u.n)
		copy(grown[copy(grown, u.stamps[u.first:]):], u.stamps[:u.first])
		u.stamps, u.first = grown, 0
	}
	u.stamps[(u.first+u.n)%len(u.stamps)] = at
	u.n++
	return nil
}

// Drop takes the youngest back, whose message was not sent. It says whether it is still there to be taken: after Fail it is
// not, and has been told of.
func (u *UnderWay) Drop() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n == 0 {
		return false
	}
	u.n--
	return true
}

// Len is how many have no answer.
func (u *UnderWay) Len() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}

// Tell says how the oldest n ended. Those with equal stamps are told of together.
func (u *UnderWay) Tell(n int, err error) {
	for n > 0 {
		at, k := u.take(n)
		if k == 0 {
			return
		}
		u.done(at, k, err)
		n -= k
	}
}

// take removes the oldest, and up to n in all that have its stamp.
func (u *UnderWay) take(n int) (at int64, k int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n = min(n, u.n)
	for k < n && (k == 0 || u.stamps[u.first] == at) {
		at = u.stamps[u.first]
		if u.first++; u.first == len(u.stamps) {
			u.first = 0
		}
		u.n--
		k++
	}
	return at, k
}

// Fail says that all have failed, and that nothing more is taken.
func (u *UnderWay) Fail(err error) {
	u.mu.Lock()
	u.failed = err
	n := u.n
	u.mu.Unlock()
	u.Tell(n, err)
}
