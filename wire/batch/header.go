// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// HeaderSize is the size of the fixed header: the assigned part and the produced part.
const HeaderSize = assignedSize + 48

// Version is the format version this release writes, and the only one it reads.
const Version = 1

const (
	assignedSize = 48
	magic        = 0x3142474d // "MGB1"

	// Byte positions. The two checksums stand first in their part and cover the rest of it.
	posAssignedCRC  = 0
	posMagic        = 4
	posSequence     = 8
	posBaseOffset   = 16
	posGeneration   = 24
	posAppendTime   = 32
	posFlushed      = 40
	posProducedCRC  = 48
	posSize         = 52
	posVersion      = 56
	posReserved     = 57
	posAttributes   = 58
	posCount        = 60
	posProducerID   = 64
	posProducerSeq  = 72
	posFirstTime    = 80
	posPlainSize    = 88
	posMetaSize     = 92
	minRecordMeta   = 2                 // flags and timestamp delta of a tombstone
	minCarriedMeta  = 3 + minRecordMeta // origin: offset, generation, append time
	minExpiredMeta  = 1 + minRecordMeta // a key
	minControlEntry = 2                 // type and length
	compressionMask = Attr(3)
	producerMaySet  = compressionMask | AttrScheduled | AttrDedup | AttrSettlement
	knownAttributes = producerMaySet | AttrControl | AttrCheckpoint | AttrCheckpointStart | AttrCarried | AttrExpired
	compressionNone = Attr(None)
	compressionZstd = Attr(Zstd)
)

// Attr are the attribute bits of a batch; the two lowest name the compression of the body.
type Attr uint16

// Attribute bits.
const (
	AttrControl         Attr = 1 << 2
	AttrCheckpoint      Attr = 1 << 3
	AttrCheckpointStart Attr = 1 << 4
	AttrCarried         Attr = 1 << 5 // records written again by a leader, with the places they had, see Carried
	AttrSettlement      Attr = 1 << 6 // storing the batch settles messages of a group, see Settlement
	AttrScheduled       Attr = 1 << 7 // a record has a delay, a time to live or a priority
	AttrDedup           Attr = 1 << 8 // the one record has a dedup id, see DedupID
	AttrExpired         Attr = 1 << 9 // a leader's tombstones of keys whose time to live ended
)

// Compression of a body: values and headers; keys, tombstones and schedule always stay readable.
type Compression uint8

// The compressions of format version 1.
const (
	None Compression = 0
	Zstd Compression = 1
)

// Batch is a view over the bytes of one batch. Accessors assume that CheckStored, CheckProduced or Build
// returned it; on other bytes they may panic.
type Batch []byte

// Assigned is what the leader writes at append.
type Assigned struct {
	Sequence   uint64
	BaseOffset uint64
	Generation uint64
	AppendTime int64 // Unix microseconds, never below the previous batch's
	Flushed    uint64
}

// Sequence is the place of the batch in its shard, counted in batches.
func (b Batch) Sequence() uint64 { return le.Uint64(b[posSequence:]) }

// BaseOffset is the offset of the first record; of a control or carried batch, the next offset to be given.
func (b Batch) BaseOffset() uint64 { return le.Uint64(b[posBaseOffset:]) }

// Generation is that of the leader that appended the batch.
func (b Batch) Generation() uint64 { return le.Uint64(b[posGeneration:]) }

// AppendTime is when the leader appended the batch, in Unix microseconds.
func (b Batch) AppendTime() int64 { return int64(le.Uint64(b[posAppendTime:])) }

// Flushed is the highest length that the writer knew flushed when it wrote the batch.
func (b Batch) Flushed() uint64 { return le.Uint64(b[posFlushed:]) }

// Size is that of the whole batch in bytes.
func (b Batch) Size() int { return int(le.Uint32(b[posSize:])) }

// Attributes are the attribute bits.
func (b Batch) Attributes() Attr { return Attr(le.Uint16(b[posAttributes:])) }

// Count is the number of records, or of entries of a control batch.
func (b Batch) Count() int { return int(le.Uint32(b[posCount:])) }

// ProducerID is 0 when no producer stands behind the batch.
func (b Batch) ProducerID() uint64 { return le.Uint64(b[posProducerID:]) }

// ProducerSequence counts the batches of one producer from 1; 0 without a producer.
func (b Batch) ProducerSequence() uint64 { return le.Uint64(b[posProducerSeq:]) }

// FirstTimestamp is that of the first record, in Unix microseconds as the producer set it.
func (b Batch) FirstTimestamp() int64 { return int64(le.Uint64(b[posFirstTime:])) }

// PlainSize is the size of the body when it is not compressed.
func (b Batch) PlainSize() int { return int(le.Uint32(b[posPlainSize:])) }

// NextOffset is the offset after the last record; a batch without offsets takes none.
func (b Batch) NextOffset() uint64 {
	if !b.HasOffsets() {
		return b.BaseOffset()
	}
	return b.BaseOffset() + uint64(b.Count())
}

// HasOffsets reports whether the batch is one that clients see: its records have the offsets from BaseOffset on. Control
// batches have no records, and those of carried batches have the offsets they were first given.
func (b Batch) HasOffsets() bool { return b.Attributes()&(AttrControl|AttrCarried) == 0 }

// IsControl reports whether the batch holds entries instead of records. It never goes to clients.
func (b Batch) IsControl() bool { return b.Attributes()&AttrControl != 0 }

// IsCarried reports whether the records were written before and are here again because their place goes; see Carried. It
// never goes to clients.
func (b Batch) IsCarried() bool { return b.Attributes()&AttrCarried != 0 }

// IsExpired reports whether the records are the leader's tombstones of keys whose time to live ended.
func (b Batch) IsExpired() bool { return b.Attributes()&AttrExpired != 0 }

// IsCheckpoint reports whether the control batch is part of a checkpoint.
func (b Batch) IsCheckpoint() bool { return b.Attributes()&AttrCheckpoint != 0 }

// IsCheckpointStart reports whether the batch is the first of a checkpoint, and so of a segment.
func (b Batch) IsCheckpointStart() bool { return b.Attributes()&AttrCheckpointStart != 0 }

// Compressed reports whether the body must be decompressed to read values and headers.
func (b Batch) Compressed() bool { return b.Attributes()&compressionMask != compressionNone }

// Scheduled reports whether a record of the batch has a delay, a time to live or a priority: who need not look for these in
// the others need not walk their metas.
func (b Batch) Scheduled() bool { return b.Attributes()&AttrScheduled != 0 }

// Position is that of a log which ends with this batch.
func (b Batch) Position() Position {
	return Position{Generation: b.Generation(), Length: b.Sequence() + 1}
}

// Produced returns what the producer made, which never changes: equal bytes are one and the same batch. It aliases the
// batch.
func (b Batch) Produced() []byte { return b[posProducedCRC:b.Size()] }

// Assign writes the leader's part in place. The produced part, and its checksum, stay what the producer sent.
func (b Batch) Assign(a Assigned) {
	le.PutUint32(b[posMagic:], magic)
	le.PutUint64(b[posSequence:], a.Sequence)
	le.PutUint64(b[posBaseOffset:], a.BaseOffset)
	le.PutUint64(b[posGeneration:], a.Generation)
	le.PutUint64(b[posAppendTime:], uint64(a.AppendTime))
	le.PutUint64(b[posFlushed:], a.Flushed)
	le.PutUint32(b[posAssignedCRC:], checksum(b[posMagic:assignedSize]))
}

func (b Batch) metaSize() int { return int(le.Uint32(b[posMetaSize:])) }

func (b Batch) meta() []byte { return b[HeaderSize : HeaderSize+b.metaSize()] }

func (b Batch) body() []byte { return b[HeaderSize+b.metaSize() : b.Size()] }

// seal writes the produced part of a batch whose meta and body already stand behind the header.
func (b Batch) seal(p produced) {
	le.PutUint32(b[posSize:], uint32(len(b)))
	b[posVersion] = Version
	le.PutUint16(b[posAttributes:], uint16(p.attributes))
	le.PutUint32(b[posCount:], uint32(p.count))
	le.PutUint64(b[posProducerID:], p.producerID)
	le.PutUint64(b[posProducerSeq:], p.producerSeq)
	le.PutUint64(b[posFirstTime:], uint64(p.firstTime))
	le.PutUint32(b[posPlainSize:], uint32(p.plainSize))
	le.PutUint32(b[posMetaSize:], uint32(p.metaSize))
	le.PutUint32(b[posProducedCRC:], checksum(b[posSize:]))
}

type produced struct {
	attributes  Attr
	count       int
	producerID  uint64
	producerSeq uint64
	firstTime   int64
	plainSize   int
	metaSize    int
}

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }
