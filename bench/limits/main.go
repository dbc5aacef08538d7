// SPDX-License-Identifier: Apache-2.0

// Command limits measures what this machine gives to anyone, with no product in between: bytes and answers over QUIC and TLS,
// appends and flushes, idle connections; it prints JSON and keeps nothing.
//
//	limits serve --transport quic            a server that says its address and runs until its input ends
//	limits drive --transport quic --addr A   measures against it
//	limits disk  --dir D                     measures the file system
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

	"margay.dev/bench/internal/raw"
	"margay.dev/bench/internal/serve"
	"margay.dev/bench/internal/transport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want serve, drive or disk")
	}
	switch args[0] {
	case "serve":
		return serving(ctx, args[1:], in, out)
	case "drive":
		return drive(ctx, args[1:], out)
	case "disk":
		return onDisk(ctx, args[1:], out)
	}
	return fmt.Errorf("%q: want serve, drive or disk", args[0])
}

func serving(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	name := fs.String("transport", "quic", "quic or tls")
	addr := fs.String("addr", "127.0.0.1:0", "address to listen on")
	if err := fs.Parse(args); err != nil {
		return err
	}
	kind, err := transport.Parse(*name)
	if err != nil {
		return err
	}
	ctx, stop := serve.UntilEnd(ctx, in)
	defer stop()
	l, err := transport.Listen(ctx, kind, *addr)
	if err != nil {
		return err
	}
	if err := serve.Announce(out, l.Addr()); err != nil {
		return err
	}
	return raw.Serve(ctx, l)
}

func printJSON(out io.Writer, v any) error {
	return json.NewEncoder(out).Encode(v)
}
