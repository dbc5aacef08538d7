// SPDX-License-Identifier: Apache-2.0

// Package memfs is a file system in memory that can lose power: it keeps what was flushed and forgets the rest at random.
// It touches nothing outside itself and refuses to make a name or a byte durable that nobody has flushed.
package memfs

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"margay.dev/storage/vfs"
)

// FS is the file system. Paths are cleaned and taken from one root, so "a/b" and "/a/b" are the same file.
type FS struct {
	mu       sync.Mutex
	rng      *rand.Rand
	root     *node
	pending  []*change // of directory entries, not yet durable, oldest first
	locks    map[string]*lock
	capacity int64 // bytes; 0 = no limit
	used     int64 // bytes in blocks that are taken
	stats    Stats
}

// Stats counts what was asked of the file system.
type Stats struct {
	Syncs    int
	SyncDirs int
	// Read and Written are bytes by the name under which the file was opened.
	Read    map[string]int64
	Written map[string]int64
}

// New returns an empty file system without a limit. What is left to chance while it runs, namely how much of a write
// that meets the end of the space still goes in, is drawn from rng, which nobody else may use meanwhile; with nil as
// much goes in as fits.
func New(rng *rand.Rand) *FS {
	return &FS{rng: rng, root: newDir(), locks: map[string]*lock{}, stats: newStats()}
}

func newStats() Stats { return Stats{Read: map[string]int64{}, Written: map[string]int64{}} }

// SetCapacity limits the file system to so many bytes, counted in blocks of 4 KiB as they are taken. 0 lifts the limit.
func (m *FS) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// Used returns the bytes that are taken, in blocks.
func (m *FS) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Stats returns the counts since New or ResetStats.
func (m *FS) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Read, s.Written = maps.Clone(s.Read), maps.Clone(s.Written)
	return s
}

// ResetStats sets the counts to zero.
func (m *FS) ResetStats() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats = newStats()
}

// DropLocks releases every lock, as the death of the process that holds them would.
func (m *FS) DropLocks() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.locks)
}

// node is a file (dir == nil) or a directory.
type node struct {
	dir  *directory
	file *file
	// A file's blocks are given back when no name and no handle is left.
	links, opens int
}

type directory struct {
	entries map[string]*node // as a reader sees them
	durable map[string]*node // as of the last SyncDir
}

func newDir() *node {
	return &node{dir: &directory{entries: map[string]*node{}, durable: map[string]*node{}}}
}

// split returns the names on the way to p; none for the root.
func split(p string) []string {
	p = strings.Trim(path.Clean("/"+p), "/")
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

func fail(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// lookup returns the node at p. The lock is held.
func (m *FS) lookup(op, p string) (*node, error) {
	n := m.root
	for _, name := range split(p) {
		if n.dir == nil {
			return nil, fail(op, p, errNotDir)
		}
		next, ok := n.dir.entries[name]
		if !ok {
			return nil, fail(op, p, vfs.ErrNotExist)
		}
		n = next
	}
	return n, nil
}

// parent returns the directory that holds p and p's last name. The lock is held.
func (m *FS) parent(op, p string) (*directory, string, error) {
	names := split(p)
	if len(names) == 0 {
		return nil, "", fail(op, p, errRoot)
	}
	n, err := m.lookup(op, strings.Join(names[:len(names)-1], "/"))
	if err != nil {
		return nil, "", err
	}
	if n.dir == nil {
		return nil, "", fail(op, p, errNotDir)
	}
	return n.dir, names[len(names)-1], nil
}

// Create makes an empty file.
func (m *FS) Create(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.create("create", name)
	if err != nil {
		return nil, err
	}
	return m.handle(n, name, false), nil
}

func (m *FS) create(op, name string) (*node, error) {
	dir, base, err := m.parent(op, name)
	if err != nil {
		return nil, err
	}
	if _, ok := dir.entries[base]; ok {
		return nil, fail(op, name, vfs.ErrExist)
	}
	n := &node{file: newFile()}
	m.change(entry{dir, base, n})
	return n, nil
}

func (m *FS) handle(n *node, name string, readOnly bool) *handle {
	n.opens++
	return &handle{fs: m, node: n, name: name, readOnly: readOnly}
}

// OpenFile opens an existing file for reading and writing.
func (m *FS) OpenFile(name string) (vfs.File, error) { return m.open(name, false) }

// OpenRead opens an existing file for reading.
func (m *FS) OpenRead(name string) (vfs.File, error) { return m.open(name, true) }

func (m *FS) open(name string, readOnly bool) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("open", name)
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return nil, fail("open", name, errIsDir)
	}
	return m.handle(n, name, readOnly), nil
}

// Remove deletes a file or an empty directory.
func (m *FS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	n, ok := dir.entries[base]
	if !ok {
		return fail("remove", name, vfs.ErrNotExist)
	}
	if n.dir != nil && len(n.dir.entries) > 0 {
		return fail("remove", name, errNotEmpty)
	}
	m.change(entry{dir, base, nil})
	return nil
}

// Rename moves a file or directory. Both names change together or not at all, as in every journaling file system.
func (m *FS) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("rename", newName)
	if err != nil {
		return err
	}
	n, ok := from.entries[oldBase]
	if !ok {
		return fail("rename", oldName, vfs.ErrNotExist)
	}
	if target, ok := to.entries[newBase]; ok {
		switch {
		case target == n:
			return nil
		case target.dir != nil && n.dir == nil:
			return fail("rename", newName, errIsDir)
		case target.dir == nil && n.dir != nil:
			return fail("rename", newName, errNotDir)
		case target.dir != nil && len(target.dir.entries) > 0:
			return fail("rename", newName, errNotEmpty)
		}
	}
	m.change(entry{from, oldBase, nil}, entry{to, newBase, n})
	return nil
}

// MkdirAll makes dir and its missing parents.
func (m *FS) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, name := range split(dir) {
		if n.dir == nil {
			return fail("mkdir", dir, errNotDir)
		}
		next, ok := n.dir.entries[name]
		if !ok {
			next = newDir()
			m.change(entry{n.dir, name, next})
		}
		n = next
	}
	if n.dir == nil {
		return fail("mkdir", dir, errNotDir)
	}
	return nil
}

// List returns the sorted names in dir.
func (m *FS) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("list", dir)
	if err != nil {
		return nil, err
	}
	if n.dir == nil {
		return nil, fail("list", dir, errNotDir)
	}
	return slices.Sorted(maps.Keys(n.dir.entries)), nil
}

// Stat describes a name.
func (m *FS) Stat(name string) (vfs.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("stat", name)
	if err != nil {
		return vfs.Info{}, err
	}
	if n.dir != nil {
		return vfs.Info{Dir: true}, nil
	}
	return vfs.Info{Size: n.file.size}, nil
}

// SyncDir makes the entries of dir durable: their names, not the bytes or entries behind them.
func (m *FS) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.lookup("sync", dir)
	if err != nil {
		return err
	}
	if n.dir == nil {
		return fail("sync", dir, errNotDir)
	}
	m.stats.SyncDirs++
	m.syncDir(n.dir)
	return nil
}

// Free returns the bytes that are left below the capacity.
func (m *FS) Free(dir string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.lookup("statfs", dir); err != nil {
		return 0, err
	}
	if m.capacity == 0 {
		return 1 << 50, nil
	}
	return uint64(max(m.capacity-m.used, 0)), nil
}

// lock is one holding of a name.
type lock struct {
	fs   *FS
	name string
}

// Lock takes the lock of a name. Holders are told apart by the lock, not by the process: a second one in the same
// process is refused too.
func (m *FS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := path.Clean("/" + name)
	if m.locks[key] != nil {
		return nil, &vfs.LockedError{Name: name, PID: os.Getpid()}
	}
	n, err := m.lookup("lock", name)
	if errors.Is(err, vfs.ErrNotExist) {
		n, err = m.create("lock", name)
	}
	if err != nil {
		return nil, err
	}
	if n.file == nil {
		return nil, fail("lock", name, errIsDir)
	}
	// On a full disk the lock is had all the same, and names no holder.
	_, _ = m.write(n, fmt.Appendf(nil, "%-20d\n", os.Getpid()), 0)
	l := &lock{m, key}
	m.locks[key] = l
	return l, nil
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.fs.locks[l.name] == l {
		delete(l.fs.locks, l.name)
	}
	return nil
}
