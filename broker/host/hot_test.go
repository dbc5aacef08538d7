// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"testing"

	"margay.dev/wire/batch"
)

// A batch that is read twice is kept, for its own opening and sequence only; a large one never is.
func TestHotBatches(t *testing.T) {
	var h hotBatches
	of := func(opening, seq uint64) batch.Batch { return batch.Batch(fmt.Sprintf("%d/%d", opening, seq)) }
	for opening := range uint64(20) {
		for seq := range uint64(2000) {
			for range 2 {
				h.read(opening, seq, of(opening, seq))
			}
			if got := h.get(opening, seq); string(got) != string(of(opening, seq)) {
				t.Fatalf("%d/%d is %q", opening, seq, got)
			}
		}
	}
	kept := 0
	for opening := range uint64(20) {
		for seq := range uint64(2000) {
			if got := h.get(opening, seq); got != nil {
				if kept++; string(got) != string(of(opening, seq)) {
					t.Fatalf("%d/%d is %q", opening, seq, got)
				}
			}
		}
	}
	if kept < hotSlots/2 || kept > hotSlots {
		t.Fatalf("%d of %d slots are used", kept, hotSlots)
	}
	h.read(99, 1, of(99, 1))
	if h.get(99, 1) != nil {
		t.Fatal("what was read once is kept")
	}
	for range 3 {
		h.read(99, 2, make(batch.Batch, hotBatch+1))
	}
	if h.get(99, 2) != nil {
		t.Fatal("a large batch is kept")
	}
}
