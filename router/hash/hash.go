// SPDX-License-Identifier: Apache-2.0

// Package hash maps a record's key to a shard; it touches nothing and is the same in every client, so
// that one key always lies in one shard and its order is the shard's order.
package hash

import "github.com/cespare/xxhash/v2"

// Shard returns the shard, below shards, that holds key: xxhash64(key) mod shards. Shards below 1 count as 1.
func Shard(key []byte, shards int) uint32 {
	if shards <= 1 {
		return 0
	}
	return uint32(xxhash.Sum64(key) % uint64(shards))
}
