// SPDX-License-Identifier: Apache-2.0

//go:build unix

package node

import "syscall"

// descriptorLimit is how many files this process may have open; 0 when that cannot be told.
func descriptorLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0
	}
	return int(min(l.Cur, 1<<30))
}
