// SPDX-License-Identifier: Apache-2.0

// Package work runs a command for one message and says what its end means for the message; it touches no queue, gives the
// command its value on standard input and the rest in the environment, and refuses to leave anything of it running
// once it was told to end.
package work

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"
)

// RejectStatus is the exit status that says that the message itself is wrong, and no other try will do better: EX_DATAERR of
// sysexits.h.
const RejectStatus = 65

// DefaultGrace is between the request to end and the kill.
const DefaultGrace = 5 * time.Second

const (
	// lastWords is how much of the end of standard error is kept for the reason.
	lastWords = 1 << 10
	maxReason = 200
)

// Outcome is what the end of a command means for its message.
type Outcome uint8

// The outcomes.
const (
	Done     Outcome = iota // exit 0: the message is done
	Retry                   // any other end: the message is tried again
	Rejected                // exit RejectStatus: a dead letter at once
	Stopped                 // it was told to end before it was done
)

// Command is what is run for each message. It is safe for concurrent use.
type Command struct {
	Argv   []string // the first is a path or a name in PATH
	Env    []string
	Stdout io.Writer
	Stderr io.Writer
	Within time.Duration // longer runs are killed and tried again; 0: as long as it takes
	Grace  time.Duration // 0: DefaultGrace
}

// Result is how a command ended.
type Result struct {
	Outcome Outcome
	Status  int    // exit status; -1 when it ended otherwise
	Reason  string // for a person: how it ended, and the last line of its standard error
	Ran     time.Duration
}

// Check reports whether there is such a command, so that a misspelled one costs no message an attempt.
func (c *Command) Check() error {
	_, err := exec.LookPath(c.Argv[0])
	return err
}

// Run runs the command with the value on standard input. When ctx ends first, all of its process group is told to end, and
// killed after a grace. An error means that it could not be started.
func (c *Command) Run(ctx context.Context, value []byte, env []string) (Result, error) {
	// The kernel ties the order to kill the command with its parent to the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	run, cancel := ctx, context.CancelFunc(func() {})
	if c.Within > 0 {
		run, cancel = context.WithTimeout(ctx, c.Within)
	}
	defer cancel()
	cmd := exec.CommandContext(run, c.Argv[0], c.Argv[1:]...) //nolint:gosec // running what the user names is what it is for
	words := &tail{}
	cmd.Env = append(append([]string{}, c.Env...), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = bytes.NewReader(value), c.Stdout, io.MultiWriter(c.Stderr, words), attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	if cmd.WaitDelay = c.Grace; cmd.WaitDelay <= 0 {
		cmd.WaitDelay = DefaultGrace
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return Result{Outcome: Stopped, Status: -1, Reason: "it was not begun"}, nil
		}
		return Result{}, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	_ = cmd.Wait() // its state says more; output that a grandchild still holds is not waited for beyond the grace
	if run.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what is left of its group; mostly nothing is
	}
	r := Result{Status: cmd.ProcessState.ExitCode(), Ran: time.Since(began)}
	switch {
	case r.Status == 0:
		return r, nil // also when it was told to end: it has done its work
	case ctx.Err() != nil:
		r.Outcome, r.Reason = Stopped, "it was told to end"
		return r, nil
	case run.Err() != nil:
		r.Outcome, r.Reason = Retry, fmt.Sprintf("it did not end within %v", c.Within)
	case r.Status == RejectStatus:
		r.Outcome, r.Reason = Rejected, cmd.ProcessState.String()
	default:
		r.Outcome, r.Reason = Retry, cmd.ProcessState.String()
	}
	if last := words.last(); last != "" {
		r.Reason += ": " + last
	}
	return r, nil
}

// Found reports whether an error of Run says that there is no such command, or none that may be run: the next message would
// fare no better.
func Found(err error) bool {
	return !errors.Is(err, exec.ErrNotFound) && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EACCES)
}

// tail keeps the end of what is written.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[max(0, len(p)-lastWords):]...)
	if over := len(t.b) - lastWords; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

// last is the last line with something in it, at most maxReason bytes of it.
func (t *tail) last() string {
	line := strings.TrimSpace(strings.ToValidUTF8(string(t.b), "\ufffd"))
	if i := strings.LastIndexAny(line, "\r\n"); i >= 0 {
		line = line[i+1:]
	}
	if len(line) <= maxReason {
		return line
	}
	end := maxReason
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return line[:end]
}

// Shared makes a writer that several commands may write to at once. A file can be as it is.
func Shared(w io.Writer) io.Writer {
	return &shared{w: w}
}

type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}
