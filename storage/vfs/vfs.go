// SPDX-License-Identifier: Apache-2.0

// Package vfs is the narrow file system that storage writes through: it names the few operations a durable log needs,
// may touch nothing but the files it is asked for, and refuses to hide whether a byte or a name has been flushed.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// FS is a file system as a log sees it. Names are slash-separated paths. An error that means "no such name" or "name
// taken" satisfies errors.Is with fs.ErrNotExist or fs.ErrExist; one that means "no room" satisfies IsFull.
//
// A name (of a file created, renamed or removed, or of a directory made) survives a power cut only once SyncDir of its
// parent has returned; the bytes of a file survive only once its own Sync has returned. Neither implies the other.
//
// All methods may be called from several goroutines.
type FS interface {
	// Create makes an empty file and opens it for reading and writing. It fails if the name exists.
	Create(name string) (File, error)
	// OpenFile opens an existing file for reading and writing.
	OpenFile(name string) (File, error)
	// OpenRead opens an existing file for reading; everything that writes to it fails.
	OpenRead(name string) (File, error)
	// Remove deletes a file or an empty directory. Files that are open stay readable.
	Remove(name string) error
	// Rename moves a file or directory; a file already at newName is replaced atomically.
	Rename(oldName, newName string) error
	// MkdirAll makes dir and its missing parents. None of them is durable until SyncDir of its own parent.
	MkdirAll(dir string) error
	// List returns the sorted names (not paths) of the entries of dir.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the entries of dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on a file, making it if needed, and writes this process's id into it. The lock is
	// held until the closer is closed or the process dies. When another holds it the error is a *LockedError.
	Lock(name string) (io.Closer, error)
	// Free returns how many bytes can still be written under dir.
	Free(dir string) (uint64, error)
}

// File is an open file. Reads may run concurrently with each other and with a write of other bytes.
type File interface {
	io.ReaderAt
	// WriteAt writes p at off. When n < len(p) the error says why, and the first n bytes are in the file.
	WriteAt(p []byte, off int64) (n int, err error)
	// Truncate sets the size: bytes beyond it are gone, bytes it adds read as zero.
	Truncate(size int64) error
	// Sync makes the bytes and the size durable. After it has failed nothing unflushed can be trusted, now or later:
	// the kernel may call the pages clean, so a second Sync that succeeds proves nothing.
	Sync() error
	// Preallocate reserves blocks for the first size bytes without changing the file's size. It is a hint: where the
	// file system cannot, it returns nil; where there is no room, an error for which IsFull holds.
	Preallocate(size int64) error
	// Size returns the number of valid bytes.
	Size() (int64, error)
	Close() error
}

// Info describes a name.
type Info struct {
	Size int64
	Dir  bool
}

var (
	// ErrFull means there is no room: the disk, a quota or a limit on file size is used up. Ask with IsFull.
	ErrFull = errors.New("no space left")
	// ErrLocked means another holder has the lock. The error that wraps it is a *LockedError.
	ErrLocked = errors.New("locked")
	// ErrReadOnly means a write to a file that was opened for reading.
	ErrReadOnly = errors.New("file is open for reading only")

	// ErrNotExist is the standard library's, named here so that callers need one import.
	ErrNotExist = fs.ErrNotExist
	// ErrExist is the standard library's.
	ErrExist = fs.ErrExist
)

// IsFull reports whether err says that there is no room, whatever limit was met.
func IsFull(err error) bool { return errors.Is(err, ErrFull) }

// LockedError says who holds a lock.
type LockedError struct {
	Name string
	PID  int // process id of the holder; 0 when it did not leave one
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lock %s: held by another process", e.Name)
	}
	return fmt.Sprintf("lock %s: held by process %d", e.Name, e.PID)
}

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }
