// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"
	"math"
)

// MaxOrigin is the most a carried record takes above what it took where it was first, in bytes. A record that filled its
// batch to within that of MaxBatch can become too large to be carried, and has to stay where it is.
const MaxOrigin = 30

// Carried is a record that a leader writes again before the segment that holds it goes, with the place that it was first
// given: who reads the newest record of each key finds the same version as before.
type Carried struct {
	Record
	Offset, Generation uint64
	AppendTime         int64 // Unix microseconds; delay and time to live of the record count from it
}

// BuildCarried returns an unassigned batch of these records. It takes a sequence and no offsets, and the leader gives it
// the next offset to be given as base offset. ErrTooLarge, ErrSchedule or ErrTimestamp means that the records fit no batch,
// or not one together.
func BuildCarried(records []Carried, compression Compression) (Batch, error) {
	if len(records) == 0 || len(records) > maxDecodeCount {
		return nil, fmt.Errorf("build carried batch of %d records: %w", len(records), ErrCount)
	}
	var (
		meta, body []byte
		scheduled  Attr
		first      = records[0].Timestamp
		before     int64
	)
	for i := range records {
		r := &records[i]
		delay, delayOK := micros(r.Delay)
		ttl, ttlOK := micros(r.TTL)
		if !delayOK || !ttlOK || ttl > 0 && ttl <= delay {
			return nil, fmt.Errorf("carry record with delay %v and TTL %v: %w", r.Delay, r.TTL, ErrSchedule)
		}
		if r.Priority > MaxPriority {
			return nil, fmt.Errorf("carry record with priority %d: %w", r.Priority, ErrPriority)
		}
		delta := r.Timestamp - first
		if (delta > 0) != (r.Timestamp > first) && delta != 0 {
			return nil, fmt.Errorf("carry record with timestamp %d behind %d: %w", r.Timestamp, first, ErrTimestamp)
		}
		if delay|ttl|uint64(r.Priority) != 0 {
			scheduled = AttrScheduled
		}
		headers := headersSize(r.Headers)
		meta = appendUvarint(appendUvarint(meta, r.Offset), r.Generation)
		meta = appendVarint(meta, int64(uint64(r.AppendTime)-uint64(before)))
		before = r.AppendTime
		meta = appendMeta(meta, &r.Record, delta, delay, ttl, headers)
		if size := HeaderSize + len(meta) + len(body) + headers + len(r.Value); size > MaxBatch {
			return nil, fmt.Errorf("carry %d records: %d bytes encoded, a batch takes %d: %w", i+1, size, MaxBatch, ErrTooLarge)
		}
		body = append(AppendHeaders(body, r.Headers), r.Value...)
	}
	packed, attributes, err := pack(new([]byte), body, compression)
	if err != nil {
		return nil, err
	}
	out := lay(nil, nil, meta, packed)
	out.seal(produced{
		attributes: attributes | AttrCarried | scheduled, count: len(records), firstTime: first, plainSize: len(body), metaSize: len(meta),
	})
	return out, nil
}

// origins is where a walk over a carried batch begins. A batch that has no place yet has nothing that lies below it.
func (b Batch) origins() *origins {
	if le.Uint32(b[posMagic:]) != magic {
		return &origins{end: math.MaxUint64, newest: math.MaxUint64}
	}
	return &origins{end: b.BaseOffset(), newest: b.Generation()}
}

// from reads where the next record of a carried batch was first.
func (m *Metas) from() {
	start := m.c.pos
	offset, generation := m.c.uvarint(), m.c.uvarint()
	m.time = int64(uint64(m.time) + uint64(m.c.varint()))
	if m.c.err == nil && (offset >= m.origin.end || generation > m.origin.newest) {
		m.c.pos = start
		m.c.fail(ErrCarried)
		return
	}
	m.origin.offset, m.generation = offset, generation
}

// SliceCarried makes a slice of the one record of a carried batch that was first given this offset, as it would be cut of a
// batch of that record alone: base offset, generation and append time are the record's, the sequence is that of the carried
// batch. Ok is false when the batch does not have the record.
func SliceCarried(b Batch, offset uint64) (s Slice, ok bool, err error) {
	if !b.IsCarried() {
		return nil, false, fault(opBuildSlice, posAttributes, ErrCarried)
	}
	r := b.Records()
	var rec Record
	if ok, err = r.Find(offset, &rec); err != nil || !ok {
		return nil, false, err
	}
	delay, delayOK := micros(rec.Delay)
	ttl, ttlOK := micros(rec.TTL)
	if !delayOK || !ttlOK {
		return nil, false, fault(opBuildSlice, posCount, ErrSchedule)
	}
	section := r.HeaderSection()
	out := make([]byte, SliceHeaderSize, SliceHeaderSize+2*MaxOrigin+len(rec.Key)+len(section)+len(rec.Value))
	// Its own place and its own first record: the difference to the first of the carried batch would be of no use.
	out = appendMeta(appendUvarint(out, 0), &rec, 0, delay, ttl, len(section))
	meta := len(out) - SliceHeaderSize
	out = append(append(out, section...), rec.Value...)
	s = Slice(out)
	s.seal(sealing{
		count: 1, metaSize: meta, sequence: b.Sequence(), base: offset, next: offset + 1, generation: r.Generation(),
		appendTime: r.AppendTime(), firstTime: rec.Timestamp,
	})
	return s, true, nil
}
