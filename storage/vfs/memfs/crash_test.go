// SPDX-License-Identifier: Apache-2.0

package memfs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"margay.dev/storage/vfs"
)

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

func put(t *testing.T, f vfs.File, data []byte, off int64) {
	t.Helper()
	if n, err := f.WriteAt(data, off); n != len(data) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
}

// get returns the bytes of a file, or "-" when it is not there.
func get(t *testing.T, fsys *FS, name string) string {
	t.Helper()
	data, err := vfs.ReadFile(fsys, name, 1<<30)
	if err != nil {
		return "-"
	}
	return string(data)
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// outcomes crashes many times and collects what describe says of each remains.
func outcomes(t *testing.T, fsys *FS, describe func(*FS) string) []string {
	t.Helper()
	seen := map[string]bool{}
	for seed := range uint64(500) {
		seen[describe(fsys.Crash(seeded(seed)))] = true
	}
	var all []string
	for s := range seen {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
}

// TestFlushedStays: what Sync and SyncDir covered is there whatever the draw, and nothing else is without a draw.
func TestFlushedStays(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	put(t, f, bytes.Repeat([]byte("x"), 10_000), 0)
	ok(t, f.Sync())
	ok(t, fsys.SyncDir("/"))
	put(t, f, bytes.Repeat([]byte("y"), 10_000), 10_000)
	flushed := strings.Repeat("x", 10_000)
	for seed := range uint64(200) {
		if got := get(t, fsys.Crash(seeded(seed)), "a"); !strings.HasPrefix(got, flushed) {
			t.Fatalf("seed %d loses flushed bytes", seed)
		}
	}
	if got := get(t, fsys.Crash(nil), "a"); got != flushed {
		t.Errorf("without a draw %d bytes are left", len(got))
	}
	if got := get(t, fsys, "a"); len(got) != 20_000 {
		t.Errorf("a crash changes the running file system: %d bytes", len(got))
	}
}

// TestNameNeedsItsDirectory is the trap of ST-10: the bytes were flushed, the name was not.
func TestNameNeedsItsDirectory(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	put(t, f, []byte("x"), 0)
	ok(t, f.Sync())
	want(t, outcomes(t, fsys, func(c *FS) string { return get(t, c, "a") }), "-", "x")
	if got := get(t, fsys.Crash(nil), "a"); got != "-" {
		t.Errorf("a name nobody flushed is kept: %q", got)
	}
	ok(t, fsys.SyncDir("/"))
	want(t, outcomes(t, fsys, func(c *FS) string { return get(t, c, "a") }), "x")
}

func TestDirectoryNeedsItsParent(t *testing.T) {
	fsys := New(nil)
	ok(t, fsys.MkdirAll("d/e"))
	f := must[vfs.File](t)(fsys.Create("d/e/a"))
	ok(t, f.Sync())
	ok(t, fsys.SyncDir("d/e"))
	ok(t, fsys.SyncDir("d"))
	want(t, outcomes(t, fsys, func(c *FS) string { return get(t, c, "d/e/a") }), "-", "")
	ok(t, vfs.MakeDir(fsys, "/", "/d/e"))
	want(t, outcomes(t, fsys, func(c *FS) string { return get(t, c, "d/e/a") }), "")
}

// TestRenameIsAtomic: a power cut never leaves neither name or both.
func TestRenameIsAtomic(t *testing.T) {
	fsys := New(nil)
	ok(t, vfs.WriteFile(fsys, "a", []byte("1")))
	f := must[vfs.File](t)(fsys.Create("b"))
	put(t, f, []byte("2"), 0)
	ok(t, f.Sync())
	ok(t, fsys.Rename("b", "a"))
	both := func(c *FS) string { return get(t, c, "a") + get(t, c, "b") }
	want(t, outcomes(t, fsys, both), "1-", "12", "2-")
	ok(t, fsys.SyncDir("/"))
	want(t, outcomes(t, fsys, both), "2-")
	ok(t, fsys.Remove("a"))
	want(t, outcomes(t, fsys, both), "2-", "--")
}

func TestWriteFileIsOldOrNew(t *testing.T) {
	fsys := New(nil)
	ok(t, vfs.WriteFile(fsys, "a", []byte("old")))
	want(t, outcomes(t, fsys, func(c *FS) string { return get(t, c, "a") }), "old")
	ok(t, vfs.WriteFile(fsys, "a", []byte("newer")))
	want(t, outcomes(t, fsys, func(c *FS) string { return get(t, c, "a") }), "newer")
}

// TestBlocksAreKeptInAnyOrder: a later block may survive an earlier one.
func TestBlocksAreKeptInAnyOrder(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	put(t, f, bytes.Repeat([]byte("."), 2*blockSize), 0)
	ok(t, f.Sync())
	ok(t, fsys.SyncDir("/"))
	put(t, f, bytes.Repeat([]byte("x"), 2*blockSize), 0)
	got := outcomes(t, fsys, func(c *FS) string {
		s := get(t, c, "a")
		whole := func(b string) string {
			switch strings.Count(b, "x") {
			case 0:
				return "old"
			case blockSize:
				return "new"
			default:
				return "torn"
			}
		}
		return whole(s[:blockSize]) + " " + whole(s[blockSize:])
	})
	want(t, got, "old old", "old new", "old torn", "new old", "new new", "new torn", "torn old", "torn new", "torn torn")
}

// TestSizeMayComeWithoutBytes: a file that grew may have its new size and zeros in it.
func TestSizeMayComeWithoutBytes(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	ok(t, fsys.SyncDir("/"))
	put(t, f, []byte("xx"), 0)
	put(t, f, []byte("yy"), 2)
	want(t, outcomes(t, fsys, func(c *FS) string { return get(t, c, "a") }),
		"", "x", "xx", "xxy", "xxyy", "\x00", "\x00\x00", "\x00\x00\x00", "\x00\x00\x00\x00")
}

// TestTruncateIsKeptOrLost: and what it cut does not come back behind it once it is kept.
func TestTruncateIsKeptOrLost(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	put(t, f, []byte("abcd"), 0)
	ok(t, f.Sync())
	ok(t, fsys.SyncDir("/"))
	ok(t, f.Truncate(2))
	read := func(c *FS) string { return get(t, c, "a") }
	// The zeros behind the new end may reach the medium before the new end does.
	want(t, outcomes(t, fsys, read), "ab", "abcd", "ab\x00\x00")
	ok(t, f.Truncate(4))
	want(t, outcomes(t, fsys, read), "ab", "abcd", "ab\x00", "ab\x00\x00")
	ok(t, f.Sync())
	want(t, outcomes(t, fsys, read), "ab\x00\x00")
}

// TestCutBytesMayHaveBeenWritten: bytes that were written and cut again may be there, as long as neither is durable.
func TestCutBytesMayHaveBeenWritten(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	put(t, f, []byte("ab"), 0)
	ok(t, f.Sync())
	ok(t, fsys.SyncDir("/"))
	put(t, f, []byte("c"), 2)
	ok(t, f.Truncate(2))
	read := func(c *FS) string { return get(t, c, "a") }
	want(t, outcomes(t, fsys, read), "ab", "abc", "ab\x00")
	ok(t, f.Sync())
	want(t, outcomes(t, fsys, read), "ab")
}

// TestFailedSync is the kernel of ST-11: the bytes are readable, the next flush succeeds, and they are not on disk.
func TestFailedSync(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	ok(t, fsys.SyncDir("/"))
	put(t, f, []byte("ab"), 0)
	f.(*handle).FailSync()
	ok(t, f.Sync())
	read := func(c *FS) string { return get(t, c, "a") }
	if got := read(fsys); got != "ab" {
		t.Errorf("reads %q", got)
	}
	want(t, outcomes(t, fsys, read), "\x00\x00")
	put(t, f, []byte("ab"), 0)
	ok(t, f.Sync())
	want(t, outcomes(t, fsys, read), "ab")
}

func TestCapacity(t *testing.T) {
	fsys := New(nil)
	fsys.SetCapacity(4 * blockSize)
	f := must[vfs.File](t)(fsys.Create("a"))
	put(t, f, make([]byte, blockSize+1), 0)
	n, err := f.WriteAt(make([]byte, 4*blockSize), blockSize+1)
	if n != 3*blockSize-1 || !vfs.IsFull(err) {
		t.Errorf("write into a full disk: %d, %v", n, err)
	}
	if size := must[int64](t)(f.Size()); size != 4*blockSize {
		t.Errorf("the file has %d bytes", size)
	}
	put(t, f, []byte("x"), 5) // no new block
	ok(t, f.Truncate(blockSize))
	if free := must[uint64](t)(fsys.Free("/")); free != 3*blockSize {
		t.Errorf("%d bytes are free", free)
	}
	g := must[vfs.File](t)(fsys.Create("b"))
	ok(t, g.Preallocate(3*blockSize))
	if err := g.Preallocate(4 * blockSize); !vfs.IsFull(err) {
		t.Errorf("preallocation beyond the end: %v", err)
	}
	if n, err := f.WriteAt([]byte("x"), blockSize); n != 0 || !vfs.IsFull(err) {
		t.Errorf("write into reserved room: %d, %v", n, err)
	}
	put(t, g, make([]byte, 3*blockSize), 0)
	ok(t, fsys.Remove("b"))
	if free := must[uint64](t)(fsys.Free("/")); free != 0 {
		t.Errorf("%d bytes are free though the removed file is open", free)
	}
	ok(t, g.Close())
	ok(t, fsys.Rename("a", "c"))
	if free := must[uint64](t)(fsys.Free("/")); free != 3*blockSize {
		t.Errorf("%d bytes are free", free)
	}
	if left := fsys.Crash(nil); left.capacity != 4*blockSize || left.used != 0 {
		t.Errorf("after a crash %d of %d bytes are taken", left.used, left.capacity)
	}
}

func TestFullWriteIsCutAtRandom(t *testing.T) {
	cuts := map[int]bool{}
	for seed := range uint64(50) {
		fsys := New(seeded(seed))
		fsys.SetCapacity(blockSize)
		n, err := must[vfs.File](t)(fsys.Create("a")).WriteAt(make([]byte, 2*blockSize), 0)
		if n > blockSize || !vfs.IsFull(err) {
			t.Fatalf("%d, %v", n, err)
		}
		cuts[n] = true
	}
	if len(cuts) < 10 {
		t.Errorf("only %d different cuts", len(cuts))
	}
}

func TestStats(t *testing.T) {
	fsys := New(nil)
	f := must[vfs.File](t)(fsys.Create("a"))
	put(t, f, make([]byte, 100), 0)
	ok(t, f.Sync())
	ok(t, fsys.SyncDir("/"))
	_, _ = f.ReadAt(make([]byte, 60), 50)
	s := fsys.Stats()
	if s.Syncs != 1 || s.SyncDirs != 1 || s.Read["a"] != 50 || s.Written["a"] != 100 {
		t.Errorf("%+v", s)
	}
	fsys.ResetStats()
	if s := fsys.Stats(); s.Syncs != 0 || s.Read["a"] != 0 {
		t.Errorf("%+v", s)
	}
}

func TestCrashFreesLocks(t *testing.T) {
	fsys := New(nil)
	if _, err := fsys.Lock("l"); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Crash(nil).Lock("l"); err != nil {
		t.Errorf("after a power cut: %v", err)
	}
	fsys.DropLocks()
	if _, err := fsys.Lock("l"); err != nil {
		t.Errorf("after the holder died: %v", err)
	}
}

// TestCrashReplays: one seed, one answer; simulation hangs on it.
func TestCrashReplays(t *testing.T) {
	build := func() *FS {
		fsys := New(nil)
		for i := range 20 {
			f := must[vfs.File](t)(fsys.Create(fmt.Sprint(i)))
			put(t, f, bytes.Repeat([]byte{byte(i)}, 9000), 0)
		}
		return fsys
	}
	dump := func(fsys *FS) (all string) {
		for _, name := range must[[]string](t)(fsys.List("/")) {
			all += name + get(t, fsys, name)
		}
		return all
	}
	first, second := dump(build().Crash(seeded(7))), dump(build().Crash(seeded(7)))
	if first != second {
		t.Error("the same seed leaves different bytes")
	}
}
