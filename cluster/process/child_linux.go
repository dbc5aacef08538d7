// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes have the kernel kill the child should the test's process end first, and keep the terminal's Ctrl-C to the
// test alone.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// The resources that Limit can bound.
const (
	FileSize = unix.RLIMIT_FSIZE  // bytes that a file may have: a write beyond is short, the next fails
	Files    = unix.RLIMIT_NOFILE // descriptors
)

// Limit bounds a resource of the running node from now on. The hard limit stays, so that Unlimit can undo it.
func (p *Process) Limit(resource int, value uint64) {
	p.t.Helper()
	p.setLimit(resource, func(l *unix.Rlimit) { l.Cur = value })
}

// Unlimit gives the running node all of a resource that it may have.
func (p *Process) Unlimit(resource int) {
	p.t.Helper()
	p.setLimit(resource, func(l *unix.Rlimit) { l.Cur = l.Max })
}

func (p *Process) setLimit(resource int, change func(*unix.Rlimit)) {
	p.t.Helper()
	var l unix.Rlimit
	err := unix.Prlimit(p.PID(), resource, nil, &l)
	if err == nil {
		change(&l)
		err = unix.Prlimit(p.PID(), resource, &l, nil)
	}
	if err != nil {
		p.t.Fatal(fmt.Errorf("limit the node: %w", err))
	}
}
