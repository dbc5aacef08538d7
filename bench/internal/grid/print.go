// SPDX-License-Identifier: Apache-2.0

package grid

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"margay.dev/bench/internal/table"
)

// Cell is a point with its rates, as it is written down.
type Cell struct {
	Point
	Rates
}

// Cells are the measured ones, in the order of the axes.
func (a Axes) Cells(rates map[Point]Rates) []Cell {
	var all []Cell
	for _, p := range a.Points() {
		if r, ok := rates[p]; ok {
			all = append(all, Cell{p, r})
		}
	}
	return all
}

// Print writes a table for each number of subscribers: what goes in and what comes out, a second.
func (a Axes) Print(w io.Writer, rates map[Point]Rates, cliffs []Cliff) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) // it keeps the first error until Flush
	for _, s := range a.Subscribers {
		_, _ = fmt.Fprintf(t, "\n%s, publishes / deliveries a second\n", subscribers(s))
		for _, k := range a.Keys {
			_, _ = fmt.Fprintf(t, "\t%s", keys(k))
		}
		_, _ = fmt.Fprintln(t)
		for _, f := range a.Filters {
			_, _ = fmt.Fprintf(t, "%s", f)
			for _, k := range a.Keys {
				_, _ = fmt.Fprintf(t, "\t%s", show(rates, Point{k, f, s}))
			}
			_, _ = fmt.Fprintln(t)
		}
	}
	_, _ = fmt.Fprintln(t)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write grid: %w", err)
	}
	return printCliffs(w, cliffs, "  ")
}

func printCliffs(w io.Writer, cliffs []Cliff, indent string) error {
	_, err := fmt.Fprintf(w, "%s\n", headline(cliffs))
	for _, c := range cliffs {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s%s\n", indent, c)
		}
	}
	return err
}

func headline(cliffs []Cliff) string {
	switch len(cliffs) {
	case 0:
		return fmt.Sprintf("No cliff: between no two neighbors do publishes and deliveries both fall by more than %dx.", Steep)
	case 1:
		return fmt.Sprintf("One cliff: publishes and deliveries both fall by more than %dx.", Steep)
	}
	return fmt.Sprintf("%d cliffs: publishes and deliveries both fall by more than %dx.", len(cliffs), Steep)
}

// Page writes the same as Markdown.
func (a Axes) Page(w io.Writer, about string, rates map[Point]Rates, cliffs []Cliff) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	line("# The grid\n\n<!-- Written by `go run ./bench/grid`; do not edit. docs/benchmarks/README.md says how to read it. -->\n\n%s\n", about)
	line("%s", headline(cliffs))
	if len(cliffs) > 0 {
		line("")
	}
	for _, c := range cliffs {
		line("- %s", c)
	}
	for _, s := range a.Subscribers {
		line("\n## %s\n\nPublishes / deliveries a second.\n", subscribers(s))
		head := []string{""}
		for _, k := range a.Keys {
			head = append(head, keys(k))
		}
		line("| %s |\n|%s", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
		for _, f := range a.Filters {
			row := []string{f.String()}
			for _, k := range a.Keys {
				row = append(row, show(rates, Point{k, f, s}))
			}
			line("| %s |", strings.Join(row, " | "))
		}
	}
	return err
}

func show(rates map[Point]Rates, p Point) string {
	r, ok := rates[p]
	switch {
	case !p.possible():
		return "-"
	case !ok:
		return "not measured"
	}
	return table.Format(r.Publishes, "") + " / " + table.Format(r.Deliveries, "")
}
