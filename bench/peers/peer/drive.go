// SPDX-License-Identifier: Apache-2.0

package peer

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

	"margay.dev/cluster/load"
)

// drive runs one workload and prints its result.
func drive(ctx context.Context, p Peer, args []string, stdout io.Writer) (err error) {
	fs := flag.NewFlagSet(p.Name+" drive", flag.ContinueOnError)
	spec := load.Flags(fs, "")
	addr := fs.String("addr", "", "address that serve printed (required)")
	pid := fs.Int("pid", 0, "process that serve printed, to account its CPU and memory")
	_ = fs.Bool("json", true, "print the result as JSON: there is no other form")
	open := p.Drive(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	if *addr == "" {
		return usage("drive: -addr is required")
	}
	spec.Fill()
	if err := spec.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	sys, err := open(ctx, *addr, *spec)
	if err != nil {
		return fmt.Errorf("drive %s: %w", p.Name, err)
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	result, err := load.Run(ctx, sys, *spec, load.Options{ServerPID: *pid})
	if err != nil {
		return fmt.Errorf("drive %s: %w", p.Name, err)
	}
	result.System = p.Name
	if named, ok := sys.(fmt.Stringer); ok {
		result.System = named.String()
	}
	return json.NewEncoder(stdout).Encode(result)
}
