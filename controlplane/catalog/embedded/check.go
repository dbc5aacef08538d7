// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"margay.dev/controlplane/catalog"
)

// checkWait bounds the look at a catalog that another process has open.
const checkWait = 100 * time.Millisecond

// Check says whether Open and Bind would take the catalog at path for this cluster, without writing a byte: who refuses
// a directory leaves it as it was. A catalog that is not there yet is fine, and so is one that a process has open, whose
// lock is what then refuses.
func Check(path, cluster string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: checkWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check catalog %s: %w", path, err)
	}
	s := &Store{db: db, path: path}
	err = s.load()
	if err == nil {
		err = db.View(func(tx *bolt.Tx) error {
			if have := string(tx.Bucket(bucketMeta).Get(keyCluster)); have != "" && have != cluster {
				return fmt.Errorf("it %w cluster: it is of %q, not %q", catalog.ErrForeign, have, cluster)
			}
			return nil
		})
	}
	if err != nil {
		err = fmt.Errorf("check catalog %s: %w", path, err)
	}
	return errors.Join(err, db.Close())
}
