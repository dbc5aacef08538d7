// SPDX-License-Identifier: Apache-2.0

// Package journal appends to files in the pattern in which Margay's storage does, and does nothing else that storage does:
// no checks, no index, no names made durable, no way back; it writes below the directory that it is given only.
package journal

import (
	"errors"
	"fmt"
	"path"

	"margay.dev/storage"
	"margay.dev/storage/vfs"
)

// The pattern of storage: blocks are reserved ahead of the end in growing steps, and a new file begins after so many bytes.
const (
	minReserve = 64 << 10
	maxReserve = 16 << 20
	fileBytes  = storage.DefaultSegmentBytes

	// Zeros ahead of the end: for so many appends like the last one, within these bounds, and for none that is larger.
	zeroRuns   = 16
	minZero    = 16 << 10
	maxZero    = 1 << 20
	maxZeroRun = maxZero / zeroRuns
)

var zeros [64 << 10]byte //nolint:gochecknoglobals // never written to

// Journal is for one goroutine.
type Journal struct {
	// ZeroAhead has zeros written behind the end, as storage does where every append is flushed.
	ZeroAhead bool

	fs        vfs.FS
	dir, name string
	file      vfs.File
	end       int64
	reserved  int64
	zeroed    int64 // where the zeros end
	files     int
}

// Create begins a journal: the first of its files is dir/name.0.
func Create(dir, name string) (*Journal, error) {
	j := &Journal{fs: vfs.OS(), dir: dir, name: name}
	if err := j.fs.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	return j, j.next()
}

func (j *Journal) next() error {
	if err := j.Close(); err != nil {
		return err
	}
	f, err := j.fs.Create(path.Join(j.dir, fmt.Sprintf("%s.%d", j.name, j.files)))
	if err != nil {
		return fmt.Errorf("create journal: %w", err)
	}
	j.file, j.end, j.reserved, j.zeroed = f, 0, 0, 0
	j.files++
	return nil
}

// Append writes p behind what is there.
func (j *Journal) Append(p []byte) error {
	if j.end > 0 && j.end+int64(len(p)) > fileBytes {
		if err := j.next(); err != nil {
			return err
		}
	}
	end := j.end + int64(len(p))
	if err := j.reserve(end); err != nil {
		return err
	}
	if _, err := j.file.WriteAt(p, j.end); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	j.end = end
	if run := int64(len(p)); j.ZeroAhead && end >= j.zeroed && run <= maxZeroRun {
		return j.zero(min(end+min(max(zeroRuns*run, minZero), maxZero), fileBytes))
	}
	return nil
}

// reserve asks for blocks ahead of the end.
func (j *Journal) reserve(end int64) error {
	if end <= j.reserved {
		return nil
	}
	step := min(max(minReserve, j.reserved), maxReserve)
	j.reserved = max(end, min(j.reserved+step, fileBytes))
	if err := j.file.Preallocate(j.reserved); err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	return nil
}

// zero writes zeros from the end on.
func (j *Journal) zero(to int64) error {
	if err := j.reserve(to); err != nil {
		return err
	}
	for pos := max(j.end, j.zeroed); pos < to; {
		n := min(to-pos, int64(len(zeros)))
		if _, err := j.file.WriteAt(zeros[:n], pos); err != nil {
			return fmt.Errorf("write zeros: %w", err)
		}
		pos += n
		j.zeroed = pos
	}
	return nil
}

// Sync makes what was appended durable.
func (j *Journal) Sync() error { return j.file.Sync() }

// Close flushes the newest file and closes it.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	var err error
	if j.zeroed > j.end {
		err = f.Truncate(j.end)
	}
	return errors.Join(err, f.Sync(), f.Close())
}
