// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"sync"

	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// Envelope is one committed record batch, encoded once as the frame that every subscriber is sent who may see
// all of it.
type Envelope struct {
	Frame []byte
	Batch batch.Batch // lies in Frame
	Shard uint32
	Mark  uint64 // next committed offset, for the frames of what is cut
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
	c.once.Do(func() { c.data, c.err = SliceFrame(i.envelope.Shard, i.envelope.Mark, i.envelope.Batch, c.keep) })
	return c.data, c.err
}

// SliceFrame encodes some records of a batch as the frame of a delivery.
func SliceFrame(shard uint32, mark uint64, b batch.Batch, keep []int) ([]byte, error) {
	s, err := batch.BuildSlice(b, keep)
	if err != nil {
		return nil, err
	}
	return wire.AppendFrame(nil, 0, &wire.DeliverSlice{Shard: shard, Mark: mark, Slices: s}), nil
}
