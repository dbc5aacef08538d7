// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Campaign runs many seeds, each in a world of its own, as many at a time as there are workers.
type Campaign struct {
	From    uint64        // the first seed
	Seeds   uint64        // how many; 0 for no limit
	For     time.Duration // no seed is begun after that; 0 for no limit
	Workers int
	// Each is called with what a seed came to, one at a time, in the order in which they end.
	Each func(Result)
}

// Summary is what a campaign came to.
type Summary struct {
	Seeds    uint64         `json:"seeds"`
	Seconds  float64        `json:"seconds"`
	Steps    int            `json:"steps"`
	Acked    int            `json:"records_acknowledged"`
	Reads    int            `json:"records_read"`
	HandOuts int            `json:"messages_handed_out"`
	Settles  int            `json:"settlements_acknowledged"`
	Starts   int            `json:"starts"`
	Faults   map[string]int `json:"faults"`
	Failures []Result       `json:"failures"`
}

// Run runs the seeds until they are through, the time is over, or ctx ends.
func (c Campaign) Run(ctx context.Context) Summary {
	began := time.Now()
	s := Summary{Faults: map[string]int{}, Failures: []Result{}}
	var (
		mu   sync.Mutex
		next = c.From
		wg   sync.WaitGroup
	)
	take := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || c.Seeds > 0 && next-c.From >= c.Seeds || c.For > 0 && time.Since(began) >= c.For {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range max(c.Workers, 1) {
		wg.Go(func() {
			for {
				seed, ok := take()
				if !ok {
					return
				}
				r := Run(seed, Options{})
				mu.Lock()
				s.add(r)
				if c.Each != nil {
					c.Each(r)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.Seconds = time.Since(began).Seconds()
	slices.SortFunc(s.Failures, func(a, b Result) int { return cmp.Compare(a.Seed, b.Seed) })
	return s
}

func (s *Summary) add(r Result) {
	s.Seeds++
	s.Steps += r.Steps
	s.Acked += r.Acked
	s.Reads += r.Reads
	s.HandOuts += r.HandOuts
	s.Settles += r.Settles
	s.Starts += r.Starts
	for kind, n := range r.Faults {
		s.Faults[kind] += n
	}
	if len(r.Violations) > 0 {
		s.Failures = append(s.Failures, r)
	}
}
