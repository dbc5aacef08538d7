// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"

	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
)

// indexCache keeps the entries of the sealed segments that were searched last. It is guarded by Disk.mu.
type indexCache struct {
	slots [2]struct {
		base    uint64
		entries []segment.Entry
	}
	next int
}

func (c *indexCache) get(base uint64) []segment.Entry {
	for _, s := range c.slots {
		if s.base == base && s.entries != nil {
			return s.entries
		}
	}
	return nil
}

func (c *indexCache) put(base uint64, entries []segment.Entry) {
	c.forget(base)
	c.slots[c.next].base, c.slots[c.next].entries = base, entries
	c.next = (c.next + 1) % len(c.slots)
}

func (c *indexCache) forget(base uint64) {
	for i := range c.slots {
		if c.slots[i].base == base {
			c.slots[i].entries = nil
		}
	}
}

// hints remember where reads ended, because most go on there. It is guarded by Disk.mu.
type hints struct {
	slots [16]hint
	next  int
}

type hint struct {
	seq uint64
	pos int64 // of the batch of this sequence; 0 for none
}

func (h *hints) at(seq uint64) int64 {
	for _, s := range h.slots {
		if s.seq == seq && s.pos != 0 {
			return s.pos
		}
	}
	return 0
}

func (h *hints) put(seq uint64, pos int64) {
	if h.at(seq) != 0 {
		return
	}
	h.slots[h.next] = hint{seq, pos}
	h.next = (h.next + 1) % len(h.slots)
}

// maxIndexBytes bounds what an index file may make a reader allocate.
const maxIndexBytes = 16<<20 + segment.IndexHeaderSize

// loadIndex reads an index file and refuses one that is not of this segment as it is.
func (l *Disk) loadIndex(base uint64) (*segment.Index, error) {
	b, err := vfs.ReadFile(l.o.FS, l.path(segment.IndexName(base)), maxIndexBytes)
	if err != nil {
		return nil, err
	}
	x, err := segment.ParseIndex(b)
	if err != nil {
		return nil, err
	}
	if x.ID != l.o.ID || x.Shard != l.o.Shard || x.Summary.Base != base {
		return nil, fmt.Errorf("index of another segment: %w", ErrForeign)
	}
	return x, nil
}

// loadSummary reads what an index file says about its segment, and its last entry, whatever the size of the index.
func (l *Disk) loadSummary(base uint64) (segment.Summary, segment.Entry, error) {
	f, err := l.o.FS.OpenRead(l.path(segment.IndexName(base)))
	if err != nil {
		return segment.Summary{}, segment.Entry{}, err
	}
	defer func() { _ = f.Close() }() // nothing is written through it
	size, err := f.Size()
	if err != nil {
		return segment.Summary{}, segment.Entry{}, err
	}
	w := segment.NewWindow(f, size, 1)
	b, err := w.Bytes(0, segment.IndexHeaderSize)
	if err != nil {
		return segment.Summary{}, segment.Entry{}, err
	}
	x, n, err := segment.ParseIndexHeader(b)
	if err != nil {
		return segment.Summary{}, segment.Entry{}, err
	}
	if x.ID != l.o.ID || x.Shard != l.o.Shard || x.Summary.Base != base {
		return segment.Summary{}, segment.Entry{}, fmt.Errorf("index of another segment: %w", ErrForeign)
	}
	last := segment.IndexHeaderSize + int64(n-1)*segment.EntrySize
	if size != last+segment.EntrySize {
		return segment.Summary{}, segment.Entry{}, fmt.Errorf("index of %d bytes with %d entries: %w", size, n, segment.ErrIndex)
	}
	if b, err = w.Bytes(last, segment.EntrySize); err != nil {
		return segment.Summary{}, segment.Entry{}, err
	}
	return x.Summary, segment.ParseEntry(b), nil
}

// writeIndex writes an index beside its segment. It is not flushed and may fail: it is derived, and a reader that finds
// none or a bad one reads the segment.
func (l *Disk) writeIndex(x *segment.Index) {
	name := l.path(segment.IndexName(x.Summary.Base))
	err := removeFile(l.o.FS, name)
	if err == nil {
		var f vfs.File
		if f, err = l.o.FS.Create(name); err == nil {
			_, err = writeAt(f, x.Append(nil), 0)
			if err = errors.Join(err, f.Close()); err != nil {
				err = errors.Join(err, removeFile(l.o.FS, name))
			}
		}
	}
	if err != nil {
		l.log.Warn("index is not written; it will be rebuilt when it is needed", "file", name, "error", err)
	}
}

// entries returns the index entries of a sealed segment. fresh means that what is known was found wrong: it is then made
// from the segment itself.
func (l *Disk) entries(s segment.Summary, f vfs.File, fresh bool) ([]segment.Entry, error) {
	if !fresh {
		l.mu.Lock()
		known := l.indexes.get(s.Base)
		l.mu.Unlock()
		if known != nil {
			return known, nil
		}
		if x, err := l.loadIndex(s.Base); err == nil && x.Summary == s {
			l.remember(s.Base, x.Entries)
			return x.Entries, nil
		}
	}
	scan, err := segment.Read(f, s.Size, segment.Options{Base: s.Base})
	if err != nil {
		return nil, err
	}
	entries := scan.Sparse.Sealed()
	l.remember(s.Base, entries)
	if scan.Summary == s {
		l.writeIndex(&segment.Index{ID: l.o.ID, Shard: l.o.Shard, Summary: s, Entries: entries})
	}
	return entries, nil
}

func (l *Disk) remember(base uint64, entries []segment.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.indexes.put(base, entries)
}
