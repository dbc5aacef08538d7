// SPDX-License-Identifier: Apache-2.0

// Package table holds what a comparison claims and decides what became of it: medians, spreads and ratios of samples that
// were taken in interleaved rounds; it measures nothing, and never compares samples of different rounds.
package table

import (
	"slices"
)

// Near is what "not behind" is: so close that the machine's noise is larger than the difference.
const Near = 0.95

// OfBare is the share of the bare prototype at which a claim is met whatever the peer does.
const OfBare = 0.9

// Cell is one thing that is measured, once in each round.
type Cell struct {
	ID     string `json:"id"`
	System string `json:"system"` // as the report names it
	Unit   string `json:"unit"`
}

// Sample is a cell in one round.
type Sample struct {
	Cell  string  `json:"cell"`
	Round int     `json:"round"`
	Value float64 `json:"value"`
	// Extra are values beside the main one, by name.
	Extra map[string]float64 `json:"extra,omitempty"`
	// Stormy: the machine was off on every try, and this is the last one.
	Stormy bool `json:"stormy,omitempty"`
}

// Names of extra values that tables show.
const (
	ServerCPU = "server_cpu_us_per_message"
	ClientCPU = "client_cpu_us_per_message"
	P50       = "p50_us"
	P99       = "p99_us"
	ServerRSS = "server_rss_bytes"
)

// Operand is a value of a cell: the main one, or the extra one that is named.
type Operand struct {
	Cell  string `json:"cell"`
	Extra string `json:"extra,omitempty"`
}

func (o Operand) of(s Sample) (float64, bool) {
	if o.Extra == "" {
		return s.Value, true
	}
	v, ok := s.Extra[o.Extra]
	return v, ok
}

// Claim compares one value with another, or with a number.
type Claim struct {
	What string `json:"what"`
	// Of is what is claimed of; of several, the one with the best median counts.
	Of []Operand `json:"of"`
	// Against is what it is divided by, and Plus is added to that. Without a cell, Number is.
	Against Operand `json:"against"`
	Plus    Operand `json:"plus,omitzero"`
	Number  float64 `json:"number,omitempty"`
	Unit    string  `json:"unit,omitempty"` // of Number
	// AtLeast is the ratio to reach, AtMost the one to stay under. One of them is set.
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	// Bare is the cell of the bare prototype; the claim is met at OfBare of it too.
	Bare string `json:"bare,omitempty"`
	// Also is shown and does not count for its row.
	Also bool `json:"also,omitempty"`
}

// Shown is a value of a cell, of this row or one before, that stands in the row's table beside the measured ones.
type Shown struct {
	System string  `json:"system"`
	Unit   string  `json:"unit"`
	Value  Operand `json:"value"`
}

// Row is cells that take turns, and what is claimed of them.
type Row struct {
	ID    string  `json:"id"`
	What  string  `json:"what"`
	Cells []Cell  `json:"cells"`
	Shown []Shown `json:"shown,omitempty"`
	// Claims may name cells of rows before.
	Claims []Claim `json:"claims,omitempty"`
	// Rounds bounds in how many rounds the row is measured; 0 is all.
	Rounds int    `json:"rounds,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Spread is what rounds showed.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
}

// SpreadOf sums up values. Of an even number the median is the mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	s := Spread{Min: v[0], Max: v[len(v)-1], N: len(v), Median: v[len(v)/2]}
	if len(v)%2 == 0 {
		s.Median = (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return s
}

// Verdict is what became of a claim.
type Verdict string

// The verdicts. A claim is open when a side of it was not measured; a row is met in part when some of its claims are.
const (
	Met    Verdict = "met"
	Partly Verdict = "met in part"
	NotMet Verdict = "not met"
	Open   Verdict = "not measured"
)

// Outcome is a claim beside what was measured.
type Outcome struct {
	Claim   Claim   `json:"claim"`
	Of      Operand `json:"of"`    // the one that counted
	Ratio   Spread  `json:"ratio"` // of the ratios of the rounds
	OfBare  *Spread `json:"of_bare,omitempty"`
	Verdict Verdict `json:"verdict"`
	ByBare  bool    `json:"by_bare,omitempty"` // met by the bare prototype's share only
}

// Samples are those of a run.
type Samples []Sample

// Values are those of a cell, round by round.
func (s Samples) Values(o Operand) []float64 {
	var v []float64
	for _, x := range s {
		if x.Cell == o.Cell {
			if value, ok := o.of(x); ok {
				v = append(v, value)
			}
		}
	}
	return v
}

// ratios divides within each round, so that a machine that is slow for a while is slow for both.
func (s Samples) ratios(of, against, plus Operand) []float64 {
	below := s.byRound(against)
	if plus.Cell != "" {
		more := s.byRound(plus)
		for round := range below {
			if more[round] > 0 {
				below[round] += more[round]
			} else {
				delete(below, round) // half of what it is divided by
			}
		}
	}
	var r []float64
	for _, x := range s {
		v, ok := of.of(x)
		if d := below[x.Round]; ok && x.Cell == of.Cell && d > 0 {
			r = append(r, v/d)
		}
	}
	return r
}

// byRound are the values of a cell by their rounds.
func (s Samples) byRound(o Operand) map[int]float64 {
	v := map[int]float64{}
	for _, x := range s {
		if value, ok := o.of(x); ok && x.Cell == o.Cell {
			v[x.Round] = value
		}
	}
	return v
}

// Decide compares a claim with the samples.
func (c Claim) Decide(s Samples) Outcome {
	o := Outcome{Claim: c, Verdict: Open, Of: c.best(s)}
	if c.Against.Cell != "" {
		o.Ratio = SpreadOf(s.ratios(o.Of, c.Against, c.Plus))
	} else {
		var r []float64
		for _, v := range s.Values(o.Of) {
			r = append(r, v/c.Number)
		}
		o.Ratio = SpreadOf(r)
	}
	if c.Bare != "" {
		if b := SpreadOf(s.ratios(o.Of, Operand{Cell: c.Bare}, Operand{})); b.N > 0 {
			o.OfBare = &b
		}
	}
	if o.Ratio.N == 0 {
		return o
	}
	switch {
	case c.AtMost > 0 && o.Ratio.Median <= c.AtMost, c.AtMost == 0 && o.Ratio.Median >= c.AtLeast:
		o.Verdict = Met
	case o.OfBare != nil && o.OfBare.Median >= OfBare:
		o.Verdict, o.ByBare = Met, true
	default:
		o.Verdict = NotMet
	}
	return o
}

// best is the operand with the best median among those that were measured.
func (c Claim) best(s Samples) Operand {
	best := c.Of[0]
	var found bool
	var value float64
	for _, o := range c.Of {
		m := SpreadOf(s.Values(o))
		if m.N == 0 {
			continue
		}
		if !found || c.AtMost == 0 && m.Median > value || c.AtMost > 0 && m.Median < value {
			best, value, found = o, m.Median, true
		}
	}
	return best
}

// RowVerdict sums up the outcomes of a row that count.
func RowVerdict(outcomes []Outcome) Verdict {
	n := map[Verdict]int{}
	for _, o := range outcomes {
		if !o.Claim.Also {
			n[o.Verdict]++
		}
	}
	switch {
	case n[NotMet] > 0:
		return NotMet
	case n[Met] == 0:
		return Open
	case n[Open] > 0:
		return Partly
	}
	return Met
}

// Order is the order of n cells in a round: each round begins one further on, so that none is always the first, or always
// behind the same one.
func Order(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		at := i
		if round/max(n, 1)%2 == 1 {
			at = n - 1 - i // once all have been first, the other way round
		}
		order[i] = (at + round) % n
	}
	return order
}
