// SPDX-License-Identifier: Apache-2.0

package control

import (
	"crypto/ed25519"

	"margay.dev/wire/batch"
)

// ShardRef names one shard of one log.
type ShardRef struct {
	Log   batch.LogID
	Shard uint32
}

// Assignment says which node leads a shard, and the highest generation that was ever given out for it. Generation 0
// means that nobody has led it yet.
type Assignment struct {
	Log        batch.LogID
	Shard      uint32
	Leader     string
	Generation uint64
}

// Node is one broker and the address at which clients reach it.
type Node struct {
	ID      string
	Address string
}

// Key is the public half of a key that signs tokens.
type Key struct {
	ID     string
	Public ed25519.PublicKey
}

// Snapshot is the state of the catalog at one version: all that a broker needs to resolve names, lead shards and verify
// tokens without asking again. Whoever gets one owns it. Assignments are in order of log and shard, logs of their id.
type Snapshot struct {
	Version     uint64
	Cluster     string
	Issuer      string // of tokens
	Logs        []Log
	Assignments []Assignment
	Nodes       []Node
	SigningKeys []Key
}
