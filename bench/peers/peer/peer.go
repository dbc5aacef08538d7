// SPDX-License-Identifier: Apache-2.0

// Package peer is what the programs of all peers share: `serve` starts a fresh server and says where it is, `drive` puts
// the load of cluster/load on it; what is particular to a peer it leaves to the peer.
package peer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"margay.dev/cluster/load"
)

// Exit codes of a peer's program.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitUnavailable = 69 // the peer is not installed here: leave it out
)

// ErrUnavailable is returned by Peer.Serve when what it needs is not installed.
var ErrUnavailable = errors.New("not available here")

var errUsage = errors.New("usage")

// Peer is a system that Margay is compared with.
type Peer struct {
	Name  string
	Modes []string // what an acknowledgment may mean; the first is the default
	TLS   bool     // whether serve takes -tls
	Serve func(ctx context.Context, o ServeOptions) (*Server, error)
	// Drive adds the peer's own flags, and returns what opens the system once they are parsed.
	Drive func(fs *flag.FlagSet) func(ctx context.Context, addr string, spec load.Spec) (load.System, error)
}

// Main runs the program of a peer and returns its exit code.
func Main(p Peer) int {
	err := run(context.Background(), p, os.Args[1:], os.Stdin, os.Stdout)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
	switch {
	case errors.Is(err, ErrUnavailable):
		return ExitUnavailable
	case errors.Is(err, errUsage):
		return ExitUsage
	}
	return ExitFailed
}

func run(ctx context.Context, p Peer, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			return serve(ctx, p, args[1:], stdin, stdout)
		case "drive":
			return drive(ctx, p, args[1:], stdout)
		}
	}
	return usage("want `%s serve -dir DIR` or `%s drive -addr ADDR`; -h after either lists its flags", p.Name, p.Name)
}

func parse(fs *flag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if fs.NArg() > 0 {
		return usage("%s: %q is not a flag", fs.Name(), fs.Arg(0))
	}
	return nil
}

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUsage, fmt.Sprintf(format, args...))
}

func (p Peer) modes() string { return strings.Join(p.Modes, ", ") }

func (p Peer) check(o ServeOptions) error {
	if o.Dir == "" {
		return usage("serve: -dir is required")
	}
	if !slices.Contains(p.Modes, o.Mode) {
		return usage("serve: mode %q is none of %s", o.Mode, p.modes())
	}
	return nil
}
