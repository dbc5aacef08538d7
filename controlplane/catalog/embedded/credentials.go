// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"margay.dev/controlplane/catalog"
)

// AddAPIKey implements catalog.Credentials.
func (s *Store) AddAPIKey(ctx context.Context, k catalog.APIKey, replace bool) error {
	err := s.update(ctx, func(tx *bolt.Tx, _ uint64) error {
		b := tx.Bucket(bucketAPIKeys)
		if b.Get([]byte(k.ID)) != nil {
			return fmt.Errorf("id %s: %w", k.ID, catalog.ErrExists)
		}
		all, err := apiKeys(tx)
		if err != nil {
			return err
		}
		for _, have := range all {
			if have.Name != k.Name {
				continue
			}
			if !replace {
				return catalog.ErrExists
			}
			if err := b.Delete([]byte(have.ID)); err != nil {
				return err
			}
		}
		return putJSON(b, []byte(k.ID), k)
	})
	if err != nil {
		return fmt.Errorf("add API key %q: %w", k.Name, err)
	}
	return nil
}

// APIKey implements catalog.Credentials.
func (s *Store) APIKey(ctx context.Context, id string) (catalog.APIKey, error) {
	var k catalog.APIKey
	err := s.view(ctx, func(tx *bolt.Tx) (err error) {
		k, err = getJSON[catalog.APIKey](tx.Bucket(bucketAPIKeys), []byte(id))
		return err
	})
	if err != nil {
		return catalog.APIKey{}, fmt.Errorf("API key: %w", err)
	}
	return k, nil
}

// APIKeys implements catalog.Credentials.
func (s *Store) APIKeys(ctx context.Context) ([]catalog.APIKey, error) {
	var keys []catalog.APIKey
	err := s.view(ctx, func(tx *bolt.Tx) (err error) {
		keys, err = apiKeys(tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	slices.SortFunc(keys, func(a, b catalog.APIKey) int { return cmp.Compare(a.Name, b.Name) })
	return keys, nil
}

// RemoveAPIKey implements catalog.Credentials.
func (s *Store) RemoveAPIKey(ctx context.Context, id string) error {
	err := s.update(ctx, func(tx *bolt.Tx, _ uint64) error {
		b := tx.Bucket(bucketAPIKeys)
		if b.Get([]byte(id)) == nil {
			return catalog.ErrNotFound
		}
		return b.Delete([]byte(id))
	})
	if err != nil {
		return fmt.Errorf("remove API key: %w", err)
	}
	return nil
}

// AddSigningKey implements catalog.Credentials.
func (s *Store) AddSigningKey(ctx context.Context, k catalog.SigningKey) error {
	if len(k.Seed) != ed25519.SeedSize || k.ID == "" {
		return fmt.Errorf("add signing key: needs an id and a seed of %d bytes", ed25519.SeedSize)
	}
	err := s.update(ctx, func(tx *bolt.Tx, _ uint64) error {
		b := tx.Bucket(bucketSigningKeys)
		if b.Get([]byte(k.ID)) != nil {
			return catalog.ErrExists
		}
		return putJSON(b, []byte(k.ID), k)
	})
	if err != nil {
		return fmt.Errorf("add signing key %s: %w", k.ID, err)
	}
	return nil
}

// SigningKeys implements catalog.Credentials.
func (s *Store) SigningKeys(ctx context.Context) ([]catalog.SigningKey, error) {
	var keys []catalog.SigningKey
	err := s.view(ctx, func(tx *bolt.Tx) (err error) {
		keys, err = signingKeys(tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list signing keys: %w", err)
	}
	return keys, nil
}

func apiKeys(tx *bolt.Tx) ([]catalog.APIKey, error) {
	return allJSON[catalog.APIKey](tx.Bucket(bucketAPIKeys))
}

func signingKeys(tx *bolt.Tx) ([]catalog.SigningKey, error) {
	keys, err := allJSON[catalog.SigningKey](tx.Bucket(bucketSigningKeys))
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if len(k.Seed) != ed25519.SeedSize {
			return nil, fmt.Errorf("signing key %s: its seed has %d bytes", k.ID, len(k.Seed))
		}
	}
	slices.SortStableFunc(keys, func(a, b catalog.SigningKey) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return keys, nil
}

func allJSON[T any](b *bolt.Bucket) ([]T, error) {
	var all []T
	err := b.ForEach(func(k, v []byte) error {
		var t T
		if err := json.Unmarshal(v, &t); err != nil {
			return fmt.Errorf("row %q: %w", k, err)
		}
		all = append(all, t)
		return nil
	})
	return all, err
}
