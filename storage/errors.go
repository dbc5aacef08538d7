// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"

	"margay.dev/storage/segment"
	"margay.dev/storage/vfs"
)

var (
	// ErrPoisoned means that a flush failed, so nobody knows what of the unflushed tail the disk holds: outcome unknown.
	// The log takes no more writes until it is opened again.
	ErrPoisoned = errors.New("log is closed for writing after a failed flush")
	// ErrFull means that there is no room. Nothing of the refused batches remains, and the same append may succeed later.
	ErrFull = vfs.ErrFull
	// ErrDropped means that the batches were removed by retention.
	ErrDropped = errors.New("removed by retention")
	// ErrOutOfRange means a sequence or an offset beyond the end of the log.
	ErrOutOfRange = errors.New("beyond the end of the log")
	// ErrOrder means batches that do not follow the tail.
	ErrOrder = segment.ErrOrder
	// ErrCheckpoint means a part of a checkpoint in the wrong place, or something else where one must be.
	ErrCheckpoint = segment.ErrCheckpoint
	// ErrNewerFormat means files of a newer release, which this one must neither read nor cut.
	ErrNewerFormat = segment.ErrNewer
	// ErrForeign means a file or directory that belongs to another log, shard, node or cluster.
	ErrForeign = errors.New("belongs to another")
	// ErrNotExist means that there is no log in the directory.
	ErrNotExist = vfs.ErrNotExist
	// ErrExist means that there is one already.
	ErrExist = vfs.ErrExist
	// ErrClosed means that the log was closed.
	ErrClosed = errors.New("log is closed")
	// ErrInvalid means options or arguments that can never be right.
	ErrInvalid = errors.New("invalid")
)

// CorruptError means that bytes which were flushed are not those that were written. The shard's copy is damaged; its
// files have not been changed.
type CorruptError struct {
	File     string
	Pos      int64  // byte position in the file
	Sequence uint64 // of the batch that should be there
	Offset   uint64 // that it should begin with
	Reason   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("damaged %s at byte %d: sequence %d, offset %d: %s", e.File, e.Pos, e.Sequence, e.Offset, e.Reason)
}

// GapError means that the batches asked for were given up by a repair that an operator ordered. Reading goes on at
// ToSequence and ToOffset.
type GapError struct {
	FromSequence, ToSequence uint64
	FromOffset, ToOffset     uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("sequences %d to %d, offsets %d to %d were given up by a repair", e.FromSequence, e.ToSequence, e.FromOffset, e.ToOffset)
}
