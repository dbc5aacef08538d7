// SPDX-License-Identifier: Apache-2.0

package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"testing"

	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
)

// TestConformance holds every file system to the one contract.
func TestConformance(t *testing.T) {
	systems := map[string]func(t *testing.T) (vfs.FS, string){
		"os":      func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() },
		"memfs":   func(*testing.T) (vfs.FS, string) { return memfs.New(nil), "/" },
		"faultfs": func(*testing.T) (vfs.FS, string) { return faultfs.Wrap(memfs.New(nil), &faultfs.Rule{}), "/" },
	}
	parts := map[string]func(t *testing.T, fsys vfs.FS, dir string){
		"create":      conformCreate,
		"read":        conformRead,
		"write":       conformWrite,
		"truncate":    conformTruncate,
		"preallocate": conformPreallocate,
		"names":       conformNames,
		"rename":      conformRename,
		"directories": conformDirectories,
		"open stays":  conformOpenStays,
		"lock":        conformLock,
		"replace":     conformReplace,
		"make dir":    conformMakeDir,
	}
	for name, system := range systems {
		for part, run := range parts {
			t.Run(name+"/"+part, func(t *testing.T) {
				fsys, dir := system(t)
				run(t, fsys, dir)
			})
		}
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func write(t *testing.T, f vfs.File, data string, off int64) {
	t.Helper()
	if n, err := f.WriteAt([]byte(data), off); n != len(data) || err != nil {
		t.Fatalf("write of %d bytes at %d: %d, %v", len(data), off, n, err)
	}
}

// content reads all of f in one call.
func content(t *testing.T, f vfs.File) string {
	t.Helper()
	buf := make([]byte, must[int64](t)(f.Size())+1)
	n, err := f.ReadAt(buf, 0)
	is(t, err, io.EOF)
	return string(buf[:n])
}

func conformCreate(t *testing.T, fsys vfs.FS, dir string) {
	name := path.Join(dir, "a")
	f := must[vfs.File](t)(fsys.Create(name))
	if size := must[int64](t)(f.Size()); size != 0 {
		t.Errorf("a new file has %d bytes", size)
	}
	ok(t, f.Close())
	_, err := fsys.Create(name)
	is(t, err, vfs.ErrExist)
	_, err = fsys.Create(path.Join(dir, "missing", "a"))
	is(t, err, vfs.ErrNotExist)
	_, err = fsys.OpenFile(path.Join(dir, "b"))
	is(t, err, vfs.ErrNotExist)
	_, err = fsys.OpenRead(path.Join(dir, "b"))
	is(t, err, vfs.ErrNotExist)
	_, err = f.Size()
	is(t, err, os.ErrClosed)
	is(t, f.Close(), os.ErrClosed)
}

func conformRead(t *testing.T, fsys vfs.FS, dir string) {
	f := must[vfs.File](t)(fsys.Create(path.Join(dir, "a")))
	write(t, f, "0123456789", 0)
	buf := make([]byte, 4)
	if n, err := f.ReadAt(buf, 6); n != 4 || (err != nil && !errors.Is(err, io.EOF)) || string(buf) != "6789" {
		t.Errorf("read up to the end: %d, %v, %q", n, err, buf)
	}
	n, err := f.ReadAt(buf, 8)
	is(t, err, io.EOF)
	if n != 2 || string(buf[:n]) != "89" {
		t.Errorf("read over the end: %d, %q", n, buf[:n])
	}
	n, err = f.ReadAt(buf, 100)
	is(t, err, io.EOF)
	if n != 0 {
		t.Errorf("read behind the end: %d bytes", n)
	}
	if _, err := f.ReadAt(buf, -1); err == nil {
		t.Error("a read before the start succeeds")
	}
	ro := must[vfs.File](t)(fsys.OpenRead(path.Join(dir, "a")))
	if got := content(t, ro); got != "0123456789" {
		t.Errorf("a second handle reads %q", got)
	}
	_, err = ro.WriteAt([]byte("x"), 0)
	is(t, err, vfs.ErrReadOnly)
	is(t, ro.Truncate(0), vfs.ErrReadOnly)
	is(t, ro.Preallocate(10), vfs.ErrReadOnly)
	ok(t, ro.Close())
	ok(t, f.Close())
}

func conformWrite(t *testing.T, fsys vfs.FS, dir string) {
	f := must[vfs.File](t)(fsys.Create(path.Join(dir, "a")))
	big := bytes.Repeat([]byte("abcdefg"), 3000) // over several blocks
	write(t, f, string(big), 10)
	write(t, f, "0123456789", 0)
	if got := content(t, f); got != "0123456789"+string(big) {
		t.Errorf("reads back something else (%d bytes)", len(got))
	}
	write(t, f, "XX", 4094)
	write(t, f, "end", 30_000)
	got := content(t, f)
	if len(got) != 30_003 || got[4094:4096] != "XX" || got[25_000] != 0 || got[30_000:] != "end" {
		t.Errorf("a write behind the end leaves %d bytes", len(got))
	}
	ok(t, f.Sync())
	ok(t, f.Close())
	f = must[vfs.File](t)(fsys.OpenFile(path.Join(dir, "a")))
	if content(t, f) != got {
		t.Error("other bytes after it was opened again")
	}
	ok(t, f.Close())
	_, err := f.WriteAt([]byte("x"), 0)
	is(t, err, os.ErrClosed)
}

func conformTruncate(t *testing.T, fsys vfs.FS, dir string) {
	f := must[vfs.File](t)(fsys.Create(path.Join(dir, "a")))
	write(t, f, string(bytes.Repeat([]byte("x"), 10_000)), 0)
	ok(t, f.Truncate(5000))
	ok(t, f.Truncate(9000))
	got := content(t, f)
	if len(got) != 9000 || got[4999] != 'x' || got[5000] != 0 || got[8999] != 0 {
		t.Error("bytes that were cut come back when the file grows")
	}
	if err := f.Truncate(-1); err == nil {
		t.Error("a negative size is taken")
	}
	ok(t, f.Close())
}

func conformPreallocate(t *testing.T, fsys vfs.FS, dir string) {
	f := must[vfs.File](t)(fsys.Create(path.Join(dir, "a")))
	write(t, f, "abc", 0)
	ok(t, f.Preallocate(1<<20))
	if got := content(t, f); got != "abc" {
		t.Errorf("preallocation changes the file to %d bytes", len(got))
	}
	ok(t, f.Preallocate(0))
	ok(t, f.Close())
}

func conformNames(t *testing.T, fsys vfs.FS, dir string) {
	for _, name := range []string{"b", "a", "c"} {
		ok(t, must[vfs.File](t)(fsys.Create(path.Join(dir, name))).Close())
	}
	ok(t, fsys.MkdirAll(path.Join(dir, "d", "e")))
	if got := must[[]string](t)(fsys.List(dir)); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("list: %q", got)
	}
	ok(t, fsys.Remove(path.Join(dir, "b")))
	is(t, fsys.Remove(path.Join(dir, "b")), vfs.ErrNotExist)
	if err := fsys.Remove(path.Join(dir, "d")); err == nil {
		t.Error("a directory with entries is removed")
	}
	ok(t, fsys.Remove(path.Join(dir, "d", "e")))
	ok(t, fsys.Remove(path.Join(dir, "d")))
	if got := must[[]string](t)(fsys.List(dir)); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("list: %q", got)
	}
	_, err := fsys.List(path.Join(dir, "d"))
	is(t, err, vfs.ErrNotExist)
	_, err = fsys.Stat(path.Join(dir, "d"))
	is(t, err, vfs.ErrNotExist)
	if info := must[vfs.Info](t)(fsys.Stat(dir)); !info.Dir {
		t.Error("a directory is described as a file")
	}
	if _, err := fsys.Free(dir); err != nil {
		t.Error(err)
	}
	ok(t, fsys.SyncDir(dir))
	is(t, fsys.SyncDir(path.Join(dir, "d")), vfs.ErrNotExist)
}

func conformRename(t *testing.T, fsys vfs.FS, dir string) {
	a, b := path.Join(dir, "a"), path.Join(dir, "b")
	f := must[vfs.File](t)(fsys.Create(a))
	write(t, f, "new", 0)
	ok(t, f.Close())
	ok(t, must[vfs.File](t)(fsys.Create(b)).Close())
	ok(t, fsys.Rename(a, b))
	if info := must[vfs.Info](t)(fsys.Stat(b)); info.Size != 3 {
		t.Errorf("the old file is still there: %d bytes", info.Size)
	}
	_, err := fsys.Stat(a)
	is(t, err, vfs.ErrNotExist)
	is(t, fsys.Rename(a, b), vfs.ErrNotExist)
	ok(t, fsys.MkdirAll(path.Join(dir, "d")))
	if err := fsys.Rename(b, path.Join(dir, "d")); err == nil {
		t.Error("a file replaces a directory")
	}
	ok(t, fsys.Rename(path.Join(dir, "d"), path.Join(dir, "e")))
	ok(t, fsys.Rename(b, path.Join(dir, "e", "b")))
	if got := must[[]string](t)(fsys.List(path.Join(dir, "e"))); !slices.Equal(got, []string{"b"}) {
		t.Errorf("list: %q", got)
	}
}

func conformDirectories(t *testing.T, fsys vfs.FS, dir string) {
	ok(t, fsys.MkdirAll(path.Join(dir, "a", "b")))
	ok(t, fsys.MkdirAll(path.Join(dir, "a", "b")))
	ok(t, must[vfs.File](t)(fsys.Create(path.Join(dir, "f"))).Close())
	if err := fsys.MkdirAll(path.Join(dir, "f")); err == nil {
		t.Error("a directory is made over a file")
	}
	if err := fsys.MkdirAll(path.Join(dir, "f", "g")); err == nil {
		t.Error("a directory is made below a file")
	}
	if _, err := fsys.Create(path.Join(dir, "f", "g")); err == nil {
		t.Error("a file is made below a file")
	}
	if _, err := fsys.OpenFile(path.Join(dir, "a")); err == nil {
		t.Error("a directory is opened for writing")
	}
}

// conformOpenStays is what lets retention remove a segment under a slow reader.
func conformOpenStays(t *testing.T, fsys vfs.FS, dir string) {
	name := path.Join(dir, "a")
	f := must[vfs.File](t)(fsys.Create(name))
	write(t, f, "old", 0)
	ok(t, fsys.Remove(name))
	g := must[vfs.File](t)(fsys.Create(name))
	write(t, g, "newer", 0)
	if got := content(t, f); got != "old" {
		t.Errorf("the removed file reads %q", got)
	}
	if got := content(t, g); got != "newer" {
		t.Errorf("the new file reads %q", got)
	}
	ok(t, f.Close())
	ok(t, g.Close())
}

func conformLock(t *testing.T, fsys vfs.FS, dir string) {
	name := path.Join(dir, "LOCK")
	held := must[io.Closer](t)(fsys.Lock(name))
	_, err := fsys.Lock(name)
	is(t, err, vfs.ErrLocked)
	if locked := (*vfs.LockedError)(nil); !errors.As(err, &locked) || locked.PID != os.Getpid() || locked.Name != name {
		t.Errorf("the holder is not named: %v", err)
	}
	ok(t, held.Close())
	held = must[io.Closer](t)(fsys.Lock(name))
	ok(t, held.Close())
	if _, err := fsys.Lock(path.Join(dir, "missing", "LOCK")); !errors.Is(err, vfs.ErrNotExist) {
		t.Errorf("a lock in a missing directory: %v", err)
	}
}

func conformReplace(t *testing.T, fsys vfs.FS, dir string) {
	name := path.Join(dir, "a")
	_, err := vfs.ReadFile(fsys, name, 10)
	is(t, err, vfs.ErrNotExist)
	for _, data := range []string{"first", "second", ""} {
		ok(t, vfs.WriteFile(fsys, name, []byte(data)))
		if got := must[[]byte](t)(vfs.ReadFile(fsys, name, 10)); string(got) != data {
			t.Errorf("reads %q, want %q", got, data)
		}
	}
	ok(t, vfs.WriteFile(fsys, name, make([]byte, 11)))
	if _, err := vfs.ReadFile(fsys, name, 10); err == nil {
		t.Error("a file beyond the limit is read")
	}
	if got := must[[]string](t)(fsys.List(dir)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("leftovers: %q", got)
	}
}

func conformMakeDir(t *testing.T, fsys vfs.FS, dir string) {
	ok(t, vfs.MakeDir(fsys, dir, path.Join(dir, "a", "b")))
	ok(t, vfs.MakeDir(fsys, dir, path.Join(dir, "a", "b")))
	if err := vfs.MakeDir(fsys, path.Join(dir, "a"), path.Join(dir, "b")); err == nil {
		t.Error("a directory is made outside its root")
	}
}
