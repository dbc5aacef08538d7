// SPDX-License-Identifier: Apache-2.0

package load

import "golang.org/x/sys/unix"

// Volatile says that a directory lies in memory, where a flush costs nothing and saves nothing.
func Volatile(dir string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return false
	}
	return fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC
}
