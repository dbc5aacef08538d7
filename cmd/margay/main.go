// SPDX-License-Identifier: Apache-2.0

// Command margay is the one binary of the platform: it hands the process's arguments, files, signals
// and environment to the command line and exits with its code.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"margay.dev/cmd/internal/cli"
	"margay.dev/cmd/internal/output"
)

// version is set by the linker in a release.
var version string

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly end. From then on signals act as they do by default, so that
	// a second one ends a process whose orderly end hangs.
	context.AfterFunc(ctx, stop)

	executable, err := os.Executable()
	if err != nil {
		executable = "" // only hints and the demo need it, and the demo says so
	}
	return cli.Main(ctx, cli.Process{
		Args:    os.Args[1:],
		Getenv:  os.Getenv,
		Environ: os.Environ,
		Hangups: hangups,
		Version: version, Executable: executable,
		Streams: output.Streams{
			In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
			InTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
			OutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
			ErrTerminal: term.IsTerminal(int(os.Stderr.Fd())),
			Color:       os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		},
	})
}

// hangups are taken only by a command that asks for them: every other one ends with its terminal.
func hangups() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1) // one more while one is being handled is as good as many
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
