// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"path"

	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire/code"
)

// Trim gives up the records below offset and returns where the log begins then, which is committed.
func (s *Shard) Trim(ctx context.Context, offset uint64) (earliest uint64, err error) {
	var seq uint64
	if v := s.View(); offset > v.Start.Offset {
		// Looked up here and not on the shard's goroutine: the disk may be slow, and where a record lies does
		// not change.
		if seq, err = s.Find(offset); err != nil && !errors.Is(err, storage.ErrDropped) {
			if errors.Is(err, storage.ErrOutOfRange) {
				return 0, v.OutOfRange(offset)
			}
			return 0, ReadError(err)
		}
		if s.log.Load() == nil {
			return 0, v.OutOfRange(offset)
		}
	}
	a, err := s.Do(ctx, func(to any) shard.Event { return &shard.Trim{Offset: offset, Sequence: seq, To: to} })
	if err != nil {
		return 0, err
	}
	return a.Ack.BaseOffset, nil
}

// TrimTime gives up the records appended before t (us).
func (s *Shard) TrimTime(ctx context.Context, t int64) (earliest uint64, err error) {
	ceiling := s.View().Ceiling
	offset, err := s.FindTime(t)
	if err != nil {
		return 0, ReadError(err)
	}
	return s.Trim(ctx, min(offset, ceiling))
}

// ReadError is what a client is told of a log that cannot be read.
func ReadError(err error) *code.Error {
	if corrupt, ok := errors.AsType[*storage.CorruptError](err); ok {
		c := *corrupt
		c.File = path.Base(c.File) // a client need not know where the node keeps its files
		return code.New(code.Quarantined, "the log is damaged: %w", &c)
	}
	return code.New(code.Unavailable, "the log cannot be read: %w", err)
}
