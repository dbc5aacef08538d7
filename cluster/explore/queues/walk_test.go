// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"margay.dev/cluster/explore"
)

var seed = flag.Uint64("seed", 0, "of the walks; 0: a fixed one with -short, and one by the clock without")

// wide has everything at once: keys, delays, times to live and priorities, and more of all than can be visited exhaustively.
func wide(rng *rand.Rand) *Setup {
	s := &Setup{Settings: settings(), Consumers: 3, Credit: 1 + rng.IntN(4)}
	s.Settings.OrderByKey = rng.IntN(2) == 0
	s.Settings.FairKeys = rng.IntN(3) == 0
	s.Settings.DeadExpired = rng.IntN(2) == 0
	s.Settings.MaxAttempts = uint32(rng.IntN(4))
	s.Settings.MaxDead = uint32(1 + rng.IntN(20))
	for range 3 + rng.IntN(10) {
		m := Message{Priority: uint8(max(rng.IntN(8)-4, 0)), Key: []string{"", "k", "l"}[rng.IntN(3)]}
		if rng.IntN(3) == 0 {
			m.Delay = 500 + 1000*rng.Int64N(4)
		}
		if rng.IntN(3) == 0 {
			m.TTL = m.Delay + 1000 + rng.Int64N(120_000)
		}
		s.Messages = append(s.Messages, m)
	}
	for f := range s.Faults {
		s.Faults[f] = uint8(rng.IntN(10))
	}
	return s
}

// S8, S9: far from the beginning, with everything that may happen, what is handed out may be, and what may be is.
func TestWalks(t *testing.T) {
	from, walks, limit := *seed, 150, time.Duration(*minutes*float64(time.Minute))
	if from == 0 {
		from = 1
	}
	if !testing.Short() {
		walks = 3000
		if *seed == 0 {
			from = uint64(time.Now().UnixNano())
		}
	}
	began := time.Now()
	var total explore.Result[Action]
	for i := range walks {
		if limit > 0 && time.Since(began) > limit {
			break
		}
		rng := rand.New(rand.NewPCG(from+uint64(i), 0))
		s := wide(rng)
		if *path != "" {
			run(t, s, explore.Options{})
			return
		}
		r := explore.Walk(func() *World { return New(s) }, rng, explore.Options{States: 500, Depth: 100, Finish: 1})
		if r.Violation != nil {
			t.Fatalf("%+v: %s\n-run '^TestWalks$' -seed %d -path %s", *s, r.Violation, from+uint64(i), r.Violation.Path)
		}
		total.States, total.Finished = total.States+r.States, total.Finished+r.Finished
	}
	t.Logf("%d states, %d walks led to an end, %.1f s", total.States, total.Finished, time.Since(began).Seconds())
}
