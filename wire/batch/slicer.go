// SPDX-License-Identifier: Apache-2.0

package batch

import "sync"

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
	if len(keep) == 0 {
		return nil, fault(opBuildSlice, posCount, ErrCount)
	}
	var meta, body int
	last := -1
	for _, i := range keep {
		if i <= last || i+1 >= len(s.places) {
			return nil, fault(opBuildSlice, posCount, ErrSlice)
		}
		last = i
		at, end := s.places[i], s.places[i+1]
		meta += uvarintSize(uint64(i)) + int(end.meta-at.meta)
		body += int(end.body - at.body)
	}
	var from []byte
	if body > 0 {
		var err error
		if from, err = s.plain(); err != nil {
			return nil, err
		}
	}
	out := make(Slice, SliceHeaderSize, SliceHeaderSize+meta+body)
	for _, i := range keep {
		out = append(appendUvarint(out, uint64(i)), s.b.meta()[s.places[i].meta:s.places[i+1].meta]...)
	}
	for _, i := range keep {
		if at, end := s.places[i].body, s.places[i+1].body; at < end {
			out = append(out, from[at:end]...)
		}
	}
	out.seal(s.b, len(keep), meta)
	return out, nil
}

// BuildSlice cuts one slice of a batch. Who cuts several makes a Slicer.
func BuildSlice(b Batch, keep []int) (Slice, error) {
	s, err := NewSlicer(b)
	if err != nil {
		return nil, err
	}
	return s.Slice(keep)
}
