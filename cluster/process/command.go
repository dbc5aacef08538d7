// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"time"
)

// Result is what a command did.
type Result struct {
	Code           int
	Stdout, Stderr string
}

// Command runs a `margay` command against the node, as its user, until it ends.
func (p *Process) Command(stdin io.Reader, args ...string) Result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Env = append(p.environment(), "MARGAY_CONTEXT="+p.ContextFile(), "MARGAY_ADDRESS="+p.URL())
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdin, &stdout, &stderr, time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		p.t.Fatalf("waited %v for margay %q to end; it said:\n%s%s", patience, args, tail(stdout.String(), 4096), stderr.String())
	}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		p.t.Fatalf("run margay %q: %v", args, err)
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// Must runs a command that has to succeed, and returns its standard output.
func (p *Process) Must(stdin io.Reader, args ...string) string {
	p.t.Helper()
	r := p.Command(stdin, args...)
	if r.Code != 0 {
		p.t.Fatalf("margay %q: exit code %d\n%s", args, r.Code, r.Stderr)
	}
	return r.Stdout
}
