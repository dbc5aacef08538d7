// SPDX-License-Identifier: Apache-2.0

package demo

import "syscall"

// attributes put the node into a process group of its own, so that Ctrl-C reaches the demo alone and the
// demo ends it in order, and have the kernel kill it should the demo itself be killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
