// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// settle flushes the file system that a directory is on: what one cell has left in the page cache must not be written out
// while the next one is measured.
func settle(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only to name the file system
	return unix.Syncfs(int(d.Fd()))
}
