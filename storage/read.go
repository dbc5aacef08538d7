// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"slices"

	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// walkChunk is how much a walk from an index entry reads at a time: about what lies between two entries.
const walkChunk = segment.Stride

// view is what a read needs of one segment, taken at one moment. Bytes below size never change, unless the epoch does.
type view struct {
	segment.Summary
	h       *handle
	sealed  bool
	entries []segment.Entry // of the newest segment only
	epoch   uint64
	hint    int64 // position of the batch that the view was taken for; 0 when unknown
}

// errCut means that the log was cut while it was read: what was found is void.
var errCut = errors.New("log was cut meanwhile")

// Read returns stored batches; see Log.
func (l *Disk) Read(seq, until uint64, maxBytes int) ([]byte, error) {
	return l.ReadTo(nil, seq, until, maxBytes)
}

// ReadTo is Read into buf; see Log.
func (l *Disk) ReadTo(buf []byte, seq, until uint64, maxBytes int) ([]byte, error) {
	var out []byte
	err := l.reading(func() error {
		v, done, err := l.viewAt(seq, until)
		if err != nil || done {
			return err
		}
		defer v.h.release()
		pos, err := l.locate(&v, seq)
		if err == nil {
			out, err = l.readRun(buf, &v, pos, seq, until, maxBytes)
		}
		return l.verdict(&v, err)
	})
	if err != nil {
		return nil, fmt.Errorf("read log %s at sequence %d: %w", l.o.Dir, seq, err)
	}
	return out, nil
}

// reading runs a read, again when the log was cut under it, and keeps Close from ending before it.
func (l *Disk) reading(read func() error) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.readers.Add(1)
	l.mu.Unlock()
	defer l.readers.Done()
	for {
		if err := read(); !errors.Is(err, errCut) {
			return err
		}
	}
}

// viewAt returns the segment that holds seq. done means that there is nothing to read.
func (l *Disk) viewAt(seq, until uint64) (v view, done bool, err error) {
	l.mu.Lock()
	switch {
	case seq > l.cursor.Sequence:
		err = fmt.Errorf("length is %d: %w", l.cursor.Sequence, ErrOutOfRange)
	case seq == l.cursor.Sequence, seq >= until:
		done = true
	case len(l.segs) == 0 || seq < l.segs[0].Base:
		err = fmt.Errorf("log starts at sequence %d: %w", l.start(), ErrDropped)
	}
	if err != nil || done {
		l.mu.Unlock()
		return view{}, done, err
	}
	i, found := slices.BinarySearchFunc(l.segs, seq, func(s *seg, seq uint64) int {
		switch {
		case s.Base > seq:
			return 1
		case s.Base == seq:
			return 0
		}
		return -1
	})
	if !found {
		i--
	}
	if seq >= l.segs[i].Next {
		err = l.gapAt(seq)
		l.mu.Unlock()
		return view{}, false, err
	}
	v = l.viewOf(l.segs[i])
	v.hint = l.hints.at(seq)
	l.mu.Unlock()
	return v, false, l.openView(&v)
}

func (l *Disk) start() uint64 {
	if len(l.segs) == 0 {
		return l.cursor.Sequence
	}
	return l.segs[0].Base
}

// viewOf needs mu; of a sealed segment the file is still to be opened.
func (l *Disk) viewOf(s *seg) view {
	v := view{Summary: s.Summary, epoch: l.epoch, sealed: s.h == nil}
	if s.h != nil {
		v.h, v.entries = s.h.retain(), s.sparse.Entries
	}
	return v
}

func (l *Disk) openView(v *view) error {
	if v.h != nil {
		return nil
	}
	name := l.path(segment.Name(v.Base))
	h, err := l.o.Files.acquire(fileKey{l, v.Base}, func() (vfs.File, error) { return l.o.FS.OpenRead(name) })
	if err == nil {
		v.h = h
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.epoch != v.epoch:
		return errCut
	case v.Base < l.start():
		return ErrDropped
	case errors.Is(err, ErrNotExist):
		return &CorruptError{File: name, Sequence: v.Base, Offset: v.BaseOffset, Reason: "the file is gone"}
	}
	return err
}

// verdict says whether the outcome of a read still stands.
func (l *Disk) verdict(v *view, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != v.epoch {
		return errCut
	}
	return err
}

// locate returns the position of the batch with this sequence.
func (l *Disk) locate(v *view, seq uint64) (int64, error) {
	switch {
	case seq == v.Base:
		return segment.HeaderSize, nil
	case v.hint != 0:
		return v.hint, nil
	}
	return l.find(v, seq)
}

// search steps from the index entry that pick returns, batch by batch, until found says so. An entry that leads nowhere
// makes the index be rebuilt from the segment; only then is it damage.
func (l *Disk) search(v *view, pick func([]segment.Entry) (segment.Entry, bool), found func(batch.Batch, int64) bool) error {
	entries := v.entries
	for fresh := false; ; fresh = true {
		if v.sealed {
			var err error
			if entries, err = l.entries(v.Summary, v.h.file, fresh); err != nil {
				return err
			}
		}
		from, ok := pick(entries)
		if !ok {
			from = segment.Entry{Sequence: v.Base, Offset: v.BaseOffset, Position: segment.HeaderSize}
		}
		err := l.walk(v, from, found)
		var damage *CorruptError
		if err == nil || fresh || !v.sealed || !errors.As(err, &damage) {
			return err
		}
	}
}

func (l *Disk) walk(v *view, from segment.Entry, found func(batch.Batch, int64) bool) error {
	buf := walkBuffers.Get().(*[walkChunk]byte)
	defer walkBuffers.Put(buf)
	w := segment.NewWindow(v.h.file, v.Size, walkChunk)
	w.Reuse(buf[:])
	seq, offset := from.Sequence, from.Offset
	for pos := from.Position; pos < v.Size; {
		b, n, err := w.Head(pos)
		if err == nil && b.Sequence() != seq {
			err = &segment.FaultError{Position: pos, Err: fmt.Errorf("sequence %d where %d comes next: %w", b.Sequence(), seq, ErrOrder)}
		}
		if err != nil {
			return l.corrupt(v, pos, seq, offset, err)
		}
		if found(b, pos) {
			return nil
		}
		seq, offset = seq+1, b.NextOffset()
		pos += int64(n)
	}
	return l.corrupt(v, v.Size, seq, offset, &segment.FaultError{Position: v.Size, Err: errors.New("the file ends before the batch that was looked for")})
}

// corrupt turns damage into the error that callers get; errors of reading stay what they are.
func (l *Disk) corrupt(v *view, pos int64, seq, offset uint64, err error) error {
	f, ok := segment.IsFault(err)
	if !ok {
		return err
	}
	return &CorruptError{File: l.path(segment.Name(v.Base)), Pos: pos, Sequence: seq, Offset: offset, Reason: f.Err.Error()}
}

// readRun reads batches from pos on. What is sound in front of damage is returned; the next read meets the damage.
func (l *Disk) readRun(into []byte, v *view, pos int64, seq, until uint64, maxBytes int) ([]byte, error) {
	w := segment.NewWindow(v.h.file, v.Size, 1)
	w.Reuse(into)
	buf, err := w.Bytes(pos, max(maxBytes, batch.HeaderSize))
	if err != nil {
		return nil, err
	}
	if n, err := batch.Peek(buf); err == nil && n > len(buf) {
		if buf, err = w.Bytes(pos, n); err != nil {
			return nil, err
		}
	}
	end := 0
	for until = min(until, v.Next); seq < until; seq++ {
		b, err := batch.CheckStored(buf[end:])
		if err == nil && b.Sequence() != seq {
			err = fmt.Errorf("sequence %d where %d comes next: %w", b.Sequence(), seq, ErrOrder)
		}
		if err != nil && end == 0 {
			return nil, l.corruptAt(v, pos, seq, err)
		}
		if err != nil {
			break // what was asked for ends within this batch, or the next read meets the damage
		}
		end += len(b)
	}
	if seq < v.Next || !v.sealed {
		l.mu.Lock()
		if l.epoch == v.epoch {
			l.hints.put(seq, pos+int64(end))
		}
		l.mu.Unlock()
	}
	return buf[:end:end], nil
}

// corruptAt names the offset by walking to the damage, which costs nothing that matters any more.
func (l *Disk) corruptAt(v *view, pos int64, seq uint64, cause error) error {
	e := &CorruptError{File: l.path(segment.Name(v.Base)), Pos: pos, Sequence: seq, Offset: v.BaseOffset, Reason: cause.Error()}
	w := segment.NewWindow(v.h.file, v.Size, walkChunk)
	for at := int64(segment.HeaderSize); at < pos; {
		b, n, err := w.Head(at)
		if err != nil {
			break
		}
		e.Offset = b.NextOffset()
		at += int64(n)
	}
	return e
}
