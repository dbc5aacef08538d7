// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"path"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
)

// findDepth is how far a shard's directory lies below a data directory: shards, log, shard.
const findDepth = 3

// Find returns the shard directories at or below dir, which may be one of them, that of a log, or a data directory.
func Find(fsys vfs.FS, dir string) ([]string, error) {
	found, err := find(fsys, path.Clean(dir), findDepth)
	if err != nil {
		return nil, fmt.Errorf("find shards: %w", err)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("find shards: no segments at or below %s: %w", dir, storage.ErrNotExist)
	}
	return found, nil
}

func find(fsys vfs.FS, dir string, depth int) ([]string, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, suffix, ok := segment.ParseName(name); ok && suffix == segment.Suffix || name == storage.GapsName {
			return []string{dir}, nil
		}
	}
	var found []string
	for _, name := range names {
		if depth == 0 || name == LostDir {
			continue
		}
		sub := path.Join(dir, name)
		info, err := fsys.Stat(sub)
		if errors.Is(err, vfs.ErrNotExist) || err == nil && !info.Dir {
			continue
		}
		if err != nil {
			return nil, err
		}
		more, err := find(fsys, sub, depth-1)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}
