// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"

	"margay.dev/wire/batch"
)

// Why a batch is not the one that comes next.
var (
	// ErrOrder means a sequence, offset, generation, append time or flushed length that contradicts the batch before it.
	ErrOrder = errors.New("does not follow the batch before it")
	// ErrCheckpoint means a part of a checkpoint where none belongs, or another batch before the checkpoint is complete.
	ErrCheckpoint = errors.New("checkpoint is not where or what it must be")
)

// Cursor is the end of a run of batches and the one place that says what may come next. Appending and scanning share
// it, so what may be written is exactly what can be read again.
type Cursor struct {
	Sequence   uint64 // of the batch that comes next; also the length
	Offset     uint64 // of the record that comes next
	Generation uint64 // of the last batch
	AppendTime int64  // of the last batch

	// Fresh means that the next batch is the first that is known of this run: only its sequence is checked.
	Fresh bool
	// part and parts say how far a checkpoint has come; parts is 0 while none is open.
	part, parts uint32
}

// InCheckpoint reports whether a checkpoint has begun and is not complete. Until it is, its segment counts for nothing.
func (c *Cursor) InCheckpoint() bool { return c.parts != 0 }

// Accept steps over a batch that CheckStored has passed, or says why it cannot come next and stays where it is.
func (c *Cursor) Accept(b batch.Batch) error {
	if b.Sequence() != c.Sequence {
		return fmt.Errorf("sequence %d where %d comes next: %w", b.Sequence(), c.Sequence, ErrOrder)
	}
	if b.Flushed() > b.Sequence() {
		return fmt.Errorf("batch %d says that %d were flushed: %w", b.Sequence(), b.Flushed(), ErrOrder)
	}
	if b.NextOffset() < b.BaseOffset() {
		return fmt.Errorf("batch %d: offsets leave 64 bits: %w", b.Sequence(), ErrOrder)
	}
	if !c.Fresh {
		switch {
		case b.BaseOffset() != c.Offset:
			return fmt.Errorf("batch %d: base offset %d where %d comes next: %w", b.Sequence(), b.BaseOffset(), c.Offset, ErrOrder)
		case b.Generation() < c.Generation:
			return fmt.Errorf("batch %d: generation %d behind %d: %w", b.Sequence(), b.Generation(), c.Generation, ErrOrder)
		case b.AppendTime() < c.AppendTime:
			return fmt.Errorf("batch %d: append time %d before %d: %w", b.Sequence(), b.AppendTime(), c.AppendTime, ErrOrder)
		}
	}
	part, parts, err := c.checkpoint(b)
	if err != nil {
		return err
	}
	*c = Cursor{
		Sequence: b.Sequence() + 1, Offset: b.NextOffset(), Generation: b.Generation(), AppendTime: b.AppendTime(),
		part: part, parts: parts,
	}
	return nil
}

// checkpoint returns how far the open checkpoint has come with b.
func (c *Cursor) checkpoint(b batch.Batch) (part, parts uint32, err error) {
	if !b.IsCheckpoint() {
		if c.parts != 0 {
			return 0, 0, fmt.Errorf("batch %d: comes before the checkpoint is complete: %w", b.Sequence(), ErrCheckpoint)
		}
		return 0, 0, nil
	}
	p, ok := b.CheckpointPart()
	switch {
	case !ok:
		return 0, 0, fmt.Errorf("batch %d: does not say which part of a checkpoint it is: %w", b.Sequence(), ErrCheckpoint)
	case b.IsCheckpointStart() != (c.parts == 0), p.Index != c.part, c.parts != 0 && p.Total != c.parts:
		return 0, 0, fmt.Errorf("batch %d: checkpoint part %d of %d where part %d comes next: %w",
			b.Sequence(), p.Index, p.Total, c.part, ErrCheckpoint)
	case p.Last():
		return 0, 0, nil
	}
	return p.Index + 1, p.Total, nil
}
