// SPDX-License-Identifier: Apache-2.0

// Package faultfs puts faults into a file system by rule: it fails, shortens, fills, delays or watches the calls a rule
// names. It touches only the file system it wraps and refuses to decide anything at random.
package faultfs

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"margay.dev/storage/vfs"
)

// Op names a call of vfs.FS or vfs.File.
type Op string

// The calls.
const (
	Create      Op = "create"
	OpenFile    Op = "open file"
	OpenRead    Op = "open read"
	Remove      Op = "remove"
	Rename      Op = "rename"
	MkdirAll    Op = "mkdir"
	List        Op = "list"
	Stat        Op = "stat"
	SyncDir     Op = "sync dir"
	Lock        Op = "lock"
	Free        Op = "free"
	ReadAt      Op = "read"
	WriteAt     Op = "write"
	Truncate    Op = "truncate"
	Sync        Op = "sync"
	Preallocate Op = "preallocate"
	Size        Op = "size"
	Close       Op = "close"
)

// Mutates reports whether the call may change what is stored, or make it durable.
func (o Op) Mutates() bool {
	switch o {
	case Create, Remove, Rename, MkdirAll, SyncDir, Lock, WriteAt, Truncate, Sync, Preallocate:
		return true
	default:
		return false
	}
}

// Call is one call as a rule sees it.
type Call struct {
	Op     Op
	Name   string // of a rename: the old name
	To     string // of a rename: the new name
	Offset int64  // of a read or write
	Size   int64  // bytes to read or write, or the size asked for
	N      int    // how many calls the rule has matched, this one included
}

// Rule says which calls meet a fault, and which. The zero value matches every call and does nothing to it.
type Rule struct {
	Ops  []Op                   // the calls it matches; none means all
	Path func(name string) bool // the names it matches (either name of a rename); nil means all
	Skip int                    // how many matching calls pass before it acts
	Max  int                    // on how many calls it acts; 0 means on all that follow

	// Hook runs before the call, without a lock: it may count, block (a slow disk) or look at the wrapped file system.
	Hook func(Call)
	// Err fails the call, which then does not reach the wrapped file system. A Sync that fails leaves the file as a
	// kernel would: if the wrapped file has a method FailSync, that is called. Nil lets the call through.
	Err error
	// Short is how many bytes of a write that fails with Err are written all the same.
	Short int

	mu   sync.Mutex
	seen int
}

// Seen returns how many calls the rule has matched.
func (r *Rule) Seen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func (r *Rule) matches(c Call) bool {
	if len(r.Ops) > 0 && !slices.Contains(r.Ops, c.Op) {
		return false
	}
	return r.Path == nil || r.Path(c.Name) || (c.To != "" && r.Path(c.To))
}

// acts counts a matching call and reports whether the rule acts on it.
func (r *Rule) acts(c *Call) bool {
	if !r.matches(*c) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	c.N = r.seen
	return r.seen > r.Skip && (r.Max == 0 || r.seen <= r.Skip+r.Max)
}

// FS is a wrapped file system.
type FS struct {
	inner vfs.FS
	mu    sync.Mutex
	rules []*Rule
}

// Wrap returns fsys with rules. Every matching rule's hook runs, in order; the first rule with an error decides.
func Wrap(fsys vfs.FS, rules ...*Rule) *FS { return &FS{inner: fsys, rules: rules} }

// Add adds rules behind those that are there.
func (f *FS) Add(rules ...*Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(slices.Clone(f.rules), rules...)
}

// Clear removes all rules: the medium is healthy again.
func (f *FS) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// meet runs the rules for a call and returns the fault, if any, and how many bytes of a write pass.
func (f *FS) meet(c Call) (short int, err error) {
	f.mu.Lock()
	rules := f.rules
	f.mu.Unlock()
	for _, r := range rules {
		call := c
		if !r.acts(&call) {
			continue
		}
		if r.Hook != nil {
			r.Hook(call)
		}
		if r.Err != nil && err == nil {
			short, err = r.Short, &os.PathError{Op: string(c.Op), Path: c.Name, Err: fmt.Errorf("injected: %w", r.Err)}
		}
	}
	return short, err
}

func (f *FS) meetName(op Op, name string) error {
	_, err := f.meet(Call{Op: op, Name: name})
	return err
}

func (f *FS) open(op Op, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := f.meetName(op, name); err != nil {
		return nil, err
	}
	inner, err := open(name)
	if err != nil {
		return nil, err
	}
	return &file{f, inner, name}, nil
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (vfs.File, error) { return f.open(Create, name, f.inner.Create) }

// OpenFile implements vfs.FS.
func (f *FS) OpenFile(name string) (vfs.File, error) { return f.open(OpenFile, name, f.inner.OpenFile) }

// OpenRead implements vfs.FS.
func (f *FS) OpenRead(name string) (vfs.File, error) { return f.open(OpenRead, name, f.inner.OpenRead) }

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	if err := f.meetName(Remove, name); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldName, newName string) error {
	if _, err := f.meet(Call{Op: Rename, Name: oldName, To: newName}); err != nil {
		return err
	}
	return f.inner.Rename(oldName, newName)
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	if err := f.meetName(MkdirAll, dir); err != nil {
		return err
	}
	return f.inner.MkdirAll(dir)
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]string, error) {
	if err := f.meetName(List, dir); err != nil {
		return nil, err
	}
	return f.inner.List(dir)
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (vfs.Info, error) {
	if err := f.meetName(Stat, name); err != nil {
		return vfs.Info{}, err
	}
	return f.inner.Stat(name)
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	if err := f.meetName(SyncDir, dir); err != nil {
		return err
	}
	return f.inner.SyncDir(dir)
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	if err := f.meetName(Lock, name); err != nil {
		return nil, err
	}
	return f.inner.Lock(name)
}

// Free implements vfs.FS.
func (f *FS) Free(dir string) (uint64, error) {
	if err := f.meetName(Free, dir); err != nil {
		return 0, err
	}
	return f.inner.Free(dir)
}

type file struct {
	fs    *FS
	inner vfs.File
	name  string
}

func (f *file) meet(op Op, off, size int64) (int, error) {
	return f.fs.meet(Call{Op: op, Name: f.name, Offset: off, Size: size})
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	if _, err := f.meet(ReadAt, off, int64(len(p))); err != nil {
		return 0, err
	}
	return f.inner.ReadAt(p, off)
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	short, err := f.meet(WriteAt, off, int64(len(p)))
	if err == nil {
		return f.inner.WriteAt(p, off)
	}
	if short = min(short, len(p)); short <= 0 {
		return 0, err
	}
	n, innerErr := f.inner.WriteAt(p[:short], off)
	if innerErr != nil {
		err = innerErr
	}
	return n, err
}

func (f *file) Truncate(size int64) error {
	if _, err := f.meet(Truncate, 0, size); err != nil {
		return err
	}
	return f.inner.Truncate(size)
}

func (f *file) Sync() error {
	_, err := f.meet(Sync, 0, 0)
	if err == nil {
		return f.inner.Sync()
	}
	if inner, ok := f.inner.(interface{ FailSync() }); ok {
		inner.FailSync()
	}
	return err
}

func (f *file) Preallocate(size int64) error {
	if _, err := f.meet(Preallocate, 0, size); err != nil {
		return err
	}
	return f.inner.Preallocate(size)
}

func (f *file) Size() (int64, error) {
	if _, err := f.meet(Size, 0, 0); err != nil {
		return 0, err
	}
	return f.inner.Size()
}

// Close closes the wrapped file also when it meets a fault, as the system does: the descriptor is gone either way.
func (f *file) Close() error {
	_, err := f.meet(Close, 0, 0)
	if innerErr := f.inner.Close(); err == nil {
		err = innerErr
	}
	return err
}
