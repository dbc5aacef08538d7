// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/storagetest"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire/batch"
)

// TestOpenReadsTheNewestSegment opens a log of 1 GiB in 10 segments. With its indexes it reads no more bytes than the
// newest segment and the indexes hold, so that a broker with a thousand shards is up in seconds; without them it reads
// each segment once and answers the same.
func TestOpenReadsTheNewestSegment(t *testing.T) {
	const segments, perSegment = 10, 27
	dir := t.TempDir()
	o := options(vfs.OS(), dir)
	l := create(t, o)
	w := storagetest.NewWriter()
	value := storagetest.Value(0, 4<<20-200)
	var samples []batch.Batch // headers of batches at the edges of each segment
	for i := range segments {
		n := perSegment
		if i == segments-1 {
			n = 6
		}
		if err := l.Append(w.Checkpoint(1, 3000)...); err != nil {
			t.Fatal(err)
		}
		for j := range n {
			w.Flushed = l.State().Flushed
			b := w.Records(value)
			if j == 0 || j == n-1 {
				samples = append(samples, b[:batch.HeaderSize])
			}
			if err := l.Append(b); err != nil {
				t.Fatal(err)
			}
			if i < segments-1 {
				continue // a segment is flushed whole before the next begins
			}
			if _, err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := l.State()
	if want.Bytes < 980<<20 || want.Segments != segments {
		t.Fatalf("the log has %d bytes in %d segments", want.Bytes, want.Segments)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// What no later batch vouches for, here the last batch, is read once more to be written again.
	newest, indexes := fileSizes(t, o.Dir)

	read, opened := countedOpen(t, o)
	limit := newest + indexes + headersOf(segments) + int64(len(value)) + newest/10
	if read > limit {
		t.Errorf("opening read %d bytes; the newest segment has %d, the indexes %d", read, newest, indexes)
	}
	sameAnswers(t, opened, want, samples)
	t.Logf("%d MiB in %d segments: opening read %d bytes, newest segment %d, indexes %d", want.Bytes>>20, segments, read, newest, indexes)

	for _, name := range names(t, o.Dir) {
		if strings.HasSuffix(name, segment.IndexSuffix) {
			if err := vfs.OS().Remove(path.Join(o.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	read, opened = countedOpen(t, o)
	if read > want.Bytes+want.Bytes/10 {
		t.Errorf("opening without indexes read %d of %d bytes", read, want.Bytes)
	}
	sameAnswers(t, opened, want, samples)
	if read, _ = countedOpen(t, o); read > limit {
		t.Errorf("the indexes were not built again: opening read %d bytes", read)
	}
}

// headersOf allows for each segment its header and that of its last batch, by which an index is told to be its own.
func headersOf(segments int64) int64 { return segments * (segment.HeaderSize + 2*batch.HeaderSize) }

// countedOpen opens the log and loads its state, as its owner does, and returns how many bytes were read.
func countedOpen(t *testing.T, o storage.Options) (int64, *storage.Disk) {
	t.Helper()
	var read atomic.Int64
	o.FS = faultfs.Wrap(o.FS, &faultfs.Rule{Ops: []faultfs.Op{faultfs.ReadAt}, Hook: func(c faultfs.Call) { read.Add(c.Size) }})
	replayed := 0
	l, _, err := storage.Open(o, func(batch.Batch) error { replayed++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if replayed != 7 {
		t.Errorf("%d batches were replayed", replayed)
	}
	return read.Load(), l
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	all, err := vfs.OS().List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func fileSizes(t *testing.T, dir string) (newest, indexes int64) {
	t.Helper()
	for _, name := range names(t, dir) { // in order: the last segment is the newest
		info, err := vfs.OS().Stat(path.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, segment.IndexSuffix) {
			indexes += info.Size
		} else {
			newest = info.Size
		}
	}
	return newest, indexes
}

// sameAnswers compares the state, and finds the batches at the edges of all segments.
func sameAnswers(t *testing.T, l *storage.Disk, want storage.State, samples []batch.Batch) {
	t.Helper()
	got := l.State()
	got.Flushed, got.FlushedOffset = want.Flushed, want.FlushedOffset
	if got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
	for _, b := range samples {
		if seq, err := l.FindOffset(b.BaseOffset()); err != nil || seq != b.Sequence() {
			t.Errorf("find offset %d: %d, %v, want %d", b.BaseOffset(), seq, err, b.Sequence())
		}
		if offset, err := l.FindTime(b.AppendTime()); err != nil || offset != b.BaseOffset() {
			t.Errorf("find time %d: %d, %v, want %d", b.AppendTime(), offset, err, b.BaseOffset())
		}
		if b.Sequence()%5 != 0 {
			continue // the whole batch has 4 MiB
		}
		if run, err := l.Read(b.Sequence(), b.Sequence()+1, 1); err != nil || string(run[:batch.HeaderSize]) != string(b) {
			t.Errorf("read %d: %d bytes, %v", b.Sequence(), len(run), err)
		}
	}
}
