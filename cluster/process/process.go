// SPDX-License-Identifier: Apache-2.0

// Package process runs real `margay` processes for tests and does to them what machines do: kill, freeze, stop, limit; it
// writes below temporary directories only, and refuses to outlive the test that started them.
package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"margay.dev/wire/control"
	"margay.dev/wire/session/sessiontest"
)

// patience is how long anything that must happen may take. No test passes by it, and none depends on less.
const patience = 60 * time.Second

// Config says how a node is run. The zero value is a node on a directory and ports of its own.
type Config struct {
	Binary string // `margay`; default one built from the sources around the test

	Data string   // data directory; default a new one, removed after the test
	Args []string // more arguments of `margay serve`
	Env  []string // more environment, as KEY=value
	// Wrap is a command that runs the node's: Ulimit, or `strace -D ...` (with -D the node stays the child that signals
	// go to).
	Wrap []string
}

// Ulimit is a Config.Wrap that runs a node under a limit of the shell's.
func Ulimit(flag string, value int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf(`ulimit %s %d && exec "$0" "$@"`, flag, value)}
}

// Process is a node as a process of its own. It can be started again and again, on the same directory and ports. Its
// methods are for one goroutine.
type Process struct {
	t            testing.TB
	cfg          Config
	binary       string
	home         string
	listen, http string
	log          *log
	run          *run            // the newest; nil before the first
	control      *control.Client // made on first use
}

// Exit is how a process ended.
type Exit struct {
	Code   int // -1 when a signal ended it
	Signal syscall.Signal
	Stderr string // of this run only
}

// New prepares a node without starting it.
func New(t testing.TB, cfg Config) *Process {
	t.Helper()
	home := t.TempDir()
	binary := cfg.Binary
	if binary == "" {
		binary = Binary(t)
	}
	p := &Process{t: t, cfg: cfg, binary: binary, home: home, log: &log{}}
	if p.cfg.Data == "" {
		p.cfg.Data = filepath.Join(home, "data")
	}
	p.listen, p.http = freePort(t, "udp", "tcp"), freePort(t, "tcp")
	t.Cleanup(p.end)
	return p
}

// Start runs a node until the test ends, and returns once it is ready.
func Start(t testing.TB, cfg Config) *Process {
	t.Helper()
	p := New(t, cfg)
	p.Start()
	return p
}

// freePort finds a port that is free and lies below those that the system hands out on its own: while a node is down,
// nobody's client socket takes the port that the node will come back on.
func freePort(t testing.TB, networks ...string) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(22_000)))
		if !slices.ContainsFunc(networks, func(n string) bool { return !isFree(n, addr) }) {
			return addr
		}
	}
	t.Fatalf("no port free for %v in 100 tries", networks)
	return ""
}

func isFree(network, addr string) bool {
	if network == "udp" {
		c, err := net.ListenPacket(network, addr) //nolint:noctx // local and at once
		return err == nil && c.Close() == nil
	}
	l, err := net.Listen(network, addr) //nolint:noctx // local and at once
	return err == nil && l.Close() == nil
}

// end is the cleanup: nothing of the node is left, its log is shown when the test failed, and a node that broke down by
// itself fails the test, whatever the test looked at.
func (p *Process) end() {
	p.t.Helper()
	if r := p.run; r != nil {
		select {
		case <-r.exited:
			if !r.expected {
				p.t.Errorf("the node ended by itself: %s", r.exit())
			}
		default:
			r.signal(syscall.SIGKILL)
			<-r.exited
		}
	}
	text := p.log.String()
	for _, broken := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: ", "SIGSEGV"} {
		if strings.Contains(text, broken) {
			p.t.Errorf("the node's log shows %q", broken)
		}
	}
	if p.t.Failed() {
		p.t.Logf("log of the node on %s:\n%s", p.cfg.Data, tail(text, 64<<10))
	}
}

func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "..." + s[len(s)-n:]
}

func (e Exit) String() string {
	if e.Code < 0 {
		return "ended by " + e.Signal.String()
	}
	return "exit code " + strconv.Itoa(e.Code)
}

// Data is the data directory.
func (p *Process) Data() string { return p.cfg.Data }

// Address is host:port of the broker.
func (p *Process) Address() string { return p.listen }

// HTTP is the base URL of the control plane, probes and metrics.
func (p *Process) HTTP() string { return "http://" + p.http }

// Log is what all runs of the node have written to standard error.
func (p *Process) Log() string { return p.log.String() }

// PID is the process of the newest run.
func (p *Process) PID() int { return p.run.cmd.Process.Pid }

// ContextFile is the file that says how to reach the node.
func (p *Process) ContextFile() string { return filepath.Join(p.cfg.Data, "context.yaml") }

// URL is the broker's address for a client, with the transport that is tested.
func (p *Process) URL() string { return sessiontest.URL(p.listen) }

// Context is how to reach the node, over the transport that is tested; it holds the API key. The node must have been ready
// once.
func (p *Process) Context() control.Context {
	p.t.Helper()
	c, err := control.LoadContext(p.ContextFile())
	if err != nil {
		p.t.Fatalf("the node's context: %v", err)
	}
	c.Addresses = []string{p.URL()}
	return *c
}
