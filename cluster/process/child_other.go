// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import "syscall"

// attributes would have the kernel kill the child with its parent; elsewhere than on Linux the cleanup has to do.
func attributes() *syscall.SysProcAttr { return nil }
