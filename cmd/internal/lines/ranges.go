// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"fmt"
	"strings"
)

// Range is a run of line numbers, both ends included, counted from 1.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// Ranges are runs in ascending order.
type Ranges []Range

// add takes lines in ascending order.
func (r *Ranges) add(line uint64) {
	if n := len(*r); n > 0 && (*r)[n-1].Last+1 == line {
		(*r)[n-1].Last = line
		return
	}
	*r = append(*r, Range{line, line})
}

// Count returns how many lines the ranges hold.
func (r Ranges) Count() uint64 {
	var n uint64
	for _, run := range r {
		n += run.Last - run.First + 1
	}
	return n
}

// String writes "1-16, 18"; of very many runs it names the first ones and counts the rest.
func (r Ranges) String() string {
	const shown = 20
	var b strings.Builder
	for i, run := range r {
		if i == shown {
			fmt.Fprintf(&b, " and %d more", r[i:].Count())
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		if run.First == run.Last {
			fmt.Fprintf(&b, "%d", run.First)
		} else {
			fmt.Fprintf(&b, "%d-%d", run.First, run.Last)
		}
	}
	return b.String()
}
