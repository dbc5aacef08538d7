// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// The format is frozen: -update exists to add vectors. A vector that changes is a broken format.
var update = flag.Bool("update", false, "write the golden vectors")

const vectorDir = "../testdata/vectors"

// TestVectors holds this package to the golden bytes in both directions: what it writes, and what it reads.
func TestVectors(t *testing.T) {
	dir := filepath.Join(vectorDir, "batch")
	names := map[string]bool{}
	for _, c := range vectorCases(t) {
		if names[c.name] {
			t.Fatalf("two vectors are called %s", c.name)
		}
		names[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, c.name)
			if *update {
				writeVector(t, path, c)
			}
			raw := readHex(t, path+".hex")
			if !c.decodeOnly && !slices.Equal(raw, c.raw) {
				t.Errorf("written as %x, frozen as %x", c.raw, raw)
			}
			want, err := os.ReadFile(path + ".json")
			if err != nil {
				t.Fatal(err)
			}
			if got := meaning(t, c.about, c.form, raw).encode(t); got != string(want) {
				t.Errorf("read as %s, frozen as %s", got, want)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)); !names[name] {
			t.Errorf("%s belongs to no vector of this test", f)
		}
	}
}

func writeVector(t *testing.T, path string, c vectorCase) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for chunk := range slices.Chunk(c.raw, 32) {
		lines.WriteString(hex.EncodeToString(chunk) + "\n")
	}
	for name, content := range map[string]string{
		path + ".hex":  lines.String(),
		path + ".json": meaning(t, c.about, c.form, c.raw).encode(t),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func readHex(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// hashVector says to which shard a key goes: every client must agree, or the records of one key lose their order.
type hashVector struct {
	Key    string `json:"key"`  // hexadecimal digits
	Hash   string `json:"hash"` // xxhash64 with seed 0, 16 hexadecimal digits
	Shards uint32 `json:"shards"`
	Shard  uint32 `json:"shard"`
}

func TestHashVectors(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 20)
	var vectors []hashVector
	for _, key := range []string{
		"", "a", "abc", "order", "kéy", "customer-0001", "\x00\xff", long[:31], long[:32], long[:33], long[:64], long,
	} {
		sum := xxhash.Sum64String(key)
		for _, shards := range []uint32{1, 3, 16, 1000} {
			vectors = append(vectors, hashVector{
				Key: hex.EncodeToString([]byte(key)), Hash: hex.EncodeToString(bigEndian(sum)), Shards: shards,
				Shard: uint32(sum % uint64(shards)),
			})
		}
	}
	out, err := json.MarshalIndent(vectors, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(vectorDir, "hash.json")
	if *update {
		if err := os.WriteFile(path, append(out, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(out)+"\n" != string(want) {
		t.Error("keys go to other shards than they did")
	}
}

func bigEndian(v uint64) []byte {
	out := make([]byte, 8)
	for i := range out {
		out[i] = byte(v >> (56 - 8*i))
	}
	return out
}
