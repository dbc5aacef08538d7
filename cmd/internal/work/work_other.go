// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package work

import "syscall"

// attributes put the command into a process group of its own, so that Ctrl-C reaches its parent alone, which lets it finish.
// These systems cannot tie a child's life to its parent's.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
