// SPDX-License-Identifier: Apache-2.0

// Command mutations breaks the code on purpose, one rule at a time, and demands that a named test goes red; it works on a
// copy of the tree in a temporary directory and refuses to touch the tree itself.
//
// A test that passes without the rule it is there for proves nothing. The list of what is broken, and by whom it must be
// noticed, is in the list_*.go files: one that no test notices (a survivor), no longer applies, or does not compile makes
// the command fail.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutations:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	only     string
	parallel int
	timeout  time.Duration
	seeds    int
	list     bool
	out      io.Writer
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o := options{out: out}
	flags := flag.NewFlagSet("mutations", flag.ContinueOnError)
	flags.StringVar(&o.only, "only", "", "run only the mutations whose names contain one of these words, separated by commas")
	flags.IntVar(&o.parallel, "parallel", 1, "mutations at a time, each on a copy of its own")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "for one test; one that takes longer hangs, which counts as red")
	flags.IntVar(&o.seeds, "sim", 0, "ask the simulation, within so many seeds, in place of the tests: what it lets pass, it does not see")
	flags.BoolVar(&o.list, "list", false, "show the list and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen := choose(mutations(), o.only)
	if len(chosen) == 0 {
		return fmt.Errorf("no mutation has %q in its name", o.only)
	}
	for i := range chosen {
		if o.seeds > 0 {
			chosen[i].caught = bySimulation(o.seeds)
		}
	}
	if o.list {
		show(out, chosen)
		return nil
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	results, err := runAll(ctx, root, chosen, o)
	if err != nil {
		return err
	}
	return report(out, results)
}

func choose(all []mutation, only string) []mutation {
	if only == "" {
		return all
	}
	var chosen []mutation
	for _, m := range all {
		for word := range strings.SplitSeq(only, ",") {
			if strings.Contains(m.name, word) {
				chosen = append(chosen, m)
				break
			}
		}
	}
	return chosen
}

func show(out io.Writer, all []mutation) {
	for _, m := range all {
		_, _ = fmt.Fprintf(out, "%s\n    %s\n    in %s, must be noticed by %s\n", m.name, m.why, m.file, m.caught)
	}
}

// report shows the table, and fails unless every mutation was caught.
func report(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "MUTATION\tVERDICT\tBY\tSECONDS")
	var bad int
	for _, r := range results {
		if r.verdict != caught && r.verdict != hung {
			bad++
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\n", r.name, r.verdict, r.by, r.took.Seconds())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.detail != "" {
			_, _ = fmt.Fprintf(out, "\n%s: %s\n%s\n", r.name, r.verdict, r.detail)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d mutations were not caught", bad, len(results))
	}
	_, err := fmt.Fprintf(out, "%d mutations, all caught\n", len(results))
	return err
}
