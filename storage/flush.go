// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"

	"margay.dev/storage/segment"
)

// Flush makes durable what was appended before the call; see Log.
func (l *Disk) Flush() (uint64, error) {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	flushed, err := l.flush()
	if err != nil {
		return flushed, fmt.Errorf("flush log %s: %w", l.o.Dir, err)
	}
	return flushed, nil
}

// flush needs the flushing lock. Whoever waited for it finds the work of the one before done, and often its own too.
func (l *Disk) flush() (uint64, error) {
	l.mu.Lock()
	target, offset := l.cursor.Sequence, l.cursor.Offset
	s := l.newest()
	if s != nil && l.cursor.InCheckpoint() {
		target, offset = s.Base, s.BaseOffset // until it is complete, recovery would drop the whole segment
	}
	flushed, err := l.flushed, l.usable()
	if err != nil || flushed >= target || s == nil || s.h == nil {
		l.mu.Unlock()
		return flushed, err
	}
	h, linked := s.h.retain(), s.linked
	l.mu.Unlock()
	defer h.release()

	if err := h.file.Sync(); err != nil {
		return flushed, l.poisonWith(fmt.Errorf("flush %s: %w", segment.Name(s.Base), err))
	}
	if !linked {
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return flushed, l.poisonWith(fmt.Errorf("flush name of %s: %w", segment.Name(s.Base), err))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.linked = true
	l.flushed, l.flushedOffset = target, offset
	return target, nil
}
