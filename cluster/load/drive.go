// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
)

// Driver is a process that drives one kind of system, for whoever compares several: its arguments are the same for all of them.
type Driver struct {
	// Name is the system's, for Result.System.
	Name string
	// Flags defines what only this system has; nil for nothing.
	Flags func(fs *flag.FlagSet)
	// Open makes the adapter for the system at addr. Its name, when it is not empty, replaces Name: with a version, or how
	// it was set up.
	Open func(ctx context.Context, addr string, spec Spec) (sys System, name string, err error)
}

// Run parses args, runs, and writes the result to out as one line of JSON, and progress to errOut.
func (d Driver) Run(ctx context.Context, args []string, out, errOut io.Writer) error {
	fs := flag.NewFlagSet("drive", flag.ContinueOnError)
	fs.SetOutput(errOut)
	spec := Flags(fs, "")
	addr := fs.String("addr", "", "address of the system")
	pid := fs.Int("pid", 0, "process of the system, whose CPU and memory are accounted for; 0 for none")
	if d.Flags != nil {
		d.Flags(fs)
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	spec.Fill()
	if err := spec.Validate(); err != nil {
		return err
	}
	sys, name, err := d.Open(ctx, *addr, *spec)
	if err != nil {
		return fmt.Errorf("open %s at %s: %w", d.Name, *addr, err)
	}
	defer func() { _ = sys.Close() }() // the result is what counts
	res, err := Run(ctx, sys, *spec, Options{ServerPID: *pid, Progress: func(p Progress) {
		_, _ = fmt.Fprintln(errOut, p) // nobody reads it
	}})
	if err != nil {
		return err
	}
	res.System = d.Name
	if name != "" {
		res.System = name
	}
	return json.NewEncoder(out).Encode(res)
}
