// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bytes"
	"errors"
	"io"

	"margay.dev/wire/batch"
)

// Scan is everything that reading a segment from its beginning to its end can tell. It holds facts only.
type Scan struct {
	Size      int64
	Header    Header
	HeaderErr error // what is wrong with the header; batches behind it are scanned all the same

	// The run: batches from the first on that are sound and follow each other.
	Summary       Summary // Size is the position behind the run
	Cursor        Cursor  // at the end of the run
	Batches       int
	Checkpoint    uint64 // sequence after the checkpoint that the segment opens with; 0 when it is not complete
	CheckpointEnd int64  // position after it
	Flushed       uint64 // the highest flushed length that a batch of the run tells
	Sparse        Sparse

	Unwritten int64   // zeros behind the run, up to the end of the file: room that was made for batches that never came
	Damage    *Damage // why the run ends before the file or its zeros do; nil when it does not
	Beyond    Beyond  // what was found behind the damage
}

// Damage is where a run ends early.
type Damage struct {
	Position int64
	Sequence uint64 // of the batch that should be there
	Offset   uint64 // that it should begin with
	Err      error  // ErrNewer when it is sound and this release does not know its format
}

// Beyond are the sound batches behind damage, found by their magic.
type Beyond struct {
	Batches     int
	Data        int    // those that are not part of a checkpoint
	Flushed     uint64 // the highest flushed length that one of them tells
	First       uint64 // sequence of the first
	FirstOffset uint64
	Position    int64  // of the first
	Next        uint64 // sequence after the last
	Offset      uint64 // next offset after the last
}

// Options of a scan.
type Options struct {
	Base uint64 // sequence of the first batch, which is in the file's name
	// Stop, when not 0, ends the scan before the batch of this sequence: what lies there is not looked at.
	Stop uint64
	// Visit, when set, gets every batch of the run and its position. The bytes are valid during the call.
	Visit func(b batch.Batch, pos int64) error
	// Beyond, when set, gets every sound batch behind damage and its position, likewise.
	Beyond func(b batch.Batch, pos int64) error
}

// windowSize is how much a scan reads at a time.
const windowSize = 256 << 10

// Read scans the first size bytes of r. The error is one of reading or of Visit; damage is a fact, not an error.
func Read(r io.ReaderAt, size int64, o Options) (Scan, error) {
	s := scanner{w: NewWindow(r, size, windowSize), o: o}
	s.out.Size = size
	s.out.Cursor = Cursor{Sequence: o.Base, Fresh: true}
	s.out.Summary = Summary{Base: o.Base, Next: o.Base, Size: min(size, HeaderSize)}
	if err := s.header(); err != nil {
		return Scan{}, err
	}
	if err := s.run(); err != nil {
		return Scan{}, err
	}
	if s.out.Damage != nil {
		if err := s.beyond(); err != nil {
			return Scan{}, err
		}
		if y := s.out.Beyond; s.out.Batches == 0 && y.Batches > 0 && y.First == s.out.Damage.Sequence+1 {
			s.out.Damage.Offset = y.FirstOffset // a segment's first batch is a control batch, which takes none
		}
	}
	return s.out, nil
}

type scanner struct {
	w   *Window
	o   Options
	out Scan
}

func (s *scanner) header() error {
	b, err := s.w.Bytes(0, HeaderSize)
	if err != nil {
		return err
	}
	s.out.Header, s.out.HeaderErr = ParseHeader(b)
	return nil
}

func (s *scanner) run() error {
	for pos := int64(HeaderSize); pos < s.out.Size; {
		if s.o.Stop != 0 && s.out.Cursor.Sequence >= s.o.Stop {
			return nil
		}
		b, fault, err := s.next(pos)
		if err != nil {
			return err
		}
		if fault != nil {
			unwritten, err := s.w.Zero(pos)
			if unwritten {
				s.out.Unwritten = s.out.Size - pos
				return nil
			}
			if err != nil {
				return err
			}
			s.out.Damage = &Damage{Position: pos, Sequence: s.out.Cursor.Sequence, Offset: s.out.Cursor.Offset, Err: fault}
			return nil // damage is a fact, not an error
		}
		s.take(b, pos)
		if s.o.Visit != nil {
			if err := s.o.Visit(b, pos); err != nil {
				return err
			}
		}
		pos += int64(len(b))
	}
	return nil
}

// next returns the batch at pos when it is sound and comes next, else why not.
func (s *scanner) next(pos int64) (b batch.Batch, fault, err error) {
	b, fault, err = s.sound(pos)
	if fault == nil && err == nil {
		c := s.out.Cursor
		fault = c.Accept(b)
		if fault == nil && b.IsCheckpointStart() && s.out.Batches > 0 {
			fault = ErrCheckpoint
		}
	}
	return b, fault, err
}

// sound returns the batch at pos when its bytes are those that were written.
func (s *scanner) sound(pos int64) (b batch.Batch, fault, err error) {
	_, n, err := s.w.Head(pos)
	if f, ok := IsFault(err); ok {
		newer, err := s.newer(pos, f.Err)
		return nil, newer, err
	} else if err != nil {
		return nil, nil, err
	}
	raw, err := s.w.Bytes(pos, n)
	if err != nil {
		return nil, nil, err
	}
	b, fault = batch.CheckStored(raw)
	if fault != nil {
		fault, err = s.newer(pos, fault)
	}
	return b, fault, err
}

// newer returns ErrNewer instead of the fault when the bytes at pos are sound and only their format is unknown.
func (s *scanner) newer(pos int64, fault error) (error, error) {
	sound, err := s.w.sound(pos)
	if sound {
		return ErrNewer, err
	}
	return fault, err
}

func (s *scanner) take(b batch.Batch, pos int64) {
	out := &s.out
	_ = out.Cursor.Accept(b) // next has asked a copy of it
	if out.Batches == 0 {
		out.Summary.BaseOffset, out.Summary.FirstTime = b.BaseOffset(), b.AppendTime()
	}
	out.Batches++
	end := pos + int64(len(b))
	out.Summary.Next, out.Summary.NextOffset = out.Cursor.Sequence, out.Cursor.Offset
	out.Summary.Generation, out.Summary.LastTime, out.Summary.Size = b.Generation(), b.AppendTime(), end
	out.Flushed = max(out.Flushed, b.Flushed())
	if b.IsCheckpoint() && !out.Cursor.InCheckpoint() {
		out.Checkpoint, out.CheckpointEnd = out.Cursor.Sequence, end
	}
	out.Sparse.Add(b, pos)
}

// beyond looks for sound batches behind the damage. A power cut keeps unflushed blocks in any order, so they may lie
// anywhere; they are found by their magic, and their checksums and plausibility are checked before they count.
func (s *scanner) beyond() error {
	pos := s.out.Damage.Position
	if errors.Is(s.out.Damage.Err, ErrNewer) {
		return nil // it is not damage, and nothing will be cut
	}
	if !errors.Is(s.out.Damage.Err, ErrOrder) && !errors.Is(s.out.Damage.Err, ErrCheckpoint) {
		pos++ // nothing sound begins at the damage itself, unless only its place is wrong
	}
	for pos < s.out.Size {
		chunk, err := s.w.Bytes(pos, windowSize)
		if err != nil {
			return err
		}
		i := -1
		if len(chunk) > batchMagicAt {
			i = bytes.Index(chunk[batchMagicAt:], batchMagic[:])
		}
		switch {
		case i < 0 && len(chunk) <= batchMagicAt+len(batchMagic):
			return nil
		case i < 0:
			pos += int64(len(chunk) - batchMagicAt - len(batchMagic) + 1)
			continue
		}
		pos += int64(i)
		b, fault, err := s.sound(pos)
		if err != nil {
			return err
		}
		if errors.Is(fault, ErrNewer) {
			if b, err = s.w.Bytes(pos, batch.HeaderSize); err != nil {
				return err
			}
			if s.plausible(b, pos) {
				s.out.Damage.Err = ErrNewer // its meaning is unknown, so nothing in front of it may be cut
				return nil
			}
		}
		if fault != nil || !s.plausible(b, pos) {
			pos++
			continue
		}
		s.out.Beyond.add(b, pos)
		if s.o.Beyond != nil {
			if err := s.o.Beyond(b, pos); err != nil {
				return err
			}
		}
		pos += int64(len(b))
	}
	return nil
}

// plausible keeps bytes that only look like a later batch (a record may hold a copy of a segment) from being taken for
// one: every batch between the damage and this one took room, and nothing in a log ever goes back.
func (s *scanner) plausible(b batch.Batch, pos int64) bool {
	d, c := s.out.Damage, &s.out.Cursor
	least := max(d.Sequence, s.out.Beyond.Next)
	offset := max(c.Offset, s.out.Beyond.Offset)
	room := uint64(pos-d.Position) / batch.HeaderSize
	return b.Sequence() >= least && (b.Sequence()-d.Sequence <= room || pos == d.Position) &&
		b.Flushed() <= b.Sequence() && b.BaseOffset() >= offset && b.NextOffset() >= b.BaseOffset() && b.Generation() >= c.Generation
}

func (y *Beyond) add(b batch.Batch, pos int64) {
	if y.Batches == 0 {
		y.First, y.FirstOffset, y.Position = b.Sequence(), b.BaseOffset(), pos
	}
	y.Batches++
	if !b.IsCheckpoint() {
		y.Data++
	}
	y.Flushed = max(y.Flushed, b.Flushed())
	y.Next, y.Offset = b.Sequence()+1, b.NextOffset()
}
