// SPDX-License-Identifier: Apache-2.0

package work

import "syscall"

// attributes put the command into a process group of its own, so that Ctrl-C reaches its parent alone, which lets it finish,
// and have the kernel kill it should its parent be killed: its message is then handed to another.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
