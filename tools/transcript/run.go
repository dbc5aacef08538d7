// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	commandDeadline = time.Minute      // for a command to end, or for a background one to print what it should
	stopDeadline    = 15 * time.Second // for a background command to end after SIGTERM
	nodePort        = "127.0.0.1:7420"
	nodeHTTP        = "127.0.0.1:7421"
)

// shell runs the commands of one page.
type shell struct {
	dir     string
	env     []string
	started []*process // in the background, in order
}

// process is a command with all that it started.
type process struct {
	step   step
	cmd    *exec.Cmd
	output lockedBuffer
	ended  chan struct{} // closed when it has ended
	err    error         // how, to be read after ended
	judged bool          // its end was compared with the page already
}

// lockedBuffer is read while a command still writes.
type lockedBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed and replaced at each write
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written != nil {
		close(b.written)
		b.written = nil
	}
	return b.text.Write(p)
}

// read returns what was written so far, and a channel that is closed at the next write.
func (b *lockedBuffer) read() (string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.written == nil {
		b.written = make(chan struct{})
	}
	return b.text.String(), b.written
}

// runPage runs the steps of one page in a fresh home, beside a fresh node unless the page starts one itself.
func runPage(ctx context.Context, bin string, steps []step) (err error) {
	top, err := os.MkdirTemp("", "margay-page-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(top)) }()
	sh, err := newShell(bin, top)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sh.stop()) }()
	if err := portsFree(ctx); err != nil {
		return err
	}
	if !startsNode(steps) {
		if err := sh.startNode(ctx); err != nil {
			return err
		}
	}
	for _, s := range steps {
		if err := sh.run(ctx, s); err != nil {
			return errors.Join(err, sh.background())
		}
	}
	return nil
}

// background says what the commands in the background have said, for whoever must find out why a page failed.
func (sh *shell) background() error {
	var all []error
	for _, p := range sh.started {
		if said, _ := p.output.read(); p.step.background && said != "" {
			all = append(all, fmt.Errorf("the background command %q said:\n%s", p.step.command, said))
		}
	}
	return errors.Join(all...)
}

// startsNode says whether a page brings its own node: one command that is "margay serve" or "margay demo".
func startsNode(steps []step) bool {
	for _, s := range steps {
		if strings.HasPrefix(s.command, "margay serve") || strings.HasPrefix(s.command, "margay demo") {
			return true
		}
	}
	return false
}

func newShell(bin, top string) (*shell, error) {
	home := filepath.Join(top, "home")
	sh := &shell{dir: filepath.Join(top, "empty")}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "MARGAY_") && !strings.HasPrefix(variable, "XDG_") {
			sh.env = append(sh.env, variable)
		}
	}
	sh.env = append(sh.env,
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+home, "TERM=dumb", "LC_ALL=C.UTF-8", "TZ=UTC",
		"XDG_CONFIG_HOME="+filepath.Join(home, ".config"), "XDG_DATA_HOME="+filepath.Join(home, ".local/share"),
		"XDG_STATE_HOME="+filepath.Join(home, ".local/state"), "XDG_CACHE_HOME="+filepath.Join(home, ".cache"))
	for _, dir := range []string{home, sh.dir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return sh, nil
}

// portsFree refuses to run beside another node.
func portsFree(ctx context.Context) error {
	var config net.ListenConfig
	udp, err := config.ListenPacket(ctx, "udp", nodePort)
	if err != nil {
		return fmt.Errorf("0: the node's port is taken, stop the other node first: %w", err)
	}
	tcp, err := config.Listen(ctx, "tcp", nodeHTTP)
	if err != nil {
		return errors.Join(fmt.Errorf("0: the node's HTTP port is taken, stop the other node first: %w", err), udp.Close())
	}
	return errors.Join(udp.Close(), tcp.Close())
}

// startNode starts the node of a page that has none, and waits until it is ready and has said where its context is,
// without which commands find nobody.
func (sh *shell) startNode(ctx context.Context) error {
	p, err := sh.start(ctx, step{command: "margay serve", background: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commandDeadline)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			said, _ := p.output.read()
			return fmt.Errorf("0: the page's node ended before it was ready: %w\n%s", p.err, said)
		case <-ctx.Done():
			said, _ := p.output.read()
			return fmt.Errorf("0: the page's node was not ready at http://%s/readyz: %w\n%s", nodeHTTP, ctx.Err(), said)
		case <-tick.C:
			if said, _ := p.output.read(); strings.Contains(said, "The context ") && ready(ctx) {
				return nil
			}
		}
	}
}

func ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+nodeHTTP+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// run runs one step and compares.
func (sh *shell) run(ctx context.Context, s step) error {
	p, err := sh.start(ctx, s)
	if err != nil {
		return err
	}
	deadline := time.NewTimer(commandDeadline)
	defer deadline.Stop()
	for {
		said, more := p.output.read()
		if s.background && matches(s.want, split(said), true) {
			return nil
		}
		if !s.background {
			more = nil // compared as a whole, when it has ended
		}
		select {
		case <-more:
		case <-p.ended:
			p.judged = true
			return p.compare()
		case <-deadline.C:
			return fmt.Errorf("%d: $ %s\n  not done after %v\n%s", s.line, s.command, commandDeadline, difference(s.want, split(said)))
		case <-ctx.Done():
			return fmt.Errorf("%d: $ %s: %w", s.line, s.command, ctx.Err())
		}
	}
}

// compare holds a command that has ended to its step.
func (p *process) compare() error {
	s := p.step
	said, _ := p.output.read()
	if !matches(s.want, split(said), false) {
		return fmt.Errorf("%d: $ %s\n%s", s.line, s.command, difference(s.want, split(said)))
	}
	if code := p.cmd.ProcessState.ExitCode(); code != s.exit {
		return fmt.Errorf("%d: $ %s\n  exit code %d, want %d", s.line, s.command, code, s.exit)
	}
	return nil
}

// start starts a step in a process group of its own, so that whatever it starts is stopped with it.
func (sh *shell) start(ctx context.Context, s step) (*process, error) {
	p := &process{step: s, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), "bash", "-c", s.command) // stopped below, as a group
	p.cmd.Dir, p.cmd.Env = sh.dir, sh.env
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = time.Second // a command that left a child behind with its output does not hold us
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%d: $ %s: %w", s.line, s.command, err)
	}
	sh.started = append(sh.started, p)
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends all that the page started, the last first, and waits for it.
func (sh *shell) stop() error {
	var failed []error
	for _, p := range slices.Backward(sh.started) {
		select {
		case <-p.ended:
			if code := p.cmd.ProcessState.ExitCode(); !p.judged && p.step.background && code != p.step.exit {
				said, _ := p.output.read()
				failed = append(failed, fmt.Errorf("%d: $ %s &\n  ended before the page did, with exit code %d\n%s",
					p.step.line, p.step.command, code, said))
			}
		default:
		}
		kill := func(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) } // gone is what we want
		kill(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(stopDeadline):
			failed = append(failed, fmt.Errorf("%d: $ %s\n  still there %v after SIGTERM", p.step.line, p.step.command, stopDeadline))
		}
		kill(syscall.SIGKILL)
		<-p.ended
	}
	return errors.Join(failed...)
}
