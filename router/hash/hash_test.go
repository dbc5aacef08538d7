// SPDX-License-Identifier: Apache-2.0

package hash_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"margay.dev/router/hash"
)

// The vectors are what any other client is held to: a key that moved to another shard would lose its order.
func TestVectors(t *testing.T) {
	b, err := os.ReadFile("../../wire/testdata/vectors/hash.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Key    string `json:"key"` // hexadecimal
		Shards int    `json:"shards"`
		Shard  uint32 `json:"shard"`
	}
	if err := json.Unmarshal(b, &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d vectors, %v", len(cases), err)
	}
	for _, c := range cases {
		key, err := hex.DecodeString(c.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got := hash.Shard(key, c.Shards); got != c.Shard {
			t.Errorf("Shard(%q, %d) = %d, want %d", key, c.Shards, got, c.Shard)
		}
	}
}

func TestFewShards(t *testing.T) {
	for _, n := range []int{-1, 0, 1} {
		if s := hash.Shard([]byte("k"), n); s != 0 {
			t.Errorf("Shard of %d shards = %d", n, s)
		}
	}
}
