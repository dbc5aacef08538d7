// SPDX-License-Identifier: Apache-2.0

package vfs

import "syscall"

// keepSize is FALLOC_FL_KEEP_SIZE: blocks are reserved, the size stays. Valid bytes therefore end at end of file, and
// no run of preallocated zeros can hide a half-written batch.
const keepSize = 1

// datasync flushes the bytes and the metadata needed to read them back (the size), not the times.
func datasync(fd int) error { return syscall.Fdatasync(fd) }

func preallocate(fd int, size int64) error { return syscall.Fallocate(fd, keepSize, 0, size) }

func freeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	return st.Bavail * uint64(unit), nil
}
