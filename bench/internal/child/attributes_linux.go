// SPDX-License-Identifier: Apache-2.0

package child

import "syscall"

// attributes: a group of its own, so that the terminal's Ctrl-C comes to us alone and children are stopped in order; and
// death with the parent, should that be killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
