// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"slices"

	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
)

// Truncate cuts the log to this length; see Log. It is durable when it returns: what is appended next must never meet
// remains of what was cut, or recovery could take their word for what was flushed.
func (l *Disk) Truncate(length uint64) error {
	l.writer.Lock()
	defer l.writer.Unlock()
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.dropping.Lock()
	defer l.dropping.Unlock()
	if err := l.truncate(length); err != nil {
		return fmt.Errorf("truncate log %s to length %d: %w", l.o.Dir, length, err)
	}
	return nil
}

func (l *Disk) truncate(length uint64) error {
	l.mu.Lock()
	err := l.usable()
	start, end, segs := l.start(), l.cursor.Sequence, l.segs
	l.mu.Unlock()
	switch {
	case err != nil:
		return err
	case length > end:
		return fmt.Errorf("length is %d: %w", end, ErrOutOfRange)
	case length < start:
		return fmt.Errorf("log starts at sequence %d: %w", start, ErrDropped)
	case length == end:
		return nil
	}
	if len(l.gaps) > 0 && length < l.gaps[len(l.gaps)-1].ToSequence {
		return fmt.Errorf("a repair left a gap up to sequence %d: %w", l.gaps[len(l.gaps)-1].ToSequence, ErrInvalid)
	}
	keep := len(segs)
	for keep > 0 && segs[keep-1].Base >= length {
		keep--
	}
	if keep == 0 {
		return l.cutAll(segs)
	}
	return l.cutInto(segs[keep-1], segs[keep:], length)
}

// cutAll leaves a log without segments that still knows where it goes on.
func (l *Disk) cutAll(segs []*seg) error {
	first := segs[0]
	if first.Base > 0 || first.BaseOffset > 0 {
		// An empty gap says where the log goes on, or a later start would begin at offset 0 again.
		g := Gap{
			FromSequence: first.Base, ToSequence: first.Base, FromOffset: first.BaseOffset, ToOffset: first.BaseOffset,
			Reason: "cut to nothing",
		}
		if _, ok := gapEndingAt(l.gaps, first.Base); !ok {
			if err := WriteGaps(l.o.FS, l.o.Dir, append(slices.Clone(l.gaps), g)); err != nil {
				return err
			}
			l.mu.Lock()
			l.gaps = append(slices.Clone(l.gaps), g)
			l.mu.Unlock()
		}
	}
	l.mu.Lock()
	l.segs = nil
	l.cursor = segment.Cursor{Sequence: first.Base, Offset: first.BaseOffset}
	l.flushed, l.flushedOffset = first.Base, first.BaseOffset
	l.forgetFound()
	l.mu.Unlock()
	return l.removeNewestFirst(segs)
}

// cutInto ends the log inside s and removes the segments behind it. Everything that can fail without harm comes first.
func (l *Disk) cutInto(s *seg, behind []*seg, length uint64) (err error) {
	name := l.path(segment.Name(s.Base))
	h := s.h
	if h == nil {
		f, err := l.o.FS.OpenFile(name)
		if err != nil {
			return err
		}
		h = newHandle(f)
	}
	scan, err := segment.Read(h.file, s.Size, segment.Options{Base: s.Base, Stop: length})
	if err == nil && scan.Checkpoint == 0 && !scan.Cursor.InCheckpoint() {
		err = fmt.Errorf("segment %s was saved by a repair and has no checkpoint to go on from: %w", segment.Name(s.Base), ErrInvalid)
	}
	if err == nil && scan.Cursor.Sequence != length {
		err = &CorruptError{
			File: name, Pos: scan.Summary.Size, Sequence: scan.Cursor.Sequence, Offset: scan.Cursor.Offset,
			Reason: "damaged before the place of the cut",
		}
	}
	if err != nil {
		if s.h == nil {
			h.release()
		}
		return err
	}

	if scan.Summary.Size < s.Size && length < l.State().Flushed {
		if err := writeCutNote(l.o.FS, l.o.Dir, length); err != nil {
			if s.h == nil {
				h.release()
			}
			return err
		}
		defer func() {
			if err == nil {
				err = l.removeCutNote()
			}
		}()
	}
	l.mu.Lock()
	l.segs = l.segs[:len(l.segs)-len(behind)]
	l.adopt(s, scan, h)
	s.linked = true
	l.flushed, l.flushedOffset = min(l.flushed, length), min(l.flushedOffset, scan.Cursor.Offset)
	if l.cursor.InCheckpoint() {
		l.flushed, l.flushedOffset = s.Base, s.BaseOffset
	}
	l.forgetFound()
	l.mu.Unlock()

	l.o.Files.forget(fileKey{l, s.Base})
	if err = l.removeNewestFirst(behind); err != nil {
		return err
	}
	err = removeFile(l.o.FS, l.path(segment.IndexName(s.Base)))
	if err == nil {
		err = h.file.Truncate(scan.Summary.Size)
	}
	if err == nil {
		err = h.file.Sync()
	}
	if err != nil {
		return l.poisonWith(fmt.Errorf("cut %s: %w", name, err))
	}
	return nil
}

// adopt makes a scanned segment the one that is written to. It needs mu.
func (l *Disk) adopt(s *seg, scan segment.Scan, h *handle) {
	s.Summary, s.checkpoint, s.sparse = scan.Summary, scan.CheckpointEnd, scan.Sparse
	s.h, s.reserved, s.granted, s.zeroed = h, scan.Summary.Size, 0, 0
	l.cursor = scan.Cursor
}

// forgetFound voids what readers found and remember. It needs mu.
func (l *Disk) forgetFound() {
	l.epoch++
	l.recount()
	l.hints = hints{}
	l.indexes = indexCache{}
}

// removeNewestFirst removes segments that the log does not know any more. Each removal is made durable before the next:
// after a power cut between them there must be no hole.
func (l *Disk) removeNewestFirst(segs []*seg) error {
	for _, s := range slices.Backward(segs) {
		if s.h != nil {
			s.h.release()
			s.h = nil
		}
		if err := l.removeSegment(s.Base); err != nil {
			return l.poisonWith(err)
		}
	}
	return nil
}

// removeSegment removes a segment durably, then its index.
func (l *Disk) removeSegment(base uint64) error {
	// Twice: a reader that took its view before the segment left the log may open the file until it is gone.
	l.o.Files.forget(fileKey{l, base})
	defer l.o.Files.forget(fileKey{l, base})
	return removeSegment(l.o.FS, l.path(segment.Name(base)), l.path(segment.IndexName(base)), l.o.Dir)
}

func removeSegment(fsys vfs.FS, name, index, dir string) error {
	// It may be gone already: an earlier try removed it, and failed to flush the directory.
	if err := removeFile(fsys, name); err != nil {
		return fmt.Errorf("remove segment: %w", err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("remove segment %s: flush directory: %w", name, err)
	}
	if err := removeFile(fsys, index); err != nil {
		return fmt.Errorf("remove index: %w", err)
	}
	return nil
}

// needed is how many of the newest segments must stay: one, and while its checkpoint is not flushed, so that recovery may
// yet drop it, the one before it too. It needs mu.
func (l *Disk) needed() int {
	if n := l.newest(); n != nil && l.flushed <= n.Base {
		return 2
	}
	return 1
}

// DropBefore removes old segments; see Log. Oldest first, each durably, so that a power cut leaves no hole.
func (l *Disk) DropBefore(seq uint64) (int64, error) {
	l.dropping.Lock()
	defer l.dropping.Unlock()
	var freed int64
	if l.unflushedDrop { // or a power cut could leave the older of two segments, and not the newer
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return 0, fmt.Errorf("drop from log %s: flush directory: %w", l.o.Dir, err)
		}
		l.unflushedDrop = false
	}
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return freed, fmt.Errorf("drop from log %s: %w", l.o.Dir, ErrClosed)
		}
		if len(l.segs) <= l.needed() || l.segs[0].Next > seq {
			l.mu.Unlock()
			return freed, nil
		}
		s := l.segs[0]
		l.segs = l.segs[1:]
		l.bytes -= s.Size
		l.indexes.forget(s.Base)
		l.mu.Unlock()
		if err := l.removeSegment(s.Base); err != nil {
			if _, gone := l.o.FS.Stat(l.path(segment.Name(s.Base))); errors.Is(gone, ErrNotExist) {
				l.unflushedDrop = true // it is no part of the log any more: a reader would take it for damage
				return freed + s.Size, fmt.Errorf("drop from log %s: %w", l.o.Dir, err)
			}
			l.mu.Lock()
			l.bytes += s.Size
			l.segs = append([]*seg{s}, l.segs...) // it is still there, and will be asked for again
			l.mu.Unlock()
			return freed, fmt.Errorf("drop from log %s: %w", l.o.Dir, err)
		}
		freed += s.Size
	}
}
