// SPDX-License-Identifier: Apache-2.0

package faultfs_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
)

func create(t *testing.T, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRuleActsOnTheNthMatchingCall(t *testing.T) {
	rule := &faultfs.Rule{
		Ops:  []faultfs.Op{faultfs.WriteAt},
		Path: func(name string) bool { return strings.HasSuffix(name, ".seg") },
		Skip: 1, Max: 2, Err: syscall.EIO, Short: 3,
	}
	mem := memfs.New(nil)
	fsys := faultfs.Wrap(mem, rule)
	seg, idx := create(t, fsys, "a.seg"), create(t, fsys, "a.idx")
	for i, want := range []int{5, 3, 3, 5} {
		if n, err := idx.WriteAt([]byte("01234"), 0); n != 5 || err != nil {
			t.Fatalf("another file meets the fault: %d, %v", n, err)
		}
		n, err := seg.WriteAt([]byte("01234"), int64(10*i))
		if n != want || errors.Is(err, syscall.EIO) != (want < 5) {
			t.Errorf("write %d: %d, %v", i, n, err)
		}
	}
	if rule.Seen() != 4 {
		t.Errorf("seen %d", rule.Seen())
	}
	if data, _ := vfs.ReadFile(mem, "a.seg", 100); string(data[20:23]) != "012" || data[23] != 0 {
		t.Errorf("a short write leaves %q", data)
	}
}

func TestFullCountsAsFull(t *testing.T) {
	fsys := faultfs.Wrap(memfs.New(nil), &faultfs.Rule{Ops: []faultfs.Op{faultfs.Create}, Err: vfs.ErrFull})
	if _, err := fsys.Create("a"); !vfs.IsFull(err) {
		t.Error(err)
	}
	fsys.Clear()
	create(t, fsys, "a")
}

func TestHookSeesCallsInOrder(t *testing.T) {
	var calls []faultfs.Call
	fsys := faultfs.Wrap(memfs.New(nil))
	fsys.Add(&faultfs.Rule{Hook: func(c faultfs.Call) { calls = append(calls, c) }})
	f := create(t, fsys, "a")
	_, _ = f.WriteAt([]byte("xyz"), 7)
	_ = fsys.Rename("a", "b")
	want := []faultfs.Call{
		{Op: faultfs.Create, Name: "a", N: 1},
		{Op: faultfs.WriteAt, Name: "a", Offset: 7, Size: 3, N: 2},
		{Op: faultfs.Rename, Name: "a", To: "b", N: 3},
	}
	for i := range want {
		if calls[i] != want[i] {
			t.Errorf("call %d: %+v, want %+v", i, calls[i], want[i])
		}
	}
}

// TestFailedSyncIsNotForgotten: after a failed flush a later one that succeeds proves nothing, as on a real disk.
func TestFailedSyncIsNotForgotten(t *testing.T) {
	mem := memfs.New(nil)
	fsys := faultfs.Wrap(mem, &faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Max: 1, Err: syscall.EIO})
	f := create(t, fsys, "a")
	_ = fsys.SyncDir("/")
	_, _ = f.WriteAt([]byte("x"), 0)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if data, _ := vfs.ReadFile(mem.Crash(nil), "a", 10); string(data) == "x" {
		t.Error("the bytes are on disk")
	}
}

// TestEveryCallMeetsRules fails each call once.
func TestEveryCallMeetsRules(t *testing.T) {
	mem := memfs.New(nil)
	fsys := faultfs.Wrap(mem)
	f := create(t, fsys, "f")
	calls := map[faultfs.Op]func() error{
		faultfs.Create:      func() error { _, err := fsys.Create("x"); return err },
		faultfs.OpenFile:    func() error { _, err := fsys.OpenFile("f"); return err },
		faultfs.OpenRead:    func() error { _, err := fsys.OpenRead("f"); return err },
		faultfs.Remove:      func() error { return fsys.Remove("f") },
		faultfs.Rename:      func() error { return fsys.Rename("f", "g") },
		faultfs.MkdirAll:    func() error { return fsys.MkdirAll("d") },
		faultfs.List:        func() error { _, err := fsys.List("/"); return err },
		faultfs.Stat:        func() error { _, err := fsys.Stat("f"); return err },
		faultfs.SyncDir:     func() error { return fsys.SyncDir("/") },
		faultfs.Lock:        func() error { _, err := fsys.Lock("l"); return err },
		faultfs.Free:        func() error { _, err := fsys.Free("/"); return err },
		faultfs.ReadAt:      func() error { _, err := f.ReadAt(nil, 0); return err },
		faultfs.WriteAt:     func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
		faultfs.Truncate:    func() error { return f.Truncate(9) },
		faultfs.Sync:        func() error { return f.Sync() },
		faultfs.Preallocate: func() error { return f.Preallocate(9) },
		faultfs.Size:        func() error { _, err := f.Size(); return err },
	}
	for op, call := range calls {
		fsys.Clear()
		fsys.Add(&faultfs.Rule{Ops: []faultfs.Op{op}, Err: syscall.EIO})
		if err := call(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if names, _ := mem.List("/"); len(names) != 1 {
		t.Errorf("a failed call had an effect: %q", names)
	}
	fsys.Clear()
	fsys.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Close}, Err: syscall.EIO})
	if err := f.Close(); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
}
