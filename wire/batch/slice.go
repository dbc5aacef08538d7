// SPDX-License-Identifier: Apache-2.0

package batch

// SliceHeaderSize is the size of a slice's fixed header.
const SliceHeaderSize = 72

// MaxSlice is the largest a slice can be: a whole batch, and the place of each record in it.
const MaxSlice = MaxBatch + 3*maxDecodeCount

const (
	sliceMagic   = 0x314c474d // "MGL1"
	sliceVersion = 1
	minSliceMeta = 1 + minRecordMeta // the place, then the record's

	// Byte positions.
	posSliceCRC        = 0
	posSliceMagic      = 4
	posSliceSize       = 8
	posSliceVersion    = 12
	posSliceReserved   = 13
	posSliceAttributes = 14
	posSliceCount      = 16
	posSliceMetaSize   = 20
	posSliceSequence   = 24
	posSliceBase       = 32
	posSliceNext       = 40
	posSliceGeneration = 48
	posSliceAppendTime = 56
	posSliceFirstTime  = 64

	opSlice      = "check slice"
	opBuildSlice = "build slice"
)

// Slice is a view over some records of one stored batch, its source, with their offsets: what goes to a subscriber that
// may not or need not see the others. The leader makes it, so the checksum is the leader's and not the producer's.
// Accessors assume that CheckSlice or BuildSlice returned it; on other bytes they may panic.
type Slice []byte

// Size is that of the whole slice in bytes.
func (s Slice) Size() int { return int(le.Uint32(s[posSliceSize:])) }

// Count is the number of records in the slice.
func (s Slice) Count() int { return int(le.Uint32(s[posSliceCount:])) }

// Sequence is that of the source.
func (s Slice) Sequence() uint64 { return le.Uint64(s[posSliceSequence:]) }

// BaseOffset is that of the source: the slice speaks for the offsets from here to NextOffset, also for those that it
// does not hold.
func (s Slice) BaseOffset() uint64 { return le.Uint64(s[posSliceBase:]) }

// NextOffset is that of the source.
func (s Slice) NextOffset() uint64 { return le.Uint64(s[posSliceNext:]) }

// Generation is that of the source.
func (s Slice) Generation() uint64 { return le.Uint64(s[posSliceGeneration:]) }

// AppendTime is that of the source, in Unix microseconds: delay and time to live of the records count from it.
func (s Slice) AppendTime() int64 { return int64(le.Uint64(s[posSliceAppendTime:])) }

// FirstTimestamp is that of the source's first record, which need not be in the slice.
func (s Slice) FirstTimestamp() int64 { return int64(le.Uint64(s[posSliceFirstTime:])) }

// IsExpired reports whether the source is of tombstones of keys whose time to live ended.
func (s Slice) IsExpired() bool { return Attr(le.Uint16(s[posSliceAttributes:]))&AttrExpired != 0 }

func (s Slice) metaSize() int { return int(le.Uint32(s[posSliceMetaSize:])) }

func (s Slice) meta() []byte { return s[SliceHeaderSize : SliceHeaderSize+s.metaSize()] }

func (s Slice) body() []byte { return s[SliceHeaderSize+s.metaSize() : s.Size()] }

func (s Slice) span() int { return int(s.NextOffset() - s.BaseOffset()) }

// CheckSlice checks checksum and header of the slice that begins at b, and returns exactly its bytes; what follows them
// is left to the caller. As CheckStored it does not walk the records: whoever reads them meets what is wrong there.
func CheckSlice(b []byte) (Slice, error) {
	if len(b) < SliceHeaderSize {
		return nil, fault(opSlice, len(b), ErrShort)
	}
	if le.Uint32(b[posSliceMagic:]) != sliceMagic {
		return nil, fault(opSlice, posSliceMagic, ErrMagic)
	}
	if b[posSliceVersion] != sliceVersion {
		return nil, fault(opSlice, posSliceVersion, ErrVersion)
	}
	switch size := le.Uint32(b[posSliceSize:]); {
	case size < SliceHeaderSize || size > MaxSlice:
		return nil, fault(opSlice, posSliceSize, ErrSize)
	case uint64(size) > uint64(len(b)):
		return nil, fault(opSlice, len(b), ErrShort)
	default:
		b = b[:size:size]
	}
	s := Slice(b)
	if checksum(s[posSliceMagic:]) != le.Uint32(s[posSliceCRC:]) {
		return nil, fault(opSlice, posSliceCRC, ErrChecksum)
	}
	if pos, err := s.checkHeader(); err != nil {
		return nil, fault(opSlice, pos, err)
	}
	return s, nil
}

func (s Slice) checkHeader() (int, error) {
	meta, count := uint64(le.Uint32(s[posSliceMetaSize:])), uint64(le.Uint32(s[posSliceCount:]))
	span := s.NextOffset() - s.BaseOffset()
	switch {
	case s[posSliceReserved] != 0 || Attr(le.Uint16(s[posSliceAttributes:]))&^AttrExpired != 0:
		return posSliceReserved, ErrAttributes
	case meta > uint64(len(s)-SliceHeaderSize) || s.IsExpired() && meta < uint64(len(s)-SliceHeaderSize):
		return posSliceMetaSize, ErrSize
	case s.NextOffset() < s.BaseOffset() || span > maxDecodeCount:
		return posSliceNext, ErrSlice
	case count == 0 || count > span || count*minSliceMeta > meta:
		return posSliceCount, ErrCount
	}
	return 0, nil
}

// sealing is what the header of a slice says.
type sealing struct {
	attributes            Attr
	count, metaSize       int
	sequence, base, next  uint64
	generation            uint64
	appendTime, firstTime int64
}

// seal writes the header of a slice whose meta and body already stand behind it.
func (s Slice) seal(h sealing) {
	clear(s[:SliceHeaderSize])
	le.PutUint32(s[posSliceMagic:], sliceMagic)
	le.PutUint32(s[posSliceSize:], uint32(len(s)))
	s[posSliceVersion] = sliceVersion
	le.PutUint16(s[posSliceAttributes:], uint16(h.attributes))
	le.PutUint32(s[posSliceCount:], uint32(h.count))
	le.PutUint32(s[posSliceMetaSize:], uint32(h.metaSize))
	le.PutUint64(s[posSliceSequence:], h.sequence)
	le.PutUint64(s[posSliceBase:], h.base)
	le.PutUint64(s[posSliceNext:], h.next)
	le.PutUint64(s[posSliceGeneration:], h.generation)
	le.PutUint64(s[posSliceAppendTime:], uint64(h.appendTime))
	le.PutUint64(s[posSliceFirstTime:], uint64(h.firstTime))
	le.PutUint32(s[posSliceCRC:], checksum(s[posSliceMagic:]))
}
