// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"margay.dev/storage"
	"margay.dev/storage/recovery"
	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// Read reads a shard's directory. The error is one of reading; what is wrong with the data is in the report.
func Read(fsys vfs.FS, dir string, o Options) (*Report, error) {
	s, err := look(fsys, dir, o)
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", dir, err)
	}
	return s.report(), nil
}

// survey is what was found in a directory, with all that a repair needs.
type survey struct {
	fs    vfs.FS
	dir   string
	o     Options
	id    batch.LogID
	shard uint32
	known bool // the id, from a sound header
	gaps  []storage.Gap
	note  error   // what is wrong with the note of gaps
	cut   *uint64 // length of a truncation that was under way
	found []*file // oldest first
	done  int64
	total int64
}

// file is one segment file.
type file struct {
	base     uint64
	size     int64
	scan     segment.Scan
	whole    bool // it was read as a whole
	index    string
	runs     []run // sound batches behind damage
	verdict  recovery.Verdict
	foreign  bool
	unknown  []Problem // control entries that this release does not know
	counts   counts
	unborn   bool // the next start removes it
	offsetOK bool // its base offset is known
}

// counts are the records of a file; see Segment.
type counts struct{ records, expired, carried uint64 }

// run is a row of sound batches that follow each other.
type run struct {
	from, to         uint64 // sequences
	fromOff, toOff   uint64
	pos, end         int64
	generation       uint64
	time             int64
	checkpoint, main bool
}

func look(fsys vfs.FS, dir string, o Options) (*survey, error) {
	s := &survey{fs: fsys, dir: path.Clean(dir), o: o}
	names, err := fsys.List(s.dir)
	if err != nil {
		return nil, err
	}
	var damage *storage.CorruptError
	if s.gaps, err = storage.ReadGaps(fsys, s.dir); errors.As(err, &damage) {
		s.note = err
	} else if err != nil {
		return nil, err
	}
	if s.cut, err = storage.ReadCutNote(fsys, s.dir); err != nil {
		return nil, err
	}
	for _, name := range names {
		base, suffix, ok := segment.ParseName(name)
		if !ok || suffix != segment.Suffix {
			continue
		}
		info, err := fsys.Stat(path.Join(s.dir, name))
		if err != nil {
			return nil, err
		}
		s.found = append(s.found, &file{base: base, size: info.Size})
		s.total += info.Size
	}
	if len(s.found) == 0 && len(s.gaps) == 0 && s.note == nil {
		return nil, fmt.Errorf("no segments here: %w", storage.ErrNotExist)
	}
	for i, f := range s.found {
		if err := s.read(f, i == len(s.found)-1); err != nil {
			return nil, fmt.Errorf("%s: %w", segment.Name(f.base), err)
		}
	}
	s.identify()
	s.judge()
	return s, nil
}

func (s *survey) read(f *file, newest bool) error {
	r, err := s.fs.OpenRead(path.Join(s.dir, segment.Name(f.base)))
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // nothing is written through it
	x := s.index(f, newest)
	if s.o.Quick && !newest && x != nil && lastIsThere(r, x) {
		f.scan.Summary, f.scan.Size, f.offsetOK = x.Summary, f.size, true
		f.scan.Cursor = segment.Cursor{Sequence: x.Summary.Next, Offset: x.Summary.NextOffset}
		f.scan.Header, f.scan.HeaderErr = readHeader(r, f.size)
		if f.scan.HeaderErr == nil {
			s.tick(f.size)
			return nil
		}
	}
	f.whole = true
	visit := func(b batch.Batch, pos int64) error { return s.visit(f, b, pos) }
	stop := uint64(0)
	if s.cut != nil && f.base < *s.cut {
		stop = *s.cut
	}
	f.scan, err = segment.Read(r, f.size, segment.Options{
		Base: f.base, Stop: stop, Visit: visit,
		Beyond: func(b batch.Batch, pos int64) error {
			f.extend(b, pos)
			return visit(b, pos)
		},
	})
	f.offsetOK = f.scan.Batches > 0
	if x != nil && f.index == "right" && x.Summary != f.scan.Summary {
		f.index = "wrong"
	}
	return err
}

func readHeader(r vfs.File, size int64) (segment.Header, error) {
	b, err := segment.NewWindow(r, size, 1).Bytes(0, segment.HeaderSize)
	if err != nil {
		return segment.Header{}, err
	}
	return segment.ParseHeader(b)
}

// lastIsThere is how a start tells whether an index is that of the segment as it is.
func lastIsThere(r vfs.File, x *segment.Index) bool {
	last := x.Entries[len(x.Entries)-1]
	b, n, err := segment.NewWindow(r, x.Summary.Size, 1).Head(last.Position)
	return err == nil && last.Position+int64(n) == x.Summary.Size && b.Sequence() == x.Summary.Next-1 &&
		b.Generation() == x.Summary.Generation
}

// index reads the segment's index and says what it is worth as far as that can be said without the segment.
func (s *survey) index(f *file, newest bool) *segment.Index {
	f.index = "none"
	if newest {
		return nil
	}
	b, err := vfs.ReadFile(s.fs, path.Join(s.dir, segment.IndexName(f.base)), 1<<25)
	if err != nil {
		f.index = "missing"
		return nil
	}
	x, err := segment.ParseIndex(b)
	if err != nil || x.Summary.Base != f.base || x.Summary.Size != f.size {
		f.index = "wrong"
		return nil
	}
	f.index = "right"
	return x
}

func (s *survey) visit(f *file, b batch.Batch, pos int64) error {
	if b.IsControl() {
		if _, err := b.Entries(); err != nil {
			severity, remedy := Damage, "a repair cannot help: the checksum says that this is what was written"
			if errors.Is(err, batch.ErrUnknownEntry) {
				severity, remedy = Unknown, "open it with the newer release"
			}
			f.unknown = append(f.unknown, Problem{
				Severity: severity, File: path.Join(s.dir, segment.Name(f.base)), Pos: pos, Sequence: b.Sequence(), Offset: b.BaseOffset(),
				Reason: err.Error(), Remedy: remedy,
			})
		}
	}
	f.counts.add(b)
	s.tick(int64(len(b)))
	if s.o.Visit != nil {
		return s.o.Visit(path.Join(s.dir, segment.Name(f.base)), pos, b)
	}
	return nil
}

func (c *counts) add(b batch.Batch) {
	n := uint64(b.Count())
	switch {
	case b.IsControl():
		return
	case b.IsCarried():
		c.carried += n
		return
	case b.IsExpired():
		c.expired += n
	}
	c.records += n
}

const tickBytes = 16 << 20

func (s *survey) tick(n int64) {
	before := s.done
	s.done += n
	if s.o.Progress != nil && (s.done/tickBytes != before/tickBytes || s.done == s.total) {
		s.o.Progress(s.done, s.total)
	}
}

// extend adds a sound batch behind damage to the run that it continues, or begins one with it.
func (f *file) extend(b batch.Batch, pos int64) {
	end := pos + int64(len(b))
	if n := len(f.runs); n > 0 {
		if r := &f.runs[n-1]; r.end == pos && r.to == b.Sequence() && r.toOff == b.BaseOffset() {
			r.to, r.toOff, r.end, r.generation, r.time = b.Sequence()+1, b.NextOffset(), end, b.Generation(), b.AppendTime()
			return
		}
	}
	f.runs = append(f.runs, run{
		from: b.Sequence(), to: b.Sequence() + 1, fromOff: b.BaseOffset(), toOff: b.NextOffset(), pos: pos, end: end,
		generation: b.Generation(), time: b.AppendTime(),
	})
}

// identify takes the log's id and shard from the first sound header, else from the directory's name.
func (s *survey) identify() {
	for _, f := range s.found {
		if f.scan.HeaderErr == nil && !s.known {
			s.id, s.shard, s.known = f.scan.Header.ID, f.scan.Header.Shard, true
		}
	}
	if !s.known {
		id, err := batch.ParseLogID(path.Base(path.Dir(s.dir)))
		shard, err2 := strconv.ParseUint(path.Base(s.dir), 10, 32)
		if errors.Join(err, err2) == nil {
			s.id, s.shard, s.known = id, uint32(shard), true
		}
	}
	for _, f := range s.found {
		h := f.scan.Header
		f.foreign = f.scan.HeaderErr == nil && (h.ID != s.id || h.Shard != s.shard || h.Base != f.base)
	}
}

// judge decides about every segment as opening does, but goes on behind the first that is damaged.
func (s *survey) judge() {
	floor, newest := uint64(0), true
	next, nextOffset, nextKnown := uint64(0), uint64(0), false
	for _, f := range slices.Backward(s.found) {
		if s.cut != nil && f.base >= *s.cut {
			f.unborn = true
			f.verdict = recovery.Verdict{
				Action: recovery.Drop, Sequence: f.base, Offset: f.scan.Summary.BaseOffset,
				Reason: fmt.Sprintf("a cut to length %d was under way", *s.cut),
			}
			continue
		}
		if newest {
			f.verdict = recovery.Newest(f.scan, floor)
			if f.verdict.Action == recovery.Drop && !f.foreign {
				f.unborn = true
				floor = max(floor, f.base)
				if g, ok := s.gapBefore(f.base); ok {
					floor = g.FromSequence
				}
				continue
			}
			newest = false
		} else {
			if g, ok := s.gapBefore(next); ok {
				next, nextOffset, nextKnown = g.FromSequence, g.FromOffset, true
			}
			if !nextKnown {
				nextOffset = f.scan.Cursor.Offset // the next segment's first batch cannot be read, so nothing contradicts
			}
			f.verdict = recovery.Sealed(f.scan, next, nextOffset)
		}
		next, nextOffset, nextKnown = f.base, f.scan.Summary.BaseOffset, f.offsetOK
	}
}

func (s *survey) gapBefore(base uint64) (storage.Gap, bool) {
	for _, g := range s.gaps {
		if g.ToSequence == base {
			return g, true
		}
	}
	return storage.Gap{}, false
}

func (s *survey) report() *Report {
	r := &Report{Dir: s.dir, ID: s.id, Shard: s.shard, Gaps: s.gaps, Sound: s.note == nil}
	if s.note != nil {
		r.Problems = append(r.Problems, Problem{
			Severity: Damage, File: path.Join(s.dir, storage.GapsName), Reason: s.note.Error(), Remedy: "a repair writes it again from what it finds",
		})
	}
	for _, f := range s.found {
		c := max(0, f.scan.CheckpointEnd-segment.HeaderSize)
		r.Segments = append(r.Segments, Segment{
			File: segment.Name(f.base), Summary: f.scan.Summary, Bytes: f.size, Read: f.whole, Batches: f.scan.Batches,
			Records: f.counts.records, Expired: f.counts.expired, Carried: f.counts.carried, Checkpoint: c, Index: f.index,
		})
		r.Problems = append(r.Problems, s.problems(f)...)
	}
	for _, p := range r.Problems {
		r.Sound = r.Sound && p.Severity < Damage
	}
	return r
}

func (s *survey) problems(f *file) []Problem {
	var out []Problem
	name := path.Join(s.dir, segment.Name(f.base))
	v := f.verdict
	p := Problem{File: name, Pos: v.Position, Sequence: v.Sequence, Offset: v.Offset, Reason: v.Reason}
	switch {
	case f.foreign:
		h := f.scan.Header
		p.Severity, p.Pos = Unknown, 0
		p.Reason = fmt.Sprintf("its header is of log %s, shard %d, sequence %d", h.ID, h.Shard, h.Base)
		p.Remedy = "move it to where it belongs"
	case v.Action == recovery.Newer:
		p.Severity, p.Remedy = Unknown, "open it with the newer release"
	case v.Action == recovery.Cut:
		p.Severity, p.Remedy = Torn, fmt.Sprintf("the next start cuts %d bytes", f.size-v.Position)
	case v.Action == recovery.Drop:
		p.Severity, p.Remedy = Torn, "the next start removes the file"
	case v.Action == recovery.Refuse:
		p.Severity, p.Remedy = Damage, s.remedy(f)
	default:
		p.Reason = ""
	}
	if p.Reason != "" {
		out = append(out, p)
	}
	if f.index == "missing" || f.index == "wrong" {
		out = append(out, Problem{
			Severity: Derived, File: path.Join(s.dir, segment.IndexName(f.base)), Sequence: f.base, Offset: f.scan.Summary.BaseOffset,
			Reason: "index is " + f.index, Remedy: "the next start makes it again",
		})
	}
	return append(out, f.unknown...)
}

// remedy says what a repair would cut of one segment.
func (s *survey) remedy(f *file) string {
	saved := int64(0)
	if f != s.last() {
		for _, r := range f.runs {
			saved += r.end - r.pos
		}
	}
	cut := f.size - f.scan.Summary.Size - saved
	if f.scan.Cursor.Sequence == f.base && saved == 0 {
		return "a repair gives up the whole segment"
	}
	return fmt.Sprintf("a repair gives up %d bytes from here on", cut)
}

// last returns the newest segment that the next start does not remove.
func (s *survey) last() *file {
	for _, f := range slices.Backward(s.found) {
		if !f.unborn {
			return f
		}
	}
	return nil
}
