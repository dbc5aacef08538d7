// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// Create implements catalog.Logs.
func (s *Store) Create(ctx context.Context, l control.Log, leader string) (control.Log, error) {
	name := catalog.NameOf(&l)
	if l.ID.IsZero() || leader == "" || l.Shards < 1 {
		return control.Log{}, fmt.Errorf("create log %s: needs an id, a leader and a shard", name)
	}
	var existing control.Log
	err := s.update(ctx, func(tx *bolt.Tx, version uint64) error {
		have, err := logByName(tx, name)
		if err == nil {
			existing = have
			return catalog.ErrExists
		}
		if !errors.Is(err, catalog.ErrNotFound) {
			return err
		}
		if tx.Bucket(bucketLogs).Get(l.ID[:]) != nil {
			return fmt.Errorf("log id %s was used before", l.ID)
		}
		l.Version, l.Deleted = version, false
		if err := putLog(tx, &l); err != nil {
			return err
		}
		if err := tx.Bucket(bucketNames).Put(nameKey(name), l.ID[:]); err != nil {
			return err
		}
		assignments := tx.Bucket(bucketAssignments)
		for shard := range uint32(l.Shards) {
			a := control.Assignment{Log: l.ID, Shard: shard, Leader: leader}
			if err := assignments.Put(assignmentKey(l.ID, shard), encodeAssignment(a)); err != nil {
				return err
			}
		}
		l, err = logByName(tx, name) // as it will be read: times have microseconds there
		return err
	})
	if err != nil {
		return existing, fmt.Errorf("create log %s: %w", name, err)
	}
	return l, nil
}

// Log implements catalog.Logs.
func (s *Store) Log(ctx context.Context, n catalog.Name) (control.Log, error) {
	var l control.Log
	err := s.view(ctx, func(tx *bolt.Tx) (err error) {
		l, err = logByName(tx, n)
		return err
	})
	if err != nil {
		return control.Log{}, fmt.Errorf("log %s: %w", n, err)
	}
	return l, nil
}

// List implements catalog.Logs.
func (s *Store) List(ctx context.Context, tenant, namespace, after string, limit int) ([]control.Log, error) {
	var logs []control.Log
	prefix := []byte(tenant + "/" + namespace + "/")
	err := s.view(ctx, func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketNames).Cursor()
		start := append(bytes.Clone(prefix), after...)
		k, id := c.Seek(start)
		if after != "" && bytes.Equal(k, start) {
			k, id = c.Next()
		}
		for ; bytes.HasPrefix(k, prefix) && len(logs) < limit; k, id = c.Next() {
			l, err := logByID(tx, id)
			if err != nil {
				return err
			}
			logs = append(logs, l)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list logs of %s/%s: %w", tenant, namespace, err)
	}
	return logs, nil
}

// Update implements catalog.Logs.
func (s *Store) Update(ctx context.Context, n catalog.Name, version uint64, change func(*control.Log) error) (control.Log, error) {
	var result control.Log
	err := s.update(ctx, func(tx *bolt.Tx, next uint64) error {
		have, err := logByName(tx, n)
		if err != nil {
			return err
		}
		if version != 0 && have.Version != version {
			return fmt.Errorf("%w: it is at version %d, not %d", catalog.ErrVersion, have.Version, version)
		}
		want := have
		if err := change(&want); err != nil {
			return err
		}
		if want.ID != have.ID || catalog.NameOf(&want) != n || want.Shards != have.Shards || want.Deleted {
			return errors.New("id, name and shards cannot change")
		}
		if want == have {
			result = have
			return errUnchanged
		}
		want.Version = next
		if err := putLog(tx, &want); err != nil {
			return err
		}
		result, err = logByName(tx, n)
		return err
	})
	if err != nil {
		return control.Log{}, fmt.Errorf("update log %s: %w", n, err)
	}
	return result, nil
}

// Delete implements catalog.Logs.
func (s *Store) Delete(ctx context.Context, n catalog.Name, version uint64, allow func(*control.Log) error) error {
	err := s.update(ctx, func(tx *bolt.Tx, next uint64) error {
		l, err := logByName(tx, n)
		if err != nil {
			return err
		}
		if version != 0 && l.Version != version {
			return fmt.Errorf("%w: it is at version %d, not %d", catalog.ErrVersion, l.Version, version)
		}
		if allow != nil {
			if err := allow(&l); err != nil {
				return err
			}
		}
		l.Version, l.Deleted = next, true
		if err := putLog(tx, &l); err != nil {
			return err
		}
		assignments := tx.Bucket(bucketAssignments)
		for shard := range uint32(l.Shards) {
			if err := assignments.Delete(assignmentKey(l.ID, shard)); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketNames).Delete(nameKey(n))
	})
	if err != nil {
		return fmt.Errorf("delete log %s: %w", n, err)
	}
	return nil
}

// Forget implements catalog.Logs.
func (s *Store) Forget(ctx context.Context, ids ...batch.LogID) error {
	err := s.update(ctx, func(tx *bolt.Tx, _ uint64) error {
		found := false
		for _, id := range ids {
			l, err := logByID(tx, id[:])
			if errors.Is(err, catalog.ErrNotFound) || (err == nil && !l.Deleted) {
				continue
			}
			if err != nil {
				return err
			}
			if err := tx.Bucket(bucketLogs).Delete(id[:]); err != nil {
				return err
			}
			found = true
		}
		if !found {
			return errUnchanged
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget deleted logs: %w", err)
	}
	return nil
}

func putLog(tx *bolt.Tx, l *control.Log) error {
	row, err := encodeLog(l)
	if err != nil {
		return err
	}
	return tx.Bucket(bucketLogs).Put(l.ID[:], row)
}

func logByName(tx *bolt.Tx, n catalog.Name) (control.Log, error) {
	id := tx.Bucket(bucketNames).Get(nameKey(n))
	if id == nil {
		return control.Log{}, catalog.ErrNotFound
	}
	return logByID(tx, id)
}

func logByID(tx *bolt.Tx, k []byte) (control.Log, error) {
	id, err := logID(k)
	if err != nil {
		return control.Log{}, err
	}
	row := tx.Bucket(bucketLogs).Get(k)
	if row == nil {
		return control.Log{}, catalog.ErrNotFound
	}
	return decodeLog(id, row)
}
