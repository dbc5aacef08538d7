// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: it reads flags, environment and contexts, calls the public client
// and REST client, and prints; it decides nothing about data and opens no file that was not named or
// that the documented locations do not hold.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"margay.dev/cmd/internal/exit"
	"margay.dev/cmd/internal/output"
)

// Process is what a command may know of the process it runs in.
type Process struct {
	Args    []string // without the program's name
	Getenv  func(string) string
	Environ func() []string // all of the environment, as os.Environ; nil: none
	Version string          // empty: a build of nobody's release
	// Executable is the path of this binary, for the demo's child and for what is printed to be pasted.
	Executable string
	Streams    output.Streams
	// Hangups starts to deliver the signals to reload, for as long as a node runs; nil: there are none.
	Hangups func() (signals <-chan os.Signal, stop func())
}

// app is one run of the command line.
type app struct {
	Process
	*output.Printer
	global  globals
	started bool // the command line was understood; what fails now is no misuse
}

// globals are the flags that every command has.
type globals struct {
	output  output.Format
	context string
	address string
	token   string
	ca      string
	timeout time.Duration
}

const effectAnnotation = "effect"

// writes marks a command that changes data: an answer that did not come leaves its outcome unknown.
func writes() map[string]string { return map[string]string{effectAnnotation: "writes"} }

// Main runs the command line until it is done or ctx ends, and returns the exit code.
func Main(ctx context.Context, p Process) int {
	a := &app{Process: p, global: globals{output: output.Text, timeout: defaultTimeout}}
	// Errors before the flags are read are reported as text, like everything a person mistyped.
	a.Printer = output.NewPrinter(output.Text, p.Streams)

	root := a.root()
	root.SetArgs(p.Args)
	root.SetIn(p.Streams.In)
	root.SetOut(p.Streams.Out)
	root.SetErr(p.Streams.Err)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		err = misuse(cmd, err)
		a.Printer = output.NewPrinter(a.global.output, p.Streams) // as far as the flags were understood
	}
	if closed := a.Close(); err == nil && closed != nil {
		err = fmt.Errorf("write standard output: %w", closed)
	}
	if err == nil {
		return exit.Done
	}
	effect := exit.Reads
	if cmd.Annotations[effectAnnotation] != "" {
		effect = exit.Writes
	}
	r := exit.Describe(err, effect)
	a.Fail(r)
	return r.Exit
}

func misuse(cmd *cobra.Command, err error) error {
	f := &exit.Error{Err: err, Code: exit.Usage, Do: fmt.Sprintf("see `%s --help`", cmd.CommandPath())}
	if own, ok := errors.AsType[*exit.Error](err); ok && own.Do != "" {
		f.Do = own.Do
	}
	return f
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "margay",
		Short: "Streams, caches and queues that survive: one log, read as it comes, by key or as work, durable before it is acknowledged",
		Long: `Margay is a streaming platform in one binary: a broker and a control plane (margay serve),
and the commands that use them.

Exit codes:
  0  done
  1  unknown: it may have happened; or an internal error
  2  usage: the command line, the environment or a context is wrong; nothing was tried
  3  unreachable: nobody answered within --timeout
  4  refused: certainly not done
  5  not there: what was named does not exist

Flags stand above the environment (MARGAY_OUTPUT, MARGAY_CONTEXT, MARGAY_ADDRESS, MARGAY_TOKEN,
MARGAY_CA, MARGAY_TIMEOUT), and the environment above the context.`,
		Example: `  margay demo
  margay serve`,
		Args:              cobra.ArbitraryArgs,
		RunE:              group,
		PersistentPreRunE: a.start,
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	a.addGlobals(root)
	root.AddCommand(
		a.demoCommand(),
		a.benchCommand(),
		a.serveCommand(),
		a.streamCommand(),
		a.cacheCommand(),
		a.queueCommand(),
		a.pubCommand(),
		a.subCommand(),
		a.putCommand(),
		a.getCommand(),
		a.delCommand(),
		a.incrCommand(),
		a.touchCommand(),
		a.watchCommand(),
		a.pushCommand(),
		a.consumeCommand(),
		a.workCommand(),
		a.groupCommand(),
		a.deadLetterCommand(),
		a.trimCommand(),
		a.statusCommand(),
		a.topCommand(),
		a.logCommand(),
		a.simCommand(),
		a.configCommand(),
		a.debugCommand(),
		a.contextCommand(),
		a.versionCommand(),
	)
	return root
}

// start runs once the command line was parsed, before the command.
func (a *app) start(cmd *cobra.Command, _ []string) error {
	if err := a.readEnvironment(cmd); err != nil {
		return err
	}
	if a.global.timeout <= 0 {
		return exit.Misuse("--timeout %v: must be above zero", a.global.timeout)
	}
	a.Printer = output.NewPrinter(a.global.output, a.Streams)
	if cmd.HasSubCommands() {
		return nil // only help or a misspelled command is left
	}
	a.started = true
	return nil
}

// group is what a command does that only holds others: without arguments it explains itself, and any
// argument is a command that does not exist.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return &exit.Error{Err: err, Code: exit.Usage, Do: fmt.Sprintf("did you mean `%s %s`?", cmd.CommandPath(), strings.Join(near, "` or `"))}
	}
	return err
}
