// SPDX-License-Identifier: Apache-2.0

package code

import (
	"math/bits"
	"strconv"
)

// Detail names one number that an error can carry. The values are frozen: they are the keys on the wire.
type Detail uint8

const (
	// DetailEarliest is the first offset that can be read.
	DetailEarliest Detail = 1
	// DetailLatest is the offset after the last one that can be read.
	DetailLatest Detail = 2
	// DetailLastSequence is the last producer sequence that was accepted.
	DetailLastSequence Detail = 3
	// DetailResumeAt is the offset at which reading can go on.
	DetailResumeAt Detail = 4
	// DetailLimit is the limit that was exceeded.
	DetailLimit Detail = 5
	// DetailShard is the shard that the error is about.
	DetailShard Detail = 6
	// DetailIndex is the record, counted in its batch, or the item of a list that the error is about.
	DetailIndex Detail = 7

	// LastDetail is the last that this build knows; they are numbered without a gap.
	LastDetail = DetailIndex
)

// String returns the name of the detail as documentation and logs write it.
func (d Detail) String() string {
	switch d {
	case DetailEarliest:
		return "earliest"
	case DetailLatest:
		return "latest"
	case DetailLastSequence:
		return "last_sequence"
	case DetailResumeAt:
		return "resume_at"
	case DetailLimit:
		return "limit"
	case DetailShard:
		return "shard"
	case DetailIndex:
		return "index"
	}
	return "detail_" + strconv.Itoa(int(d))
}

// Details are the numbers an error carries; only those in Set mean anything.
type Details struct {
	Set                                                    DetailSet
	Earliest, Latest, LastSequence, ResumeAt, Limit, Index uint64
	Shard                                                  uint32
}

// DetailSet is a bit set of details: bit n for Detail n.
type DetailSet uint16

// Has reports whether d is in the set.
func (s DetailSet) Has(d Detail) bool { return d <= LastDetail && s&(1<<d) != 0 }

// Get returns the value of k and whether it is present.
func (d *Details) Get(k Detail) (uint64, bool) {
	if !d.Set.Has(k) {
		return 0, false
	}
	switch k {
	case DetailEarliest:
		return d.Earliest, true
	case DetailLatest:
		return d.Latest, true
	case DetailLastSequence:
		return d.LastSequence, true
	case DetailResumeAt:
		return d.ResumeAt, true
	case DetailLimit:
		return d.Limit, true
	case DetailShard:
		return uint64(d.Shard), true
	case DetailIndex:
		return d.Index, true
	}
	return 0, false
}

// Put sets k to v. A detail that this build does not know is left out: details inform, nothing hangs
// on them, so a newer peer may send more of them.
func (d *Details) Put(k Detail, v uint64) {
	switch k {
	case DetailEarliest:
		d.Earliest = v
	case DetailLatest:
		d.Latest = v
	case DetailLastSequence:
		d.LastSequence = v
	case DetailResumeAt:
		d.ResumeAt = v
	case DetailLimit:
		d.Limit = v
	case DetailShard:
		d.Shard = uint32(v)
	case DetailIndex:
		d.Index = v
	default:
		return
	}
	d.Set |= 1 << k
}

// Len returns how many details are present.
func (d *Details) Len() int { return bits.OnesCount16(uint16(d.Set)) }
