// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package child

import "syscall"

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
