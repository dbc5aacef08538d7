// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"slices"
	"sync"
)

// Slicer cuts slices of one batch. It reads the batch once; what a slice costs is then what it holds, however large the
// batch and however many slices are cut of it. Safe for concurrent use.
type Slicer struct {
	b      Batch
	places []place // of each record, and one behind the last
	plain  func() ([]byte, error)
}

// place is where a record's meta and its part of the plain body begin.
type place struct{ meta, body uint32 }

// NewSlicer makes a slicer of b, which must stay as it is. A batch without offsets has nothing to cut.
func NewSlicer(b Batch) (*Slicer, error) {
	if !b.HasOffsets() {
		return nil, fault(opBuildSlice, posCount, ErrCount)
	}
	var (
		metas Metas
		m     Meta
	)
	metas.reset(b)
	s := &Slicer{b: b, places: make([]place, 0, b.Count()+1), plain: sync.OnceValues(b.plainBody)}
	here := func() place { return place{uint32(metas.c.pos), uint32(b.PlainSize() - metas.plain)} }
	for s.places = append(s.places, here()); metas.left > 0; s.places = append(s.places, here()) {
		if metas.step(&m); metas.c.err != nil {
			return nil, fault(opBuildSlice, HeaderSize+metas.c.at, metas.c.err)
		}
	}
	return s, nil
}

// Slice copies the records whose indexes stand in keep, rising, into a slice, in fresh memory that the caller owns. A
// compressed body is unpacked by the first who needs it, into at most its declared size; what it holds is not looked at, so
// a body that is wrong is met by whoever reads it, as in the batch.
func (s *Slicer) Slice(keep []int) (Slice, error) {
	return s.cut(nil, &picks{indexes: keep, n: len(keep)})
}

// AppendOffsets appends to dst the slice of the records that have these offsets, rising. Who cuts a few records of many
// batches allocates nothing with it, once dst has grown.
func (s *Slicer) AppendOffsets(dst []byte, offsets []uint64) ([]byte, error) {
	return s.cut(dst, &picks{offsets: offsets, base: s.b.BaseOffset(), n: len(offsets)})
}

// AppendRange is AppendOffsets of all records from an offset to another, exclusive; what lies outside of the batch is not
// asked for.
func (s *Slicer) AppendRange(dst []byte, from, to uint64) ([]byte, error) {
	base, next := s.b.BaseOffset(), s.b.NextOffset()
	from, to = min(max(from, base), next), min(to, next)
	if to <= from {
		return dst, fault(opBuildSlice, posCount, ErrCount)
	}
	return s.cut(dst, &picks{first: int(from - base), n: int(to - from)})
}

// picks are indexes of records: a list of them, a list of offsets, or a range.
type picks struct {
	indexes []int
	offsets []uint64
	base    uint64
	first   int
	n       int
}

// at is the index of the i-th, or -1 of an offset that lies outside of any batch.
func (p *picks) at(i int) int {
	switch {
	case p.indexes != nil:
		return p.indexes[i]
	case p.offsets == nil:
		return p.first + i
	case p.offsets[i]-p.base > maxDecodeCount: // below the base, too: the difference wraps
		return -1
	}
	return int(p.offsets[i] - p.base)
}

// measure says what the records take, and refuses those that do not rise or that the batch does not have.
func (s *Slicer) measure(p *picks) (meta, body int, err error) {
	if p.n == 0 {
		return 0, 0, fault(opBuildSlice, posCount, ErrCount)
	}
	last := -1
	for n := range p.n {
		i := p.at(n)
		if i <= last || i+1 >= len(s.places) {
			return 0, 0, fault(opBuildSlice, posCount, ErrSlice)
		}
		last = i
		at, end := s.places[i], s.places[i+1]
		meta += uvarintSize(uint64(i)) + int(end.meta-at.meta)
		body += int(end.body - at.body)
	}
	return meta, body, nil
}

func (s *Slicer) cut(dst []byte, p *picks) ([]byte, error) {
	meta, body, err := s.measure(p)
	if err != nil {
		return dst, err
	}
	var from []byte
	if body > 0 {
		if from, err = s.plain(); err != nil {
			return dst, err
		}
	}
	start := len(dst)
	dst = slices.Grow(dst, SliceHeaderSize+meta+body)[:start+SliceHeaderSize]
	metas := s.b.meta()
	for n := range p.n {
		i := p.at(n)
		dst = append(appendUvarint(dst, uint64(i)), metas[s.places[i].meta:s.places[i+1].meta]...)
	}
	for n := 0; n < p.n && body > 0; { // neighbors lie together
		first := p.at(n)
		end := first
		for ; n < p.n && p.at(n) == end; n++ {
			end++
		}
		dst = append(dst, from[s.places[first].body:s.places[end].body]...)
	}
	Slice(dst[start:]).seal(sealing{
		attributes: s.b.Attributes() & AttrExpired, count: p.n, metaSize: meta, sequence: s.b.Sequence(), base: s.b.BaseOffset(),
		next: s.b.NextOffset(), generation: s.b.Generation(), appendTime: s.b.AppendTime(), firstTime: s.b.FirstTimestamp(),
	})
	return dst, nil
}

// BuildSlice cuts one slice of a batch. Who cuts several makes a Slicer.
func BuildSlice(b Batch, keep []int) (Slice, error) {
	s, err := NewSlicer(b)
	if err != nil {
		return nil, err
	}
	return s.Slice(keep)
}
