// SPDX-License-Identifier: Apache-2.0

// Command bare serves and drives the bare publish prototype that marks the ceiling of Margay's own publishes; it writes below
// the directory that it is given only.
//
//	bare serve --transport quic --dir D     says its address and runs until its input ends
//	bare drive --transport quic --addr A    publishes, and prints a result as `margay bench pub` does
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

	"margay.dev/bench/internal/bare"
	"margay.dev/bench/internal/journal"
	"margay.dev/bench/internal/serve"
	"margay.dev/bench/internal/transport"
	"margay.dev/cluster/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want serve or drive")
	}
	switch args[0] {
	case "serve":
		return serving(ctx, args[1:], in, out)
	case "drive":
		return drive(ctx, args[1:], out)
	}
	return fmt.Errorf("%q: want serve or drive", args[0])
}

func serving(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	name := fs.String("transport", "quic", "quic or tls")
	addr := fs.String("addr", "127.0.0.1:0", "address to listen on")
	dir := fs.String("dir", "", "directory for the journal")
	unflushed := fs.Bool("no-flush", false, "acknowledge what is written, and do not flush it")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("want --dir")
	}
	kind, err := transport.Parse(*name)
	if err != nil {
		return err
	}
	ctx, stop := serve.UntilEnd(ctx, in)
	defer stop()
	j, err := journal.Create(*dir, "bare")
	if err != nil {
		return err
	}
	j.ZeroAhead = !*unflushed
	defer func() { err = errors.Join(err, j.Close()) }()
	l, err := transport.Listen(ctx, kind, *addr)
	if err != nil {
		return err
	}
	if err := serve.Announce(out, l.Addr()); err != nil {
		return err
	}
	return (&bare.Server{Journal: j, Unflushed: *unflushed}).Serve(ctx, l)
}

func drive(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("drive", flag.ContinueOnError)
	spec := load.Flags(fs, "")
	name := fs.String("transport", "quic", "quic or tls")
	addr := fs.String("addr", "", "address of the server")
	pid := fs.Int("pid", 0, "process of the server, whose CPU and memory are accounted for")
	if err := fs.Parse(args); err != nil {
		return err
	}
	kind, err := transport.Parse(*name)
	if err != nil {
		return err
	}
	r, err := load.Run(ctx, bare.System{Kind: kind, Addr: *addr}, *spec, load.Options{ServerPID: *pid})
	if err != nil {
		return err
	}
	r.System = "bare prototype, " + kind.String()
	return json.NewEncoder(out).Encode(r)
}
