// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

// Memory is a log without files: bounded, and gone with its process. What is appended counts as flushed at once, in the
// sense in which anything held in memory can.
type Memory struct {
	o  Options
	mu sync.Mutex

	segs   []*memSegment
	cursor segment.Cursor
	virgin bool
	bytes  int64
	closed bool
}

// memSegment is what a segment file would hold. Batches lie in chunks that are only ever appended to, so a read can hand
// out the bytes themselves.
type memSegment struct {
	segment.Summary
	checkpoint int64
	batches    []batch.Batch // each with the capacity that its chunk has left, by which neighbors are told
	chunk      []byte
}

const (
	minChunk = 16 << 10
	maxChunk = 1 << 20
	// controlReserve is what a leader's own batches may take beyond the bound: without openings and log starts a full log
	// could be neither led nor emptied, and without what is carried and expired a full cache could not be.
	controlReserve = 1 << 20
)

var _ Log = (*Memory)(nil)

// NewMemory returns an empty log. Its first batch must start a checkpoint and says where the log begins.
func NewMemory(o Options) *Memory {
	if o.MemoryBytes <= 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	return &Memory{o: o, virgin: true}
}

// Append adds batches behind the tail; see Log. A log at its bound answers ErrFull until something is dropped.
func (m *Memory) Append(batches ...batch.Batch) error {
	if len(batches) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.admit(batches); err != nil {
		return fmt.Errorf("append to memory log %s/%d: %w", m.o.ID, m.o.Shard, err)
	}
	for _, b := range batches {
		if m.virgin {
			m.cursor, m.virgin = segment.Cursor{Sequence: b.Sequence(), Fresh: true}, false
		}
		_ = m.cursor.Accept(b) // admit has asked
		m.add(b)
	}
	return nil
}

func (m *Memory) admit(batches []batch.Batch) error {
	if m.closed {
		return ErrClosed
	}
	if err := admit(m.cursor, m.virgin, len(m.segs) == 0, batches); err != nil {
		return err
	}
	bound, size := m.o.MemoryBytes, m.bytes
	for _, b := range batches {
		size += int64(len(b))
		own := !b.HasOffsets() || b.IsExpired()
		if limit := bound; !own && size > limit || size > bound+controlReserve {
			return fmt.Errorf("memory log holds %d of %d bytes: %w", m.bytes, bound, ErrFull)
		}
	}
	return nil
}

func (m *Memory) add(b batch.Batch) {
	if b.IsCheckpointStart() {
		m.segs = append(m.segs, &memSegment{Summary: segment.Summary{
			Base: b.Sequence(), BaseOffset: b.BaseOffset(), FirstTime: b.AppendTime(),
		}})
	}
	s := m.segs[len(m.segs)-1]
	if cap(s.chunk)-len(s.chunk) < len(b) {
		s.chunk = make([]byte, 0, max(len(b), min(maxChunk, max(minChunk, 2*cap(s.chunk)))))
	}
	from := len(s.chunk)
	s.chunk = append(s.chunk, b...)
	s.batches = append(s.batches, batch.Batch(s.chunk[from:]))
	s.Size += int64(len(b))
	s.Next, s.NextOffset = b.Sequence()+1, b.NextOffset()
	s.Generation, s.LastTime = b.Generation(), b.AppendTime()
	if b.IsCheckpoint() {
		s.checkpoint = s.Size
	}
	m.bytes += int64(len(b))
}

// Flush returns the length: there is nothing to wait for.
func (m *Memory) Flush() (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.cursor.Sequence, ErrClosed
	}
	return m.flushed(), nil
}

func (m *Memory) flushed() uint64 {
	if n := len(m.segs); n > 0 && m.cursor.InCheckpoint() {
		return m.segs[n-1].Base
	}
	return m.cursor.Sequence
}

// State describes the log.
func (m *Memory) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := State{
		StartSequence: m.cursor.Sequence, StartOffset: m.cursor.Offset,
		Length: m.cursor.Sequence, NextOffset: m.cursor.Offset, Generation: m.cursor.Generation,
		Flushed: m.flushed(), FlushedOffset: m.cursor.Offset,
		LastAppendTime: m.cursor.AppendTime, OldestAppendTime: m.cursor.AppendTime,
		Bytes: m.bytes, Segments: len(m.segs), NeedsCheckpoint: len(m.segs) == 0,
	}
	if n := len(m.segs); n > 0 {
		first, last := m.segs[0], m.segs[n-1]
		s.StartSequence, s.StartOffset, s.OldestAppendTime = first.Base, first.BaseOffset, first.FirstTime
		s.CheckpointBytes, s.SegmentBytes = last.checkpoint, last.Size-last.checkpoint
	}
	return s
}

// Segments describes every segment, oldest first.
func (m *Memory) Segments() []SegmentInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]SegmentInfo, len(m.segs))
	for i, s := range m.segs {
		out[i] = infoOf(s.Summary)
	}
	return out
}

func (m *Memory) start() uint64 {
	if len(m.segs) == 0 {
		return m.cursor.Sequence
	}
	return m.segs[0].Base
}

// at returns the segment that holds seq, which is in range.
func (m *Memory) at(seq uint64) *memSegment {
	i := sort.Search(len(m.segs), func(i int) bool { return m.segs[i].Base > seq })
	return m.segs[i-1]
}

// Read returns stored batches; see Log. Batches that lie behind each other are handed out where they are.
func (m *Memory) Read(seq, until uint64, maxBytes int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, fmt.Errorf("read memory log: %w", ErrClosed)
	case seq > m.cursor.Sequence:
		return nil, fmt.Errorf("read memory log at sequence %d: length is %d: %w", seq, m.cursor.Sequence, ErrOutOfRange)
	case seq == m.cursor.Sequence, seq >= until:
		return nil, nil
	case seq < m.start():
		return nil, fmt.Errorf("read memory log at sequence %d: starts at %d: %w", seq, m.start(), ErrDropped)
	}
	s := m.at(seq)
	run := s.batches[seq-s.Base : min(until, s.Next)-s.Base]
	out := []byte(run[0])
	for _, b := range run[1:] {
		if len(out)+len(b) > maxBytes {
			break
		}
		n := len(out)
		if cap(out) < n+len(b) || &out[:n+1][n] != &b[0] {
			break // in the next chunk: the next read returns it
		}
		out = out[:n+len(b)]
	}
	return slices.Clip(out), nil
}

// ReadTo is Read, which copies nothing.
func (m *Memory) ReadTo(_ []byte, seq, until uint64, maxBytes int) ([]byte, error) {
	return m.Read(seq, until, maxBytes)
}

// FindOffset returns the sequence of the record batch that holds offset; see Log.
func (m *Memory) FindOffset(offset uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return 0, fmt.Errorf("find offset: %w", ErrClosed)
	case offset > m.cursor.Offset:
		return 0, fmt.Errorf("find offset %d: next offset is %d: %w", offset, m.cursor.Offset, ErrOutOfRange)
	case len(m.segs) > 0 && offset < m.segs[0].BaseOffset:
		return 0, fmt.Errorf("find offset %d: log starts at offset %d: %w", offset, m.segs[0].BaseOffset, ErrDropped)
	}
	i := sort.Search(len(m.segs), func(i int) bool { return m.segs[i].NextOffset > offset })
	if i == len(m.segs) {
		return m.cursor.Sequence, nil
	}
	s := m.segs[i]
	// A control or carried batch takes no offset, so the first batch that ends beyond the offset is one that holds it.
	j := sort.Search(len(s.batches), func(j int) bool { return s.batches[j].NextOffset() > offset })
	return s.Base + uint64(j), nil
}

// FindTime returns the base offset of the first batch appended at us or later; see Log.
func (m *Memory) FindTime(us int64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, fmt.Errorf("find time: %w", ErrClosed)
	}
	i := sort.Search(len(m.segs), func(i int) bool { return m.segs[i].LastTime >= us })
	if i == len(m.segs) {
		return m.cursor.Offset, nil
	}
	s := m.segs[i]
	j := sort.Search(len(s.batches), func(j int) bool { return s.batches[j].AppendTime() >= us })
	return s.batches[j].BaseOffset(), nil
}

// Truncate cuts the log to this length. Bytes that were read stay as they are: what follows goes into another chunk.
func (m *Memory) Truncate(length uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return fmt.Errorf("truncate: %w", ErrClosed)
	case length > m.cursor.Sequence:
		return fmt.Errorf("truncate to length %d: length is %d: %w", length, m.cursor.Sequence, ErrOutOfRange)
	case length < m.start():
		return fmt.Errorf("truncate to length %d: log starts at sequence %d: %w", length, m.start(), ErrDropped)
	case length == m.cursor.Sequence:
		return nil
	}
	first := m.segs[0].Summary
	for n := len(m.segs); n > 0 && m.segs[n-1].Base >= length; n-- {
		m.bytes -= m.segs[n-1].Size
		m.segs = slices.Delete(m.segs, n-1, n)
	}
	if len(m.segs) == 0 {
		m.cursor = segment.Cursor{Sequence: first.Base, Offset: first.BaseOffset}
		return nil
	}
	old := m.segs[len(m.segs)-1]
	m.segs = m.segs[:len(m.segs)-1]
	m.bytes -= old.Size
	m.cursor = segment.Cursor{Sequence: old.Base, Fresh: true}
	for _, b := range old.batches[:length-old.Base] {
		_ = m.cursor.Accept(b) // it was accepted before
		m.add(b)
	}
	return nil
}

// DropBefore removes old segments; see Log.
func (m *Memory) DropBefore(seq uint64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, fmt.Errorf("drop: %w", ErrClosed)
	}
	var freed int64
	needed := 1
	if m.cursor.InCheckpoint() {
		needed = 2 // as on disk, where the newest counts only once its checkpoint is complete
	}
	for len(m.segs) > needed && m.segs[0].Next <= seq {
		freed += m.segs[0].Size
		m.segs[0] = nil
		m.segs = m.segs[1:]
	}
	m.bytes -= freed
	return freed, nil
}

// Replay hands every batch of the newest segment to fn.
func (m *Memory) Replay(fn func(batch.Batch) error) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return fmt.Errorf("replay: %w", ErrClosed)
	}
	var batches []batch.Batch
	if n := len(m.segs); n > 0 {
		batches = m.segs[n-1].batches
	}
	m.mu.Unlock()
	for _, b := range batches {
		if err := fn(slices.Clip(b)); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	return nil
}

// Close forgets everything.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.segs, m.bytes = true, nil, 0
	return nil
}
