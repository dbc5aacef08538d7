// SPDX-License-Identifier: Apache-2.0

// Package storage keeps the log of one shard, on disk or in memory: it touches only its shard's directory through vfs.FS,
// starts no goroutine, and refuses to guess when data that was flushed is damaged.
package storage

import (
	"log/slog"

	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// Log is the log of one shard. Disk and Memory satisfy it; storagetest holds both to the same answers.
//
// A log is synchronous: every method returns when its work is done. Append, Flush and Read may run concurrently; calls of
// Append and Truncate exclude each other. A Flush under way makes neither Append (unless it begins a segment) nor Read
// wait.
type Log interface {
	// Append writes batches that the leader assigned and that follow the tail. A batch that starts a checkpoint begins a
	// new segment: the old one is flushed whole first, and once the checkpoint is complete, it, its file and its name are
	// flushed before anything is written behind them. A batch that says more was flushed than is flushed here is written
	// only after a flush, so that the word of every batch on this disk is true.
	//
	// On an error nothing of the batches from State().Length on remains, in memory or on disk. That is all of them,
	// unless a segment began or a flush was due among them: what stood before that point may have been written.
	Append(batches ...batch.Batch) error
	// Flush makes durable whatever was appended before the call, and returns the flushed length. A checkpoint that is not
	// complete does not count.
	Flush() (uint64, error)
	State() State
	// Segments describes every segment, oldest first. The last one is that which Append writes to.
	Segments() []SegmentInfo
	// Read returns whole stored batches from sequence seq on, before sequence until and of at most maxBytes, but at
	// least one; less where a segment ends. It returns nothing when seq is until or beyond, or the length. The bytes are
	// never changed afterwards.
	Read(seq, until uint64, maxBytes int) ([]byte, error)
	// ReadTo is Read that may use buf for what it returns, so that it is unchanged only until the caller uses buf again.
	ReadTo(buf []byte, seq, until uint64, maxBytes int) ([]byte, error)
	// FindOffset returns the sequence of the record batch that holds offset, or of the first one behind it; the length
	// when offset is the next to be given.
	FindOffset(offset uint64) (uint64, error)
	// FindTime returns the base offset of the first batch appended at us (Unix microseconds) or later, the next offset
	// when there is none.
	FindTime(us int64) (uint64, error)
	// Truncate cuts the log to this length, durably.
	Truncate(length uint64) error
	// DropBefore removes whole segments that hold nothing from sequence seq on, never the newest, and returns the bytes
	// that they took.
	DropBefore(seq uint64) (int64, error)
	// Replay hands every batch of the newest segment to fn, in order, checkpoint first. The bytes are valid during the
	// call. A reading loads its state by it, after opening and after a cut.
	Replay(fn func(batch.Batch) error) error
	// Close flushes what can be and releases all. It waits for reads under way.
	Close() error
}

// State describes a log at one moment.
type State struct {
	StartSequence uint64 // of the first batch that is kept
	StartOffset   uint64
	Length        uint64 // sequence after the last batch
	NextOffset    uint64
	Generation    uint64 // of the last batch
	Flushed       uint64 // length that is flushed
	FlushedOffset uint64 // next offset at that length

	LastAppendTime   int64
	OldestAppendTime int64

	Bytes           int64 // of all segment files
	SegmentBytes    int64 // of the newest segment behind its checkpoint
	CheckpointBytes int64 // of the newest segment's checkpoint
	Segments        int

	// NeedsCheckpoint means that the next batch must start a checkpoint: the log is empty, or its tail is a gap that a
	// repair left.
	NeedsCheckpoint bool
	// Poisoned means that a flush failed: the log must be closed and opened again with CutTo = Flushed.
	Poisoned bool
}

// SegmentInfo is what retention decides on.
type SegmentInfo struct {
	BaseSequence    uint64
	NextSequence    uint64
	BaseOffset      uint64
	NextOffset      uint64
	Generation      uint64 // of the last batch
	FirstAppendTime int64
	LastAppendTime  int64 // the highest
	Bytes           int64
}

// Limits and defaults of Options.
const (
	DefaultSegmentBytes = 256 << 20
	MinSegmentBytes     = 4 << 10
	DefaultMemoryBytes  = 64 << 20
)

// Options of a log.
type Options struct {
	FS    vfs.FS // required for Disk
	Dir   string // the shard's directory
	ID    batch.LogID
	Shard uint32
	// SegmentBytes is about how large the log's owner lets a segment grow before it begins another. The log uses it for
	// one thing only: to reserve no more than that. Default 256 MiB; less than 4 KiB is refused.
	SegmentBytes int64
	// ZeroAhead has zeros written behind the end, so that the flush of a small append takes less. It is for a log whose
	// appends are each flushed; for another it is work for nothing.
	ZeroAhead bool
	// MemoryBytes bounds a Memory log. Default 64 MiB.
	MemoryBytes int64
	// CutTo, when opening after a failed flush, is the length that was known to be flushed. Nothing behind it is read:
	// that would show the page cache, not the disk. Everything before it must be there.
	CutTo *uint64
	// Files bounds the descriptors of a process, see NewFiles. Nil means a bound of the log's own.
	Files  *Files
	Logger *slog.Logger
}
