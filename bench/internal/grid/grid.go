// SPDX-License-Identifier: Apache-2.0

// Package grid lays out rates over key counts, filters and subscribers, and names the steps at which they fall off; it decides
// from figures that others measured, and asks for another measurement where there is doubt.
package grid

import (
	"context"
	"fmt"
	"slices"

	"margay.dev/bench/internal/table"
)

// Filter is what each subscriber asks for.
type Filter struct {
	Kind string `json:"kind"` // none, exact, prefix or patterns
	// Patterns are different patterns in all, shared out among the subscribers. Only with kind patterns.
	Patterns int `json:"patterns,omitempty"`
}

// The kinds.
const (
	None     = "none"
	Exact    = "exact"
	Prefix   = "prefix"
	Patterns = "patterns"
)

func (f Filter) String() string {
	switch f.Kind {
	case None:
		return "no filter"
	case Patterns:
		return table.Plural(f.Patterns, "pattern", "patterns")
	}
	return f.Kind
}

// Point is a cell's place. It compares.
type Point struct {
	Keys        int    `json:"keys"`
	Filter      Filter `json:"filter"`
	Subscribers int    `json:"subscribers"`
}

func (p Point) String() string {
	return fmt.Sprintf("%s, %s, %s", keys(p.Keys), p.Filter, subscribers(p.Subscribers))
}

func keys(n int) string        { return table.Plural(n, "key", "keys") }
func subscribers(n int) string { return table.Plural(n, "subscriber", "subscribers") }

// MaxPatterns is how many patterns one subscription may have. The broker's limit, and so the grid's.
const MaxPatterns = 1024

// possible: not more patterns than the subscribers can hold.
func (p Point) possible() bool { return p.Filter.Patterns <= MaxPatterns*p.Subscribers }

// Axes are the values of each dimension, in order.
type Axes struct {
	Keys        []int
	Filters     []Filter
	Subscribers []int
}

// Full is the whole grid, Corner a small one to see that it works.
func Full() Axes {
	filters := []Filter{{Kind: None}, {Kind: Exact}, {Kind: Prefix}}
	for _, n := range []int{1, 10, 100, 1000, 10_000} {
		filters = append(filters, Filter{Patterns, n})
	}
	return Axes{Keys: []int{1, 10, 100, 1000, 10_000}, Filters: filters, Subscribers: []int{1, 10, 100, 1000}}
}

// Corner is a small part of the grid.
func Corner() Axes {
	return Axes{
		Keys: []int{1, 100}, Filters: []Filter{{Kind: None}, {Kind: Exact}, {Kind: Prefix}, {Patterns, 10}, {Patterns, 1000}}, Subscribers: []int{1, 10},
	}
}

// Points are all cells that are possible.
func (a Axes) Points() []Point {
	var all []Point
	for _, s := range a.Subscribers {
		for _, f := range a.Filters {
			for _, k := range a.Keys {
				if p := (Point{k, f, s}); p.possible() {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

// pairs are the neighbors: points that differ by one step in one dimension.
func (a Axes) pairs() [][2]Point {
	next := func(i, n int) bool { return i+1 < n }
	var all [][2]Point
	add := func(p, q Point) {
		if p.possible() && q.possible() {
			all = append(all, [2]Point{p, q})
		}
	}
	for i, s := range a.Subscribers {
		for j, f := range a.Filters {
			for k, n := range a.Keys {
				p := Point{n, f, s}
				if next(k, len(a.Keys)) {
					add(p, Point{a.Keys[k+1], f, s})
				}
				if next(j, len(a.Filters)) {
					add(p, Point{n, a.Filters[j+1], s})
				}
				if next(i, len(a.Subscribers)) {
					add(p, Point{n, f, a.Subscribers[i+1]})
				}
			}
		}
	}
	return all
}

// Rates are what goes in and what comes out, a second.
type Rates struct {
	Publishes  float64 `json:"publishes_per_second"`
	Deliveries float64 `json:"deliveries_per_second"`
}

// Steep is how many times slower the far side of a cliff is.
const Steep = 2

// fall is how many times slower the second is in what it is less slow in: where publishes become fewer because there is
// more to deliver, or deliveries because less matches, the other one did not fall, and nothing is wrong.
func fall(from, to Rates) float64 {
	if to.Publishes <= 0 || from.Publishes <= 0 {
		return 0
	}
	f := from.Publishes / to.Publishes
	if to.Deliveries > 0 && from.Deliveries > 0 {
		f = min(f, from.Deliveries/to.Deliveries)
	}
	return f
}

// Cliff is a step behind which publishes and deliveries are both more than Steep times slower.
type Cliff struct {
	From Point   `json:"from"`
	To   Point   `json:"to"`
	High Rates   `json:"high"`
	Low  Rates   `json:"low"`
	Fall float64 `json:"fall"`
}

func (c Cliff) String() string {
	return fmt.Sprintf("%.1fx from %s (%s in, %s out) to %s (%s in, %s out)", c.Fall,
		c.From, table.Format(c.High.Publishes, "/s"), table.Format(c.High.Deliveries, "/s"),
		c.To, table.Format(c.Low.Publishes, "/s"), table.Format(c.Low.Deliveries, "/s"))
}

// cliffBetween orders a pair by which is the higher, and says whether the step is one.
func cliffBetween(p, q Point, rates map[Point]Rates) (Cliff, bool) {
	a, okA := rates[p]
	b, okB := rates[q]
	if !okA || !okB {
		return Cliff{}, false
	}
	c := Cliff{From: p, To: q, High: a, Low: b, Fall: fall(a, b)}
	if back := fall(b, a); back > c.Fall {
		c = Cliff{From: q, To: p, High: b, Low: a, Fall: back}
	}
	return c, c.Fall > Steep
}

// Cliffs are all of them, the steepest first.
func (a Axes) Cliffs(rates map[Point]Rates) []Cliff {
	var all []Cliff
	for _, pair := range a.pairs() {
		if c, is := cliffBetween(pair[0], pair[1], rates); is {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(x, y Cliff) int {
		switch {
		case x.Fall > y.Fall:
			return -1
		case x.Fall < y.Fall:
			return 1
		}
		return 0
	})
	return all
}

// again is how often the cells on both sides of what looks like a cliff are measured once more.
const again = 2

// Measure is how a cell is measured.
type Measure func(ctx context.Context, p Point) (Rates, error)

// Run measures all cells, and those beside a cliff again: it stands only if the medians say so too. A cell that fails is left
// out, and told of by said. The error is ctx's.
func (a Axes) Run(ctx context.Context, measure Measure, said func(p Point, r Rates, err error)) (map[Point]Rates, error) {
	seen := map[Point][]Rates{}
	once := func(p Point) error {
		r, err := measure(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		said(p, r, err)
		if err == nil {
			seen[p] = append(seen[p], r)
		}
		return nil
	}
	for _, p := range a.Points() {
		if err := once(p); err != nil {
			return medians(seen), err
		}
	}
	var doubtful []Point
	for _, c := range a.Cliffs(medians(seen)) {
		for _, p := range []Point{c.From, c.To} {
			if !slices.Contains(doubtful, p) {
				doubtful = append(doubtful, p)
			}
		}
	}
	for range again {
		for _, p := range doubtful {
			if err := once(p); err != nil {
				return medians(seen), err
			}
		}
	}
	return medians(seen), nil
}

func medians(seen map[Point][]Rates) map[Point]Rates {
	all := map[Point]Rates{}
	for p, rates := range seen {
		var in, out []float64
		for _, r := range rates {
			in, out = append(in, r.Publishes), append(out, r.Deliveries)
		}
		all[p] = Rates{table.SpreadOf(in).Median, table.SpreadOf(out).Median}
	}
	return all
}
