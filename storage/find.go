// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"

	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

// FindOffset returns the sequence of the record batch that holds offset; see Log.
func (l *Disk) FindOffset(offset uint64) (uint64, error) {
	var seq uint64
	err := l.reading(func() error {
		l.mu.Lock()
		var err error
		switch {
		case offset > l.cursor.Offset:
			err = fmt.Errorf("next offset is %d: %w", l.cursor.Offset, ErrOutOfRange)
		case len(l.segs) > 0 && offset < l.segs[0].BaseOffset:
			err = fmt.Errorf("log starts at offset %d: %w", l.segs[0].BaseOffset, ErrDropped)
		}
		// In a segment whose next offset is beyond the one looked for, a batch with offsets must hold it, or follow it.
		s := l.firstWith(func(s *seg) bool { return s.NextOffset > offset })
		if err != nil || s == nil {
			seq = l.cursor.Sequence
			l.mu.Unlock()
			return err
		}
		v := l.viewOf(s)
		l.mu.Unlock()
		return l.searchIn(&v,
			func(entries []segment.Entry) (segment.Entry, bool) { return segment.ByOffset(entries, offset) },
			func(b batch.Batch, _ int64) bool {
				seq = b.Sequence()
				return b.HasOffsets() && b.NextOffset() > offset
			})
	})
	if err != nil {
		return 0, fmt.Errorf("find offset %d in log %s: %w", offset, l.o.Dir, err)
	}
	return seq, nil
}

// FindTime returns the base offset of the first batch appended at us or later; see Log. A batch without offsets has
// the base offset of the record that follows it, which was appended no earlier.
func (l *Disk) FindTime(us int64) (uint64, error) {
	var offset uint64
	err := l.reading(func() error {
		l.mu.Lock()
		s := l.firstWith(func(s *seg) bool { return s.LastTime >= us })
		if s == nil {
			offset = l.cursor.Offset
			l.mu.Unlock()
			return nil
		}
		v := l.viewOf(s)
		l.mu.Unlock()
		return l.searchIn(&v,
			func(entries []segment.Entry) (segment.Entry, bool) { return segment.ByTime(entries, us) },
			func(b batch.Batch, _ int64) bool { offset = b.BaseOffset(); return b.AppendTime() >= us })
	})
	if err != nil {
		return 0, fmt.Errorf("find time %d in log %s: %w", us, l.o.Dir, err)
	}
	return offset, nil
}

// firstWith returns the first segment for which reached is true; it turns true once and stays so. It needs mu.
func (l *Disk) firstWith(reached func(*seg) bool) *seg {
	lo, hi := 0, len(l.segs)
	for lo < hi {
		if m := (lo + hi) / 2; reached(l.segs[m]) {
			hi = m
		} else {
			lo = m + 1
		}
	}
	if lo == len(l.segs) {
		return nil
	}
	return l.segs[lo]
}

func (l *Disk) searchIn(v *view, pick func([]segment.Entry) (segment.Entry, bool), found func(batch.Batch, int64) bool) error {
	if err := l.openView(v); err != nil {
		return err
	}
	defer v.h.release()
	return l.verdict(v, l.search(v, pick, found))
}
