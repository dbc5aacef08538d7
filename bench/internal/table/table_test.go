// SPDX-License-Identifier: Apache-2.0

package table

import (
	"slices"
	"testing"
)

func TestSpread(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   Spread
	}{
		"none": {nil, Spread{}},
		"one":  {[]float64{3}, Spread{3, 3, 3, 1}},
		"odd":  {[]float64{9, 1, 5}, Spread{5, 1, 9, 3}},
		"even": {[]float64{8, 2, 4, 6}, Spread{5, 2, 8, 4}},
	} {
		if got := SpreadOf(c.values); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	unsorted := []float64{3, 1, 2}
	SpreadOf(unsorted)
	if !slices.Equal(unsorted, []float64{3, 1, 2}) {
		t.Error("the caller's values were sorted")
	}
}

// rounds makes samples of cells "ours", "peer" and "bare", in this order.
func rounds(values ...[3]float64) Samples {
	var s Samples
	for round, v := range values {
		for i, cell := range []string{"ours", "peer", "bare"} {
			if v[i] != 0 {
				s = append(s, Sample{Cell: cell, Round: round, Value: v[i], Extra: map[string]float64{"half": v[i] / 2}})
			}
		}
	}
	return s
}

func of(cell string) []Operand { return []Operand{{Cell: cell}} }

func TestRatiosAreOfOneRound(t *testing.T) {
	// The machine is ten times slower in the second round: the ratio of the medians would be another one.
	s := rounds([3]float64{300, 100, 0}, [3]float64{30, 10, 0}, [3]float64{310, 100, 0}, [3]float64{0, 100, 0})
	o := Claim{Of: of("ours"), Against: Operand{Cell: "peer"}, AtLeast: 3}.Decide(s)
	if o.Ratio != (Spread{3, 3, 3.1, 3}) || o.Verdict != Met {
		t.Errorf("%+v", o)
	}
}

func TestWhenAClaimIsMet(t *testing.T) {
	peer := Operand{Cell: "peer"}
	for name, c := range map[string]struct {
		claim  Claim
		sample [3]float64
		want   Verdict
		byBare bool
	}{
		"at its ratio":                 {Claim{Against: peer, AtLeast: 2}, [3]float64{200, 100, 0}, Met, false},
		"below its ratio":              {Claim{Against: peer, AtLeast: 2}, [3]float64{199, 100, 0}, NotMet, false},
		"not behind":                   {Claim{Against: peer, AtLeast: Near}, [3]float64{95, 100, 0}, Met, false},
		"at 0.9 of the bare prototype": {Claim{Against: peer, AtLeast: 2, Bare: "bare"}, [3]float64{180, 100, 200}, Met, true},
		"below both":                   {Claim{Against: peer, AtLeast: 2, Bare: "bare"}, [3]float64{170, 100, 200}, NotMet, false},
		"above, with a bare prototype": {Claim{Against: peer, AtLeast: 2, Bare: "bare"}, [3]float64{200, 100, 999}, Met, false},
		"the bare one not measured":    {Claim{Against: peer, AtLeast: 2, Bare: "bare"}, [3]float64{180, 100, 0}, NotMet, false},
		"the peer not measured":        {Claim{Against: peer, AtLeast: 2, Bare: "bare"}, [3]float64{180, 0, 200}, Open, false},
		"ours not measured":            {Claim{Against: peer, AtLeast: 2}, [3]float64{0, 100, 0}, Open, false},
		"at most, within":              {Claim{Against: peer, AtMost: 1.2}, [3]float64{120, 100, 0}, Met, false},
		"at most, above":               {Claim{Against: peer, AtMost: 1.2}, [3]float64{121, 100, 0}, NotMet, false},
		"at most a sum, within":        {Claim{Against: peer, Plus: Operand{Cell: "bare"}, AtMost: 1}, [3]float64{110, 100, 10}, Met, false},
		"at most a sum, above":         {Claim{Against: peer, Plus: Operand{Cell: "bare", Extra: "half"}, AtMost: 1}, [3]float64{110, 100, 10}, NotMet, false},
		"half of a sum not measured":   {Claim{Against: peer, Plus: Operand{Cell: "bare"}, AtMost: 1}, [3]float64{90, 100, 0}, Open, false},
		"a number, within":             {Claim{Number: 40, AtMost: 1}, [3]float64{40, 0, 0}, Met, false},
		"a number, above":              {Claim{Number: 40, AtMost: 1}, [3]float64{41, 0, 0}, NotMet, false},
		"an extra value":               {Claim{Of: []Operand{{"ours", "half"}}, Number: 10, AtLeast: 5}, [3]float64{100, 0, 0}, Met, false},
		"no such extra value":          {Claim{Of: []Operand{{"ours", "third"}}, Number: 10, AtLeast: 5}, [3]float64{100, 0, 0}, Open, false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.claim.Of == nil {
				c.claim.Of = of("ours")
			}
			o := c.claim.Decide(rounds(c.sample))
			if o.Verdict != c.want || o.ByBare != c.byBare {
				t.Errorf("%s, by the bare prototype %v; ratio %v, of bare %v", o.Verdict, o.ByBare, o.Ratio, o.OfBare)
			}
		})
	}
}

func TestTheBetterOfSeveralCounts(t *testing.T) {
	s := rounds([3]float64{300, 200, 100})
	c := Claim{Of: []Operand{{Cell: "absent"}, {Cell: "peer"}, {Cell: "ours"}}, Against: Operand{Cell: "bare"}, AtLeast: 3}
	if o := c.Decide(s); o.Of.Cell != "ours" || o.Verdict != Met {
		t.Errorf("%+v", o)
	}
	c.AtLeast, c.AtMost = 0, 2
	if o := c.Decide(s); o.Of.Cell != "peer" || o.Verdict != Met {
		t.Errorf("less is better: %+v", o)
	}
}

func TestARowIsAsGoodAsItsWorstClaim(t *testing.T) {
	met, not, open := Outcome{Verdict: Met}, Outcome{Verdict: NotMet}, Outcome{Verdict: Open}
	also := Outcome{Verdict: NotMet, Claim: Claim{Also: true}}
	for name, c := range map[string]struct {
		outcomes []Outcome
		want     Verdict
	}{
		"none":       {nil, Open},
		"all met":    {[]Outcome{met, met}, Met},
		"one not":    {[]Outcome{met, not, open}, NotMet},
		"some open":  {[]Outcome{open, met}, Partly},
		"all open":   {[]Outcome{open}, Open},
		"by the way": {[]Outcome{met, also}, Met},
	} {
		if got := RowVerdict(c.outcomes); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestOrder: each round has every cell once; in n rounds each is at every place once, and in the next n each follows others
// than before.
func TestOrder(t *testing.T) {
	const n = 5
	follows := map[[2]int]bool{}
	for cycle := range 2 {
		var places [n][n]bool
		for r := range n {
			order := Order(n, cycle*n+r)
			for place, cell := range order {
				if places[cell][place] {
					t.Errorf("cycle %d: cell %d is at place %d twice", cycle, cell, place)
				}
				places[cell][place] = true
				if place > 0 {
					follows[[2]int{order[place-1], cell}] = true
				}
			}
		}
	}
	for cell := range n {
		if !follows[[2]int{cell, (cell + 1) % n}] || !follows[[2]int{(cell + 1) % n, cell}] {
			t.Errorf("cells %d and %d: always in the same order", cell, (cell+1)%n)
		}
	}
	if len(Order(0, 3)) != 0 {
		t.Error("an order of nothing")
	}
}
