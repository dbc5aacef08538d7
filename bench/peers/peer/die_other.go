// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package peer

import "syscall"

func dieTogether() *syscall.SysProcAttr { return nil }

func lockThread() {}
