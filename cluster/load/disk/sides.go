// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"time"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

const (
	// MinBatch is the smallest batch: its header, and a record.
	MinBatch = 256
	// MaxBatch is the largest that a broker takes.
	MaxBatch = batch.MaxBatch
	// Bare writes reserve blocks as the engine does. Without it they would be slower than they need to be, which would flatter
	// the engine.
	minReserve = 64 << 10
	maxReserve = 16 << 20
)

// engine is a log of the storage engine.
type engine struct {
	log      *storage.Disk
	batch    batch.Batch
	sequence uint64
	offset   uint64
}

func openStorage(dir string, size int) (log, error) {
	fs := vfs.OS()
	if err := fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	var id batch.LogID
	_, _ = rand.Read(id[:]) // never fails: the runtime ends the process when the system has no randomness
	d, err := storage.Create(storage.Options{FS: fs, Dir: dir, ID: id})
	if err != nil {
		return nil, err
	}
	e := &engine{log: d}
	for _, b := range batch.BuildCheckpoint() {
		if err := e.put(b); err != nil {
			return nil, err
		}
	}
	e.batch, err = build(size)
	return e, err
}

// build makes a batch of one record that takes so many bytes.
func build(size int) (batch.Batch, error) {
	b := batch.NewBuilder(batch.Limits{})
	value := make([]byte, size)
	_, _ = rand.Read(value)
	for cut := 0; ; cut++ {
		b.Reset()
		if err := b.Add(batch.Record{Value: value[:size-batch.HeaderSize-cut], Timestamp: time.Now().UnixMicro()}); err != nil {
			return nil, fmt.Errorf("build batch of %d bytes: %w", size, err)
		}
		built, err := b.Build(0, 0, batch.None)
		if err != nil {
			return nil, fmt.Errorf("build batch of %d bytes: %w", size, err)
		}
		if len(built) <= size {
			return built, nil
		}
	}
}

// put assigns the batch its place, as the leader of a shard does, and appends it.
func (e *engine) put(b batch.Batch) error {
	b.Assign(batch.Assigned{
		Sequence: e.sequence, BaseOffset: e.offset, Generation: 1, AppendTime: time.Now().UnixMicro(),
	})
	if err := e.log.Append(b); err != nil {
		return err
	}
	e.sequence, e.offset = e.sequence+1, b.NextOffset()
	return nil
}

func (e *engine) append() error { return e.put(e.batch) }

func (e *engine) flush() error {
	_, err := e.log.Flush()
	return err
}

func (e *engine) close() error { return e.log.Close() }

// bare is a file that is written to and nothing else: the bytes of the engine's batches, at the places where the engine puts
// them. Where writes lie against pages makes a difference of its own, which is not the engine's.
type bare struct {
	file     vfs.File
	bytes    []byte
	at       int64
	reserved int64
}

func openBare(dir string, size int) (log, error) {
	fs := vfs.OS()
	if err := fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	b, err := build(size)
	if err != nil {
		return nil, err
	}
	f, err := fs.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return nil, err
	}
	return &bare{file: f, bytes: b, at: segment.HeaderSize}, nil
}

func (b *bare) append() error {
	if next := b.at + int64(len(b.bytes)); next > b.reserved {
		b.reserved = max(next, b.reserved+min(max(minReserve, b.reserved), maxReserve))
		if err := b.file.Preallocate(b.reserved); err != nil {
			return err
		}
	}
	n, err := b.file.WriteAt(b.bytes, b.at)
	b.at += int64(n)
	return err
}

func (b *bare) flush() error { return b.file.Sync() }

func (b *bare) close() error { return b.file.Close() }
