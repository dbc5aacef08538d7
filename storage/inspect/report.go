// SPDX-License-Identifier: Apache-2.0

// Package inspect reads the directory of a shard offline and says precisely what is in it and what is wrong: it changes
// nothing, except that Repair, which demands that the loss is accepted, first sets aside everything it is going to change.
package inspect

import (
	"fmt"

	"margay.dev/storage"
	"margay.dev/storage/segment"
	"margay.dev/wire/batch"
)

// Severity says what a problem means for the shard.
type Severity uint8

// The severities, mildest first.
const (
	Derived Severity = iota // an index, which the next start makes again
	Torn                    // the remains of a write that was never acknowledged as flushed, which the next start cuts
	Damage                  // flushed data is damaged: the shard does not open
	Unknown                 // a file of a newer release or of another log: nothing here may be changed
)

func (s Severity) String() string {
	switch s {
	case Derived:
		return "derived"
	case Torn:
		return "torn tail"
	case Damage:
		return "damage"
	case Unknown:
		return "unknown format or foreign"
	}
	return fmt.Sprintf("severity %d", uint8(s))
}

// Problem is one thing that is wrong.
type Problem struct {
	Severity Severity
	File     string
	Pos      int64  // where in the file it begins
	Sequence uint64 // of the batch that should be there
	Offset   uint64 // that it should begin with
	Reason   string
	Remedy   string // what happens to it, or what a repair would cut
}

func (p Problem) String() string {
	return fmt.Sprintf("%s: %s at byte %d, sequence %d, offset %d: %s; %s", p.Severity, p.File, p.Pos, p.Sequence, p.Offset, p.Reason, p.Remedy)
}

// Segment is one segment file.
type Segment struct {
	File    string
	Summary segment.Summary // of its sound run of batches; Size is where that ends
	Bytes   int64           // of the file
	// The counts are known when the segment was read as a whole.
	Read       bool
	Batches    int
	Records    uint64 // with offsets, Expired of them the leader's tombstones of keys whose time to live ended
	Expired    uint64
	Carried    uint64 // written again, without offsets of this segment
	Checkpoint int64  // bytes of the checkpoint that it opens with
	Index      string // "right", "missing", "wrong", "none" of the newest
}

// Report is what a directory holds.
type Report struct {
	Dir      string
	ID       batch.LogID
	Shard    uint32
	Segments []Segment // oldest first
	Gaps     []storage.Gap
	Problems []Problem // oldest segment first
	// Sound says that nothing is damaged or unknown; what is torn or derived the next start repairs.
	Sound bool
}

// Options of reading a directory.
type Options struct {
	// Quick reads of a sealed segment only its header, its index and its last batch, as a start does.
	Quick bool
	// Visit, when set, gets every sound batch, also those behind damage. Its bytes are valid during the call. Not with
	// Quick.
	Visit func(file string, pos int64, b batch.Batch) error
	// Progress, when set, is called from time to time with the bytes that were read and those that there are.
	Progress func(done, total int64)
}
