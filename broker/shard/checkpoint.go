// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"

	"margay.dev/wire/batch"
)

// checkpoint opens a new segment with the state after every batch before it, pending ones too: it lies in
// the log and is cut with them.
func (c *Core) checkpoint(now int64, eff *Effects) {
	producers := c.producers.entries()
	entries := make([]batch.Entry, 0, len(producers)+2)
	start := c.pendingStart()
	entries = append(entries, c.gens.entry(), batch.LogStart{Sequence: start.Sequence, Offset: start.Offset})
	for _, p := range producers {
		entries = append(entries, p)
	}
	entries = append(append(entries, c.cursors.entries()...), c.lasts.entries()...)
	entries = append(entries, c.dedups.entries()...)
	entries = append(entries, c.groups.Entries()...)
	for _, b := range batch.BuildCheckpoint(entries...) {
		c.append(now, entry{batch: b}, eff)
	}
	c.needsCheckpoint = false
}

// rollFor begins a new segment when a batch of n bytes would overfill this one. The size counts after the
// checkpoint, and a segment holds a multiple of its checkpoint: a limit below its own snapshot would
// produce segments without end (RT-03).
func (c *Core) rollFor(now, n int64, eff *Effects) {
	s := c.segment
	if s.bytes > 0 && s.bytes+n > c.cfg.SegmentBytes && s.bytes >= checkpointShare*s.checkpoint {
		c.checkpoint(now, eff)
	}
}

// retain decides what retention takes away. Whole segments go, from the head, by age and by bytes, and
// never the newest: one that is past its age is rolled first, so that a quiet log expires too (RT-01) and
// its next offset stays known when every record has gone (RT-09).
func (c *Core) retain(now int64, segments []Segment, eff *Effects) {
	if c.lost != nil || len(segments) == 0 {
		return
	}
	c.dropAgain(segments, eff)
	c.rollByAge(now, eff)
	switch {
	case c.cfg.KeepNewest:
		c.reclaimHead(now, segments, eff)
		return
	case c.cfg.KeepUnsettled:
		if !c.places.ready { // what would be given up is not known yet
			return
		}
		c.reclaimSettled(now, segments, eff)
		if len(c.moves) > 0 || c.reclaiming {
			return
		}
	}
	var total int64
	for _, s := range segments {
		total += s.Bytes
	}
	start := c.pendingStart()
	for i := 0; i+1 < len(segments); i++ {
		old := c.cfg.MaxAge > 0 && now-segments[i].LastAppendTime > c.cfg.MaxAge.Microseconds()
		// What stays is at least what was asked for: a head segment goes only if the rest still fills the bound.
		if !old && (c.cfg.MaxBytes <= 0 || total-segments[i].Bytes < c.cfg.MaxBytes) {
			break
		}
		total -= segments[i].Bytes
		if next := segments[i+1]; next.BaseSequence > start.Sequence {
			start = LogStart{next.BaseSequence, next.BaseOffset}
		}
	}
	if start == c.pendingStart() || start.Sequence > c.mark {
		return
	}
	c.moveStart(now, start, ByRetention, eff)
}

// rollByAge ends a segment whose oldest batch has reached the segment age.
func (c *Core) rollByAge(now int64, eff *Effects) {
	age := c.cfg.SegmentAge
	if age <= 0 && c.cfg.MaxAge > 0 {
		age = c.cfg.MaxAge / 8
	}
	// A segment of control batches only holds nothing that could expire: it would roll for ever on an idle log.
	if age <= 0 || !c.segment.records || now-c.segment.first < age.Microseconds() {
		return
	}
	c.open(now, eff)
	c.checkpoint(now, eff)
}

// Replay rebuilds the core from one batch of the newest segment, in order, its checkpoint first. What a
// single copy holds after recovery is flushed, and therefore committed.
func (c *Core) Replay(b batch.Batch) error {
	if b.HasOffsets() {
		if id := b.ProducerID(); id != 0 && !c.endsLast(b) {
			c.producers.store(id, stored{
				sequence: b.ProducerSequence(), base: b.BaseOffset(), count: uint32(b.Count()),
				appendTime: b.AppendTime(), generation: b.Generation(),
			}, b.BaseOffset())
		}
		c.remember(b)
		if x, ok, err := b.Settlement(); err != nil {
			return fmt.Errorf("replay batch %d: %w", b.Sequence(), err)
		} else if ok {
			c.groups.ReplaySettlement(&x)
		}
	} else if b.IsControl() { // what is carried concerns the key index alone, which is made by itself
		if err := c.replayControl(b); err != nil {
			return fmt.Errorf("replay batch %d: %w", b.Sequence(), err)
		}
	}
	c.segment.grow(b)
	c.length, c.nextOffset = b.Sequence()+1, b.NextOffset()
	c.lastAppend = max(c.lastAppend, b.AppendTime())
	c.mark, c.written, c.flushed, c.ceiling = c.length, c.length, c.length, c.nextOffset
	c.cursors.commit(c.mark)
	c.lasts.commit(c.mark)
	return nil
}

// Recovered ends a replay with what the log says of its tail: an operator's repair may have left a gap
// behind the last batch, and an offset that was given is never given again.
func (c *Core) Recovered(length, nextOffset uint64, needsCheckpoint bool) {
	c.length, c.nextOffset, c.needsCheckpoint = length, nextOffset, needsCheckpoint
	c.mark, c.written, c.flushed, c.ceiling = length, length, length, nextOffset
	c.lasts.allSilent()
	c.groups.Bounds(c.start.Offset, c.ceiling)
}

func (c *Core) replayControl(b batch.Batch) error {
	entries, err := b.Entries()
	if err != nil {
		return err
	}
	if b.IsCheckpointStart() { // it replaces whatever was read before it
		c.producers = newProducers(c.cfg.MaxProducers)
		c.cursors, c.lasts = newCursors(c.cfg.MaxCursors), newLasts(c.cfg.MaxLasts)
		c.dedups = newDedups(c.cfg.DedupWindow, c.cfg.MaxDedupIDs)
		c.gens = nil
		c.groups = c.newGroups()
	}
	for _, e := range entries {
		switch e := e.(type) {
		case batch.CheckpointPart:
		case batch.Opening:
			c.gens.add(generation{e.Generation, b.Sequence(), b.BaseOffset()})
		case batch.LogStart:
			c.start = LogStart{e.Sequence, e.Offset}
		case batch.Generations:
			c.gens = nil
			for _, g := range e.Table {
				c.gens.add(generation{g.Generation, g.Sequence, g.Offset})
			}
		case batch.Producer:
			c.producers.load(e)
		case batch.Cursor:
			c.replayCursor(b.Sequence(), e)
		case batch.Last:
			if err := c.replayLast(b.Sequence(), e); err != nil {
				return err
			}
		case batch.Dedup:
			c.dedups.load(e)
		case batch.Group, batch.Settled, batch.Attempt, batch.Dead, batch.Command:
			c.replayGroups(e, b.IsCheckpoint())
		default:
			return fmt.Errorf("control entry %T: %w", e, batch.ErrUnknownEntry)
		}
	}
	return nil
}
