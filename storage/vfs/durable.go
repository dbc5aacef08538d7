// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"
	"io"
	"path"
)

// MakeDir makes dir, which lies below root, and every missing directory between them, and makes all their names durable.
// It flushes every level even where the directory is there already: whoever made it, another goroutine or a process that
// was killed, may not have come to flush its name yet, and data acknowledged below it would be lost with it.
func MakeDir(fsys FS, root, dir string) error {
	root, dir = path.Clean(root), path.Clean(dir)
	if !below(root, dir) {
		return fmt.Errorf("make directory %s: not below %s", dir, root)
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("make directory %s: %w", dir, err)
	}
	for d := dir; d != root; {
		d = path.Dir(d)
		if err := fsys.SyncDir(d); err != nil {
			return fmt.Errorf("make directory %s: flush %s: %w", dir, d, err)
		}
	}
	return nil
}

func below(root, dir string) bool {
	for d := dir; d != path.Dir(d); {
		d = path.Dir(d)
		if d == root {
			return true
		}
	}
	return false
}

// TempSuffix ends the name of a file that WriteFile has not finished. A reader ignores such files; they may be removed.
const TempSuffix = ".tmp"

// WriteFile replaces name by data so that after a power cut at any moment the file holds the old bytes or the new ones,
// and the new ones once it has returned.
func WriteFile(fsys FS, name string, data []byte) error {
	temp := name + TempSuffix
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, ErrNotExist) {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := fsys.Create(temp)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync() // before the rename, or the new name could survive without its bytes
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = fsys.Remove(temp) // a leftover is harmless; the first error is the one that matters
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.Rename(temp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// ReadFile returns the bytes of name. It refuses a file larger than limit before it allocates anything.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if size > limit {
		return nil, fmt.Errorf("read %s: %d bytes where at most %d are expected", name, size, limit)
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); n < len(data) || (err != nil && !errors.Is(err, io.EOF)) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
