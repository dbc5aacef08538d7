// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"fmt"
	"math"
	"time"

	"margay.dev/wire/batch"
)

// recordOverhead is about what a record takes in its batch beside key, headers and value.
const recordOverhead = 8

// Apply lays one committed batch over the index and moves AsOf behind it. A batch below AsOf is known already and passed
// over. When it fails, nothing has changed: the batch is damaged, and so is the shard's copy of the log.
//
// A record whose time to live has ended is set like any other: what removes it is its tombstone.
func (x *Index) Apply(b batch.Batch) error {
	// A first walk before anything is changed: it finds what is damaged, and what each record's share is a share of.
	plain, err := plainSize(b)
	if err != nil {
		return fmt.Errorf("apply batch %d to key index: %w", b.Sequence(), err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if b.Sequence() < x.sequence {
		return nil
	}
	if err := each(b, plain, x.applyRecord); err != nil {
		return fmt.Errorf("apply batch %d to key index: %w", b.Sequence(), err)
	}
	x.sequence, x.offset = b.Sequence()+1, b.NextOffset()
	return nil
}

func (x *Index) applyRecord(m *batch.Meta, e Entry) {
	it := x.items.getBytes(m.Key)
	switch {
	case m.Null:
		x.removeOlder(it, e.Offset)
	case it != nil:
		x.update(it, e)
	default:
		x.insert(string(m.Key), e)
	}
}

// plainSize is the sum of what the records of a batch take.
func plainSize(b batch.Batch) (int, error) {
	metas := b.Metas()
	var m batch.Meta
	sum := 0
	for {
		ok, err := metas.Next(&m)
		if !ok || err != nil {
			return sum, err
		}
		sum += recordSize(&m)
	}
}

func recordSize(m *batch.Meta) int { return recordOverhead + len(m.Key) + m.HeadersSize + m.ValueSize }

// share is a record's part of the stored bytes of its batch, header and compression included: only so can the sum over
// what is live be compared with the sizes of files.
func share(b batch.Batch, m *batch.Meta, plain int) uint32 {
	return uint32(int64(b.Size()) * int64(recordSize(m)) / int64(plain))
}

func until(appended int64, ttl time.Duration) int64 {
	if ttl == 0 {
		return 0
	}
	us := ttl.Microseconds()
	if appended > math.MaxInt64-us {
		return math.MaxInt64
	}
	return max(1, appended+us) // 0 would be never
}
