// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// OS returns the real file system. Files are made with mode 0640 and directories with 0750, cut by the umask.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) OpenFile(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) OpenRead(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o640)
	if err != nil {
		return nil, classify(err)
	}
	return &osFile{f: f, readOnly: flag == os.O_RDONLY}, nil
}

func (osFS) Remove(name string) error { return classify(os.Remove(name)) }

func (osFS) Rename(oldName, newName string) error { return classify(os.Rename(oldName, newName)) }

func (osFS) MkdirAll(dir string) error { return classify(os.MkdirAll(dir, 0o750)) }

func (osFS) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // nothing was written through it
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: fi.Size(), Dir: fi.IsDir()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return classify(errors.Join(err, d.Close()))
}

func (osFS) Free(dir string) (uint64, error) {
	n, err := freeBytes(dir)
	if err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return n, nil
}

// Lock uses flock, which the kernel releases when the process dies, however it dies: a kill leaves nothing to clean up.
// The file is never removed, or two processes could each hold a lock on a different inode of the same name.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, classify(err)
	}
	if err := control(f, func(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) }); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = &LockedError{Name: name, PID: readPID(f)}
		} else {
			err = &os.PathError{Op: "flock", Path: name, Err: err}
		}
		return nil, errors.Join(err, f.Close())
	}
	// On a full disk the lock has to be had all the same, or nobody could start and make room: then it names no holder.
	if err := recordHolder(f, strconv.Itoa(os.Getpid())); err != nil && !IsFull(err) {
		return nil, fmt.Errorf("lock %s: record the holder: %w", name, errors.Join(err, f.Close()))
	}
	return &osLock{f}, nil
}

// recordHolder overwrites the number in place, in a fixed width, which needs no room once there was some.
func recordHolder(f *os.File, pid string) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "%-20s\n", pid), 0)
	return classify(err)
}

// readPID is best effort: a holder that was killed leaves its number until the next one writes its own.
func readPID(f *os.File) int {
	var buf [32]byte
	n, _ := f.ReadAt(buf[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

type osLock struct{ f *os.File }

// Close forgets the holder before it lets go, so that nobody is told the number of a process that has left.
func (l *osLock) Close() error {
	err := recordHolder(l.f, "")
	if IsFull(err) {
		err = nil
	}
	return errors.Join(err, l.f.Close())
}

type osFile struct {
	f        *os.File
	readOnly bool
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o *osFile) WriteAt(p []byte, off int64) (int, error) {
	if o.readOnly {
		return 0, &os.PathError{Op: "write", Path: o.f.Name(), Err: ErrReadOnly}
	}
	// os.File.WriteAt reports nothing written when an error follows a short write, so the calls are made here.
	n := 0
	for n < len(p) {
		m := 0
		err := control(o.f, func(fd int) (err error) {
			m, err = syscall.Pwrite(fd, p[n:], off+int64(n))
			return err
		})
		if err == nil && m == 0 {
			err = io.ErrShortWrite
		}
		n += max(m, 0)
		if err != nil {
			return n, classify(&os.PathError{Op: "write", Path: o.f.Name(), Err: err})
		}
	}
	return n, nil
}

func (o *osFile) Truncate(size int64) error {
	if o.readOnly {
		return &os.PathError{Op: "truncate", Path: o.f.Name(), Err: ErrReadOnly}
	}
	return classify(o.f.Truncate(size))
}

func (o *osFile) Sync() error {
	if err := control(o.f, datasync); err != nil {
		return classify(&os.PathError{Op: "fdatasync", Path: o.f.Name(), Err: err})
	}
	return nil
}

func (o *osFile) Preallocate(size int64) error {
	if o.readOnly {
		return &os.PathError{Op: "fallocate", Path: o.f.Name(), Err: ErrReadOnly}
	}
	if size <= 0 {
		return nil
	}
	err := control(o.f, func(fd int) error { return preallocate(fd, size) })
	switch {
	case err == nil, errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EINVAL):
		return nil
	default:
		return classify(&os.PathError{Op: "fallocate", Path: o.f.Name(), Err: err})
	}
}

func (o *osFile) Size() (int64, error) {
	fi, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (o *osFile) Close() error { return o.f.Close() }

// control runs a system call on the descriptor, holding it open meanwhile, and again when a signal interrupts it.
func control(f *os.File, call func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if callErr = call(int(fd)); !errors.Is(callErr, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return os.ErrClosed // the one reason for which the call was not made
	}
	return callErr
}

// fullError keeps the system's own message and makes IsFull true.
type fullError struct{ err error }

func (e *fullError) Error() string   { return e.err.Error() }
func (e *fullError) Unwrap() []error { return []error{ErrFull, e.err} }

// classify marks every error that means "no room": the disk, a quota, and the limit on the size of one file are the
// same to a log, because the write may succeed once somebody makes room and nothing on disk is wrong.
func classify(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return &fullError{err}
	}
	return err
}
