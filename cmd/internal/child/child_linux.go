// SPDX-License-Identifier: Apache-2.0

package child

import "syscall"

// attributes put the node into a process group of its own, so that Ctrl-C reaches its parent alone, which
// ends it in order, and have the kernel kill it should its parent be killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
