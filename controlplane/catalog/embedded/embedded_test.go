// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"margay.dev/controlplane/catalog"
	"margay.dev/controlplane/catalog/catalogtest"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, Options{LockWait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	catalogtest.Run(t, func(t *testing.T) catalogtest.Opened {
		dir := t.TempDir()
		path := filepath.Join(dir, "catalog.db")
		return catalogtest.Opened{Store: open(t, path), Reopen: func(t *testing.T) catalog.Store {
			// A kill leaves the file as it is at that moment; the store that holds the lock is left alone.
			return open(t, copyFile(t, path, filepath.Join(dir, "left.db")))
		}}
	})
}

func copyFile(t *testing.T, from, to string) string {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

func log(name string) control.Log {
	l := control.Log{ID: batch.NewLogID(), Name: name}
	l.SetDefaults()
	return l
}

func TestSecondProcessIsToldInBoundedTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	open(t, path)
	start := time.Now()
	_, err := Open(path, Options{LockWait: 100 * time.Millisecond})
	if !errors.Is(err, catalog.ErrLocked) || !strings.Contains(err.Error(), "stop that process") {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Fatalf("took %v", d)
	}
}

func TestFileIsForItsOwner(t *testing.T) {
	dir := t.TempDir()
	open(t, filepath.Join(dir, "catalog.db"))
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v: making it leaves nothing else behind", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info.Mode(), err)
	}
}

// OP-04: a newer file is refused, by numbers, and not touched.
func TestNewerSchemaIsRefusedUntouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	s := open(t, path)
	if _, err := s.Create(t.Context(), log("a"), "n1"); err != nil {
		t.Fatal(err)
	}
	if err := s.db.Update(func(tx *bolt.Tx) error {
		return putNumber(tx.Bucket(bucketMeta), keySchema, Schema+6)
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := digest(t, path)
	_, err := Open(path, Options{})
	if !errors.Is(err, catalog.ErrNewer) || !strings.Contains(err.Error(), fmt.Sprintf("schema is %d", Schema+6)) ||
		!strings.Contains(err.Error(), fmt.Sprintf("up to %d", Schema)) {
		t.Fatal(err)
	}
	if digest(t, path) != before {
		t.Fatal("the refused file was changed")
	}
}

func TestWhatIsNoCatalogIsRefusedUntouched(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	db, err := bolt.Open(other, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a catalog ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{other, garbage} {
		before := digest(t, path)
		if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
		if digest(t, path) != before {
			t.Errorf("%s was changed", path)
		}
	}
}

func digest(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}

// The version a catalog was left at counts on: an ETag never means two states.
func TestVersionGoesOnAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	s := open(t, path)
	a, err := s.Create(t.Context(), log("a"), "n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := open(t, path).Create(t.Context(), log("b"), "n1")
	if err != nil || b.Version <= a.Version {
		t.Fatalf("%d after %d: %v", b.Version, a.Version, err)
	}
}

func BenchmarkCreate(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "catalog.db"))
	for i := 0; b.Loop(); i++ {
		if _, err := s.Create(b.Context(), log(fmt.Sprint("s", i)), "n1"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSnapshot is the state of 2,000 logs of 4 shards after a change to one.
func BenchmarkSnapshot(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "catalog.db"))
	s.db.NoSync = true // the rows are made for reading
	for i := range 2000 {
		l := log(fmt.Sprint("s", i))
		l.Shards = 4
		if _, err := s.Create(b.Context(), l, "n1"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
