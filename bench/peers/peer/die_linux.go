// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"runtime"
	"syscall"
)

// dieTogether has the system end the server when we end, however that happens.
func dieTogether() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func lockThread() { runtime.LockOSThread() }
