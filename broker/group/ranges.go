// SPDX-License-Identifier: Apache-2.0

package group

import (
	"iter"
	"math"

	"github.com/tidwall/btree"
)

// ranges is a set of offsets, kept as the ranges that it is made of. The one that begins at 0 is apart from the others:
// settling in order costs an addition.
type ranges struct {
	low   uint64                    // all below are in it
	above btree.Map[uint64, uint64] // the others, by where they begin, to where they end; none touches another or low
	count uint64                    // offsets in above
}

// span is the offsets from From up to To, exclusive.
type span struct{ from, to uint64 }

// len is how many ranges there are above the first.
func (r *ranges) len() int { return r.above.Len() }

// total is how many offsets are in the set.
func (r *ranges) total() uint64 { return r.low + r.count }

func (r *ranges) has(offset uint64) bool {
	if offset < r.low {
		return true
	}
	if r.above.Len() == 0 {
		return false
	}
	_, to, ok := r.floor(offset)
	return ok && offset < to
}

// floor is the range above low that begins at or below an offset.
func (r *ranges) floor(offset uint64) (from, to uint64, ok bool) {
	r.above.Descend(offset, func(f, t uint64) bool {
		from, to, ok = f, t, true
		return false
	})
	return from, to, ok
}

// next is the first offset at or above this one that is in the set; MaxUint64 when none is.
func (r *ranges) next(offset uint64) uint64 {
	if r.has(offset) {
		return offset
	}
	at := uint64(math.MaxUint64)
	if r.above.Len() > 0 {
		r.above.Ascend(offset, func(f, _ uint64) bool {
			at = f
			return false
		})
	}
	return at
}

// gap is the first offset at or above this one that is not in the set.
func (r *ranges) gap(offset uint64) uint64 {
	if offset < r.low {
		offset = r.low
	}
	if _, to, ok := r.floor(offset); ok && offset < to {
		return to
	}
	return offset
}

// gaps are the ranges within [from, to) that are not in the set.
func (r *ranges) gaps(from, to uint64) iter.Seq[span] {
	return func(yield func(span) bool) {
		for at := r.gap(from); at < to; {
			end := min(r.next(at), to)
			if !yield(span{at, end}) {
				return
			}
			at = r.gap(end)
		}
	}
}

// missing is how many offsets within [from, to) are not in the set.
func (r *ranges) missing(from, to uint64) (n uint64) {
	for g := range r.gaps(from, to) {
		n += g.to - g.from
	}
	return n
}

// add puts [from, to) into the set.
func (r *ranges) add(from, to uint64) {
	if from >= to {
		return
	}
	if from <= r.low {
		r.low = max(r.low, to)
		r.absorb()
		return
	}
	if f, t, ok := r.floor(from); ok && t >= from {
		from, to = f, max(to, t)
		r.drop(f, t)
	}
	for {
		var f, t uint64
		ok := false
		r.above.Ascend(from, func(k, v uint64) bool {
			f, t, ok = k, v, true
			return false
		})
		if !ok || f > to {
			break
		}
		to = max(to, t)
		r.drop(f, t)
	}
	r.above.Set(from, to)
	r.count += to - from
}

// absorb takes what low has reached out of the ranges above it.
func (r *ranges) absorb() {
	for {
		f, t, ok := r.above.Min()
		if !ok || f > r.low {
			return
		}
		r.drop(f, t)
		r.low = max(r.low, t)
	}
}

func (r *ranges) drop(from, to uint64) {
	r.above.Delete(from)
	r.count -= to - from
}

// remove takes [from, to) out of the set.
func (r *ranges) remove(from, to uint64) {
	if from >= to {
		return
	}
	if from < r.low {
		end := r.low
		r.low = from
		if to < end {
			r.above.Set(to, end)
			r.count += end - to
			return
		}
		from = end
	}
	if f, t, ok := r.floor(from); ok && t > from {
		r.drop(f, t)
		if f < from {
			r.above.Set(f, from)
			r.count += from - f
		}
		if to < t {
			r.above.Set(to, t)
			r.count += t - to
			return
		}
	}
	for {
		var f, t uint64
		ok := false
		r.above.Ascend(from, func(k, v uint64) bool {
			f, t, ok = k, v, true
			return false
		})
		if !ok || f >= to {
			return
		}
		r.drop(f, t)
		if to < t {
			r.above.Set(to, t)
			r.count += t - to
			return
		}
	}
}

// all are the ranges of the set, the first, below low, too if there is one.
func (r *ranges) all() iter.Seq[span] {
	return func(yield func(span) bool) {
		if r.low > 0 && !yield(span{0, r.low}) {
			return
		}
		r.above.Scan(func(f, t uint64) bool { return yield(span{f, t}) })
	}
}
