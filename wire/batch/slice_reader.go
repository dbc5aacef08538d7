// SPDX-License-Identifier: Apache-2.0

package batch

// SliceReader walks the records of a slice. Key and Value of a record alias the slice; the Headers slice is reused by
// the next Next.
type SliceReader struct {
	r Reader
}

// Records returns a walk over all records of the slice.
func (s Slice) Records() *SliceReader {
	r := &SliceReader{}
	r.Reset(s)
	return r
}

// Reset points the reader at another slice, or at nothing, and keeps what it has allocated.
func (r *SliceReader) Reset(s Slice) {
	r.r.Reset(nil)
	r.r.opened = true // the body of a slice is plain
	if len(s) == 0 {
		return
	}
	r.r.body = cursor{b: s.body()}
	r.r.metas.resetSlice(s)
}

// Offset is that of the record that Next returned last, in the log.
func (r *SliceReader) Offset() uint64 { return r.r.Offset() }

// Next fills rec with the next record. It returns false at the end.
func (r *SliceReader) Next(rec *Record) (bool, error) { return r.r.Next(rec) }

// Metas returns a walk over the metas of the slice's records.
func (s Slice) Metas() *Metas {
	m := &Metas{}
	m.resetSlice(s)
	return m
}

func (m *Metas) resetSlice(s Slice) {
	*m = Metas{
		c: cursor{b: s.meta()}, first: s.FirstTimestamp(), base: s.BaseOffset(), plain: len(s.body()), left: s.Count(),
		index: -1, start: SliceHeaderSize, span: s.span(), generation: s.Generation(), time: s.AppendTime(), expired: s.IsExpired(),
	}
}
