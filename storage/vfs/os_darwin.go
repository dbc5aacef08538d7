// SPDX-License-Identifier: Apache-2.0

package vfs

import "syscall"

// datasync asks the drive itself to flush: fsync on this system stops at the drive's cache.
func datasync(fd int) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_FULLFSYNC, 0); errno != 0 {
		return errno
	}
	return nil
}

// preallocate does nothing: this system has no reservation that keeps the size.
func preallocate(int, int64) error { return nil }

func freeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}
