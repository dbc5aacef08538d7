// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"path"

	"margay.dev/storage/vfs"
)

// ReadIdentity says whose a data directory is, for a node that takes its identity from it. It only reads; a directory
// that is new or empty has none, and the error is ErrNotExist.
func ReadIdentity(fsys vfs.FS, dir string) (Identity, error) {
	data, err := vfs.ReadFile(fsys, path.Join(dir, identityName), maxStamp)
	if errors.Is(err, vfs.ErrNotExist) {
		if err := checkNew(fsys, dir); err != nil {
			return Identity{}, fmt.Errorf("read identity of %s: %w", dir, err)
		}
	}
	if err != nil {
		return Identity{}, fmt.Errorf("read identity of %s: %w", dir, err)
	}
	s, err := parseStamp(data)
	if err != nil {
		return Identity{}, fmt.Errorf("read identity of %s: %w", dir, err)
	}
	return Identity{Node: s.Node, Cluster: s.Cluster}, nil
}
