// SPDX-License-Identifier: Apache-2.0

// Package bubble runs a whole node and its clients in one test under virtual time: the real shells, over a network and
// a disk that are simulated; it touches nothing outside the test but a temporary directory for the catalog, and refuses
// to let a goroutine outlive it.
//
// The time of a bubble moves only while every goroutine in it waits, so hours pass in milliseconds and no result hangs
// on how fast the machine is. It gives virtual time, not replay: which of two goroutines that are ready goes first is
// still the scheduler's to say. What a seed decides is what fails, and when.
package bubble

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Bubble is a simulated world. Its methods may be called from goroutines of the test.
type Bubble struct {
	t       *testing.T
	Seed    uint64
	Network *Network

	clients atomic.Int64
}

// Run runs a test in a world of its own. Everything that chance decides in it is drawn from the seed.
func Run(t *testing.T, seed uint64, test func(t *testing.T, b *Bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &Bubble{t: t, Seed: seed}
		b.Network = newNetwork(b.Rand("network"))
		t.Cleanup(b.Network.close) // registered first, so it ends last: clients and nodes say goodbye over it
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		test(t, b)
	})
}

// Rand is a source of chance for one purpose: what another one draws does not change it.
func (b *Bubble) Rand(purpose string) *rand.Rand {
	var key [32]byte
	copy(key[8:], purpose)
	for i := range 8 {
		key[i] = byte(b.Seed >> (8 * i))
	}
	return rand.New(rand.NewChaCha8(key))
}
