// SPDX-License-Identifier: Apache-2.0

// Command grid measures one node over key counts, filters and subscribers, and names the steps at which its rates fall off; it
// starts the node itself, and leaves nothing running and nothing behind but what it writes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"margay.dev/bench/internal/build"
	"margay.dev/bench/internal/child"
	"margay.dev/bench/internal/grid"
	"margay.dev/bench/internal/node"
	"margay.dev/bench/internal/report"
	"margay.dev/bench/internal/systems"
)

// exitCliff is the code of -fail when there is a cliff.
const exitCliff = 3

var errCliff = errors.New("there are cliffs")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errCliff):
		os.Exit(exitCliff)
	case err != nil:
		fmt.Fprintln(os.Stderr, "grid:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	quick, fail bool
	out, data   string
	transport   string
	duration    time.Duration
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("grid", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.BoolVar(&o.quick, "quick", false, "a corner of the grid for a moment, to see that it works: its figures mean nothing")
	fs.BoolVar(&o.fail, "fail", false, "exit with 3 when there is a cliff")
	fs.StringVar(&o.out, "out", "", "directory for grid.md and grid.json (default docs/benchmarks; none with -quick)")
	fs.StringVar(&o.data, "data", "", "directory for the node's data (default bin)")
	fs.StringVar(&o.transport, "transport", "quic", "quic or tls")
	fs.DurationVar(&o.duration, "duration", 700*time.Millisecond, "how long a cell is measured")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 || o.duration <= 0 || o.transport != "quic" && o.transport != "tls" {
		return o, errors.New("want flags only, a duration above 0, and quic or tls (-h lists them)")
	}
	if o.quick {
		o.duration = min(o.duration, 100*time.Millisecond)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	root, err := build.Root()
	if err != nil {
		return err
	}
	if o.out == "" && !o.quick {
		o.out = filepath.Join(root, "docs", "benchmarks")
	}
	if o.data == "" {
		o.data = filepath.Join(root, "bin")
	}
	axes := grid.Full()
	if o.quick {
		axes = grid.Corner()
	}
	begin := time.Now()
	binaries := filepath.Join(root, "bin", "bench")
	if err := build.Ours(ctx, root, binaries, "margay"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.data, "grid-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := child.Start(ctx, systems.Binaries(binaries).Margay(systems.Load{}).Serve(dir))
	if err != nil {
		return err
	}
	defer server.Stop()
	n, err := node.Open(filepath.Join(dir, "data", "context.yaml"))
	if err != nil {
		return err
	}
	defer n.Close()
	m := measurer{node: n, transport: o.transport, duration: o.duration}
	rates, err := axes.Run(ctx, m.measure, func(p grid.Point, r grid.Rates, err error) {
		if err != nil {
			_, _ = fmt.Fprintf(errOut, "%-50s failed: %v\n", p, err) // progress: nobody depends on it
			return
		}
		_, _ = fmt.Fprintf(errOut, "%-50s %9.0f/s in %10.0f/s out\n", p, r.Publishes, r.Deliveries)
	})
	cliffs := axes.Cliffs(rates)
	if err = errors.Join(err, axes.Print(out, rates, cliffs)); err != nil {
		return err
	}
	about := fmt.Sprintf("Made %s UTC in %s by `%s`: one node over %s, a stream in memory, records of %d B, %s for each cell. %s.",
		begin.UTC().Format("2006-01-02 15:04"), time.Since(begin).Round(time.Second),
		strings.TrimSpace("go run ./bench/grid "+strings.Join(args, " ")), strings.ToUpper(o.transport), recordSize, o.duration,
		machine(report.ThisMachine(dir)))
	if o.out != "" {
		if err := write(o.out, about, axes, rates, cliffs); err != nil {
			return err
		}
	}
	if o.fail && len(cliffs) > 0 {
		return errCliff
	}
	return nil
}

func machine(m report.Machine) string {
	return fmt.Sprintf("%s, %d cores shared by node and clients, %s, %s", m.CPU, m.Cores, m.Kernel, m.Go)
}

func write(dir, about string, axes grid.Axes, rates map[grid.Point]grid.Rates, cliffs []grid.Cliff) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var page strings.Builder
	if err := axes.Page(&page, about, rates, cliffs); err != nil {
		return err
	}
	text, err := json.MarshalIndent(map[string]any{"about": about, "cells": axes.Cells(rates), "cliffs": cliffs}, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "grid.md"), []byte(page.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "grid.json"), append(text, '\n'), 0o644),
	)
}
