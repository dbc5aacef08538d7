// SPDX-License-Identifier: Apache-2.0

// Package report writes down what a comparison showed: a table for the terminal, a page, a plot and all raw results; it
// decides nothing that the table has not decided, and reads nothing back.
package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"margay.dev/bench/internal/rounds"
	"margay.dev/bench/internal/table"
)

// Report is a run with all that is needed to judge it.
type Report struct {
	When    time.Time `json:"when"`
	Took    string    `json:"took"`
	Command string    `json:"command"` // that made it
	Rounds  int       `json:"rounds"`
	Cell    string    `json:"cell"`  // how long a cell is measured
	Procs   string    `json:"procs"` // GOMAXPROCS of every process
	Machine Machine   `json:"machine"`
	// Guide is where the page finds the one that says how to read it; empty beside it.
	Guide string `json:"-"`
	// Systems are names and versions of what was measured.
	Systems []System    `json:"systems"`
	Rows    []Section   `json:"rows"`
	Log     *rounds.Log `json:"log"`
}

// System is one that was measured, and how.
type System struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Tuning  string `json:"tuning"`
}

// Section is a row with its outcomes.
type Section struct {
	table.Row
	Outcomes []Outcome     `json:"outcomes,omitempty"`
	Verdict  table.Verdict `json:"verdict,omitempty"`
	Measured []CellSpread  `json:"measured"`
}

// CellSpread is what the rounds showed of a cell.
type CellSpread struct {
	table.Cell
	table.Spread
	ServerCPU float64 `json:"server_cpu_us,omitempty"`
	ClientCPU float64 `json:"client_cpu_us,omitempty"`
	P50       float64 `json:"p50_us,omitempty"`
	P99       float64 `json:"p99_us,omitempty"`
	Stormy    int     `json:"stormy,omitempty"`
	Missing   string  `json:"missing,omitempty"`
}

// Sections decides the rows.
func Sections(rows []table.Row, l *rounds.Log) []Section {
	samples := l.Samples()
	var all []Section
	for _, r := range rows {
		s := Section{Row: r}
		for _, c := range r.Cells {
			at := func(extra string) float64 {
				return table.SpreadOf(samples.Values(table.Operand{Cell: c.ID, Extra: extra})).Median
			}
			cs := CellSpread{
				Cell: c, Spread: table.SpreadOf(samples.Values(table.Operand{Cell: c.ID})), Missing: l.Missing[c.ID],
				ServerCPU: at(table.ServerCPU), ClientCPU: at(table.ClientCPU), P50: at(table.P50), P99: at(table.P99),
			}
			for _, x := range samples {
				if x.Cell == c.ID && x.Stormy {
					cs.Stormy++
				}
			}
			s.Measured = append(s.Measured, cs)
		}
		for _, x := range r.Shown {
			c := table.Cell{ID: x.Value.Cell + "#" + x.Value.Extra, System: x.System, Unit: x.Unit}
			s.Measured = append(s.Measured, CellSpread{Cell: c, Spread: table.SpreadOf(samples.Values(x.Value))})
		}
		var decided []table.Outcome
		for _, c := range r.Claims {
			o := c.Decide(samples)
			s.Outcomes, decided = append(s.Outcomes, Outcome{o}), append(decided, o)
		}
		if len(r.Claims) > 0 {
			s.Verdict = table.RowVerdict(decided)
		}
		all = append(all, s)
	}
	return all
}

// Text writes the table for a terminal.
func (r *Report) Text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.Rows {
		_, _ = fmt.Fprintf(t, "\n%s\n", s.What)
		for _, c := range s.Measured {
			_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", c.System, c.Value(), c.Range(), latency(c), serverCPU(c))
		}
		for _, o := range s.Outcomes {
			_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\twant %s\t%s\n", o.Claim.What, o.Measured(), o.Range(), o.Want(), o.Says())
		}
	}
	_, _ = fmt.Fprintf(t, "\n%s\n", r.Summary())
	if err := t.Flush(); err != nil { // the writer keeps the first error
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func latency(c CellSpread) string {
	if c.P50 == 0 {
		return ""
	}
	return fmt.Sprintf("p50 %s p99 %s", Micros(c.P50), Micros(c.P99))
}

func serverCPU(c CellSpread) string {
	if c.ServerCPU == 0 {
		return ""
	}
	return "server " + Micros(c.ServerCPU) + " CPU each"
}

// Micros writes microseconds.
func Micros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.2f ms", us/1e3)
	case us >= 10:
		return fmt.Sprintf("%.0f µs", us)
	}
	return fmt.Sprintf("%.2f µs", us)
}

// Value is the median, or why there is none.
func (c CellSpread) Value() string {
	if c.N == 0 {
		if c.Missing != "" {
			return "left out"
		}
		return "not measured"
	}
	return table.Format(c.Median, c.Unit)
}

// Range is from the least to the most.
func (c CellSpread) Range() string {
	if c.N < 2 {
		return ""
	}
	s := table.Format(c.Min, c.Unit) + " – " + table.Format(c.Max, c.Unit)
	if c.Stormy > 0 {
		s += fmt.Sprintf(" (%d stormy)", c.Stormy)
	}
	return s
}

// Tally counts verdicts of rows.
func (r *Report) Tally() map[table.Verdict]int {
	n := map[table.Verdict]int{}
	for _, s := range r.Rows {
		if len(s.Claims) > 0 {
			n[s.Verdict]++
		}
	}
	return n
}

// Summary is one line.
func (r *Report) Summary() string {
	n := r.Tally()
	return fmt.Sprintf("%s met, %d in part (the rest of them not measured), %d not met, %d not measured; %s, %s kept (%d of them in a storm), "+
		"%d discarded and repeated.",
		table.Plural(n[table.Met], "row", "rows"), n[table.Partly], n[table.NotMet], n[table.Open], table.Plural(r.Rounds, "round", "rounds"),
		table.Plural(len(r.Log.Records), "measurement", "measurements"), r.Log.Stormy, r.Log.Discarded)
}

// MissingCells are what was left out, and why, in order.
func (r *Report) MissingCells() []string {
	var all []string
	for cell, why := range r.Log.Missing {
		why, _, _ = strings.Cut(why, "\n")
		all = append(all, cell+": "+why)
	}
	slices.Sort(all)
	return all
}

//go:embed page.md.tmpl
var pageText string

// Page writes the page.
func (r *Report) Page(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{"micros": Micros, "plural": table.Plural}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("page template: %w", err)
	}
	if err := t.Execute(w, page{Report: r}); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// Write writes name.md, name.svg and name.json into a directory, all or an error.
func (r *Report) Write(dir, name string) error {
	for suffix, write := range map[string]func(io.Writer) error{
		".md": r.Page, ".svg": r.Plot,
		".json": func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", " ")
			return e.Encode(r)
		},
	} {
		if err := writeFile(filepath.Join(dir, name+suffix), write); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error says more
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Close()
}
