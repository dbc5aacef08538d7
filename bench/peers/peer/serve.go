// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// ServeOptions is what a peer's server is started with.
type ServeOptions struct {
	Dir  string // empty when it starts: a peer never sees what an earlier run left
	Addr string // host and port; port 0 takes a free one
	Mode string // what an acknowledgment means: one of Peer.Modes
	TLS  bool
}

// Server is a server that runs.
type Server struct {
	Addr  string          // what drive takes as -addr
	PID   int             // whose CPU and memory the peer's figures are; 0 is this process
	Ended <-chan struct{} // closed when the server ended without being asked
	Stop  func() error    // returns after the last file is closed
}

// Ready is the first line that serve prints.
type Ready struct {
	Addr string `json:"addr"`
	PID  int    `json:"pid"`
}

var errEnded = errors.New("serve: the server ended by itself")

// serve runs the server until stdin closes, a signal comes or the server ends.
func serve(ctx context.Context, p Peer, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	var o ServeOptions
	fs := flag.NewFlagSet(p.Name+" serve", flag.ContinueOnError)
	fs.StringVar(&o.Dir, "dir", "", "data directory, empty or not yet there (required)")
	fs.StringVar(&o.Addr, "addr", "127.0.0.1:0", "address to listen on; port 0 takes a free one")
	fs.StringVar(&o.Mode, "mode", p.Modes[0], "when the server answers: "+p.modes())
	if p.TLS {
		fs.BoolVar(&o.TLS, "tls", false, "serve TLS, with a certificate made for this start")
	}
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := p.check(o); err != nil {
		return err
	}
	if err := emptyDir(o.Dir); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	s, err := p.Serve(ctx, o)
	if err != nil {
		return fmt.Errorf("serve %s: %w", p.Name, err)
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if s.PID == 0 {
		s.PID = os.Getpid()
	}
	if err := json.NewEncoder(stdout).Encode(Ready{Addr: s.Addr, PID: s.PID}); err != nil {
		return fmt.Errorf("serve %s: %w", p.Name, err)
	}
	go func() { // ends with the process: nothing interrupts a read from stdin
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-s.Ended:
		return errEnded
	}
}

// emptyDir makes the directory, and refuses one that holds something.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	if len(entries) > 0 {
		return usage("serve: %s is not empty: each run starts with nothing", dir)
	}
	return nil
}

// FreePort gives port 0 a number, for servers that do not choose one or do not say which. Somebody else may take it before
// they do; they fail then, and nothing is measured.
func FreePort(ctx context.Context, addr string) (string, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("address: %w", err)
	}
	if port != "0" {
		return addr, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("find a port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
