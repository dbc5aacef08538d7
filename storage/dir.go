// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"

	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// Names in a data directory.
const (
	lockName     = "LOCK"
	identityName = "identity.json"
	shardsName   = "shards"
)

// Dir is a data directory that this process holds: locked against every other process, and stamped with the node and the
// cluster it belongs to.
type Dir struct {
	fs    vfs.FS
	path  string
	lock  io.Closer
	stamp stamp
}

// OpenDir locks the data directory at dir, makes it ready if it is new or empty, and counts this start, durably, before it
// returns.
//
// It refuses, having written nothing, a directory that another process holds (vfs.ErrLocked), that belongs to another
// node or cluster (ErrForeign), that a newer release has written (ErrNewerFormat), or that holds data without saying whose
// (ErrIncomplete): a node that opened it all the same would vouch for records it does not have.
func OpenDir(fsys vfs.FS, dir string, id Identity) (*Dir, error) {
	d, err := openDir(fsys, path.Clean(dir), id)
	if err != nil {
		return nil, fmt.Errorf("open data directory %s: %w", dir, err)
	}
	return d, nil
}

func openDir(fsys vfs.FS, dir string, id Identity) (*Dir, error) {
	if err := id.Validate(); err != nil {
		return nil, err
	}
	// Looked at before the lock is taken, because taking it writes.
	if _, err := readStamp(fsys, dir, id); err != nil {
		return nil, err
	}
	if err := makeRoot(fsys, dir); err != nil {
		return nil, err
	}
	lock, err := fsys.Lock(path.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	d := &Dir{fs: fsys, path: dir, lock: lock}
	if err := d.start(id); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// start reads the stamp again, now that nobody else can write it, and counts the start.
func (d *Dir) start(id Identity) error {
	s, err := readStamp(d.fs, d.path, id)
	if err != nil {
		return err
	}
	if s == nil {
		if s, err = newStamp(id); err != nil {
			return err
		}
	}
	s.Starts++
	if err := s.write(d.fs, d.path); err != nil {
		return err
	}
	d.stamp = *s
	return d.flushNames()
}

// makeRoot makes the directory and flushes its name. Where it is there already somebody else may have made it, so that
// name is flushed too, as far as the parent lets us.
func makeRoot(fsys vfs.FS, dir string) error {
	base := dir
	for {
		if _, err := fsys.Stat(base); err == nil || base == path.Dir(base) {
			break
		} else if !errors.Is(err, vfs.ErrNotExist) {
			return err
		}
		base = path.Dir(base)
	}
	if base != dir {
		return vfs.MakeDir(fsys, base, dir)
	}
	if err := fsys.SyncDir(path.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// flushNames makes the directories of shards durable that a process made which was killed before it flushed their names.
// Everything below that is the business of the shard.
func (d *Dir) flushNames() error {
	shards := path.Join(d.path, shardsName)
	if err := vfs.MakeDir(d.fs, d.path, shards); err != nil {
		return err
	}
	logs, err := d.fs.List(shards)
	if err != nil {
		return err
	}
	if err := d.fs.SyncDir(shards); err != nil {
		return err
	}
	for _, name := range logs {
		info, err := d.fs.Stat(path.Join(shards, name))
		if err != nil {
			return err
		}
		if !info.Dir {
			continue
		}
		if err := d.fs.SyncDir(path.Join(shards, name)); err != nil {
			return err
		}
	}
	return nil
}

// Close lets go of the directory. Whoever uses what lies in it has to be closed before.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("close data directory %s: %w", d.path, err)
	}
	return nil
}

// FS returns the file system the directory lies on.
func (d *Dir) FS() vfs.FS { return d.fs }

// Path returns where the directory lies.
func (d *Dir) Path() string { return d.path }

// Node returns the node the directory belongs to.
func (d *Dir) Node() string { return d.stamp.Node }

// Cluster returns the cluster the directory belongs to.
func (d *Dir) Cluster() string { return d.stamp.Cluster }

// Disk returns the random id the directory got when it was made: a directory that was wiped and made again under the
// same node is told from the one before.
func (d *Dir) Disk() string { return d.stamp.Disk }

// Starts returns how often the directory has been opened, this time included. Disk and starts together name one life of
// one process: no two lives share them.
func (d *Dir) Starts() uint64 { return d.stamp.Starts }

// ShardDir returns where a shard lies, whether it is there or not.
func (d *Dir) ShardDir(id batch.LogID, shard uint32) string {
	return path.Join(d.path, shardsName, id.String(), strconv.FormatUint(uint64(shard), 10))
}

// ShardRef names a shard of a log.
type ShardRef struct {
	Log   batch.LogID
	Shard uint32
}

// List returns every shard that lies in the directory, ordered by log and shard, also those nobody asks for: a shard that
// the cluster does not know of is kept until somebody decides. Other names are left alone and not listed.
func (d *Dir) List() ([]ShardRef, error) {
	refs, err := d.list()
	if err != nil {
		return nil, fmt.Errorf("list data directory %s: %w", d.path, err)
	}
	return refs, nil
}

func (d *Dir) list() ([]ShardRef, error) {
	shards := path.Join(d.path, shardsName)
	logs, err := d.fs.List(shards)
	if err != nil {
		return nil, err
	}
	var refs []ShardRef
	for _, logName := range logs {
		id, err := batch.ParseLogID(logName)
		if err != nil || id.String() != logName {
			continue
		}
		names, err := d.fs.List(path.Join(shards, logName))
		if err != nil {
			return nil, err
		}
		first := len(refs)
		for _, name := range names {
			n, err := strconv.ParseUint(name, 10, 32)
			if err != nil || strconv.FormatUint(n, 10) != name {
				continue
			}
			refs = append(refs, ShardRef{Log: id, Shard: uint32(n)})
		}
		slices.SortFunc(refs[first:], func(a, b ShardRef) int { return int(int64(a.Shard) - int64(b.Shard)) })
	}
	return refs, nil
}
