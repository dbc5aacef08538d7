// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

func openDir(t *testing.T, fsys vfs.FS, dir string, id storage.Identity) *storage.Dir {
	t.Helper()
	d, err := storage.OpenDir(fsys, dir, id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func closeDir(t *testing.T, d *storage.Dir) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func node(name string) storage.Identity { return storage.Identity{Node: name, Cluster: "c1"} }

// fingerprint is a checksum of every name, size and byte below dir.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(h, name, d.Type())
		if d.Type().IsRegular() {
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintln(h, len(data))
			h.Write(data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func TestDirCountsStarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	first := openDir(t, vfs.OS(), dir, node("b1"))
	if first.Starts() != 1 || first.Node() != "b1" || first.Cluster() != "c1" || len(first.Disk()) != 32 {
		t.Errorf("first start: %d, %q, %q, %q", first.Starts(), first.Node(), first.Cluster(), first.Disk())
	}
	closeDir(t, first)
	second := openDir(t, vfs.OS(), dir, node("b1"))
	defer closeDir(t, second)
	if second.Starts() != 2 || second.Disk() != first.Disk() {
		t.Errorf("second start: %d, disk %q then %q", second.Starts(), first.Disk(), second.Disk())
	}
}

func TestDirNeedsAnIdentity(t *testing.T) {
	mem := memfs.New(nil)
	_, err := storage.OpenDir(mem, "/data", storage.Identity{})
	if err == nil || !strings.Contains(err.Error(), "node id is empty") || !strings.Contains(err.Error(), "cluster id is empty") {
		t.Errorf("not all faults are named: %v", err)
	}
	if names, _ := mem.List("/"); len(names) > 0 {
		t.Errorf("wrote %q", names)
	}
}

// TestDirTakesAFreshFileSystem: the root of a file system that was just made is not empty.
func TestDirTakesAFreshFileSystem(t *testing.T) {
	mem := memfs.New(nil)
	if err := mem.MkdirAll("/data/lost+found"); err != nil {
		t.Fatal(err)
	}
	closeDir(t, openDir(t, mem, "/data", node("b1")))
}

// TestDirRefuses is ST-17 and the stamp of OP-04: each refusal names both sides and what to do, and leaves every byte as
// it was.
func TestDirRefuses(t *testing.T) {
	identity := func(edit func(string) string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			name := filepath.Join(dir, "identity.json")
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(edit(string(data))), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	untouched := func(*testing.T, string) {}
	cases := map[string]struct {
		as     storage.Identity
		damage func(t *testing.T, dir string)
		err    error
		says   []string
	}{
		"another node":    {node("b2"), untouched, storage.ErrForeign, []string{`"b1"`, `"b2"`, "start with"}},
		"another cluster": {storage.Identity{Node: "b1", Cluster: "c2"}, untouched, storage.ErrForeign, []string{`"c1"`, `"c2"`}},
		"identity lost": {node("b1"), func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "identity.json")); err != nil {
				t.Fatal(err)
			}
		}, storage.ErrIncomplete, []string{"identity.json", "shards", "from a copy"}},
		"newer format": {node("b1"), identity(func(s string) string {
			return strings.Replace(s, `"format_version": 1`, `"format_version": 7, "new_field": [1]`, 1)
		}), storage.ErrNewerFormat, []string{"version 7", "up to 1"}},
		"no format":     {node("b1"), identity(func(string) string { return "{}" }), nil, []string{"a field is missing"}},
		"unknown field": {node("b1"), identity(func(s string) string { return strings.Replace(s, "{", `{"x": 1,`, 1) }), nil, []string{`"x"`}},
		"half a file":   {node("b1"), identity(func(s string) string { return s[:60] }), nil, []string{"identity.json", "from a copy"}},
		"empty file":    {node("b1"), identity(func(string) string { return "" }), nil, []string{"identity.json"}},
		"two objects":   {node("b1"), identity(func(s string) string { return s + s }), nil, []string{"identity.json"}},
		"huge file":     {node("b1"), identity(func(s string) string { return s + strings.Repeat(" ", 1<<20) }), nil, []string{"at most"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := openDir(t, vfs.OS(), dir, node("b1"))
			if err := os.MkdirAll(d.ShardDir(batch.LogID{1}, 0), 0o700); err != nil {
				t.Fatal(err)
			}
			closeDir(t, d)
			c.damage(t, dir)
			// Gone, so that even taking the lock would show.
			if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
				t.Fatal(err)
			}
			before := fingerprint(t, dir)
			_, err := storage.OpenDir(vfs.OS(), dir, c.as)
			if err == nil || (c.err != nil && !errors.Is(err, c.err)) {
				t.Fatalf("error is %v, want %v", err, c.err)
			}
			for _, says := range append(c.says, dir) {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%q does not say %q", err, says)
				}
			}
			if fingerprint(t, dir) != before {
				t.Error("the refused directory was changed")
			}
		})
	}
}

// TestDirListsWhatIsThere: shards the cluster does not know are kept and listed; what is no shard is left alone.
func TestDirListsWhatIsThere(t *testing.T) {
	mem := memfs.New(nil)
	d := openDir(t, mem, "/data", node("b1"))
	if refs, err := d.List(); err != nil || len(refs) != 0 {
		t.Fatalf("a new directory: %v, %v", refs, err)
	}
	want := []storage.ShardRef{{Log: batch.LogID{1}, Shard: 2}, {Log: batch.LogID{1}, Shard: 10}, {Log: batch.LogID{2}}}
	for _, ref := range want {
		if err := mem.MkdirAll(d.ShardDir(ref.Log, ref.Shard)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"x", "00", batch.LogID{1}.String() + "/01", batch.LogID{1}.String() + "/a"} {
		if err := mem.MkdirAll(path.Join("/data/shards", name)); err != nil {
			t.Fatal(err)
		}
	}
	closeDir(t, d)
	d = openDir(t, mem, "/data", node("b1"))
	if refs, err := d.List(); err != nil || !slices.Equal(refs, want) {
		t.Errorf("list: %v, %v", refs, err)
	}
	if names, err := mem.List("/data/shards"); err != nil || len(names) != 4 {
		t.Errorf("names: %q, %v", names, err)
	}
}

// TestDirSurvivesAPowerCut cuts the power before every change of the disk in three starts. A start that returned is never
// counted again, the disk keeps its id, and every remains can be opened.
func TestDirSurvivesAPowerCut(t *testing.T) {
	mem := memfs.New(nil)
	var cuts int
	var started uint64
	var disk string
	check := func(seed uint64, left vfs.FS) {
		t.Helper()
		d, err := storage.OpenDir(left, "/data", node("b1"))
		if err != nil {
			t.Fatalf("cut %d, seed %d: %v", cuts, seed, err)
		}
		if d.Starts() <= started || (started > 0 && d.Disk() != disk) {
			t.Fatalf("cut %d, seed %d: start %d on disk %s after start %d on disk %s", cuts, seed, d.Starts(), d.Disk(), started, disk)
		}
	}
	cut := &faultfs.Rule{Hook: func(c faultfs.Call) {
		if !c.Op.Mutates() {
			return
		}
		cuts++
		check(0, mem.Crash(nil))
		for seed := range uint64(20) {
			check(seed, mem.Crash(rand.New(rand.NewPCG(seed, 0))))
		}
	}}
	for range 3 {
		d := openDir(t, faultfs.Wrap(mem, cut), "/data", node("b1"))
		started, disk = d.Starts(), d.Disk()
		cut.Hook(faultfs.Call{Op: faultfs.Sync})
		if err := mem.MkdirAll(d.ShardDir(batch.LogID{byte(started)}, 0)); err != nil {
			t.Fatal(err)
		}
		closeDir(t, d)
	}
	if cuts < 20 {
		t.Errorf("only %d cuts", cuts)
	}
}

// TestDirFlushesNamesOfAKilledProcess: a shard's directory that was made but not flushed before a kill is flushed by the
// next start, because shards below it go on as if it were.
func TestDirFlushesNamesOfAKilledProcess(t *testing.T) {
	mem := memfs.New(nil)
	d := openDir(t, mem, "/data", node("b1"))
	shard := d.ShardDir(batch.LogID{1}, 0)
	if err := mem.MkdirAll(shard); err != nil {
		t.Fatal(err)
	}
	mem.DropLocks()
	openDir(t, mem, "/data", node("b1"))
	if _, err := mem.Crash(nil).Stat(shard); err != nil {
		t.Error(err)
	}
}

// TestDirStartsOnAFullDisk is the part of RT-05 that the directory plays: with no byte free a node starts, so that somebody
// can make room. It counts the start, and a power cut at any step leaves a directory that opens.
func TestDirStartsOnAFullDisk(t *testing.T) {
	mem := memfs.New(nil)
	closeDir(t, openDir(t, mem, "/data", node("b1")))
	mem.SetCapacity(1) // less than what is there already
	for want := uint64(2); want < 12; want++ {
		fsys := faultfs.Wrap(mem, &faultfs.Rule{Hook: func(c faultfs.Call) {
			for seed := range uint64(10) {
				left := mem.Crash(rand.New(rand.NewPCG(seed, want)))
				if d := openDir(t, left, "/data", node("b1")); d.Starts() < want {
					t.Fatalf("start %d is counted again at %s", want-1, c.Op)
				}
			}
		}})
		d := openDir(t, fsys, "/data", node("b1"))
		if d.Starts() != want {
			t.Fatalf("start %d, want %d", d.Starts(), want)
		}
		closeDir(t, d)
	}
	if names, err := mem.List("/data"); err != nil || !slices.Equal(names, []string{"LOCK", "identity.json", "shards"}) {
		t.Errorf("names: %q, %v", names, err)
	}
	if _, err := storage.OpenDir(mem, "/new", node("b1")); !vfs.IsFull(err) {
		t.Errorf("a new directory on a full disk: %v", err)
	}
}

// TestDirDrawsItsDiskID: simulation injects the randomness.
func TestDirDrawsItsDiskID(t *testing.T) {
	id := node("b1")
	id.Random = bytes.NewReader(bytes.Repeat([]byte{0xab}, 16))
	if d := openDir(t, memfs.New(nil), "/data", id); d.Disk() != strings.Repeat("ab", 16) {
		t.Errorf("disk id %s", d.Disk())
	}
	id.Random = bytes.NewReader(nil)
	if _, err := storage.OpenDir(memfs.New(nil), "/data", id); err == nil {
		t.Error("a disk id without randomness")
	}
}

// TestDirFailures: each call that fails is an error of OpenDir, and the lock is free again.
func TestDirFailures(t *testing.T) {
	for _, op := range []faultfs.Op{
		faultfs.Create, faultfs.Rename, faultfs.MkdirAll, faultfs.List, faultfs.SyncDir,
		faultfs.Lock, faultfs.WriteAt, faultfs.Sync, faultfs.OpenRead, faultfs.Stat,
	} {
		mem := memfs.New(nil)
		fsys := faultfs.Wrap(mem, &faultfs.Rule{Ops: []faultfs.Op{op}, Err: os.ErrInvalid})
		if _, err := storage.OpenDir(fsys, "/data", node("b1")); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%s: %v", op, err)
		}
		openDir(t, mem, "/data", node("b1"))
	}
}
