// SPDX-License-Identifier: Apache-2.0

package memfs

import (
	"errors"
	"io"
	"os"

	"margay.dev/storage/vfs"
)

// handle is an open file.
type handle struct {
	fs       *FS
	node     *node
	name     string
	readOnly bool
	closed   bool
}

var errNegative = errors.New("negative offset")

// check refuses what the handle cannot do. The lock is held.
func (h *handle) check(op string, writes bool) error {
	switch {
	case h.closed:
		return fail(op, h.name, os.ErrClosed)
	case writes && h.readOnly:
		return fail(op, h.name, vfs.ErrReadOnly)
	}
	return nil
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fail("read", h.name, errNegative)
	}
	n := h.node.file.readAt(p, off)
	h.fs.stats.Read[h.name] += int64(n)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fail("write", h.name, errNegative)
	}
	n, err := h.fs.write(h.node, p, off)
	h.fs.stats.Written[h.name] += int64(n)
	if err != nil {
		return n, fail("write", h.name, err)
	}
	return n, nil
}

// write writes what there is room for. The lock is held.
func (m *FS) write(n *node, p []byte, off int64) (int, error) {
	fits := m.fits(n.file, len(p), off)
	if fits < len(p) && m.rng != nil && fits > 0 {
		fits = m.rng.IntN(fits + 1)
	}
	taken := n.file.writeAt(p[:fits], off) * blockSize
	n.file.counted += taken
	m.used += taken
	if fits < len(p) {
		return fits, vfs.ErrFull
	}
	return fits, nil
}

// fits returns how many of n bytes at off find room.
func (m *FS) fits(f *file, n int, off int64) int {
	if m.capacity == 0 {
		return n
	}
	free := (m.capacity - m.used) / blockSize
	for i := off / blockSize; i < blocksFor(off+int64(n)); i++ {
		if f.takes(i) {
			continue
		}
		if free--; free < 0 {
			return int(max(i*blockSize-off, 0))
		}
	}
	return n
}

func (h *handle) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return fail("truncate", h.name, errNegative)
	}
	h.fs.truncate(h.node, size)
	return nil
}

func (m *FS) truncate(n *node, size int64) {
	n.file.truncate(size)
	m.recount(n)
}

func (h *handle) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("sync", false); err != nil {
		return err
	}
	h.fs.stats.Syncs++
	h.node.file.sync()
	return nil
}

// FailSync does to the file what a kernel does whose flush failed: the bytes stay readable, no later Sync writes them,
// and a power cut loses them. faultfs calls it when it fails a Sync.
func (h *handle) FailSync() {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.node.file.failSync()
}

func (h *handle) Preallocate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("preallocate", true); err != nil {
		return err
	}
	f, want, needs := h.node.file, blocksFor(size), int64(0)
	for i := f.reserved; i < want; i++ {
		if f.blocks[i] == nil {
			needs++
		}
	}
	if h.fs.capacity > 0 && needs*blockSize > h.fs.capacity-h.fs.used {
		return fail("preallocate", h.name, vfs.ErrFull)
	}
	f.reserved = max(f.reserved, want)
	h.fs.recount(h.node)
	return nil
}

func (h *handle) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("stat", false); err != nil {
		return 0, err
	}
	return h.node.file.size, nil
}

func (h *handle) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.check("close", false); err != nil {
		return err
	}
	h.closed = true
	h.node.opens--
	h.fs.recount(h.node)
	return nil
}
