// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// What a newer release has written is refused with both versions named, and left as it is (OP-04).
func TestNewerFilesAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := process.Start(t, process.Config{})
	stream := create(t, p, control.StreamSpec{Name: "newer", Shards: new(2)})
	pub := p.Connect().Publisher("newer")
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		publish(t, pub, key, "value of "+key)
	}
	p.Kill()

	t.Run("the directory", func(t *testing.T) {
		name := filepath.Join(p.Data(), "identity.json")
		restore := change(t, name, func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"format_version": 1`, `"format_version": 7`, 1))
		})
		wantRefusal(t, p, p.Data(), "version 7", "up to 1")
		restore()
	})
	t.Run("the catalog", func(t *testing.T) {
		name := filepath.Join(p.Data(), "control", "catalog.db")
		restore := change(t, name, func(b []byte) []byte { return b })
		raiseSchema(t, name, 7)
		wantRefusal(t, p, name, "7", "up to 1")
		restore()
	})
	t.Run("a segment", func(t *testing.T) {
		name := segments(t, p, stream)["0"][0]
		change(t, name, func(b []byte) []byte {
			binary.LittleEndian.PutUint16(b[8:], 7)
			binary.LittleEndian.PutUint32(b[44:], crc32.Checksum(b[:44], crc32.MakeTable(crc32.Castagnoli)))
			return b
		})
		before := treeSum(t, filepath.Dir(name))
		p.Start() // one shard that cannot be opened does not keep the others from being served
		c := p.Connect()
		wantQuarantined(t, c, "newer", "version 7")
		s, err := c.Subscribe(within(t), "newer", client.FromEarliest(), client.UntilMark(), client.Shards(1))
		if err != nil {
			t.Fatalf("the other shard: %v", err)
		}
		defer s.Close()
		for _, err := range s.Records(within(t)) {
			if err != nil {
				t.Errorf("the other shard: %v", err)
			}
		}
		if after := treeSum(t, filepath.Dir(name)); after != before {
			t.Errorf("the shard was changed; before:\n%s\nafter:\n%s", before, after)
		}
	})
}

// wantQuarantined demands that reading the shard 0 of a stream fails for good, with the reason in words.
func wantQuarantined(t *testing.T, c *client.Client, stream, word string) {
	t.Helper()
	s, err := c.Subscribe(within(t), stream, client.FromEarliest(), client.UntilMark(), client.Shards(0))
	if err == nil {
		defer s.Close()
		for _, err = range s.Records(within(t)) {
			if err == nil {
				t.Fatal("a record of the newer segment was served")
			}
		}
	}
	if !errors.Is(err, code.Quarantined) || !strings.Contains(err.Error(), word) {
		t.Errorf("reading the newer segment: %v, want it quarantined, and %q in it", err, word)
	}
}

// change rewrites a file, and returns what puts it back.
func change(t *testing.T, name string, edit func([]byte) []byte) (restore func()) {
	t.Helper()
	was, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, edit(append([]byte(nil), was...)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(name, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// raiseSchema stamps the catalog as a newer release would.
func raiseSchema(t *testing.T, name string, schema uint64) {
	t.Helper()
	db, err := bolt.Open(name, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("schema"), binary.BigEndian.AppendUint64(nil, schema))
	})
	if err != nil {
		t.Fatal(err)
	}
}
