// SPDX-License-Identifier: Apache-2.0

// Command soak uses a real node for as long as it is told, with publishers, readers of every kind, restarts and retention,
// checks everything that clients were told, and watches what the node holds; it writes below one directory only, and
// refuses to call a run sound that grew or broke a promise.
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
	"syscall"

	"margay.dev/cluster/history"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// command is main, with an exit code: 0 sound, 1 not, 2 the command line is wrong.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			_, _ = fmt.Fprintln(stderr, "soak:", err)
		}
		return 2
	}
	progress := stdout
	if cfg.JSON {
		progress = stderr // the report is all that stdout gets
	}
	p, err := run(ctx, cfg, progress)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "soak:", err)
		return 2
	}
	p.print()
	if cfg.JSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(p); err != nil {
			return 1
		}
	}
	if !p.OK {
		return 1
	}
	return 0
}

// run is one soak.
func run(ctx context.Context, cfg *config, progress io.Writer) (*report, error) {
	dir, remove, err := place(cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer remove()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(progress, format, args...) }
	h := &harness{ctx: context.WithoutCancel(ctx), dir: dir}
	r := &soak{
		cfg: cfg, harness: h, ledger: history.NewLedger(), block: block(), say: say,
		report: &report{Config: cfg, say: say},
	}
	r.report.Problems = h.run(func() { r.use(ctx) })
	for _, v := range r.ledger.Violations() {
		r.report.Violations = append(r.report.Violations, v.String())
	}
	r.report.Summary = r.String()
	r.report.judge()
	return r.report, nil
}
