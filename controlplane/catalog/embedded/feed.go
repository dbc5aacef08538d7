// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"margay.dev/controlplane/catalog"
	"margay.dev/wire/control"
)

// Snapshot implements catalog.Feed.
func (s *Store) Snapshot(ctx context.Context) (control.Snapshot, error) {
	var snap control.Snapshot
	err := s.view(ctx, func(tx *bolt.Tx) error {
		meta := tx.Bucket(bucketMeta)
		snap.Version = number(meta, keyVersion)
		snap.Cluster = string(meta.Get(keyCluster))
		snap.Issuer = catalog.Issuer(snap.Cluster)
		var err error
		if snap.Logs, err = s.rows.all(tx.Bucket(bucketLogs)); err != nil {
			return err
		}
		err = tx.Bucket(bucketAssignments).ForEach(func(k, v []byte) error {
			a, err := decodeAssignment(k, v)
			snap.Assignments = append(snap.Assignments, a)
			return err
		})
		if err != nil {
			return err
		}
		err = tx.Bucket(bucketNodes).ForEach(func(k, v []byte) error {
			snap.Nodes = append(snap.Nodes, control.Node{ID: string(k), Address: string(v)})
			return nil
		})
		if err != nil {
			return err
		}
		keys, err := signingKeys(tx)
		for _, k := range keys {
			private := ed25519.NewKeyFromSeed(k.Seed)
			snap.SigningKeys = append(snap.SigningKeys, control.Key{ID: k.ID, Public: private.Public().(ed25519.PublicKey)})
		}
		return err
	})
	if err != nil {
		return control.Snapshot{}, fmt.Errorf("catalog snapshot: %w", err)
	}
	return snap, nil
}

// Wait implements catalog.Feed.
func (s *Store) Wait(ctx context.Context, after uint64) (uint64, error) {
	return s.changes.wait(ctx, after, func() (version uint64, err error) {
		err = s.view(ctx, func(tx *bolt.Tx) error {
			version = number(tx.Bucket(bucketMeta), keyVersion)
			return nil
		})
		return version, err
	})
}

// Lead implements catalog.Feed.
func (s *Store) Lead(ctx context.Context, node string, refs []control.ShardRef) ([]control.Assignment, error) {
	var granted []control.Assignment
	err := s.update(ctx, func(tx *bolt.Tx, _ uint64) error {
		granted = make([]control.Assignment, 0, len(refs))
		b := tx.Bucket(bucketAssignments)
		seen := make(map[control.ShardRef]bool, len(refs))
		for _, ref := range refs {
			k := assignmentKey(ref.Log, ref.Shard)
			v := b.Get(k)
			if v == nil || seen[ref] {
				continue
			}
			seen[ref] = true
			a, err := decodeAssignment(k, v)
			if err != nil {
				return err
			}
			if a.Leader != node {
				continue
			}
			a.Generation++
			if err := b.Put(k, encodeAssignment(a)); err != nil {
				return err
			}
			granted = append(granted, a)
		}
		if len(granted) == 0 {
			return errUnchanged
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lead %d shards: %w", len(refs), err)
	}
	return granted, nil
}

// SetNode implements catalog.Feed.
func (s *Store) SetNode(ctx context.Context, n control.Node) error {
	if n.ID == "" {
		return errors.New("set node: it has no id")
	}
	err := s.update(ctx, func(tx *bolt.Tx, _ uint64) error {
		b := tx.Bucket(bucketNodes)
		if v := b.Get([]byte(n.ID)); v != nil && string(v) == n.Address {
			return errUnchanged
		}
		return b.Put([]byte(n.ID), []byte(n.Address))
	})
	if err != nil {
		return fmt.Errorf("set node %s: %w", n.ID, err)
	}
	return nil
}

// Bind implements catalog.Feed.
func (s *Store) Bind(ctx context.Context, cluster string) error {
	if cluster == "" {
		return errors.New("bind catalog: the cluster has no name")
	}
	err := s.update(ctx, func(tx *bolt.Tx, _ uint64) error {
		meta := tx.Bucket(bucketMeta)
		switch have := string(meta.Get(keyCluster)); have {
		case cluster:
			return errUnchanged
		case "":
			return meta.Put(keyCluster, []byte(cluster))
		default:
			return fmt.Errorf("%w cluster: it is of %q, not %q", catalog.ErrForeign, have, cluster)
		}
	})
	if err != nil {
		return fmt.Errorf("bind catalog %s: %w", s.path, err)
	}
	return nil
}

// Cluster implements catalog.Feed.
func (s *Store) Cluster(ctx context.Context) (string, error) {
	var name string
	err := s.view(ctx, func(tx *bolt.Tx) error {
		name = string(tx.Bucket(bucketMeta).Get(keyCluster))
		return nil
	})
	return name, err
}
