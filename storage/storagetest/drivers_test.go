// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"path"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/storagetest"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

var logID = batch.LogID{0xca, 0xfe}

func options(fsys vfs.FS, dir string) storage.Options {
	return storage.Options{FS: fsys, Dir: path.Join(dir, "shards", logID.String(), "0"), ID: logID}
}

func open(t testing.TB, o storage.Options) (*storage.Disk, storage.Report) {
	t.Helper()
	l, report, err := storage.Open(o, nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, report
}

func create(t testing.TB, o storage.Options) *storage.Disk {
	t.Helper()
	l, err := storage.Create(o)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return l
}

// disk makes logs in a file system. One driver serves one test.
func disk(place func(t testing.TB) storage.Options) storagetest.Driver {
	var o storage.Options
	return storagetest.Driver{
		Whole: true,
		Create: func(t testing.TB) storage.Log {
			o = place(t)
			return create(t, o)
		},
		Reopen: func(t testing.TB, l storage.Log) storage.Log {
			if err := l.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			l, _ = open(t, o)
			return l
		},
	}
}

func onOS(t testing.TB) storage.Options { return options(vfs.OS(), t.TempDir()) }
func onMem(testing.TB) storage.Options  { return options(memfs.New(nil), "/data") }
func inMemory(testing.TB) storage.Log   { return storage.NewMemory(storage.Options{ID: logID}) }
func memory() storagetest.Driver        { return storagetest.Driver{Create: inMemory} }
func TestDiskOnOS(t *testing.T)         { storagetest.Run(t, disk(onOS)) }
func TestDiskOnMemfs(t *testing.T)      { storagetest.Run(t, disk(onMem)) }
func TestMemory(t *testing.T)           { storagetest.Run(t, memory()) }
