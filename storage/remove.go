// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"path"

	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// RemoveLog deletes what the directory holds of a log, shard by shard. Its caller has the catalog's word that the log was
// deleted and has closed its shards: nothing is deleted because somebody does not know it. A log that is not there is
// no error; one that was half removed when the process died is removed by the next call.
func (d *Dir) RemoveLog(id batch.LogID) error {
	// What remembers the shards goes last: a death in between leaves what the next call removes.
	for _, name := range []string{shardsName, madeName} {
		parent := path.Join(d.path, name)
		err := d.removeTree(path.Join(parent, id.String()))
		if errors.Is(err, vfs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = d.fs.SyncDir(parent)
		}
		if err != nil {
			return fmt.Errorf("remove log %s: %w", id, err)
		}
	}
	return nil
}

func (d *Dir) removeTree(dir string) error {
	names, err := d.fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(dir, name)
		info, err := d.fs.Stat(p)
		if err != nil {
			return err
		}
		if info.Dir {
			err = d.removeTree(p)
		} else {
			err = d.fs.Remove(p)
		}
		if err != nil {
			return err
		}
	}
	return d.fs.Remove(dir)
}
