// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"path"
	"strconv"

	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// madeName is the directory that remembers, in one empty file a shard, which shards have held flushed batches. It lies
// beside what it vouches for and not in it: who removes a shard's files by mistake leaves it.
const madeName = "made"

func (d *Dir) madeFile(id batch.LogID, shard uint32) string {
	return path.Join(d.path, madeName, id.String(), strconv.FormatUint(uint64(shard), 10))
}

// Made says whether the shard has ever held flushed batches here. One that has, and whose files are gone, must not be
// opened as a new one: it would give its offsets again.
func (d *Dir) Made(id batch.LogID, shard uint32) (bool, error) {
	_, err := d.fs.Stat(d.madeFile(id, shard))
	if errors.Is(err, vfs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// SetMade remembers, durably, that the shard has held flushed batches. Its caller has flushed them before: a power cut
// in between must not leave a shard that looks as if it had lost what it never had.
func (d *Dir) SetMade(id batch.LogID, shard uint32) error {
	name := d.madeFile(id, shard)
	err := vfs.MakeDir(d.fs, d.path, path.Dir(name))
	if err == nil {
		err = d.touch(name)
	}
	if err == nil {
		err = d.fs.SyncDir(path.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("remember shard %d of log %s: %w", shard, id, err)
	}
	return nil
}

func (d *Dir) touch(name string) error {
	f, err := d.fs.Create(name)
	if errors.Is(err, vfs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Missing is what is wrong with a shard that has been made and has no files.
func (d *Dir) Missing(id batch.LogID, shard uint32) *CorruptError {
	return &CorruptError{
		File: d.ShardDir(id, shard),
		Reason: fmt.Sprintf("the files of a shard that held records are gone: put them back, or delete the log; to give them up and use their offsets again, remove %s",
			d.madeFile(id, shard)),
	}
}
