// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"bytes"
	"slices"
	"time"
)

// Record is one record. A nil Key means none; a nil Value is a tombstone, which differs from an empty value.
type Record struct {
	Key       []byte
	Value     []byte
	Headers   []Header
	Timestamp int64         // Unix microseconds, the producer's
	Delay     time.Duration // from the append time; 0 = at once. Whole microseconds, rounded up
	TTL       time.Duration // from the append time; 0 = for ever; must be above Delay
	Priority  uint8         // 0 to MaxPriority; what is higher is handed out first
}

// Header is a named value beside a record. A nil Value is an empty one.
type Header struct {
	Key   string
	Value []byte
}

// Clone copies everything that a Reader lends only until its next record.
func (r Record) Clone() Record {
	r.Key = bytes.Clone(r.Key)
	r.Value = bytes.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}

// Record flags: the first byte of a record's meta.
const (
	flagKey = 1 << iota
	flagNull
	flagHeaders
	flagDelay
	flagTTL
	flagPriority
	knownFlags = 1<<iota - 1
)

// micros turns a schedule into wire units; ok is false when it is out of range. It rounds up: rounding a tiny
// positive duration down to 0 would turn "for a moment" into "for ever".
func micros(d time.Duration) (us uint64, ok bool) {
	if d < 0 || d > MaxSchedule {
		return 0, false
	}
	return uint64((d + time.Microsecond - 1) / time.Microsecond), true
}
