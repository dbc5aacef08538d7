// SPDX-License-Identifier: Apache-2.0

package storagetest

import (
	"bytes"
	"fmt"
	"slices"
	"sort"

	"margay.dev/storage"
	"margay.dev/wire/batch"
)

// Model is what a log must answer, kept in the simplest way there is: a slice of its batches.
type Model struct {
	Batches []batch.Batch // in order; one for every sequence from Start on
	Bases   []uint64      // the sequences at which segments begin
	Flushed uint64        // what a flush has promised
	// Whole means that a read ends early only where a segment does; otherwise it may give any number of batches.
	Whole bool
	// Where the log begins when it holds nothing.
	Sequence, Offset uint64
}

// Clone returns a copy that shares the batches, which never change.
func (m *Model) Clone() *Model {
	c := *m
	c.Batches = append([]batch.Batch(nil), m.Batches...)
	c.Bases = append([]uint64(nil), m.Bases...)
	return &c
}

// Start returns the first sequence.
func (m *Model) Start() uint64 {
	if len(m.Batches) == 0 {
		return m.Sequence
	}
	return m.Batches[0].Sequence()
}

// Length returns the sequence after the last batch.
func (m *Model) Length() uint64 { return m.Start() + uint64(len(m.Batches)) }

// StartOffset returns the first offset.
func (m *Model) StartOffset() uint64 {
	if len(m.Batches) == 0 {
		return m.Offset
	}
	return m.Batches[0].BaseOffset()
}

// NextOffset returns the offset after the last record.
func (m *Model) NextOffset() uint64 {
	if len(m.Batches) == 0 {
		return m.Offset
	}
	return m.Batches[len(m.Batches)-1].NextOffset()
}

// At returns the batch of a sequence.
func (m *Model) At(seq uint64) batch.Batch { return m.Batches[seq-m.Start()] }

// Append appends batches.
func (m *Model) Append(batches ...batch.Batch) {
	for _, b := range batches {
		if b.IsCheckpointStart() {
			m.Bases = append(m.Bases, b.Sequence())
		}
		m.Batches = append(m.Batches, b)
	}
}

// Truncate cuts to a length.
func (m *Model) Truncate(length uint64) {
	m.Sequence, m.Offset = m.Start(), m.StartOffset()
	m.Batches = m.Batches[:length-m.Start()]
	for len(m.Bases) > 0 && m.Bases[len(m.Bases)-1] >= length {
		m.Bases = m.Bases[:len(m.Bases)-1]
	}
	m.Flushed = min(m.Flushed, length)
	if base, open := m.OpenCheckpoint(); open {
		m.Flushed = min(m.Flushed, base)
	}
}

// DropBefore removes whole segments below a sequence, but never the newest, nor the one before it while the newest has
// no whole checkpoint and counts for nothing.
func (m *Model) DropBefore(seq uint64) {
	keep := 1
	if _, open := m.OpenCheckpoint(); open {
		keep = 2
	}
	for len(m.Bases) > keep && m.Bases[1] <= seq {
		m.Batches = m.Batches[m.Bases[1]-m.Bases[0]:]
		m.Bases = m.Bases[1:]
	}
}

// OpenCheckpoint returns the base of a newest segment whose checkpoint is not complete: it counts for nothing, and
// opening the log again removes it.
func (m *Model) OpenCheckpoint() (base uint64, open bool) {
	if len(m.Batches) == 0 {
		return 0, false
	}
	last := m.Batches[len(m.Batches)-1]
	part, ok := last.CheckpointPart()
	return m.Bases[len(m.Bases)-1], ok && !part.Last()
}

// Reopen is what closing and opening does to the log.
func (m *Model) Reopen() {
	if base, open := m.OpenCheckpoint(); open {
		m.Truncate(base)
	}
	m.Flushed = m.Length()
}

// Newest returns the batches of the newest segment.
func (m *Model) Newest() []batch.Batch {
	if len(m.Bases) == 0 {
		return nil
	}
	return m.Batches[m.Bases[len(m.Bases)-1]-m.Start():]
}

// FindOffset returns the sequence of the first batch with offsets that ends behind offset, or the length.
func (m *Model) FindOffset(offset uint64) uint64 {
	for _, b := range m.Batches {
		if b.HasOffsets() && b.NextOffset() > offset {
			return b.Sequence()
		}
	}
	return m.Length()
}

// FindTime returns the base offset of the first batch appended at us or later.
func (m *Model) FindTime(us int64) uint64 {
	i := sort.Search(len(m.Batches), func(i int) bool { return m.Batches[i].AppendTime() >= us })
	if i == len(m.Batches) {
		return m.NextOffset()
	}
	return m.Batches[i].BaseOffset()
}

// Compare says how the log differs from the model: its state, its segments and every byte it holds.
func (m *Model) Compare(l storage.Log) error {
	if err := m.CompareState(l); err != nil {
		return err
	}
	return m.CompareBytes(l)
}

// CompareState says how the state and the segments differ.
func (m *Model) CompareState(l storage.Log) error {
	s := l.State()
	switch {
	case s.StartSequence != m.Start(), s.Length != m.Length():
		return fmt.Errorf("log has sequences %d to %d, want %d to %d", s.StartSequence, s.Length, m.Start(), m.Length())
	case s.StartOffset != m.StartOffset(), s.NextOffset != m.NextOffset():
		return fmt.Errorf("log has offsets %d to %d, want %d to %d", s.StartOffset, s.NextOffset, m.StartOffset(), m.NextOffset())
	case s.Flushed > s.Length, s.Flushed < m.Flushed:
		return fmt.Errorf("flushed is %d of %d, was promised to be %d", s.Flushed, s.Length, m.Flushed)
	case s.Segments != len(m.Bases), s.NeedsCheckpoint != (len(m.Bases) == 0):
		return fmt.Errorf("log has %d segments (needs checkpoint: %t), want %d", s.Segments, s.NeedsCheckpoint, len(m.Bases))
	}
	if n := len(m.Batches); n > 0 {
		first, last := m.Batches[0], m.Batches[n-1]
		if s.Generation != last.Generation() || s.LastAppendTime != last.AppendTime() || s.OldestAppendTime != first.AppendTime() {
			return fmt.Errorf("state is %+v, want generation %d, times %d to %d", s, last.Generation(), first.AppendTime(), last.AppendTime())
		}
	}
	return m.compareSegments(l.Segments())
}

func (m *Model) compareSegments(segments []storage.SegmentInfo) error {
	for i, base := range m.Bases {
		next := m.Length()
		if i+1 < len(m.Bases) {
			next = m.Bases[i+1]
		}
		first, last := m.At(base), m.At(next-1)
		got, size := segments[i], int64(0)
		for seq := base; seq < next; seq++ {
			size += int64(len(m.At(seq)))
		}
		want := storage.SegmentInfo{
			BaseSequence: base, NextSequence: next, BaseOffset: first.BaseOffset(), NextOffset: last.NextOffset(),
			Generation: last.Generation(), FirstAppendTime: first.AppendTime(), LastAppendTime: last.AppendTime(),
			Bytes: got.Bytes,
		}
		if got != want || got.Bytes < size || got.Bytes > size+1024 {
			return fmt.Errorf("segment %d is %+v, want %+v with %d bytes of batches", i, got, want, size)
		}
	}
	return nil
}

// CompareBytes reads the whole log and says where it differs.
func (m *Model) CompareBytes(l storage.Log) error {
	for seq := m.Start(); seq < m.Length(); {
		n, err := m.CompareRead(l, seq, m.Length(), 64<<10)
		if err != nil {
			return err
		}
		seq += n
	}
	return nil
}

// CompareRead holds one read to the contract and returns how many batches it gave.
func (m *Model) CompareRead(l storage.Log, seq, until uint64, limit int) (batches uint64, err error) {
	got, err := l.Read(seq, until, limit)
	if err != nil {
		return 0, fmt.Errorf("read %d to %d, %d bytes: %w", seq, until, limit, err)
	}
	until = min(until, m.Length())
	if seq >= until {
		if len(got) > 0 {
			return 0, fmt.Errorf("read %d to %d of a log of length %d: %d bytes", seq, until, m.Length(), len(got))
		}
		return 0, nil
	}
	if len(got) > limit && len(got) > len(m.At(seq)) {
		return 0, fmt.Errorf("read %d to %d: %d bytes where %d were asked for", seq, until, len(got), limit)
	}
	rest := got
	for len(rest) > 0 {
		if seq+batches == until {
			return 0, fmt.Errorf("read %d to %d: %d bytes too many", seq, until, len(rest))
		}
		want := m.At(seq + batches)
		if !bytes.HasPrefix(rest, want) {
			return 0, fmt.Errorf("read %d to %d: other bytes at sequence %d", seq, until, seq+batches)
		}
		rest = rest[len(want):]
		batches++
	}
	if batches == 0 {
		return 0, fmt.Errorf("read %d to %d: nothing", seq, until)
	}
	if end := seq + batches; m.Whole && end < until && !m.isBase(end) && len(got)+len(m.At(end)) <= limit {
		return 0, fmt.Errorf("read %d to %d: stops at %d after %d of %d bytes", seq, until, end, len(got), limit)
	}
	return batches, nil
}

func (m *Model) isBase(seq uint64) bool { return slices.Contains(m.Bases, seq) }
