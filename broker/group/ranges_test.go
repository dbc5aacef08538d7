// SPDX-License-Identifier: Apache-2.0

package group

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRangesAgainstABitmap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r ranges
		var bits [200]bool
		for range 300 {
			from := rng.Uint64N(200)
			to := min(200, from+rng.Uint64N(12))
			in := rng.IntN(3) > 0
			if in {
				r.add(from, to)
			} else {
				r.remove(from, to)
			}
			for o := from; o < to; o++ {
				bits[o] = in
			}
			checkRanges(t, &r, bits[:], rng)
		}
	}
}

func checkRanges(t *testing.T, r *ranges, bits []bool, rng *rand.Rand) {
	t.Helper()
	var total uint64
	next, gap := uint64(1<<64-1), uint64(len(bits))
	at := rng.Uint64N(uint64(len(bits)))
	for o, in := range slices.Backward(bits) {
		if r.has(uint64(o)) != in {
			t.Fatalf("has %d: %v", o, !in)
		}
		if in {
			total++
		}
		if uint64(o) >= at {
			if in {
				next = uint64(o)
			} else {
				gap = uint64(o)
			}
		}
	}
	if r.total() != total {
		t.Fatalf("total %d, want %d", r.total(), total)
	}
	if r.next(at) != next || r.gap(at) != gap {
		t.Fatalf("at %d: next %d gap %d, want %d %d", at, r.next(at), r.gap(at), next, gap)
	}
	if n := r.missing(0, uint64(len(bits))); n != uint64(len(bits))-total {
		t.Fatalf("missing %d of %d", n, total)
	}
	last := span{}
	for s := range r.all() {
		if s.from >= s.to || last.to > 0 && s.from <= last.to {
			t.Fatalf("range %v behind %v", s, last)
		}
		last = s
	}
}
