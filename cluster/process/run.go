// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// run is one life of a node.
type run struct {
	cmd      *exec.Cmd
	stderr   *log
	ready    chan struct{}
	exited   chan struct{} // closed once it was waited for
	expected bool          // the test knows, or asked for, the end
}

// spawn starts a command that says on standard output when it is ready. Whatever becomes of the test, nothing of it
// stays behind.
func spawn(argv, env []string, all *log) (*run, error) {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // the run is ended by signals, and by the cleanup at the latest
	r := &run{cmd: cmd, stderr: &log{}, ready: make(chan struct{}), exited: make(chan struct{})}
	cmd.Env, cmd.SysProcAttr = env, attributes()
	cmd.Stderr = io.MultiWriter(r.stderr, all) // a pipe, so that a limit on file sizes does not silence the node
	cmd.WaitDelay = 5 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
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
		defer close(r.exited)
		r.listen(stdout)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", argv[0], err)
	}
	return r, nil
}

// listen reads standard output until its end.
func (r *run) listen(stdout io.Reader) {
	said := false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var s struct{ Address, HTTP string }
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Address != "" && !said {
			said = true
			close(r.ready)
		}
	}
}

func (r *run) over() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

func (r *run) signal(s syscall.Signal) {
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic(fmt.Sprintf("signal our own child: %v", err)) // no signal to a child of ours is refused
	}
}

// exit is how the run ended; it is over.
func (r *run) exit() Exit {
	e := Exit{Code: r.cmd.ProcessState.ExitCode(), Stderr: r.stderr.String()}
	if status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal()
	}
	return e
}

// environment keeps a node and its commands away from the user's configuration and data.
func (p *Process) environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MARGAY_") && !strings.HasPrefix(kv, "XDG_") && !strings.HasPrefix(kv, "HOME=") {
			env = append(env, kv)
		}
	}
	env = append(env, "HOME="+p.home, "XDG_CONFIG_HOME="+filepath.Join(p.home, "config"),
		"XDG_DATA_HOME="+filepath.Join(p.home, "share"), "GOTRACEBACK=all")
	return append(env, p.cfg.Env...)
}

// log keeps what a process writes.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
