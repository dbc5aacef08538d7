// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"slices"
	"testing"
	"time"

	"margay.dev/bench/internal/grid"
	"margay.dev/bench/internal/node"
	"margay.dev/cluster/margaytest"
)

func TestPatternsAreSharedOut(t *testing.T) {
	for _, p := range grid.Full().Points() {
		if p.Filter.Kind != grid.Patterns || p.Keys > 1 {
			continue
		}
		seen := map[int]bool{}
		for s := range p.Subscribers {
			mine := share(p, s)
			if len(mine) == 0 || len(mine) > grid.MaxPatterns {
				t.Fatalf("%s: subscriber %d has %d patterns", p, s, len(mine))
			}
			for _, n := range mine {
				seen[n] = true
			}
		}
		if len(seen) != p.Filter.Patterns {
			t.Errorf("%s: %d patterns are somebody's", p, len(seen))
		}
	}
}

func TestExpected(t *testing.T) {
	for _, c := range []struct {
		p    grid.Point
		want []int
	}{
		{grid.Point{Keys: 2, Filter: grid.Filter{Kind: grid.None}, Subscribers: 3}, []int{3, 3}},
		{grid.Point{Keys: 2, Filter: grid.Filter{Kind: grid.Exact}, Subscribers: 3}, []int{2, 1}},
		{grid.Point{Keys: 4, Filter: grid.Filter{Kind: grid.Prefix}, Subscribers: 2}, []int{1, 1, 0, 0}},
		{grid.Point{Keys: 3, Filter: grid.Filter{Kind: grid.Patterns, Patterns: 2}, Subscribers: 3}, []int{2, 1, 0}},
		{grid.Point{Keys: 2, Filter: grid.Filter{Kind: grid.Patterns, Patterns: 5}, Subscribers: 2}, []int{1, 1}},
	} {
		if got := expected(c.p); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.p, got, c.want)
		}
	}
}

// TestWhatIsExpectedArrives fills some cells on a real node. A cell ends only when all that it expects has come, so what is
// expected is what the broker sends.
func TestWhatIsExpectedArrives(t *testing.T) {
	started := margaytest.Start(t)
	n, err := node.New(started.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	m := measurer{node: n, transport: "quic", duration: 20 * time.Millisecond}
	for _, f := range []grid.Filter{{Kind: grid.None}, {Kind: grid.Exact}, {Kind: grid.Prefix}, {Kind: grid.Patterns, Patterns: 1}, {Kind: grid.Patterns, Patterns: 50}} {
		for _, keys := range []int{1, 7} {
			p := grid.Point{Keys: keys, Filter: f, Subscribers: 3}
			r, err := m.measure(t.Context(), p)
			if err != nil || r.Publishes <= 0 || r.Deliveries <= 0 {
				t.Errorf("%s: %+v, %v", p, r, err)
			}
		}
	}
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-quick"}, io.Discard)
	if err != nil || o.duration > 100*time.Millisecond {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"keys"}, {"-duration", "0s"}, {"-transport", "smoke"}} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
