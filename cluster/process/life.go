// SPDX-License-Identifier: Apache-2.0

package process

import (
	"syscall"
	"time"
)

// Start starts the node and returns once it is ready; anything else fails the test.
func (p *Process) Start() {
	p.t.Helper()
	p.Spawn()
	select {
	case <-p.run.ready:
	case <-p.run.exited:
		p.t.Fatalf("the node did not become ready: %s; it said:\n%s", p.run.exit(), p.run.stderr.String())
	case <-time.After(patience):
		p.t.Fatalf("waited %v for the node to become ready", patience)
	}
}

// Spawn starts the node and returns at once. What it becomes is told by Ready and Exited.
func (p *Process) Spawn() {
	p.t.Helper()
	if p.run != nil && !p.run.over() {
		p.t.Fatalf("the node on %s runs already", p.cfg.Data)
	}
	args := append([]string{p.binary, "serve", "--data", p.cfg.Data, "--listen", p.listen, "--http", p.http, "--output", "json"}, p.cfg.Args...)
	r, err := spawn(append(append([]string{}, p.cfg.Wrap...), args...), p.environment(), p.log)
	if err != nil {
		p.t.Fatalf("start node: %v", err)
	}
	p.run = r
}

// Ready is closed once the newest run has said that it is ready.
func (p *Process) Ready() <-chan struct{} { return p.run.ready }

// Exited is closed once the newest run has ended and was waited for.
func (p *Process) Exited() <-chan struct{} { return p.run.exited }

// Wait waits until the newest run has ended, however that came about.
func (p *Process) Wait() Exit {
	p.t.Helper()
	p.run.expected = true
	select {
	case <-p.run.exited:
	case <-time.After(patience):
		p.run.signal(syscall.SIGQUIT) // its goroutines go to the log
		p.t.Fatalf("waited %v for the node to end", patience)
	}
	return p.run.exit()
}

// Kill ends the node as a crash of the machine's process table would: SIGKILL, frozen or not.
func (p *Process) Kill() {
	p.t.Helper()
	p.run.signal(syscall.SIGKILL)
	p.Wait()
}

// Terminate asks for an orderly end and returns at once.
func (p *Process) Terminate() {
	p.run.expected = true
	p.run.signal(syscall.SIGTERM)
}

// Stop asks for an orderly end and waits for it.
func (p *Process) Stop() Exit {
	p.t.Helper()
	p.Terminate()
	return p.Wait()
}

// Hangup asks the node to read its configuration and certificates again, and returns at once.
func (p *Process) Hangup() { p.run.signal(syscall.SIGHUP) }

// Freeze stops the node where it is, until Resume: it keeps its directory and sockets and does nothing.
func (p *Process) Freeze() { p.run.signal(syscall.SIGSTOP) }

// Resume lets a frozen node go on.
func (p *Process) Resume() { p.run.signal(syscall.SIGCONT) }
