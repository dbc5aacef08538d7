// SPDX-License-Identifier: Apache-2.0

// Command versus compares Margay with its peers and with the limits of the machine, on this machine and in one run: it builds
// all programs, starts each server as a process of its own, takes the systems in turns, and writes a table, a page and a plot.
// It leaves nothing running and nothing behind but these.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"margay.dev/bench/internal/build"
	"margay.dev/bench/internal/probe"
	"margay.dev/bench/internal/report"
	"margay.dev/bench/internal/rounds"
	"margay.dev/bench/internal/systems"
	"margay.dev/bench/internal/table"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "versus:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	rounds   int
	only     string
	quick    bool
	list     bool
	out      string
	data     string
	procs    int
	duration time.Duration
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("versus", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.IntVar(&o.rounds, "rounds", 5, "how many rounds")
	fs.StringVar(&o.only, "only", "", "rows to measure, by their ids or the first words of them, with commas between (-list shows them)")
	fs.BoolVar(&o.quick, "quick", false, "one short round, to see that it works: its figures mean nothing, and nothing is written unless -out is given")
	fs.BoolVar(&o.list, "list", false, "list the rows and their cells, and measure nothing")
	fs.StringVar(&o.out, "out", "", "directory for versus.md, versus.json and versus.svg (default docs/benchmarks; none with -quick or -only)")
	fs.StringVar(&o.data, "data", "", "directory for the data of all servers, on the disk to measure (default bin)")
	fs.IntVar(&o.procs, "procs", 0, "GOMAXPROCS of every Go process; 0 leaves it to each")
	fs.DurationVar(&o.duration, "duration", 1500*time.Millisecond, "how long a cell is measured")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.rounds < 1 || o.procs < 0 || o.duration <= 0 {
		return o, errors.New("want flags only, and numbers above 0 (-h lists them)")
	}
	if o.quick {
		o.rounds, o.duration = 1, min(o.duration, 200*time.Millisecond)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	dir, err := build.Root()
	if err != nil {
		return err
	}
	if o.out == "" && !o.quick && o.only == "" {
		o.out = filepath.Join(dir, "docs", "benchmarks")
	}
	if o.data == "" {
		o.data = filepath.Join(dir, "bin")
	}
	binaries := filepath.Join(dir, "bin", "bench")
	p := planner{Binaries: systems.Binaries(binaries), duration: o.duration.String(), warmup: "300ms", quick: o.quick}
	rows, err := choose(p.plan(), o.only)
	if err != nil {
		return err
	}
	if o.list {
		return list(out, rows)
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(errOut, format+"\n", args...) } // progress: nobody depends on it
	missing, err := makeAll(ctx, dir, binaries, say)
	if err != nil {
		return err
	}
	r, err := (&comparison{options: o, root: dir, binaries: binaries, rows: rows, missing: missing, say: say}).run(ctx)
	if r != nil {
		r.Guide = guide(dir, o.out)
		r.Command = strings.TrimSpace("go run ./bench/versus " + strings.Join(args, " "))
		err = errors.Join(err, r.Text(out))
	}
	if err != nil || o.out == "" {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := r.Write(o.out, "versus"); err != nil {
		return err
	}
	say("written to %s: versus.md, versus.json, versus.svg", o.out)
	return nil
}

// guide is the link from a page in a directory to the page that says how to read it.
func guide(root, out string) string {
	const name = "README.md"
	if full, err := filepath.Abs(out); err == nil && out != "" {
		if rel, err := filepath.Rel(full, filepath.Join(root, "docs", "benchmarks", name)); err == nil {
			return filepath.ToSlash(rel)
		}
	}
	return name
}

// choose keeps the rows whose ids are in only, or begin with what is: publish is publish-128, publish-1k and the others.
func choose(rows []row, only string) ([]row, error) {
	if only == "" {
		return rows, nil
	}
	var kept []row
	for _, r := range rows {
		for want := range strings.SplitSeq(only, ",") {
			if want = strings.TrimSpace(want); r.ID == want || strings.HasPrefix(r.ID, want+"-") {
				kept = append(kept, r)
				break
			}
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("-only %q: no row is called so; -list shows them", only)
	}
	return kept, nil
}

func list(out io.Writer, rows []row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintf(out, "%-14s %s\n", r.ID, r.What); err != nil {
			return err
		}
		for _, c := range r.cells {
			if _, err := fmt.Fprintf(out, "    %-28s %s\n", c.ID, c.System); err != nil {
				return err
			}
		}
	}
	return nil
}

// comparison is one run.
type comparison struct {
	options
	root, binaries string
	rows           []row
	missing        map[string]string // peers that could not be built, and why
	say            func(format string, args ...any)
	probe          func() (probe.Reading, error) // nil: of this machine
}

// run measures. It returns a report of what there is, also when it was interrupted.
func (c *comparison) run(ctx context.Context) (r *report.Report, err error) {
	data, err := os.MkdirTemp(c.data, "versus-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	if c.quick { // whether it works does not depend on the weather
		c.probe = func() (probe.Reading, error) { return probe.Reading{CPU: 1, Flush: 1, Ping: 1}, nil }
	}
	if c.probe == nil {
		taker, err := probe.NewTaker(filepath.Join(data, "probe"))
		if err != nil {
			return nil, err
		}
		defer func() { _ = taker.Close() }() // what is left of it goes with the directory
		c.probe = taker.Take
	}
	m := &measurer{root: c.root, binaries: c.binaries, data: data, missing: c.missing, cells: map[string]cell{}}
	procs := "left to each process"
	if c.procs > 0 {
		procs = strconv.Itoa(c.procs)
		m.env = []string{"GOMAXPROCS=" + procs}
	}
	tables := make([]table.Row, len(c.rows))
	for i, r := range c.rows {
		tables[i] = r.Row
		for _, x := range r.cells {
			m.cells[x.ID] = x
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // ours must not run beside what is measured
	begin := time.Now()
	log, err := rounds.Run(ctx, tables, rounds.Options{
		Rounds: c.rounds, Measure: m.measure, Probe: c.probe, Wait: wait, Say: c.say,
	})
	if len(log.Records) == 0 {
		return nil, errors.Join(err, errors.New("nothing was measured"))
	}
	return &report.Report{
		When: begin, Took: time.Since(begin).Round(time.Second).String(), Rounds: c.rounds, Cell: c.duration.String(), Procs: procs,
		Machine: report.ThisMachine(data), Systems: versions(tables, log), Rows: report.Sections(tables, log), Log: log,
	}, err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
