// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"

	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// Disk is a log in segment files.
//
// Four locks, taken in this order. The first three are held across I/O because that is what they order; the fourth never
// is, so State and the bookkeeping of a read wait for no disk.
type Disk struct {
	o   Options
	log *slog.Logger

	writer        sync.Mutex // one Append or Truncate at a time
	flushing      sync.Mutex // one flush at a time: of two, one could take the error that was meant for the other
	dropping      sync.Mutex // one removal of old segments at a time
	unflushedDrop bool       // a segment was removed, and the directory not flushed; under dropping

	mu            sync.Mutex
	segs          []*seg // oldest first; the last is written to
	cursor        segment.Cursor
	virgin        bool // nothing was ever appended: the first batch says where the log begins
	gaps          []Gap
	flushed       uint64
	flushedOffset uint64
	bytes         int64 // of all segment files
	poison        error
	closed        bool
	epoch         uint64 // counts cuts: what a read found is void when it moved meanwhile
	readers       sync.WaitGroup
	hints         hints
	indexes       indexCache
}

// seg is one segment. Its fields are guarded by Disk.mu, those of the newest change under Disk.writer besides.
type seg struct {
	segment.Summary
	checkpoint int64 // position behind the checkpoint; only kept for the newest

	// Only of the newest segment.
	h        *handle
	sparse   segment.Sparse
	linked   bool  // its name is durable
	reserved int64 // bytes that were to be preallocated
	granted  int64 // bytes that were
	zeroed   int64 // where the zeros end that were written ahead of the end; below Size there are none
}

var _ Log = (*Disk)(nil)

// Create returns an empty log in a directory that holds none. Nothing is made on disk until the first append, which must
// start with a checkpoint; that batch also says at which sequence and offset the log begins.
func Create(o Options) (*Disk, error) {
	l, err := newDisk(o)
	if err != nil {
		return nil, err
	}
	names, err := l.o.FS.List(l.o.Dir)
	if err != nil && !errors.Is(err, ErrNotExist) {
		return nil, fmt.Errorf("create log %s: %w", l.o.Dir, err)
	}
	for _, name := range names {
		if _, suffix, ok := segment.ParseName(name); ok && suffix == segment.Suffix || name == GapsName {
			return nil, fmt.Errorf("create log %s: found %s: %w", l.o.Dir, name, ErrExist)
		}
	}
	l.virgin = true
	return l, nil
}

func newDisk(o Options) (*Disk, error) {
	if o.FS == nil || o.Dir == "" || o.ID.IsZero() {
		return nil, fmt.Errorf("log options: file system, directory and log id are required: %w", ErrInvalid)
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.SegmentBytes < MinSegmentBytes {
		return nil, fmt.Errorf("log options: segments of %d bytes, at least %d are needed: %w", o.SegmentBytes, MinSegmentBytes, ErrInvalid)
	}
	if o.Files == nil {
		o.Files = NewFiles(DefaultOpenFiles)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Disk{o: o, log: o.Logger.With("log", o.ID, "shard", o.Shard)}, nil
}

func (l *Disk) path(name string) string { return path.Join(l.o.Dir, name) }

// tail returns the segment that is written to, nil when there is none.
func (l *Disk) tail() *seg {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest()
}

// newest is tail for a caller that holds mu.
func (l *Disk) newest() *seg {
	if len(l.segs) == 0 {
		return nil
	}
	return l.segs[len(l.segs)-1]
}

// State describes the log.
func (l *Disk) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{
		StartSequence: l.cursor.Sequence, StartOffset: l.cursor.Offset,
		Length: l.cursor.Sequence, NextOffset: l.cursor.Offset, Generation: l.cursor.Generation,
		Flushed: l.flushed, FlushedOffset: l.flushedOffset,
		LastAppendTime: l.cursor.AppendTime, OldestAppendTime: l.cursor.AppendTime,
		Bytes: l.bytes, Segments: len(l.segs), NeedsCheckpoint: l.needsCheckpoint(), Poisoned: l.poison != nil,
	}
	if len(l.segs) > 0 {
		s.StartSequence, s.StartOffset, s.OldestAppendTime = l.segs[0].Base, l.segs[0].BaseOffset, l.segs[0].FirstTime
		n := l.newest()
		s.CheckpointBytes = max(0, n.checkpoint-segment.HeaderSize)
		s.SegmentBytes = n.Size - max(n.checkpoint, segment.HeaderSize)
	}
	return s
}

// recount sums up the sizes after segments came or went other than by appending. It needs mu.
func (l *Disk) recount() {
	l.bytes = 0
	for _, s := range l.segs {
		l.bytes += s.Size
	}
}

// needsCheckpoint is true when there is no segment whose end is the end of the log.
func (l *Disk) needsCheckpoint() bool {
	n := l.newest()
	return n == nil || n.Next != l.cursor.Sequence
}

// Segments describes every segment, oldest first.
func (l *Disk) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]SegmentInfo, len(l.segs))
	for i, s := range l.segs {
		out[i] = infoOf(s.Summary)
	}
	return out
}

func infoOf(s segment.Summary) SegmentInfo {
	return SegmentInfo{
		BaseSequence: s.Base, NextSequence: s.Next, BaseOffset: s.BaseOffset, NextOffset: s.NextOffset,
		Generation: s.Generation, FirstAppendTime: s.FirstTime, LastAppendTime: s.LastTime, Bytes: s.Size,
	}
}

// usable says why the log takes no writes. The caller holds mu.
func (l *Disk) usable() error {
	if l.closed {
		return ErrClosed
	}
	return l.poison
}

// poisonWith closes the log for writing; the first reason stays.
func (l *Disk) poisonWith(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poison == nil {
		l.poison = fmt.Errorf("%w: %w", ErrPoisoned, cause)
		l.log.Error("log is closed for writing", "flushed", l.flushed, "length", l.cursor.Sequence, "error", cause)
	}
	return l.poison
}

// Close flushes what is not flushed, unless the log is poisoned, waits for reads under way and releases all files.
func (l *Disk) Close() error {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	poisoned := l.poison != nil
	l.mu.Unlock()
	var err error
	if !poisoned {
		_, err = l.flush()
	}
	l.mu.Lock()
	l.closed = true
	n := l.newest()
	l.mu.Unlock()
	l.readers.Wait()
	l.o.Files.forgetLog(l)
	if n != nil && n.h != nil {
		if err == nil && !poisoned {
			l.trim(n)
		}
		n.h.release()
	}
	if err != nil {
		return fmt.Errorf("close log %s: %w", l.o.Dir, err)
	}
	return nil
}

// trim gives back what was reserved and zeroed behind the end of a segment that takes no more batches.
func (l *Disk) trim(s *seg) {
	if max(s.reserved, s.zeroed) <= s.Size {
		return
	}
	if err := s.h.file.Truncate(s.Size); err != nil {
		l.log.Warn("reserved space is not given back", "file", segment.Name(s.Base), "error", err)
	}
}

// Replay hands every batch of the newest segment to fn.
func (l *Disk) Replay(fn func(batch.Batch) error) error {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.mu.Lock()
	n, closed := l.newest(), l.closed
	l.mu.Unlock()
	if closed {
		return fmt.Errorf("replay log %s: %w", l.o.Dir, ErrClosed)
	}
	if n == nil {
		return nil
	}
	w := segment.NewWindow(n.h.file, n.Size, replayChunk)
	for pos := int64(segment.HeaderSize); pos < n.Size; {
		_, size, err := w.Head(pos)
		if err == nil {
			var raw []byte
			if raw, err = w.Bytes(pos, size); err == nil {
				err = fn(batch.Batch(raw[:size:size]))
			}
		}
		if err != nil {
			return fmt.Errorf("replay %s: %w", l.path(segment.Name(n.Base)), err)
		}
		pos += int64(size)
	}
	return nil
}

const replayChunk = 1 << 20

// removeFile removes a file that may be gone already.
func removeFile(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, ErrNotExist) {
		return err
	}
	return nil
}
