// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"testing"

	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

const dir = "shards/7"

func disk(t testing.TB) *memfs.FS {
	t.Helper()
	fsys := memfs.New(rand.New(rand.NewPCG(1, 2)))
	if err := vfs.MakeDir(fsys, ".", dir); err != nil {
		t.Fatal(err)
	}
	return fsys
}

// numbered is an index of n keys whose mark says which it is.
func numbered(n uint64) *Index {
	x := New()
	for i := range n {
		x.Set(fmt.Sprintf("key/%d", i), Entry{Offset: i, Sequence: i, Size: 10, Until: int64(i % 3)})
	}
	x.SetAsOf(n, n)
	return x
}

func save(fsys vfs.FS, x *Index) error {
	s := x.Snapshot()
	return Save(fsys, dir, metaOf(s), s)
}

func mustSave(t testing.TB, fsys vfs.FS, x *Index) {
	t.Helper()
	if err := save(fsys, x); err != nil {
		t.Fatal(err)
	}
	if x.shared != 0 {
		t.Fatal("the snapshot is still open")
	}
}

func names(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	out, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func leave(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fsys.Create(path.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatWasSavedIsLoaded(t *testing.T) {
	fsys := disk(t)
	if _, _, err := Load(fsys, dir, logID, 3); !errors.Is(err, vfs.ErrNotExist) {
		t.Fatal("nothing was saved:", err)
	}
	mustSave(t, fsys, numbered(3000))
	mustSave(t, fsys, numbered(5000))
	x, m, err := Load(fsys, dir, logID, 3)
	if err != nil {
		t.Fatal(err)
	}
	if m != (Meta{Log: logID, Shard: 3, Generation: 2, Sequence: 5000, Offset: 5000}) || x.Len() != 5000 {
		t.Fatalf("%d keys of %+v", x.Len(), m)
	}
	if !bytes.Equal(encoded(t, x), encoded(t, numbered(5000))) {
		t.Fatal("it is not what was saved")
	}
	if got := names(t, fsys); !slices.Equal(got, []string{FileName}) {
		t.Fatalf("files: %q", got)
	}
}

func TestASnapshotOfNoUseIsDroppedAndNamed(t *testing.T) {
	good := encoded(t, numbered(100))
	for name, c := range map[string]struct {
		data []byte
		log  batch.LogID
		want error
	}{
		"empty":                     {nil, logID, ErrShort},
		"cut off":                   {good[:len(good)-1], logID, ErrShort},
		"zeros where blocks were":   {append(bytes.Clone(good[:HeaderSize]), make([]byte, len(good)-HeaderSize)...), logID, ErrContent},
		"a flipped bit":             {flipped(good, 200), logID, ErrChecksum},
		"something else":            {bytes.Repeat([]byte("x"), 500), logID, ErrMagic},
		"of a log of the same name": {good, batch.LogID{1}, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := disk(t)
			leave(t, fsys, FileName, c.data)
			_, _, err := Load(fsys, dir, c.log, 3)
			dropped, ok := errors.AsType[*DroppedError](err)
			if !ok || !errors.Is(err, c.want) || dropped.File != path.Join(dir, FileName) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if got := names(t, fsys); len(got) != 0 {
				t.Fatalf("files: %q", got)
			}
		})
	}
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

// RT-06: what a failed or killed writer leaves does not pile up.
func TestLeftoversGo(t *testing.T) {
	for name, act := range map[string]func(vfs.FS) error{
		"load": func(fsys vfs.FS) error { _, _, err := Load(fsys, dir, logID, 3); return err },
		"save": func(fsys vfs.FS) error { return save(fsys, numbered(20)) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := disk(t)
			mustSave(t, fsys, numbered(10))
			leave(t, fsys, tempName, []byte("half of a snapshot"))
			if err := act(fsys); err != nil {
				t.Fatal(err)
			}
			if got := names(t, fsys); !slices.Equal(got, []string{FileName}) {
				t.Fatalf("files: %q", got)
			}
		})
	}
}

func TestAFullDiskKeepsTheSnapshotBefore(t *testing.T) {
	fsys := disk(t)
	mustSave(t, fsys, numbered(10))
	used := fsys.Used()
	for range 10 {
		fsys.SetCapacity(used + 20_000)
		if err := save(fsys, numbered(5000)); !vfs.IsFull(err) {
			t.Fatal(err)
		}
		if got := names(t, fsys); !slices.Equal(got, []string{FileName}) || fsys.Used() != used {
			t.Fatalf("files: %q, %d bytes where %d were", got, fsys.Used(), used)
		}
	}
	if x, _, err := Load(fsys, dir, logID, 3); err != nil || x.Len() != 10 {
		t.Fatal("the one before:", err)
	}
	fsys.SetCapacity(0)
	mustSave(t, fsys, numbered(5000))
}

func TestWhereverTheDiskFailsTheSnapshotBeforeStays(t *testing.T) {
	broken := errors.New("the medium is broken")
	for skip := 0; ; skip++ {
		fsys := disk(t)
		mustSave(t, fsys, numbered(10))
		rule := &faultfs.Rule{Skip: skip, Max: 1, Err: broken}
		err := save(faultfs.Wrap(fsys, rule), numbered(20))
		if rule.Seen() <= skip {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, broken) {
			t.Fatalf("call %d failed, and Save says %v", skip, err)
		}
		x, _, err := Load(fsys, dir, logID, 3)
		if err != nil || x.Len() != 10 && x.Len() != 20 {
			t.Fatalf("after call %d failed: %v", skip, err)
		}
		if got := names(t, fsys); !slices.Equal(got, []string{FileName}) {
			t.Fatalf("after call %d failed there are %q", skip, got)
		}
	}
}

func TestAFaultWhileReadingDropsNothing(t *testing.T) {
	broken := errors.New("the medium is broken")
	fsys := disk(t)
	mustSave(t, fsys, numbered(10))
	for _, op := range []faultfs.Op{faultfs.OpenRead, faultfs.Size, faultfs.ReadAt} {
		_, _, err := Load(faultfs.Wrap(fsys, &faultfs.Rule{Ops: []faultfs.Op{op}, Err: broken}), dir, logID, 3)
		if _, dropped := errors.AsType[*DroppedError](err); dropped || !errors.Is(err, broken) {
			t.Fatalf("%s failed: %v", op, err)
		}
	}
	if _, _, err := Load(fsys, dir, logID, 3); err != nil {
		t.Fatal(err)
	}
}

func TestAPowerCutLeavesTheOldOrTheNew(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fsys := memfs.New(rng)
		if err := vfs.MakeDir(fsys, ".", dir); err != nil {
			t.Fatal(err)
		}
		mustSave(t, fsys, numbered(100))
		cut := errors.New("power cut")
		after := rng.IntN(12)
		finished := save(faultfs.Wrap(fsys, &faultfs.Rule{Skip: after, Err: cut}), numbered(200)) == nil
		x, m, err := Load(fsys.Crash(rng), dir, logID, 3)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if n := uint64(x.Len()); n != m.Sequence || n != 200 && (finished || n != 100) {
			t.Fatalf("seed %d: %d keys as of %d, saved: %v", seed, n, m.Sequence, finished)
		}
	}
}
