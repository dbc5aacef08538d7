// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"

	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// FileName is the name of the snapshot in the directory of its shard.
const FileName = "keys.snap"

const tempName = FileName + vfs.TempSuffix

// DroppedError says that there was a snapshot which is of no use, and that its file is gone: the index has to be built
// from the log.
type DroppedError struct {
	File string
	Err  error // one of the sentinels of this package
}

func (e *DroppedError) Error() string {
	return fmt.Sprintf("%s was removed, and is built again from the log: %v", e.File, e.Err)
}

func (e *DroppedError) Unwrap() error { return e.Err }

// Save writes the snapshot into the shard's directory and closes it. After a power cut at any moment the file there is the
// one before or this one, and this one once Save has returned. When it fails nothing of it is left, so that a full disk is
// not filled further by every try.
func Save(fsys vfs.FS, dir string, m Meta, s *Snapshot) error {
	defer s.Close()
	name, temp := path.Join(dir, FileName), path.Join(dir, tempName)
	err := removeIfThere(fsys, temp)
	if err == nil {
		err = write(fsys, temp, m, s)
	}
	if err == nil {
		err = fsys.Rename(temp, name)
	}
	if err != nil {
		_ = removeIfThere(fsys, temp) // the first error is the one that matters, and Load and Save try again
		return fmt.Errorf("save key index %s: %w", name, err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("save key index %s: %w", name, err)
	}
	return nil
}

func write(fsys vfs.FS, name string, m Meta, s *Snapshot) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	err = s.Encode(&fileWriter{f: f}, m)
	if err == nil {
		err = f.Sync() // before the rename, or the name could survive without the bytes
	}
	return errors.Join(err, f.Close())
}

// Load reads the snapshot of this log and shard. Without one the error is vfs.ErrNotExist. One that is damaged, of a newer
// release or of another log is removed, and the error is a *DroppedError; only when the disk fails to read does it stay.
// Whether the log has the batch that Meta names is the caller's to ask, and the caller's to Drop it when not.
func Load(fsys vfs.FS, dir string, log batch.LogID, shard uint32) (*Index, Meta, error) {
	name := path.Join(dir, FileName)
	if err := removeIfThere(fsys, path.Join(dir, tempName)); err != nil {
		return nil, Meta{}, fmt.Errorf("load key index %s: %w", name, err)
	}
	x, m, err := read(fsys, name)
	if err == nil && (m.Log != log || m.Shard != shard) {
		err = fmt.Errorf("shard %d of log %s: %w", m.Shard, m.Log, ErrForeign)
	}
	switch {
	case err == nil:
		return x, m, nil
	case !useless(err):
		return nil, Meta{}, fmt.Errorf("load key index %s: %w", name, err)
	}
	if removed := Drop(fsys, dir); removed != nil {
		return nil, Meta{}, errors.Join(fmt.Errorf("load key index %s: %w", name, err), removed)
	}
	return nil, Meta{}, &DroppedError{File: name, Err: err}
}

// Drop removes the snapshot of a shard, if there is one. It need not be durable: one that comes back is judged again.
func Drop(fsys vfs.FS, dir string) error {
	if err := removeIfThere(fsys, path.Join(dir, FileName)); err != nil {
		return fmt.Errorf("drop key index in %s: %w", dir, err)
	}
	return nil
}

func read(fsys vfs.FS, name string) (*Index, Meta, error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, Meta{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	size, err := f.Size()
	if err != nil {
		return nil, Meta{}, err
	}
	return Read(bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 256<<10))
}

// useless says that the bytes are at fault, and not the disk that could not give them.
func useless(err error) bool {
	for _, known := range []error{ErrShort, ErrMagic, ErrNewer, ErrChecksum, ErrContent, ErrForeign} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

func removeIfThere(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return err
	}
	return nil
}

// syncEvery is how much of a file is written between two flushes: one flush of all of it at the end would hold up those of
// the log, on the same disk, for as long as it takes.
const syncEvery = 1 << 20

type fileWriter struct {
	f      vfs.File
	at     int64
	synced int64
}

func (w *fileWriter) Write(p []byte) (int, error) {
	n, err := w.f.WriteAt(p, w.at)
	w.at += int64(n)
	if err == nil && w.at-w.synced >= syncEvery {
		w.synced, err = w.at, w.f.Sync()
	}
	return n, err
}
