// SPDX-License-Identifier: Apache-2.0

// Package child runs the processes of a measurement and sees to it that none outlives the one that started them, however
// that one ends; it touches processes that it started, and no other.
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startWithin is how long a server may take to say its address.
	startWithin = 60 * time.Second
	// stopWithin is how long it may take to end in order before it is killed.
	stopWithin = 10 * time.Second
)

// Command is what to run. Env is added to this process's own.
type Command struct {
	Argv []string
	Env  []string
}

func (c Command) String() string {
	return strings.Join(append(append([]string{}, c.Env...), c.Argv...), " ")
}

// ErrUnavailable is what a program has told by its exit code: what it needs is not installed on this machine.
var ErrUnavailable = errors.New("not available here")

// unavailable is that exit code (EX_UNAVAILABLE).
const unavailable = 69

// Ready is the first line that a server prints. Margay's own words for it are understood too.
type Ready struct {
	Addr    string `json:"addr"`
	PID     int    `json:"pid"`
	Address string `json:"address"`
	HTTP    string `json:"http"`
}

// Server is a process that runs until it is stopped.
type Server struct {
	Ready
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *tail
	exited chan struct{}
	stop   sync.Once
}

// Start runs a server and returns once it has said where it listens.
func Start(ctx context.Context, c Command) (*Server, error) {
	cmd, stderr := prepare(c)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &Server{cmd: cmd, stdin: stdin, stderr: stderr, exited: make(chan struct{})}
	lines := make(chan Ready, 1)
	read := func() {
		in := bufio.NewScanner(stdout)
		for in.Scan() {
			var r Ready
			if json.Unmarshal(in.Bytes(), &r) == nil && (r.Addr != "" || r.Address != "") {
				select {
				case lines <- r:
				default:
				}
			}
		}
	}
	if err := run(cmd, read, s.exited); err != nil {
		return nil, err
	}
	late := time.NewTimer(startWithin)
	defer late.Stop()
	select {
	case s.Ready = <-lines:
		if s.Addr == "" {
			s.Addr = s.Address
		}
		if s.PID == 0 {
			s.PID = cmd.Process.Pid // else it speaks for a process of its own
		}
		return s, nil
	case <-s.exited:
		err = fmt.Errorf("start %s: it ended: %s", c, stderr)
		if cmd.ProcessState.ExitCode() == unavailable {
			err = fmt.Errorf("%s: %w", stderr, ErrUnavailable)
		}
	case <-late.C:
		err = fmt.Errorf("start %s: it said no address within %v: %s", c, startWithin, stderr)
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.Stop()
	return nil, err
}

// Stop ends the server, in order if it can, and returns when it is gone.
func (s *Server) Stop() {
	s.stop.Do(func() {
		_ = s.stdin.Close()
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		late := time.NewTimer(stopWithin)
		defer late.Stop()
		select {
		case <-s.exited:
		case <-late.C:
			_ = s.cmd.Process.Kill()
		}
	})
	<-s.exited
}

// Log is the end of what the server has written to standard error.
func (s *Server) Log() string { return s.stderr.String() }

// Run runs a command to its end and returns what it printed. When ctx ends, so does the command.
func Run(ctx context.Context, c Command) ([]byte, error) {
	cmd, stderr := prepare(c)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	exited := make(chan struct{})
	if err := run(cmd, nil, exited); err != nil {
		return nil, err
	}
	select {
	case <-exited:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.NewTimer(stopWithin)
		defer late.Stop()
		select {
		case <-exited:
		case <-late.C:
			_ = cmd.Process.Kill()
			<-exited
		}
		return nil, fmt.Errorf("run %s: %w", c, errors.Join(ctx.Err(), errors.New(stderr.String())))
	}
	if !cmd.ProcessState.Success() {
		return stdout.Bytes(), fmt.Errorf("run %s: %s: %s", c, cmd.ProcessState, stderr)
	}
	return stdout.Bytes(), nil
}

func prepare(c Command) (*exec.Cmd, *tail) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...) //nolint:noctx // ended by Stop, by Run, and by the kernel when we die
	stderr := &tail{}
	cmd.Env, cmd.Stderr, cmd.SysProcAttr, cmd.WaitDelay = append(os.Environ(), c.Env...), stderr, attributes(), time.Second
	return cmd, stderr
}

// run starts a command and waits for it in a goroutine of its own; read, if any, reads its output until it ends.
func run(cmd *exec.Cmd, read func(), exited chan<- struct{}) error {
	started := make(chan error, 1)
	go func() {
		// The kernel ties the order to kill a child with its parent to the thread that started it, so that thread has to
		// live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(exited)
		if read != nil {
			read()
		}
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return nil
}

// tail keeps the last few kilobytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
