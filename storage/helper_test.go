// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"path"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

const dir = "data/shards/log/0"

var logID = batch.LogID{1, 2, 3}

func newFS(t *testing.T) *memfs.FS {
	t.Helper()
	fs := memfs.New(rand.New(rand.NewPCG(1, 2)))
	if err := vfs.MakeDir(fs, ".", "data/shards"); err != nil {
		t.Fatal(err)
	}
	return fs
}

func options(fs vfs.FS) storage.Options {
	return storage.Options{FS: fs, Dir: dir, ID: logID, SegmentBytes: 64 << 10, Logger: slog.New(slog.DiscardHandler)}
}

// leader assigns batches as the owner of a log does.
type leader struct {
	t    testing.TB
	log  storage.Log
	gen  uint64
	time int64
}

func create(t *testing.T, fs vfs.FS) (*leader, *storage.Disk) {
	t.Helper()
	d, err := storage.Create(options(fs))
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: d, gen: 1, time: 1000}
	l.must(l.checkpoint(1)...)
	return l, d
}

func open(t *testing.T, fs vfs.FS) (*leader, *storage.Disk, storage.Report) {
	t.Helper()
	d, report, err := storage.Open(options(fs), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := d.State()
	return &leader{t: t, log: d, gen: s.Generation, time: s.LastAppendTime}, d, report
}

// assign puts batches behind the tail.
func (l *leader) assign(batches ...batch.Batch) []batch.Batch {
	s := l.log.State()
	seq, offset := s.Length, s.NextOffset
	for _, b := range batches {
		l.time++
		b.Assign(batch.Assigned{Sequence: seq, BaseOffset: offset, Generation: l.gen, AppendTime: l.time, Flushed: s.Flushed})
		seq, offset = seq+1, b.NextOffset()
	}
	return batches
}

// checkpoint is one of so many parts.
func (l *leader) checkpoint(parts uint32) []batch.Batch {
	var out []batch.Batch
	for i := range parts {
		out = append(out, batch.BuildControl(batch.CheckpointPart{Index: i, Total: parts}, batch.LogStart{}))
	}
	return l.assign(out...)
}

// records is one batch for each count.
func (l *leader) records(counts ...int) []batch.Batch {
	var out []batch.Batch
	for _, n := range counts {
		out = append(out, records(l.t, n, 100))
	}
	return l.assign(out...)
}

func records(t testing.TB, n, size int) batch.Batch {
	t.Helper()
	b := batch.NewBuilder(batch.Limits{})
	for i := range n {
		value := bytes.Repeat([]byte{byte('a' + i%26)}, size)
		if err := b.Add(batch.Record{Key: fmt.Appendf(nil, "key-%d", i), Value: value, Timestamp: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return append(batch.Batch(nil), out...)
}

func (l *leader) must(batches ...batch.Batch) {
	l.t.Helper()
	if err := l.log.Append(batches...); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leader) flush() {
	l.t.Helper()
	if _, err := l.log.Flush(); err != nil {
		l.t.Fatal(err)
	}
}

// fill appends n segments of so many batches each, the newest unflushed.
func (l *leader) fill(segments, batches int) {
	l.t.Helper()
	for range segments {
		l.must(l.checkpoint(1)...)
		for range batches {
			l.must(l.records(3)...)
		}
	}
}

// all reads the whole log and checks that nothing is missing.
func all(t testing.TB, log storage.Log) []byte {
	t.Helper()
	out, err := readFrom(log, log.State().StartSequence)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readFrom(log storage.Log, seq uint64) ([]byte, error) {
	var out []byte
	for length := log.State().Length; seq < length; {
		p, err := log.Read(seq, length, 4000)
		if err != nil {
			return out, err
		}
		out = append(out, p...)
		for len(p) > 0 {
			b, err := batch.CheckStored(p)
			if err != nil {
				return out, err
			}
			if b.Sequence() != seq {
				return out, fmt.Errorf("read sequence %d where %d comes next", b.Sequence(), seq)
			}
			seq, p = seq+1, p[len(b):]
		}
	}
	return out, nil
}

func fileBytes(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fs, path.Join(dir, name), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// put replaces a file.
func put(t testing.TB, fs vfs.FS, name string, data []byte) {
	t.Helper()
	if err := vfs.WriteFile(fs, path.Join(dir, name), data); err != nil {
		t.Fatal(err)
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal makes the checksum of a batch's produced part good again.
func seal(b []byte) {
	binary.LittleEndian.PutUint32(b[48:], crc32.Checksum(b[52:], castagnoli))
}

func sealHeader(b []byte) {
	binary.LittleEndian.PutUint32(b[44:], crc32.Checksum(b[:44], castagnoli))
}
