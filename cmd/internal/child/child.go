// SPDX-License-Identifier: Apache-2.0

// Package child runs this binary again as a node of its own below a temporary directory, as a process that can be killed the
// way a machine kills it; it touches nothing of the user's and refuses to leave the process behind.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	readyWithin = 10 * time.Second
	stopWithin  = 4 * time.Second // a second more than a node takes at most
)

// Place is where the node lives: everything of it below one temporary directory.
type Place struct{ Dir string }

// Data is the node's data directory.
func (p Place) Data() string { return filepath.Join(p.Dir, "data") }

// Context is the file of the context that the node writes.
func (p Place) Context() string { return filepath.Join(p.Data(), "context.yaml") }

func (p Place) log() string { return filepath.Join(p.Dir, "node.log") }

// environment keeps the node away from the user's own configuration and data: one that replaced a user's current context
// would send his next command to a node that is gone.
func (p Place) environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MARGAY_") && !strings.HasPrefix(kv, "XDG_") {
			env = append(env, kv)
		}
	}
	return append(env, "XDG_CONFIG_HOME="+filepath.Join(p.Dir, "config"), "XDG_DATA_HOME="+filepath.Join(p.Dir, "share"))
}

// Serving is what `margay serve --output json` prints when it is ready.
type Serving struct {
	Address string `json:"address"`
	HTTP    string `json:"http"`
	PID     int    `json:"pid"`
}

// Child is the node.
type Child struct {
	Serving

	process *os.Process
	exited  chan struct{} // closed once it was waited for
}

// Exited is closed once the node has ended, for whatever reason.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Start starts a node with further arguments of `margay serve`, and returns once it is ready.
func Start(ctx context.Context, executable string, p Place, args ...string) (*Child, error) {
	logFile, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	defer func() { _ = logFile.Close() }() // the child has a handle of its own
	// The node outlives the step that starts it: only kill and stop end it.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), executable, append([]string{"serve", "--output", "json", "--data", p.Data()}, args...)...)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = p.environment(), logFile, attributes()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	c := &Child{exited: make(chan struct{})}
	started := make(chan error, 1)
	said := make(chan Serving, 1)
	go func() {
		// The kernel ties the order to kill the child with its parent to the thread that started it, so
		// that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.exited)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.process = cmd.Process
		started <- nil
		listenTo(stdout, said)
		_ = cmd.Wait() // how it ended is in its log, and it is mostly killed
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start node %s: %w", executable, err)
	}
	late := time.NewTimer(readyWithin)
	defer late.Stop()
	select {
	case c.Serving = <-said:
		return c, nil
	case <-c.exited:
		err = errors.New("it ended at once")
	case <-late.C:
		err = fmt.Errorf("it was not ready within %v", readyWithin)
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.Stop()
	return nil, fmt.Errorf("start node: %w%s", err, p.LastWords())
}

// listenTo reads what the node prints until it ends.
func listenTo(stdout io.Reader, said chan<- Serving) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var s Serving
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Address != "" {
			select {
			case said <- s:
			default: // it says so once
			}
		}
	}
}

// LastWords is the end of the node's log, for a report of what failed.
func (p Place) LastWords() string {
	b, err := os.ReadFile(p.log())
	if err != nil || len(b) == 0 {
		return ""
	}
	return "; its log ends with:\n" + string(b[max(0, len(b)-2000):])
}

// Kill ends the node the hardest way there is and waits until it is gone.
func (c *Child) Kill() error {
	err := c.process.Kill()
	<-c.exited
	if err != nil {
		return fmt.Errorf("kill node: %w", err)
	}
	return nil
}

// Stop ends the node in order, and by force when that takes too long.
func (c *Child) Stop() {
	if c.process.Signal(syscall.SIGTERM) == nil {
		late := time.NewTimer(stopWithin)
		defer late.Stop()
		select {
		case <-c.exited:
			return
		case <-late.C:
		}
	}
	_ = c.process.Kill() // it may have ended by itself in between
	<-c.exited
}
