// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"slices"

	"margay.dev/storage/recovery"
	"margay.dev/storage/segment"
)

// act carries out the plan.
func (r *opening) act() error {
	l := r.l
	for _, base := range r.drop {
		name := l.path(segment.Name(base))
		if err := l.removeSegment(base); err != nil {
			return err
		}
		r.report.Dropped = append(r.report.Dropped, name)
		l.log.Warn("segment is removed: it never came to hold anything that was flushed", "file", name)
	}
	if r.file == nil {
		return nil
	}
	if err := r.cutTail(); err != nil {
		return err
	}
	if err := r.rewrite(); err != nil {
		return err
	}
	if err := l.makeDir(); err != nil { // whoever made it may have been killed before its name was flushed
		return err
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return err
	}
	if r.cut != nil {
		if err := l.removeCutNote(); err != nil { // before anything is appended that it would cut
			return err
		}
	}
	r.install()
	r.tidy()
	return nil
}

func (r *opening) cutTail() error {
	end := r.scan.Summary.Size
	if end == r.size {
		return nil
	}
	if err := r.file.Truncate(end); err != nil {
		return fmt.Errorf("cut tail: %w", err)
	}
	if r.verdict.Action != recovery.Cut {
		return nil
	}
	c := &Cut{
		File: r.l.path(segment.Name(r.scan.Summary.Base)), Pos: end, Bytes: r.size - end,
		Sequence: r.verdict.Sequence, Offset: r.verdict.Offset, Reason: r.verdict.Reason,
	}
	r.report.Tail = c
	r.l.log.Warn("torn tail is cut", "file", c.File, "position", c.Pos, "bytes", c.Bytes, "sequence", c.Sequence, "reason", c.Reason)
	return nil
}

// rewrite writes again, in place and byte for byte, what lies behind the last provable flush, and flushes it. After a
// flush that failed the kernel calls the pages clean: reading shows them, a flush alone would pass them by, and they would
// be gone after a power cut although this open counted them.
func (r *opening) rewrite() error {
	end := r.scan.Summary.Size
	from, ok := segment.BySequence(r.scan.Sparse.Entries, r.verdict.Proven)
	if !ok {
		from = segment.Entry{Sequence: r.scan.Summary.Base, Position: segment.HeaderSize}
	}
	w := segment.NewWindow(r.file, end, replayChunk)
	pos := from.Position
	for seq := from.Sequence; seq < r.verdict.Proven && pos < end; seq++ {
		_, n, err := w.Head(pos)
		if err != nil {
			return fmt.Errorf("rewrite tail: %w", err)
		}
		pos += int64(n)
	}
	if r.verdict.Proven <= r.scan.Summary.Base {
		pos = 0 // not even the checkpoint is proven, nor the header before it
	}
	for pos < end {
		b, err := w.Bytes(pos, replayChunk)
		if err != nil {
			return fmt.Errorf("rewrite tail: %w", err)
		}
		if pos, err = writeAt(r.file, b, pos); err != nil {
			return fmt.Errorf("rewrite tail: %w", err)
		}
		r.report.Rewritten += int64(len(b))
	}
	if err := r.file.Sync(); err != nil {
		return fmt.Errorf("flush tail: %w", err)
	}
	return nil
}

// install makes the log of what was found. All of it is flushed now.
func (r *opening) install() {
	l := r.l
	active := &seg{linked: true}
	l.segs = append(r.sealed, active)
	l.adopt(active, r.scan, newHandle(r.file))
	l.recount()
	r.goOnBehindGap()
}

func (r *opening) goOnBehindGap() {
	c := &r.l.cursor
	if g := r.tailGap; g != nil {
		c.Sequence, c.Offset = g.ToSequence, g.ToOffset
		c.Generation, c.AppendTime = max(c.Generation, g.Generation), max(c.AppendTime, g.AppendTime)
	}
	r.l.flushed, r.l.flushedOffset = c.Sequence, c.Offset
}

// tidy keeps the derived files in order. Nothing depends on it, so nothing here fails an open.
func (r *opening) tidy() {
	l := r.l
	for _, x := range r.rebuilt {
		l.writeIndex(x)
		r.report.Rebuilt = append(r.report.Rebuilt, l.path(segment.IndexName(x.Summary.Base)))
	}
	var stray []string
	for _, base := range r.indexes {
		// The newest segment has none; one that an earlier sealing left is stale as soon as the segment goes on.
		if !slices.ContainsFunc(r.sealed, func(s *seg) bool { return s.Base == base }) {
			stray = append(stray, segment.IndexName(base))
		}
	}
	for _, name := range append(stray, r.temps...) {
		if err := removeFile(l.o.FS, l.path(name)); err != nil {
			l.log.Warn("stray file is not removed", "file", name, "error", err)
		}
	}
}
