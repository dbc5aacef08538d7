// SPDX-License-Identifier: Apache-2.0

// Package probe tells the machine's slow storms from the systems that are measured in them: the same small work before and
// after each cell, compared with what it took in the rest of the run; it knows nothing of the cells.
package probe

import (
	"slices"
	"time"

	"margay.dev/bench/internal/table"
)

// Reading is how long the probe's work took.
type Reading struct {
	CPU   time.Duration `json:"cpu_ns"`   // hashing in memory
	Flush time.Duration `json:"flush_ns"` // appends of 4 KiB, each flushed
	Ping  time.Duration `json:"ping_ns"`  // round trips over UDP on the loopback, from one goroutine to another
}

func (r Reading) parts() [3]time.Duration { return [3]time.Duration{r.CPU, r.Flush, r.Ping} }

const (
	// TooFar is how many times slower than usual a part may be.
	TooFar = 1.5
	// remembered is how many readings "usual" is the median of. Such a machine has regimes that last for minutes, and
	// inside one of them all cells are equal: what counts is the change.
	remembered = 25
	// needed is how many readings there must be before any is judged.
	needed = 5
)

// Judge remembers readings. It is for one goroutine.
type Judge struct{ last []Reading }

// Add remembers a reading, stormy or not: a storm that lasts becomes the usual.
func (j *Judge) Add(r Reading) {
	j.last = append(j.last, r)
	if len(j.last) > remembered {
		j.last = slices.Delete(j.last, 0, 1)
	}
}

// Off is how many times slower than usual the slowest part of a reading is: about 1 on a quiet machine, 0 while not enough is
// known.
func (j *Judge) Off(r Reading) float64 {
	if len(j.last) < needed {
		return 0
	}
	worst := 0.0
	for i, took := range r.parts() {
		var usual []float64
		for _, l := range j.last {
			usual = append(usual, float64(l.parts()[i]))
		}
		if m := table.SpreadOf(usual).Median; m > 0 {
			worst = max(worst, float64(took)/m)
		}
	}
	return worst
}

// Stormy says that a reading is too far off.
func (j *Judge) Stormy(r Reading) bool { return j.Off(r) > TooFar }
