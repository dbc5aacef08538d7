// SPDX-License-Identifier: Apache-2.0

// Package backoff spaces retries: exponential with full jitter, so that clients that failed together do
// not come back together; it touches nothing but the clock and refuses to wait for longer than its caller lives.
package backoff

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Rand is a random source that many goroutines may use.
type Rand struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// NewRand guards rng, which the caller must not use any more.
func NewRand(rng *rand.Rand) *Rand { return &Rand{rng: rng} }

// Uint64 returns a random number that is not zero, because zero means "none" wherever it is used.
func (r *Rand) Uint64() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if v := r.rng.Uint64(); v != 0 {
			return v
		}
	}
}

// IntN returns a random number in [0, n).
func (r *Rand) IntN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

// UpTo returns a random duration in (0, limit].
func (r *Rand) UpTo(limit time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return 1 + time.Duration(r.rng.Int64N(int64(max(limit, 1))))
}

// Backoff counts the failures in a row of one thing.
type Backoff struct {
	Rand *Rand
	// Base is the bound of the first wait, Cap of every wait.
	Base, Cap time.Duration

	failures int
}

// Next returns how long to wait after one more failure.
func (b *Backoff) Next() time.Duration {
	limit := b.Cap
	if b.failures < 30 {
		limit = min(limit, b.Base<<b.failures)
	}
	b.failures++
	return b.Rand.UpTo(limit)
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }

// Pause waits, and reports whether ctx is still alive.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
