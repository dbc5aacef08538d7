// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"margay.dev/bench/internal/table"
)

// Outcome is a claim that was decided, with words for it.
type Outcome struct{ table.Outcome }

// Measured is the outcome's ratio, or the value itself where it is compared with a number.
func (o Outcome) Measured() string {
	if o.Ratio.N == 0 {
		return "not measured"
	}
	return o.show(o.Ratio.Median)
}

// Range is from the least ratio of a round to the most.
func (o Outcome) Range() string {
	if o.Ratio.N < 2 {
		return ""
	}
	return o.show(o.Ratio.Min) + " – " + o.show(o.Ratio.Max)
}

// Want is the target.
func (o Outcome) Want() string {
	if o.Claim.AtMost > 0 {
		return "at most " + o.show(o.Claim.AtMost)
	}
	return o.show(o.Claim.AtLeast)
}

// Bare is the share of the bare prototype, where there is one.
func (o Outcome) Bare() string {
	if o.OfBare == nil {
		return ""
	}
	return table.Ratio(o.OfBare.Median)
}

// Says is the verdict in words.
func (o Outcome) Says() string {
	s := string(o.Verdict)
	if o.ByBare {
		s += fmt.Sprintf(", at %s of the bare prototype", table.Ratio(o.OfBare.Median))
	}
	if o.Claim.Also {
		s += " (by the way)"
	}
	return s
}

func (o Outcome) show(v float64) string {
	if o.Claim.Against.Cell != "" {
		return table.Ratio(v)
	}
	return table.Format(v*o.Claim.Number, o.Claim.Unit)
}

// page is what the template sees.
type page struct{ *Report }

// Readme is the link to the guide.
func (p page) Readme() string {
	if p.Guide == "" {
		return "README.md"
	}
	return p.Guide
}

// Commands are the distinct commands, of servers and drivers, by cell.
func (p page) Commands() []string {
	var all []string
	for _, r := range p.Rows {
		for _, c := range r.Cells {
			if a, ok := p.Log.About[c.ID]; ok && a.Command != "" {
				lines := slices.DeleteFunc([]string{"# " + c.ID, a.Server, a.Command}, func(l string) bool { return l == "" })
				all = append(all, strings.Join(lines, "\n"))
			}
		}
	}
	return all
}
