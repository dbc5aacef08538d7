// SPDX-License-Identifier: Apache-2.0

package batch

import (
	"errors"
	"fmt"
)

// What can be wrong with encoded bytes. They come wrapped in a *FormatError that says where.
var (
	// ErrShort means that bytes are missing: the input ends before the batch does.
	ErrShort = errors.New("input ends before the batch does")
	// ErrMagic means that no batch, or no slice, begins here.
	ErrMagic = errors.New("no batch or slice begins here (magic does not match)")
	// ErrVersion means that a newer release wrote the batch.
	ErrVersion = errors.New("format version is not known to this release")
	// ErrAttributes means an attribute or record flag that is unknown or not allowed here.
	ErrAttributes = errors.New("attributes or flags are unknown or not allowed here")
	// ErrChecksum means that the bytes are not those that were written.
	ErrChecksum = errors.New("checksum does not match")
	// ErrSize means that sizes contradict each other or the absolute bounds.
	ErrSize = errors.New("sizes do not add up")
	// ErrCount means that the count of records or entries is zero or cannot fit.
	ErrCount = errors.New("count is zero or does not fit the size")
	// ErrVarint means a varint that is longer than it need be, or than 64 bits.
	ErrVarint = errors.New("varint is not in its shortest form")
	// ErrLimit means a well-formed batch that is above a configured limit.
	ErrLimit = errors.New("above the limit")
	// ErrSchedule means a delay or time to live that is negative, out of range, or lets the record
	// expire before it is due (0 < TTL <= delay); or an attribute that says otherwise than the records.
	ErrSchedule = errors.New("delay or time to live is out of range, lets the record expire before it is due, or is not what the attributes say")
	// ErrTimestamp means a timestamp that leaves 64 bits, or a first delta that is not zero.
	ErrTimestamp = errors.New("timestamp is out of range")
	// ErrProducer means a producer id without a sequence, or a sequence without an id.
	ErrProducer = errors.New("producer id and producer sequence must be set together")
	// ErrAssigned means that a producer filled the part that belongs to the leader.
	ErrAssigned = errors.New("assigned part is not empty")
	// ErrCompression means a body that does not decompress to its declared size.
	ErrCompression = errors.New("body does not decompress to its declared size")
	// ErrDedup means a dedup id that does not stand alone in its batch, or has a size that none may have.
	ErrDedup = errors.New("a dedup id has 1 to 128 bytes and stands in a batch of one record that says so")
	// ErrSlice means records of a slice that do not rise, or that its source does not have.
	ErrSlice = errors.New("records of the slice do not rise, or its source does not have them")
	// ErrCarried means a carried record whose first place is not one before its batch.
	ErrCarried = errors.New("carried record does not come from before its batch")
	// ErrSettlement means a settlement out of bounds, or beside a dedup id.
	ErrSettlement = errors.New("settlement is not one of 1 to 10000 messages of a group, or stands beside a dedup id")
	// ErrPriority means a priority that is none.
	ErrPriority = errors.New("priority is not 0 to 9, or 0 is written")
	// ErrUnknownEntry means a control entry of a newer release: the log must not be opened by this one.
	ErrUnknownEntry = errors.New("control entry is not known to this release")
	// ErrEntry means a control entry whose fields contradict each other.
	ErrEntry = errors.New("control entry contradicts itself")
)

// What Builder.Add refuses.
var (
	// ErrFull means that the record fits a batch, but not this one any more: build it, reset, add again.
	ErrFull = errors.New("batch is full")
	// ErrTooLarge means that the record is above a limit and fits no batch.
	ErrTooLarge = errors.New("record is too large")
)

// FormatError says what was being done, at which byte of the batch, and which rule was broken.
type FormatError struct {
	Op  string // "check stored batch", "read record", ...
	Pos int    // byte position within the batch or slice (within the decompressed body for its errors)
	Err error  // one of the sentinels above
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s at byte %d: %v", e.Op, e.Pos, e.Err)
}

func (e *FormatError) Unwrap() error { return e.Err }

func fault(op string, pos int, err error) error {
	return &FormatError{Op: op, Pos: pos, Err: err}
}
