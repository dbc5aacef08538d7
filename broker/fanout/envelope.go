// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"sync"
	"weak"

	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// Envelope is one committed record batch, encoded once as the frame that every subscriber is sent who may see
// all of it. Nobody may see the settlement of one that has it: all are sent what is cut.
type Envelope struct {
	Frame []byte
	Batch batch.Batch // lies in Frame
	Shard uint32
	Mark  uint64 // next committed offset, for the frames of what is cut

	mu sync.Mutex
	// slicer is shared by all who cut the envelope at about the same time. It can be many times as large as the
	// envelope, so that an envelope that waits in a queue must not hold it.
	slicer weak.Pointer[batch.Slicer]
}

// slice encodes some records of the envelope as the frame of a delivery. One selection costs what it selects: with
// thousands of them, each reading the whole batch would be the square of it.
func (e *Envelope) slice(keep []int) ([]byte, error) {
	e.mu.Lock()
	s := e.slicer.Value()
	if s == nil {
		var err error
		if s, err = batch.NewSlicer(e.Batch); err != nil {
			e.mu.Unlock()
			return nil, err
		}
		e.slicer = weak.Make(s)
	}
	e.mu.Unlock()
	cut, err := s.Slice(keep)
	if err != nil {
		return nil, err
	}
	return sliceFrame(e.Shard, e.Mark, cut), nil
}

// cut is what a group is sent of an envelope that it selects a part of. The first who needs it encodes it, so
// that the publisher does not wait for it; all who share the selection share the bytes.
type cut struct {
	keep []int
	once sync.Once
	data []byte
	err  error
}

// item is a place in a queue: an envelope, whole or cut, and the range that was dropped before it.
type item struct {
	envelope *Envelope
	cut      *cut // nil for the whole
	lost     Range
}

// Range is offsets, To exclusive; none when they are equal.
type Range struct{ From, To uint64 }

// Empty says whether there is nothing in it.
func (r Range) Empty() bool { return r.From == r.To }

// with is the range that spans both.
func (r Range) with(o Range) Range {
	switch {
	case r.Empty():
		return o
	case o.Empty():
		return r
	}
	return Range{min(r.From, o.From), max(r.To, o.To)}
}

func (i *item) records() int {
	if i.cut != nil {
		return len(i.cut.keep)
	}
	return i.envelope.Batch.Count()
}

// size is what the item counts in its queue: of a cut that nobody has made yet, its share.
func (i *item) size() int {
	n := len(i.envelope.Frame)
	if i.cut != nil {
		n = n/i.envelope.Batch.Count()*len(i.cut.keep) + batch.SliceHeaderSize
	}
	return n
}

func (i *item) offsets() Range {
	return Range{i.envelope.Batch.BaseOffset(), i.envelope.Batch.NextOffset()}
}

// frame is what the subscriber is sent.
func (i *item) frame() ([]byte, error) {
	if i.cut == nil {
		return i.envelope.Frame, nil
	}
	c := i.cut
	c.once.Do(func() { c.data, c.err = i.envelope.slice(c.keep) })
	return c.data, c.err
}

// SliceFrame encodes some records of a batch as the frame of a delivery.
func SliceFrame(shard uint32, mark uint64, b batch.Batch, keep []int) ([]byte, error) {
	s, err := batch.BuildSlice(b, keep)
	if err != nil {
		return nil, err
	}
	return sliceFrame(shard, mark, s), nil
}

func sliceFrame(shard uint32, mark uint64, s batch.Slice) []byte {
	return wire.AppendFrame(nil, 0, &wire.DeliverSlice{Shard: shard, Mark: mark, Slices: s})
}
