// SPDX-License-Identifier: Apache-2.0

// Package embedded keeps the catalog in one file, for a control plane that lives in one process; it touches that file
// and its directory only, and refuses a file that another process holds or that a newer version wrote.
package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"margay.dev/controlplane/catalog"
)

// Schema is the version of the file's layout that this package reads and writes.
const Schema = 1

// Options change how a file is opened. The zero value works.
type Options struct {
	// LockWait bounds how long Open waits for another process to let go of the file. Default 2 s.
	LockWait time.Duration
}

// The buckets of the file, and the keys of the first.
var (
	bucketMeta        = []byte("meta")
	bucketLogs        = []byte("logs")        // log id -> version, row
	bucketNames       = []byte("names")       // tenant/namespace/name -> log id
	bucketAssignments = []byte("assignments") // log id, shard -> generation, leader
	bucketNodes       = []byte("nodes")       // node id -> address
	bucketAPIKeys     = []byte("api_keys")    // key id -> row
	bucketSigningKeys = []byte("signing_keys")

	keySchema  = []byte("schema")
	keyVersion = []byte("version")
	keyCluster = []byte("cluster")
)

// Store is a catalog in one file. Safe for concurrent use.
type Store struct {
	db      *bolt.DB
	path    string
	changes *changes
	rows    rowCache

	closing sync.Once
	closed  error
}

var _ catalog.Store = (*Store)(nil)

// Open opens the file, making it when it is not there.
func Open(path string, o Options) (*Store, error) {
	if o.LockWait <= 0 {
		o.LockWait = 2 * time.Second
	}
	if err := create(path); err != nil {
		return nil, fmt.Errorf("create catalog %s: %w", path, err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: o.LockWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open catalog %s: %w (waited %v): stop that process, or use another data directory", path, catalog.ErrLocked, o.LockWait)
	}
	if err != nil {
		return nil, fmt.Errorf("open catalog %s: %w", path, err)
	}
	s := &Store{db: db, path: path}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("open catalog %s: %w", path, err), db.Close())
	}
	return s, nil
}

func (s *Store) load() error {
	return s.db.View(func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		if meta == nil {
			return errors.New("the file is not a catalog")
		}
		if found := number(meta, keySchema); found > Schema {
			return fmt.Errorf("%w: its schema is %d, this program supports up to %d: use the newer program", catalog.ErrNewer, found, Schema)
		} else if found == 0 {
			return errors.New("the file has no schema version")
		}
		s.changes = newChanges(number(meta, keyVersion))
		return nil
	})
}

// create makes an empty catalog under another name and links it into place, whole: a crash on the way leaves nothing
// that a later start could mistake for a catalog, and a process that does the same at the same time wins or loses.
func create(path string) (err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new.*")
	if err != nil {
		return err
	}
	temp := f.Name()
	defer func() {
		if rerr := os.Remove(temp); err == nil {
			err = rerr
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	db, err := bolt.Open(temp, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketMeta, bucketLogs, bucketNames, bucketAssignments, bucketNodes, bucketAPIKeys, bucketSigningKeys} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return putNumber(tx.Bucket(bucketMeta), keySchema, Schema)
	})
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close closes the file. Whoever waits for a change gets ErrClosed.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.changes.close()
		if err := s.db.Close(); err != nil {
			s.closed = fmt.Errorf("close catalog %s: %w", s.path, err)
		}
	})
	return s.closed
}

// view runs f on one consistent state.
func (s *Store) view(ctx context.Context, f func(*bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.named(s.db.View(f))
}

// errUnchanged ends a transaction that turned out to have nothing to do.
var errUnchanged = errors.New("unchanged")

// update runs f in a transaction at the next version, and tells whoever waits for it once it is on the disk.
func (s *Store) update(ctx context.Context, f func(tx *bolt.Tx, version uint64) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var version uint64
	decided := false
	err := s.db.Update(func(tx *bolt.Tx) error {
		// Writers queue for the one write transaction: who has given up meanwhile must not be served.
		if err := ctx.Err(); err != nil {
			return err
		}
		meta := tx.Bucket(bucketMeta)
		version = number(meta, keyVersion) + 1
		if err := f(tx, version); err != nil {
			return err
		}
		if err := putNumber(meta, keyVersion, version); err != nil {
			return err
		}
		decided = true
		return nil
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil && decided {
		// The commit itself failed, and what a disk holds after a failed write is anybody's guess.
		return fmt.Errorf("%w: %w", catalog.ErrUncertain, err)
	}
	if err != nil {
		return s.named(err)
	}
	s.changes.reached(version)
	return nil
}

func (s *Store) named(err error) error {
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return fmt.Errorf("catalog %s: %w", s.path, catalog.ErrClosed)
	}
	return err
}

func number(b *bolt.Bucket, key []byte) uint64 {
	v := b.Get(key)
	if len(v) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(v)
}

func putNumber(b *bolt.Bucket, key []byte, n uint64) error {
	return b.Put(key, binary.BigEndian.AppendUint64(nil, n))
}
