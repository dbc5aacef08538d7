// SPDX-License-Identifier: Apache-2.0

// Package peertest runs the program of a peer in a process of its own, the way a comparison does, with next to nothing to
// do; it refuses results that are short of a single message.
package peertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

// patience is how long anything here may take on the slowest machine.
const patience = 2 * time.Minute

const runs = "MARGAY_PEER_RUNS" // set in the processes that are the peer's program

// Main is what TestMain calls: the test's own binary is the program too.
func Main(m *testing.M, p peer.Peer) {
	if os.Getenv(runs) != "" {
		os.Exit(peer.Main(p))
	}
	os.Exit(m.Run())
}

// Command is the peer's program. It ends after patience.
func Command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), runs+"=1")
	return cmd
}

// Server is a server that runs.
type Server struct {
	peer.Ready
	dir     string
	process *os.Process
	stdin   io.Closer
	ended   chan error
	stderr  *strings.Builder
}

// Serve starts a server, which is stopped when the test ends.
func Serve(t *testing.T, args ...string) *Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	cmd := Command(t, append([]string{"serve", "-dir", dir}, args...)...)
	s := &Server{dir: dir, ended: make(chan error, 1), stderr: &strings.Builder{}}
	cmd.Stderr = s.stderr
	var err error
	if s.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = cmd.Process
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	go func() { s.ended <- cmd.Wait() }()
	t.Cleanup(func() { s.Stop(t) })
	if readErr != nil {
		t.Fatalf("serve %v: no first line: %v, %v\n%s", args, readErr, <-s.ended, s.stderr)
	}
	if err := json.Unmarshal([]byte(line), &s.Ready); err != nil {
		t.Fatalf("serve %v: first line %q: %v", args, line, err)
	}
	return s
}

// Stop closes stdin and demands that the server ends well. More calls do nothing.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	if s.stdin == nil {
		return
	}
	_ = s.stdin.Close()
	s.stdin = nil
	if err := <-s.ended; err != nil {
		t.Errorf("serve ended with %v\n%s", err, s.stderr)
	}
}

// Signal sends a signal and returns how the server ended. Stop does nothing after it.
func (s *Server) Signal(t *testing.T, signal os.Signal) error {
	t.Helper()
	stdin := s.stdin
	s.stdin = nil
	defer func() { _ = stdin.Close() }() // not before: it would be what ends the server
	if err := s.process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	return <-s.ended
}

// Drive puts a workload on the server and returns its result, in which nothing may be missing.
func Drive(t *testing.T, s *Server, args ...string) load.Result {
	t.Helper()
	cmd := Command(t, append([]string{"drive", "-addr", s.Addr}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("drive %v: %v\n%s", args, err, stderr.String())
	}
	var r load.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("drive %v: %v in %s", args, err, out)
	}
	if r.Messages == 0 || r.Errors > 0 || r.Missing > 0 {
		t.Fatalf("drive %v: something is missing: %s", args, out)
	}
	return r
}

// Smoke runs every workload once on a server that was started with args.
func Smoke(t *testing.T, args ...string) {
	t.Helper()
	s := Serve(t, args...)
	const n = 2000
	few := []string{"-warmup", "0s", "-messages", "2000"}
	for _, c := range []struct {
		name string
		want int64
		args []string
	}{
		{"one client, one in flight", n, append(few, "-workload", "pub", "-in-flight", "1")},
		{"clients with one in flight", n, append(few, "-workload", "pub", "-in-flight", "1", "-clients", "8")},
		{"a window", n, append(few, "-workload", "pub", "-in-flight", "100", "-size", "1024")},
		{"fixed rate", n, append(few, "-workload", "latency", "-rate", "5000")},
		{"replay", 2 * n, []string{"-workload", "sub", "-messages", "2000", "-subscribers", "2"}},
		{"fan-out", 10 * n, append(few, "-workload", "fanout", "-subscribers", "10", "-connections", "2")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := Drive(t, s, c.args...); r.Messages != c.want {
				t.Errorf("%d messages, want %d", r.Messages, c.want)
			}
		})
	}
}

// SmokeKeys puts, gets and, where there are watches, watches once on a server that was started with args.
func SmokeKeys(t *testing.T, watches bool, args ...string) {
	t.Helper()
	s := Serve(t, args...)
	type workload struct {
		name string
		want int64
		args string
	}
	all := []workload{
		{"put, one in flight", 500, "put -in-flight 1 -messages 500"},
		{"put, a window", 2000, "put -in-flight 64 -messages 2000"},
		{"put, clients with one in flight", 2000, "put -in-flight 1 -clients 8 -messages 2000 -keys 50"},
		{"get, one in flight", 2000, "get -in-flight 1 -messages 2000 -keys 100"},
		{"get, a window", 2000, "get -in-flight 64 -messages 2000 -size 1024"},
		{"get, clients with one in flight", 2000, "get -in-flight 1 -clients 8 -messages 2000"},
	}
	if watches {
		all = append(all,
			workload{"watch a key", 20_000, "watch -watchers 20 -connections 4 -messages 1000"},
			workload{"watch a prefix", 20_000, "watch -watch prefix -watchers 20 -connections 4 -messages 1000 -warmup 50ms"},
			workload{"watch at a rate", 5000, "watch -watchers 10 -connections 2 -rate 1000 -messages 500"},
			workload{"slow watchers", 1000, "put -watchers 10 -connections 2 -messages 1000"},
		)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			if r := Drive(t, s, append([]string{"-warmup", "0s", "-workload"}, strings.Fields(c.args)...)...); r.Messages != c.want {
				t.Errorf("%d messages, want %d", r.Messages, c.want)
			}
		})
	}
}

// SmokeQueue works off, and handles, once on a server that was started with args.
func SmokeQueue(t *testing.T, args ...string) {
	t.Helper()
	s := Serve(t, args...)
	for args, want := range map[string]int64{
		"work -messages 3000":                                        3000,
		"work -messages 3000 -consumers 1 -max-in-flight 10":         3000,
		"work -messages 3000 -size 1024 -consumers 9 -connections 2": 3000,
		"handle -messages 100 -warmup 0s":                            100,
	} {
		t.Run(args, func(t *testing.T) {
			if r := Drive(t, s, append([]string{"-workload"}, strings.Fields(args)...)...); r.Messages != want {
				t.Errorf("%d messages, want %d", r.Messages, want)
			}
		})
	}
}

// ServerDies kills a server while it is driven, and demands that the driver fails, instead of waiting for it to come back.
func ServerDies(t *testing.T, args ...string) {
	t.Helper()
	s := Serve(t)
	before := s.size(t)
	cmd := Command(t, append([]string{"drive", "-addr", s.Addr, "-warmup", "0s"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	driven := make(chan error, 1)
	go func() { driven <- cmd.Wait() }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.size(t) < before+256<<10 { // it is in the middle of it
		select {
		case <-tick.C:
		case err := <-driven:
			t.Fatalf("drive %v ended before the server did: %v", args, err)
		}
	}
	killed := time.Now()
	if err := s.Signal(t, os.Kill); err == nil {
		t.Fatal("a kill was an orderly end")
	}
	if err := <-driven; err == nil {
		t.Errorf("drive %v ended well without a server", args)
	}
	if took := time.Since(killed); took > patience/4 { // the run's own patience is no shorter
		t.Errorf("drive %v took %v to see that its server is gone", args, took)
	}
}

// size is how much the server has stored.
func (s *Server) size(t *testing.T) (n int64) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info os.FileInfo
			if info, err = d.Info(); err == nil {
				n += info.Size()
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // renamed meanwhile
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ExitCode is what a command that is expected to fail ended with, and what it said.
func ExitCode(t *testing.T, cmd *exec.Cmd) (code int, stderr string) {
	t.Helper()
	var text strings.Builder
	cmd.Stderr = &text
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%v: %v, want an exit code", cmd.Args, err)
	}
	return exit.ExitCode(), text.String()
}
