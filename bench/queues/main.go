// SPDX-License-Identifier: Apache-2.0

// Command queues measures what queues of one node cost with much in them: a million messages that wait for their time, ten
// thousand groups that do nothing, a hundred thousand settled ranges. It starts, stops and kills the node itself, and leaves
// nothing running and nothing behind; where a message comes early, or twice, or never, it gives no figures.
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
	"syscall"
	"time"

	"margay.dev/bench/internal/build"
	"margay.dev/bench/internal/life"
	"margay.dev/bench/internal/systems"
	"margay.dev/cluster/load"
	"margay.dev/wire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "queues:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	messages, size  int
	idle            time.Duration
	rate            float64
	due             time.Duration
	groups, queues  int
	ranges, backlog int
	data, binaries  string
	transport       string
	json, quick     bool
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("queues", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.IntVar(&o.messages, "messages", 1_000_000, "messages that wait for their time, an hour ahead")
	fs.IntVar(&o.size, "size", 128, "bytes of a message")
	fs.DurationVar(&o.idle, "idle", 10*time.Second, "how long a node is watched that has nothing to do")
	fs.Float64Var(&o.rate, "rate", 1000, "messages that become due a second, while the others wait")
	fs.DurationVar(&o.due, "due", 10*time.Second, "for how long")
	fs.IntVar(&o.groups, "groups", 10_000, "groups that do nothing")
	fs.IntVar(&o.queues, "queues", 100, "queues that they are of")
	fs.IntVar(&o.ranges, "ranges", 100_000, "ranges of settled messages: every second one is")
	fs.IntVar(&o.backlog, "backlog", 100_000, "messages that are worked off before there are ranges, and behind them")
	fs.StringVar(&o.data, "data", "", "directory for the node's data, on the disk to measure (default bin)")
	fs.StringVar(&o.binaries, "binaries", "", "directory of a margay that is built (default: build one)")
	fs.StringVar(&o.transport, "transport", "quic", "quic or tls")
	fs.BoolVar(&o.json, "json", false, "print one object")
	fs.BoolVar(&o.quick, "quick", false, "few of everything for a moment, to see that it works: its figures mean nothing")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.quick {
		o.messages, o.idle, o.due = min(o.messages, 5000), time.Second, time.Second
		o.groups, o.queues, o.ranges, o.backlog = min(o.groups, 100), min(o.queues, 5), min(o.ranges, 1000), min(o.backlog, 2000)
	}
	if fs.NArg() > 0 || o.messages < 1 || o.size < numberSize || o.idle <= 0 || o.rate <= 0 || o.due <= 0 || o.queues < 1 || o.groups < o.queues ||
		o.ranges < holders || o.ranges%holders != 0 || o.ranges > holders*wire.MaxInFlight || o.backlog < 1 || o.transport != "quic" && o.transport != "tls" {
		return o, fmt.Errorf("want flags only, numbers above 0, messages of %d B at least, no more queues than groups, an even number of ranges, at most %d, and quic or tls (-h lists them)", numberSize, holders*wire.MaxInFlight)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) (err error) {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	if o.data == "" || o.binaries == "" {
		root, err := build.Root()
		if err != nil {
			return err
		}
		if o.data == "" {
			o.data = filepath.Join(root, "bin")
		}
		if o.binaries == "" {
			o.binaries = filepath.Join(root, "bin", "bench")
			if err := build.Ours(ctx, root, o.binaries, "margay"); err != nil {
				return err
			}
		}
	}
	dir, err := os.MkdirTemp(o.data, "queues-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m := &measurer{options: o, node: life.New(dir, o.transport, systems.Binaries(o.binaries).Margay(systems.Load{}).Serve(dir))}
	if !o.json {
		m.say = func(format string, args ...any) { _, _ = fmt.Fprintf(errOut, format+"\n", args...) } // progress: nobody depends on it
	}
	r, err := m.measure(ctx)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(out).Encode(r)
	}
	return r.print(out)
}

// Result is what is printed.
type Result struct {
	System   string `json:"system"`
	Messages int    `json:"messages"`
	Size     int    `json:"size"`
	// FillRate is pushes a second of all messages with a delay.
	FillRate float64 `json:"fill_rate"`
	// DelayedBytes is by how much the node's memory grew for each message that waits; DelayedReopened the same behind a restart, to
	// a node without any.
	DelayedBytes    float64 `json:"delayed_bytes_per_message"`
	DelayedReopened float64 `json:"delayed_reopened_bytes_per_message"`
	// DelayedCPU is of one core, in percent, while they wait and nothing else happens; EmptyCPU is that of a node with nothing in it.
	DelayedCPU float64 `json:"delayed_cpu_percent"`
	EmptyCPU   float64 `json:"empty_cpu_percent"`
	// Opening is in seconds, from the start of the process until a consumer has a message that was pushed to it: after a kill, and
	// after a stop.
	Open        float64 `json:"open_seconds"`
	OpenStopped float64 `json:"open_stopped_seconds"`
	// Late is from when a message is due until its consumer has it; none was early.
	Due     int             `json:"due"`
	Late    *load.Quantiles `json:"late"`
	LateP99 float64         `json:"late_p99_ms"`
	// Of groups that do nothing.
	Groups     int     `json:"groups"`
	GroupBytes float64 `json:"group_bytes"`
	GroupsCPU  float64 `json:"groups_cpu_percent"`
	// Ranges that the group says there are. WorkRate is messages worked off a second before, RangesRate behind them, and
	// RangesOpen how many seconds after a kill all that was not settled had come again, and nothing else.
	Ranges      int     `json:"ranges"`
	WorkRate    float64 `json:"work_rate"`
	RangesRate  float64 `json:"ranges_rate"`
	RangesRatio float64 `json:"ranges_ratio"`
	RangesOpen  float64 `json:"ranges_again_seconds"`
}

func (r *Result) print(w io.Writer) error {
	n := func(v int) string { return load.Thousands(int64(v)) }
	_, err := fmt.Fprintf(w, `%s
  delayed     %s messages of %d B, pushed at %s/s: %.1f B of memory each (%.1f B behind a restart), %.2f %% of a core (%.2f %% empty)
  opening     %.2f s after a kill, %.2f s after a stop, until a new message is handed out
  due         %s messages, from due to handed out: p50 %s   p99 %s   max %s   none early
  groups      %s that do nothing: %.0f B of memory each, %.2f %% of a core
  ranges      %s: %s messages/s worked off behind them, %s before (%.2fx); what was not settled came again within %.2f s of a kill
`,
		r.System, n(r.Messages), r.Size, n(int(r.FillRate)), r.DelayedBytes, r.DelayedReopened, r.DelayedCPU, r.EmptyCPU, r.Open, r.OpenStopped,
		n(r.Due), load.Span(r.Late.P50), load.Span(r.Late.P99), load.Span(r.Late.Max),
		n(r.Groups), r.GroupBytes, r.GroupsCPU, n(r.Ranges), n(int(r.RangesRate)), n(int(r.WorkRate)), r.RangesRatio, r.RangesOpen)
	return err
}
