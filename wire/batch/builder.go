// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"fmt"

	"margay.dev/wire/internal/compress"
)

// keepBuffer is the capacity a builder keeps over Reset even when it was hardly used: one large record must not
// pin megabytes in every publisher for ever.
const keepBuffer = 512 << 10

// Builder collects records and lays them out as a batch. It is reusable and not safe for concurrent use.
type Builder struct {
	lim        Limits
	meta       []byte
	body       []byte
	settlement []byte
	packed     []byte
	count      int
	first      int64

	scheduled, dedup bool // what the attributes will say of the records
}

// NewBuilder returns a builder that refuses what a broker with these limits would refuse.
func NewBuilder(lim Limits) *Builder { return &Builder{lim: lim.Effective()} }

// Len is the number of records added since the last Reset.
func (b *Builder) Len() int { return b.count }

// Size is what the batch would take without compression.
func (b *Builder) Size() int { return HeaderSize + len(b.settlement) + len(b.meta) + len(b.body) }

// Reset forgets all records and keeps the buffers.
func (b *Builder) Reset() {
	b.meta, b.body, b.packed = reuse(b.meta), reuse(b.body), reuse(b.packed)
	b.settlement = reuse(b.settlement)
	b.count, b.first, b.scheduled, b.dedup = 0, 0, false, false
}

func reuse(p []byte) []byte {
	if cap(p) > keepBuffer && len(p) < cap(p)/4 {
		return nil
	}
	return p[:0]
}

// Add copies the record into the batch. On an error nothing of it remains: ErrFull when a fresh batch would take
// it, ErrTooLarge when none would, ErrSchedule, ErrTimestamp, ErrDedup or ErrPriority when it contradicts itself. A record with a dedup
// id is alone in its batch: it meets ErrFull when there is another, and the next one meets it.
func (b *Builder) Add(r Record) error {
	headers := headersSize(r.Headers)
	if err := b.checkRecord(&r, headers); err != nil {
		return err
	}
	delay, delayOK := micros(r.Delay)
	ttl, ttlOK := micros(r.TTL)
	if !delayOK || !ttlOK || ttl > 0 && ttl <= delay {
		return fmt.Errorf("add record with delay %v and TTL %v: %w", r.Delay, r.TTL, ErrSchedule)
	}
	first := b.first
	if b.count == 0 {
		first = r.Timestamp
	}
	delta := r.Timestamp - first
	if (delta > 0) != (r.Timestamp > first) && delta != 0 {
		return fmt.Errorf("add record with timestamp %d behind %d: %w", r.Timestamp, first, ErrTimestamp)
	}
	dedup := hasDedupID(r.Headers)
	if b.count >= b.lim.Records || b.dedup || dedup && b.count > 0 {
		return ErrFull
	}
	before := len(b.meta)
	b.meta = appendMeta(b.meta, &r, delta, delay, ttl, headers)
	if b.Size()+headers+len(r.Value) > b.lim.Batch {
		alone := HeaderSize + len(b.settlement) + len(b.meta) - before + headers + len(r.Value)
		b.meta = b.meta[:before]
		if alone > b.lim.Batch {
			return fmt.Errorf("add record: %d bytes encoded, a batch takes %d: %w", alone, b.lim.Batch, ErrTooLarge)
		}
		return ErrFull
	}
	if headers > 0 {
		b.body = appendHeaders(b.body, r.Headers)
	}
	b.body = append(b.body, r.Value...)
	b.first = first
	b.scheduled = b.scheduled || delay|ttl|uint64(r.Priority) != 0
	b.dedup = dedup
	b.count++
	return nil
}

func (b *Builder) checkRecord(r *Record, headers int) error {
	switch {
	case len(r.Key) > b.lim.Key:
		return fmt.Errorf("add record: key of %d bytes, at most %d: %w", len(r.Key), b.lim.Key, ErrTooLarge)
	case len(r.Headers) > b.lim.Headers:
		return fmt.Errorf("add record: %d headers, at most %d: %w", len(r.Headers), b.lim.Headers, ErrTooLarge)
	case headers > b.lim.HeaderBytes:
		return fmt.Errorf("add record: headers of %d bytes, at most %d: %w", headers, b.lim.HeaderBytes, ErrTooLarge)
	case len(r.Key)+headers+len(r.Value) > b.lim.Record:
		return fmt.Errorf("add record: %d bytes, at most %d: %w", len(r.Key)+headers+len(r.Value), b.lim.Record, ErrTooLarge)
	}
	if r.Priority > MaxPriority {
		return fmt.Errorf("add record: priority %d, at most %d: %w", r.Priority, MaxPriority, ErrPriority)
	}
	if hasDedupID(r.Headers) && len(b.settlement) > 0 {
		return fmt.Errorf("add record with a dedup id to a batch that settles messages: %w", ErrSettlement)
	}
	if hasDedupID(r.Headers) && !validDedupID(len(r.Headers[0].Value)) {
		return fmt.Errorf("add record: dedup id of %d bytes: %w", len(r.Headers[0].Value), ErrDedup)
	}
	return nil
}

func appendMeta(dst []byte, r *Record, delta int64, delay, ttl uint64, headers int) []byte {
	at := len(dst)
	dst = appendVarint(append(dst, 0), delta)
	var flags byte
	if r.Key != nil {
		flags |= flagKey
		dst = append(appendUvarint(dst, uint64(len(r.Key))), r.Key...)
	}
	if delay > 0 {
		flags |= flagDelay
		dst = appendUvarint(dst, delay)
	}
	if ttl > 0 {
		flags |= flagTTL
		dst = appendUvarint(dst, ttl)
	}
	if r.Priority > 0 {
		flags |= flagPriority
		dst = append(dst, r.Priority)
	}
	if r.Value == nil {
		flags |= flagNull
	} else {
		dst = appendUvarint(dst, uint64(len(r.Value)))
	}
	if headers > 0 {
		flags |= flagHeaders
		dst = appendUvarint(dst, uint64(headers))
	}
	dst[at] = flags
	return dst
}

// Build returns the batch as a producer sends it, in fresh memory that the caller owns: it is kept in flight
// while the builder fills the next one. The records stay until Reset. A body that does not shrink is sent plain, and
// so is one with a dedup id, which the leader must be able to read.
func (b *Builder) Build(producerID, producerSeq uint64, compression Compression) (Batch, error) {
	return b.BuildTo(nil, producerID, producerSeq, compression)
}

// BuildTo is Build into buf, if that is large enough; otherwise what it makes has some room for the next time.
func (b *Builder) BuildTo(buf []byte, producerID, producerSeq uint64, compression Compression) (Batch, error) {
	if b.count == 0 {
		return nil, fmt.Errorf("build batch without records: %w", ErrCount)
	}
	if (producerID == 0) != (producerSeq == 0) {
		return nil, fmt.Errorf("build batch of producer %d, sequence %d: %w", producerID, producerSeq, ErrProducer)
	}
	if b.dedup && compression == Zstd {
		compression = None
	}
	body, attributes, err := pack(&b.packed, b.body, compression)
	if err != nil {
		return nil, err
	}
	if b.scheduled {
		attributes |= AttrScheduled
	}
	if b.dedup {
		attributes |= AttrDedup
	}
	if len(b.settlement) > 0 {
		attributes |= AttrSettlement
	}
	out := lay(buf, b.settlement, b.meta, body)
	out.seal(produced{
		attributes: attributes, count: b.count, producerID: producerID, producerSeq: producerSeq,
		firstTime: b.first, plainSize: len(b.body), metaSize: len(b.settlement) + len(b.meta),
	})
	return out, nil
}

// pack returns the body as it goes into a batch, and the attribute that says so. What does not shrink stays plain.
func pack(scratch *[]byte, body []byte, compression Compression) ([]byte, Attr, error) {
	switch compression {
	case None:
		return body, compressionNone, nil
	case Zstd:
		var ok bool
		if *scratch, ok = compress.Zstd((*scratch)[:0], body); ok && len(*scratch) < len(body) {
			return *scratch, compressionZstd, nil
		}
		return body, compressionNone, nil
	}
	return nil, 0, fmt.Errorf("build batch with compression %d: %w", compression, ErrAttributes)
}

// lay puts settlement, meta and body behind an empty header.
func lay(buf, settlement, meta, body []byte) Batch {
	out := room(buf, HeaderSize+len(settlement)+len(meta)+len(body))
	clear(out[:HeaderSize])
	at := HeaderSize + copy(out[HeaderSize:], settlement)
	at += copy(out[at:], meta)
	copy(out[at:], body)
	return out
}

// room is n bytes, of buf where it has them.
func room(buf []byte, n int) Batch {
	switch {
	case cap(buf) >= n:
		return buf[:n]
	case buf == nil:
		return make(Batch, n)
	}
	return make(Batch, n, n+n/4)
}
