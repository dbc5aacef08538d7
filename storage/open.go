// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"margay.dev/storage/recovery"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// Report says what opening a log found and did.
type Report struct {
	// Tail is what was cut from the newest segment: the remains of a write that was never acknowledged as flushed. Nil
	// when nothing was.
	Tail *Cut
	// Dropped are segment files that were removed, because their checkpoint never came to be complete or CutTo said so.
	Dropped []string
	// Rewritten is how many bytes behind the last provable flush were written again and flushed.
	Rewritten int64
	// Rebuilt are indexes that were missing or wrong.
	Rebuilt []string
}

// Cut is a torn tail that was repaired.
type Cut struct {
	File     string
	Pos      int64
	Bytes    int64
	Sequence uint64 // the first that was cut
	Offset   uint64
	Reason   string
}

// Open opens the log in a directory and repairs a torn tail. It reads the newest segment, of the others only headers,
// sizes and indexes. replay, which may be nil, gets every batch of the newest segment in order, its checkpoint first, while
// it is read; the bytes are valid during the call. When Open fails, what was replayed is void, except that nothing has been
// when it fails with ErrNotExist.
//
// It fails with ErrNotExist when there is no log, with a *CorruptError when flushed data is damaged, and with
// ErrNewerFormat or ErrForeign; then no byte of any segment has been changed.
func Open(o Options, replay func(batch.Batch) error) (*Disk, Report, error) {
	l, err := newDisk(o)
	if err != nil {
		return nil, Report{}, err
	}
	r := opening{l: l, replay: replay}
	if err := r.open(); err != nil {
		r.release()
		return nil, Report{}, fmt.Errorf("open log %s: %w", o.Dir, err)
	}
	return l, r.report, nil
}

// opening is the state of one Open: it plans first, and touches nothing before the plan is whole.
type opening struct {
	l       *Disk
	replay  func(batch.Batch) error
	bases   []uint64 // of the segment files, ascending
	indexes []uint64 // of the index files
	temps   []string
	drop    []uint64 // segments to remove, newest first
	scan    segment.Scan
	verdict recovery.Verdict
	size    int64 // of the newest file that stays
	file    vfs.File
	sealed  []*seg
	rebuilt []*segment.Index
	tailGap *Gap
	cut     *uint64 // a truncation that was under way
	report  Report
}

func (r *opening) open() error {
	if err := r.list(); err != nil {
		return err
	}
	var err error
	if r.l.gaps, err = ReadGaps(r.l.o.FS, r.l.o.Dir); err != nil {
		return err
	}
	if len(r.bases) == 0 && len(r.l.gaps) == 0 {
		return fmt.Errorf("no segments: %w", ErrNotExist)
	}
	if err := r.newest(); err != nil {
		return err
	}
	if r.file == nil {
		if err := r.act(); err != nil {
			return err
		}
		if len(r.l.gaps) == 0 {
			return fmt.Errorf("no segment holds anything: %w", ErrNotExist)
		}
		r.tailGap = &r.l.gaps[len(r.l.gaps)-1] // a repair gave up everything; the log goes on behind it
		r.goOnBehindGap()
		return nil
	}
	if err := r.older(); err != nil {
		return err
	}
	return r.act()
}

func (r *opening) release() {
	if r.file != nil {
		_ = r.file.Close() // nothing that counts was written through it
	}
}

func (r *opening) list() error {
	names, err := r.l.o.FS.List(r.l.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		base, suffix, ok := segment.ParseName(name)
		switch {
		case ok && suffix == segment.Suffix:
			r.bases = append(r.bases, base)
		case ok:
			r.indexes = append(r.indexes, base)
		case strings.HasSuffix(name, vfs.TempSuffix):
			r.temps = append(r.temps, name)
		}
	}
	return nil
}

// newest finds the segment that the log goes on in, and decides about those behind it.
func (r *opening) newest() error {
	floor, stop, err := r.bounds()
	if err != nil {
		return err
	}
	for len(r.bases) > 0 {
		base := r.bases[len(r.bases)-1]
		if err := r.scanNewest(base, stop); err != nil {
			return err
		}
		if g, ok := r.gapBehind(); ok && stop == 0 {
			r.tailGap = &g
		}
		r.verdict = recovery.Newest(r.scan, floor)
		switch r.verdict.Action {
		case recovery.Keep, recovery.Cut:
			return nil
		case recovery.Newer:
			return newerFormat(base, r.scan)
		case recovery.Refuse:
			return r.corrupt(base, r.verdict)
		case recovery.Drop:
		}
		r.release()
		r.file = nil
		r.dropNewest()
		floor = max(floor, base) // that this file was there says that everything before it had been flushed
		if g, ok := gapEndingAt(r.l.gaps, base); ok {
			floor = g.FromSequence
		}
	}
	return nil
}

// bounds returns the length that is known to be flushed and the one to stop at, 0 for neither.
func (r *opening) bounds() (floor, stop uint64, err error) {
	if r.cut, err = ReadCutNote(r.l.o.FS, r.l.o.Dir); err != nil {
		return 0, 0, err
	}
	to := r.l.o.CutTo
	if to != nil {
		floor = *to
	}
	if to == nil || r.cut != nil && *r.cut < *to {
		to = r.cut
	}
	if to == nil {
		return 0, 0, nil
	}
	floor, stop = min(floor, *to), *to
	for len(r.bases) > 0 && r.bases[len(r.bases)-1] >= stop {
		r.dropNewest()
	}
	if g, ok := gapEndingAt(r.l.gaps, stop); ok {
		floor, stop = min(floor, g.FromSequence), 0
	}
	return floor, stop, nil
}

func (r *opening) dropNewest() {
	last := len(r.bases) - 1
	r.drop = append(r.drop, r.bases[last])
	r.bases = r.bases[:last]
}

func (r *opening) scanNewest(base, stop uint64) error {
	f, size, err := r.openFile(base, r.l.o.FS.OpenFile)
	if err != nil {
		return err
	}
	r.file, r.size = f, size
	visit, err := r.visitor(f, size)
	if err != nil {
		return fmt.Errorf("read %s: %w", segment.Name(base), err)
	}
	if r.scan, err = segment.Read(f, size, segment.Options{Base: base, Stop: stop, Visit: visit}); err != nil {
		return fmt.Errorf("read %s: %w", segment.Name(base), err)
	}
	return r.foreign(base, r.scan)
}

// visitor replays while the segment is read, so that it is read once. What comes before the checkpoint is complete is held
// back: until then the whole segment may be dropped, and another be replayed in its place. Afterwards every batch of the
// run stays, or the open fails.
func (r *opening) visitor(f vfs.File, size int64) (func(batch.Batch, int64) error, error) {
	head, err := segment.NewWindow(f, size, 1).Bytes(0, segment.HeaderSize)
	if err != nil {
		// Not taken for a missing header: the next read may succeed, and the log would be opened without what was in it.
		return nil, err
	}
	_, bad := segment.ParseHeader(head)
	stays := bad == nil // without a header no segment does
	if r.replay == nil || !stays {
		return nil, nil
	}
	complete := false
	var held []batch.Batch
	return func(b batch.Batch, _ int64) error {
		if complete {
			return r.replay(b)
		}
		part, ok := b.CheckpointPart()
		if !ok {
			return nil // a segment that does not begin with a checkpoint is refused
		}
		held = append(held, slices.Clone(b))
		if complete = part.Last(); !complete {
			return nil
		}
		for _, b := range held {
			if err := r.replay(b); err != nil {
				return err
			}
		}
		held = nil
		return nil
	}, nil
}

func (r *opening) openFile(base uint64, open func(string) (vfs.File, error)) (vfs.File, int64, error) {
	f, err := open(r.l.path(segment.Name(base)))
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

// foreign refuses a sound header of another segment: a file in the wrong place is not damage, and nobody's to cut.
func (r *opening) foreign(base uint64, s segment.Scan) error {
	h := s.Header
	if s.HeaderErr == nil && (h.ID != r.l.o.ID || h.Shard != r.l.o.Shard || h.Base != base) {
		return fmt.Errorf("segment %s is of log %s, shard %d, sequence %d: %w", segment.Name(base), h.ID, h.Shard, h.Base, ErrForeign)
	}
	return nil
}

func (r *opening) corrupt(base uint64, v recovery.Verdict) error {
	if v.Sequence == base && v.Offset == 0 {
		v.Offset = r.baseOffset(base)
	}
	return &CorruptError{File: r.l.path(segment.Name(base)), Pos: v.Position, Sequence: v.Sequence, Offset: v.Offset, Reason: v.Reason}
}

// baseOffset asks the segment before this one where it ends, when this one's first batch cannot be read; 0 when that
// cannot be told either.
func (r *opening) baseOffset(base uint64) uint64 {
	if g, ok := gapEndingAt(r.l.gaps, base); ok {
		return g.ToOffset
	}
	i := slices.Index(r.bases, base)
	if i < 1 {
		return 0
	}
	if s, _, err := r.l.loadSummary(r.bases[i-1]); err == nil && s.Next == base {
		return s.NextOffset
	}
	f, size, err := r.openFile(r.bases[i-1], r.l.o.FS.OpenRead)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // nothing is written through it
	scan, err := segment.Read(f, size, segment.Options{Base: r.bases[i-1]})
	if err != nil || scan.Cursor.Sequence != base {
		return 0
	}
	return scan.Cursor.Offset
}

// gapBehind returns a gap behind the newest segment.
func (r *opening) gapBehind() (Gap, bool) {
	if n := len(r.l.gaps); n > 0 && r.l.gaps[n-1].FromSequence >= r.scan.Cursor.Sequence {
		return r.l.gaps[n-1], true
	}
	return Gap{}, false
}

// older checks every segment before the newest against the one behind it.
func (r *opening) older() error {
	next, nextOffset := r.scan.Summary.Base, r.scan.Summary.BaseOffset
	for i := len(r.bases) - 2; i >= 0; i-- {
		if g, ok := gapEndingAt(r.l.gaps, next); ok {
			next, nextOffset = g.FromSequence, g.FromOffset
		}
		s, err := r.sealedSegment(r.bases[i], next, nextOffset)
		if err != nil {
			return err
		}
		r.sealed = append(r.sealed, &seg{Summary: s})
		next, nextOffset = s.Base, s.BaseOffset
	}
	slices.Reverse(r.sealed)
	return nil
}

func (r *opening) sealedSegment(base, next, nextOffset uint64) (segment.Summary, error) {
	f, size, err := r.openFile(base, r.l.o.FS.OpenRead)
	if err != nil {
		return segment.Summary{}, err
	}
	defer func() { _ = f.Close() }() // nothing is written through it
	if s, last, err := r.l.loadSummary(base); err == nil {
		if endsAt(f, size, s.Size) && s.Next == next && s.NextOffset == nextOffset && r.current(f, s, last) {
			return s, nil
		}
	}
	scan, err := segment.Read(f, size, segment.Options{Base: base})
	if err != nil {
		return segment.Summary{}, fmt.Errorf("scan %s: %w", segment.Name(base), err)
	}
	if err := r.foreign(base, scan); err != nil {
		return segment.Summary{}, err
	}
	switch v := recovery.Sealed(scan, next, nextOffset); v.Action {
	case recovery.Keep:
	case recovery.Newer:
		return segment.Summary{}, newerFormat(base, scan)
	default:
		return segment.Summary{}, r.corrupt(base, v)
	}
	r.rebuilt = append(r.rebuilt, &segment.Index{
		ID: r.l.o.ID, Shard: r.l.o.Shard, Summary: scan.Summary, Entries: scan.Sparse.Sealed(),
	})
	return scan.Summary, nil
}

// endsAt reports whether a segment file ends at a position: zeros behind it were written ahead, and the power went before
// they were cut off.
func endsAt(f vfs.File, size, end int64) bool {
	if size <= end {
		return size == end
	}
	zero, err := segment.NewWindow(f, size, walkChunk).Zero(end)
	return zero && err == nil
}

// current reports whether an index is that of the segment as it is now: the header of the file and the last batch that the
// index names are there, and that batch ends what it describes. A batch of one sequence and generation has one history before it.
func (r *opening) current(f vfs.File, s segment.Summary, last segment.Entry) bool {
	w := segment.NewWindow(f, s.Size, 1)
	b, err := w.Bytes(0, segment.HeaderSize)
	if err != nil {
		return false
	}
	h, err := segment.ParseHeader(b)
	if err != nil || h.ID != r.l.o.ID || h.Shard != r.l.o.Shard || h.Base != s.Base {
		return false
	}
	if last.Position < segment.HeaderSize || last.Position >= s.Size {
		return false
	}
	head, n, err := w.Head(last.Position)
	return err == nil && last.Position+int64(n) == s.Size && head.Sequence() == s.Next-1 && head.Generation() == s.Generation &&
		head.NextOffset() == s.NextOffset && head.AppendTime() == s.LastTime
}

// newerFormat says what was found and what this release reads, for whoever has to choose a release.
func newerFormat(base uint64, scan segment.Scan) error {
	if errors.Is(scan.HeaderErr, ErrNewerFormat) {
		return fmt.Errorf("segment %s: %w; this release reads version %d", segment.Name(base), scan.HeaderErr, segment.Version)
	}
	return fmt.Errorf("segment %s: a batch is %w; this release reads version %d", segment.Name(base), ErrNewerFormat, segment.Version)
}
