// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/cluster/load/margay"
	"margay.dev/cmd/internal/child"
	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
	"margay.dev/wire/control"
)

const schemeTLS = "margay+tls://"

// benchLoad runs a workload against a node and prints what came of it.
func (a *app) benchLoad(ctx context.Context, f *benchFlags, args []string) (err error) {
	cfg, pid, where, stop, err := a.benchServer(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s := f.spec
	cfg.Publishers, cfg.Shards, cfg.Fsync, cfg.Storage, cfg.Ack = s.Clients, s.Shards, f.fsync, f.storage, f.ack
	// Room for the window, and for what each record takes beside its bytes.
	cfg.BufferBytes = max(client.DefaultBufferBytes, 2*int64(s.InFlight)*int64(s.Size+256))
	if len(args) > 0 {
		cfg.Stream = args[0]
	}
	open, cancel := context.WithTimeout(ctx, a.global.timeout)
	defer cancel()
	sys, err := margay.Open(open, cfg)
	if err != nil {
		if cfg.Stream != "" {
			return aboutStream(exit.NoAnswer(err, where), cfg.Stream)
		}
		return exit.NoAnswer(err, where)
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	s.Shards = sys.Shards()
	res, err := a.benchRun(ctx, sys, *s, pid)
	if err != nil {
		return err
	}
	res.System = a.benchName(f, where, args)
	if err := a.printBench(res, fmt.Sprintf("%.0f", res.Rate), func(b *strings.Builder) error { return load.Print(b, res) }); err != nil {
		return err
	}
	return failedBench(res)
}

func (a *app) benchRun(ctx context.Context, sys load.System, s load.Spec, pid int) (*load.Result, error) {
	var progress atomic.Pointer[load.Progress]
	progress.Store(&load.Progress{Phase: "connecting"})
	stop := a.Progress(func() string { return progress.Load().String() })
	defer stop()
	return load.Run(ctx, sys, s, load.Options{ServerPID: pid, Progress: func(p load.Progress) { progress.Store(&p) }})
}

// benchName says what makes this another case than others.
func (a *app) benchName(f *benchFlags, where string, args []string) string {
	parts := []string{"margay " + a.build().Version, where}
	if f.transport == transportTLS {
		parts = append(parts, "TLS over TCP")
	} else {
		parts = append(parts, "QUIC")
	}
	switch {
	case len(args) > 0:
		parts = append(parts, "stream "+args[0])
	case f.storage == control.StorageMemory:
		parts = append(parts, "in memory")
	case f.fsync == "":
		parts = append(parts, "fsync always")
	default:
		parts = append(parts, "fsync "+f.fsync)
	}
	if f.ack != "" {
		parts = append(parts, "ack "+f.ack)
	}
	return strings.Join(parts, ", ")
}

// printBench writes a result in the format that was asked for: raw is its one number.
func (a *app) printBench(result any, number string, text func(*strings.Builder) error) error {
	switch a.Format() {
	case output.JSON:
		return a.JSON(result)
	case output.Raw:
		return a.Line("%s", number)
	case output.Text: // for a person, below
	}
	var b strings.Builder
	if err := text(&b); err != nil {
		return err
	}
	return a.Line("%s", strings.TrimSuffix(b.String(), "\n"))
}

// failedBench makes messages that were lost or failed an error: figures of a run that dropped some of its work are none.
func failedBench(r *load.Result) error {
	if r.Errors == 0 && r.Missing == 0 {
		return nil
	}
	return &exit.Error{
		Err:  fmt.Errorf("%d messages failed and %d were never heard of; the first: %s", r.Errors, r.Missing, r.FirstError),
		Code: exit.Unknown,
		Data: "the messages were made up by the bench",
		Do:   "take the figures above for what the system did while it failed",
	}
}

// benchServer finds the node, or starts one. Where names it to a person; stop ends what was started.
func (a *app) benchServer(ctx context.Context, f *benchFlags) (cfg margay.Config, pid int, where string, stop func() error, err error) {
	addressScheme := scheme
	if f.transport == transportTLS {
		addressScheme = schemeTLS
	}
	if f.server == serverContext {
		t, err := a.target()
		if err != nil {
			return cfg, 0, "", nil, err
		}
		cfg = margay.Config{Context: t.Context, Address: addressScheme + strings.Join(t.Addresses, ","), Token: t.token}
		return cfg, f.serverPID, cfg.Address, func() error { return nil }, nil
	}
	node, k, stop, err := a.benchNode(ctx, f.dir)
	if err != nil {
		return cfg, 0, "", nil, err
	}
	cfg = margay.Config{Context: *k, Address: addressScheme + strings.Join(k.Addresses, ",")}
	return cfg, node.PID, "a node of its own", stop, nil
}

// benchNode starts a node for the run.
func (a *app) benchNode(ctx context.Context, parent string) (node *child.Child, k *control.Context, stop func() error, err error) {
	if a.Executable == "" {
		return nil, nil, nil, errors.New("bench: the path of this binary is not known, so it cannot be started as a node; use --server context")
	}
	dir, err := os.MkdirTemp(parent, "margay-bench-")
	if err != nil {
		return nil, nil, nil, exit.Misuse("--dir: %w", err)
	}
	clean := func() error { return os.RemoveAll(dir) }
	a.warnVolatile(dir)
	node, err = child.Start(ctx, a.Executable, child.Place{Dir: dir}, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("bench: %w", err), clean())
	}
	stop = func() error {
		node.Stop()
		return clean()
	}
	if k, err = control.LoadContext(child.Place{Dir: dir}.Context()); err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("bench: %w", err), stop())
	}
	a.Note("a node of its own is process %d, in %s until the end; --server context measures that of your context", node.PID, dir)
	return node, k, stop, nil
}

func (a *app) warnVolatile(dir string) {
	if load.Volatile(dir) {
		a.Warn("%s lies in memory: a flush costs nothing there; name a directory on a disk with --dir", dir)
	}
}
