// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"runtime"
	"strings"
	"testing"

	"margay.dev/cluster/sim"
)

// A run is its seed and nothing else: no map's order, goroutine, clock or source of chance of the process may show.
func TestSeedsReplay(t *testing.T) {
	for seed := range uint64(40) {
		a, b := sim.Run(seed, sim.Options{}), sim.Run(seed, sim.Options{Trace: func(string) {}})
		if a.Hash != b.Hash || a.Steps != b.Steps {
			t.Errorf("seed %d: %x in %d steps, and then %x in %d", seed, a.Hash, a.Steps, b.Hash, b.Steps)
		}
	}
}

func campaign(t *testing.T, c sim.Campaign) {
	t.Helper()
	c.Workers = runtime.GOMAXPROCS(0)
	s := c.Run(t.Context())
	for _, r := range s.Failures {
		t.Errorf("margay sim --seed %d:\n%s\nlast:\n%s", r.Seed, strings.Join(r.Violations, "\n"), strings.Join(r.Last, "\n"))
	}
	if s.Acked == 0 || s.Reads == 0 || s.HandOuts == 0 || s.Settles == 0 || s.Starts <= int(s.Seeds)*2 {
		t.Errorf("a campaign without substance proves nothing: %+v", s)
	}
	t.Logf("%d seeds, %d steps, %d starts, %d records acknowledged, %d read, %d messages handed out, %d settlements acknowledged, faults %v",
		s.Seeds, s.Steps, s.Starts, s.Acked, s.Reads, s.HandOuts, s.Settles, s.Faults)
}

// The promises of one node hold under whatever these seeds draw.
func TestSeeds(t *testing.T) { campaign(t, sim.Campaign{Seeds: 500}) }

func TestManySeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run ./task long")
	}
	campaign(t, sim.Campaign{From: 500, Seeds: 10_000})
}
