// SPDX-License-Identifier: Apache-2.0

package keyindex

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"margay.dev/wire/batch"
)

// The format is docs/formats/keyindex.md.
const (
	// HeaderSize is the size of the header of a snapshot file.
	HeaderSize = 72
	// Version is the format version this release writes, and the only one it reads.
	Version = 1

	magic = "MARGAYKX"
	// blockTarget is where a block ends: behind the entry that reaches it.
	blockTarget = 64 << 10
	// maxBlock is what a decoder accepts: a block may be one entry, and a key as long as a batch.
	maxBlock = blockTarget + batch.MaxBatch + 64
	// minEntry is the size of the smallest entry: flags, shared, rest, offset, sequence, size.
	minEntry = 6

	flagCarried = 1 << 0
	flagExpires = 1 << 1
	knownFlags  = flagCarried | flagExpires
)

// Meta says what a snapshot is of. It is true of a log only if the batch before Sequence is there and of this generation:
// batches of one sequence and generation have one history before them.
type Meta struct {
	Log        batch.LogID
	Shard      uint32
	Generation uint64 // of the last batch below Sequence
	Sequence   uint64 // every batch below is in it, none at or above
	Offset     uint64 // the same in records
}

// What can be wrong with a snapshot. The answer is always to build the index from the log.
var (
	// ErrShort means that the snapshot ends too early.
	ErrShort = errors.New("key index ends too early")
	// ErrMagic means that it is none.
	ErrMagic = errors.New("this is no key index (magic does not match)")
	// ErrNewer means a version or flag of a newer release.
	ErrNewer = errors.New("version or flags are not known to this release")
	// ErrChecksum means that the bytes are not those that were written.
	ErrChecksum = errors.New("checksum does not match")
	// ErrContent means sound bytes that contradict each other: sizes, counts, or the order of keys.
	ErrContent = errors.New("sizes, counts or the order of keys do not add up")
	// ErrForeign means a snapshot of another log or shard.
	ErrForeign = errors.New("of another log or shard")
	// ErrMark means a Meta that is not of the snapshot it is written with.
	ErrMark = errors.New("the mark is not that of the snapshot")
	// ErrClosed means a snapshot that was written or closed already.
	ErrClosed = errors.New("snapshot is closed; take another")
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)
