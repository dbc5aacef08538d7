// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io"
	"path"

	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

const (
	// joinBytes is how much goes into one write when several batches are joined. A larger batch is written as it is.
	joinBytes = 1 << 20
	// Space is reserved in doubling steps, so that an idle shard holds little and a busy one rarely asks.
	minReserve = 64 << 10
	maxReserve = 16 << 20
)

// Append writes batches behind the tail; see Log.
func (l *Disk) Append(batches ...batch.Batch) error {
	if len(batches) == 0 {
		return nil
	}
	l.writer.Lock()
	defer l.writer.Unlock()
	if err := l.admit(batches); err != nil {
		return fmt.Errorf("append to log %s: %w", l.o.Dir, err)
	}
	for len(batches) > 0 {
		n, err := l.appendGroup(batches)
		if err != nil {
			return fmt.Errorf("append to log %s: %w", l.o.Dir, err)
		}
		batches = batches[n:]
	}
	return nil
}

// admit refuses the whole append before a byte is written.
func (l *Disk) admit(batches []batch.Batch) error {
	l.mu.Lock()
	c, virgin, needs, err := l.cursor, l.virgin, l.needsCheckpoint(), l.usable()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return admit(c, virgin, needs, batches)
}

func admit(c segment.Cursor, virgin, needsCheckpoint bool, batches []batch.Batch) error {
	for i, b := range batches {
		if n, err := batch.Peek(b); err != nil || n != len(b) || !segment.Assigned(b) {
			return fmt.Errorf("batch %d of %d is not one assigned batch: %w", i+1, len(batches), ErrInvalid)
		}
	}
	first := batches[0]
	if needsCheckpoint && !first.IsCheckpointStart() {
		return fmt.Errorf("batch %d: a checkpoint must come first: %w", first.Sequence(), ErrCheckpoint)
	}
	if virgin {
		c = segment.Cursor{Sequence: first.Sequence(), Fresh: true}
	}
	for _, b := range batches {
		if err := c.Accept(b); err != nil {
			return err
		}
	}
	return nil
}

// appendGroup writes the batches up to the next point where something must be flushed first, as one whole: on an error
// none of them remains.
func (l *Disk) appendGroup(batches []batch.Batch) (int, error) {
	l.mu.Lock()
	c, virgin, flushed := l.cursor, l.virgin, l.flushed
	l.mu.Unlock()
	first := batches[0]
	if virgin {
		c, flushed = segment.Cursor{Sequence: first.Sequence(), Fresh: true}, first.Sequence()
	}
	if first.Flushed() > flushed {
		var err error
		if flushed, err = l.Flush(); err != nil {
			return 0, err
		}
		if first.Flushed() > flushed {
			return 0, fmt.Errorf("batch %d says that %d were flushed, here it is %d: %w", first.Sequence(), first.Flushed(), flushed, ErrOrder)
		}
	}
	n, complete := 0, false
	for n < len(batches) && !complete {
		b := batches[n]
		if n > 0 && (b.IsCheckpointStart() || b.Flushed() > flushed) {
			break
		}
		if err := c.Accept(b); err != nil {
			return 0, err
		}
		complete = b.IsCheckpoint() && !c.InCheckpoint()
		n++
	}
	var err error
	if first.IsCheckpointStart() {
		err = l.roll(batches[:n], c, complete)
	} else {
		err = l.extend(batches[:n], c, complete)
	}
	if err == nil && complete {
		_, err = l.Flush() // the checkpoint, its file and the file's name, before anything is written behind them
	}
	return n, err
}

// extend writes behind the end of the newest segment.
func (l *Disk) extend(batches []batch.Batch, c segment.Cursor, complete bool) error {
	s := l.tail()
	l.reserve(s, s.Size+sizeOf(batches))
	end, err := l.write(s.h.file, s.Size, nil, batches)
	if err != nil {
		return l.unwrite(s, err)
	}
	l.zeroAhead(s, end, end-s.Size)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(s, batches, c, complete, end)
	return nil
}

// advance makes written batches part of the log. The caller holds mu.
func (l *Disk) advance(s *seg, batches []batch.Batch, c segment.Cursor, complete bool, end int64) {
	pos := s.Size
	for _, b := range batches {
		s.sparse.Add(b, pos)
		pos += int64(len(b))
	}
	l.bytes += end - s.Size
	s.Next, s.NextOffset, s.Generation, s.LastTime, s.Size = c.Sequence, c.Offset, c.Generation, c.AppendTime, end
	if complete {
		s.checkpoint = end
	}
	l.cursor = c
}

func sizeOf(batches []batch.Batch) int64 {
	var n int64
	for _, b := range batches {
		n += int64(len(b))
	}
	return n
}

// reserve asks for blocks ahead of the end without moving it, so that a flush has no size to write but that of the data.
// It says whether they are there.
func (l *Disk) reserve(s *seg, end int64) bool {
	if end <= s.reserved {
		return end <= s.granted
	}
	step := min(max(minReserve, s.reserved), maxReserve)
	to := max(end, min(s.reserved+step, l.o.SegmentBytes))
	s.reserved = to
	if err := s.h.file.Preallocate(to); err != nil {
		l.log.Debug("no space is reserved", "file", segment.Name(s.Base), "bytes", to, "error", err) // the write will tell
		return false
	}
	s.granted = to
	return true
}

// write puts prefix and batches at pos and returns the position behind them. One batch alone is written from where it
// lies; several are joined, because a system call costs more than the copy.
func (l *Disk) write(f vfs.File, pos int64, prefix []byte, batches []batch.Batch) (int64, error) {
	if len(prefix) == 0 && len(batches) == 1 {
		return writeAt(f, batches[0], pos)
	}
	buf := l.o.Files.buffer(int64(len(prefix)) + sizeOf(batches))
	defer l.o.Files.giveBack(buf)
	*buf = append(*buf, prefix...)
	for _, b := range batches {
		if len(*buf) > 0 && len(*buf)+len(b) > joinBytes {
			var err error
			if pos, err = writeAt(f, *buf, pos); err != nil {
				return pos, err
			}
			*buf = (*buf)[:0]
		}
		if len(b) >= joinBytes {
			var err error
			if pos, err = writeAt(f, b, pos); err != nil {
				return pos, err
			}
			continue
		}
		*buf = append(*buf, b...)
	}
	if len(*buf) == 0 {
		return pos, nil
	}
	return writeAt(f, *buf, pos)
}

func writeAt(f vfs.File, p []byte, pos int64) (int64, error) {
	n, err := f.WriteAt(p, pos)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return pos, err
	}
	return pos + int64(n), nil
}

// unwrite removes what a failed write left behind the end, durably: a batch that was refused must not turn up after a
// power cut. When that fails too, nobody knows what the file holds.
func (l *Disk) unwrite(s *seg, cause error) error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	s.reserved, s.granted, s.zeroed = s.Size, 0, 0
	if err := s.h.file.Truncate(s.Size); err != nil {
		return l.poisonWith(errors.Join(cause, fmt.Errorf("cut what was written: %w", err)))
	}
	if err := s.h.file.Sync(); err != nil {
		return l.poisonWith(errors.Join(cause, fmt.Errorf("flush the cut: %w", err)))
	}
	return fmt.Errorf("write %s: %w", segment.Name(s.Base), cause)
}

// roll begins a segment with the batches, which start a checkpoint. The old segment is flushed whole before the new one
// exists, so whoever finds the new one knows that the old one has no torn tail.
func (l *Disk) roll(batches []batch.Batch, c segment.Cursor, complete bool) error {
	base := batches[0].Sequence()
	old := l.tail()
	if old != nil {
		if _, err := l.Flush(); err != nil {
			return err
		}
	} else if err := l.makeDir(); err != nil {
		return err
	}
	name := l.path(segment.Name(base))
	f, err := l.o.FS.Create(name)
	if err != nil {
		return fmt.Errorf("begin segment: %w", err)
	}
	s := &seg{h: newHandle(f), Summary: segment.Summary{
		Base: base, BaseOffset: batches[0].BaseOffset(), FirstTime: batches[0].AppendTime(), Size: segment.HeaderSize,
	}}
	l.reserve(s, segment.HeaderSize+sizeOf(batches))
	head := segment.Header{ID: l.o.ID, Shard: l.o.Shard, Base: base}.Append(nil)
	end, err := l.write(f, 0, head, batches)
	if err != nil {
		s.h.release()
		return l.unmake(name, err)
	}
	l.mu.Lock()
	l.segs = append(l.segs, s)
	l.bytes += s.Size
	l.advance(s, batches, c, complete, end)
	if l.virgin || old == nil {
		l.virgin, l.flushed, l.flushedOffset = false, base, s.BaseOffset
	}
	l.mu.Unlock()
	if old != nil {
		l.seal(old)
	}
	return nil
}

// unmake removes a segment that could not be begun, durably: under its name a later start would look for its data.
func (l *Disk) unmake(name string, cause error) error {
	err := l.o.FS.Remove(name)
	if err == nil {
		err = l.o.FS.SyncDir(l.o.Dir)
	}
	if err != nil {
		return l.poisonWith(errors.Join(cause, fmt.Errorf("remove segment that was not begun: %w", err)))
	}
	return fmt.Errorf("begin segment %s: %w", path.Base(name), cause)
}

// seal turns a flushed segment into one that is only read: its index is written, its file goes to the cache.
func (l *Disk) seal(s *seg) {
	l.trim(s)
	x := &segment.Index{ID: l.o.ID, Shard: l.o.Shard, Summary: s.Summary, Entries: s.sparse.Sealed()}
	l.mu.Lock()
	h := s.h
	s.h, s.sparse = nil, segment.Sparse{}
	l.indexes.put(s.Base, x.Entries)
	l.mu.Unlock()
	l.o.Files.add(fileKey{l, s.Base}, h, nil)
	l.writeIndex(x)
}

// makeDir makes the shard's directory and makes it durable level by level (case ST-10).
func (l *Disk) makeDir() error {
	root := path.Dir(path.Dir(path.Clean(l.o.Dir)))
	for root != path.Dir(root) {
		if info, err := l.o.FS.Stat(root); err == nil && info.Dir {
			break
		}
		root = path.Dir(root)
	}
	return vfs.MakeDir(l.o.FS, root, l.o.Dir)
}
