// SPDX-License-Identifier: Apache-2.0

package api

import (
	"container/list"
	"sync"
	"time"
)

// A failed login costs its address one of loginBurst; one comes back every loginRefill. Keys cannot be guessed, so this
// guards the log and the processor, not the keys.
const (
	loginBurst     = 20
	loginRefill    = 3 * time.Second
	loginAddresses = 4096
)

// limiter counts failures per address, for a bounded number of addresses: beyond it the one that failed longest ago is
// forgotten. Safe for concurrent use.
type limiter struct {
	mu    sync.Mutex
	known map[string]*list.Element
	order *list.List // of *failures, the latest first
}

type failures struct {
	address string
	left    float64
	at      time.Time
}

func newLimiter() *limiter {
	return &limiter{known: map[string]*list.Element{}, order: list.New()}
}

func (f *failures) refill(now time.Time) {
	if d := now.Sub(f.at); d > 0 { // a clock that was set back gives nothing and takes nothing
		f.left = min(loginBurst, f.left+float64(d)/float64(loginRefill))
	}
	f.at = now
}

// wait says how long the address has to wait before it is listened to again; 0 when it need not.
func (l *limiter) wait(address string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.known[address]
	if !ok {
		return 0
	}
	f := e.Value.(*failures)
	f.refill(now)
	if f.left >= 1 {
		return 0
	}
	return time.Duration((1 - f.left) * float64(loginRefill))
}

func (l *limiter) failed(address string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.known[address]
	if !ok {
		if l.order.Len() >= loginAddresses {
			oldest := l.order.Back()
			delete(l.known, oldest.Value.(*failures).address)
			l.order.Remove(oldest)
		}
		e = l.order.PushFront(&failures{address: address, left: loginBurst, at: now})
		l.known[address] = e
	}
	l.order.MoveToFront(e)
	f := e.Value.(*failures)
	f.refill(now)
	f.left = max(0, f.left-1)
}
