// SPDX-License-Identifier: Apache-2.0

package client

import (
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// shardState is where a subscription stands in one shard, on both sides of the inbox. The receiving side belongs to
// the subscription's goroutine; it decides what is new, so that a resumed subscription neither repeats nor skips.
type shardState struct {
	id     uint32
	start  wire.Start // what to ask for until the broker said where that is
	placed bool
	// receive is the offset of the next record to come, received the generation of the one before it.
	receive, received uint64
	// serving is the generation of the broker's opening that serves the subscription now. What it skips is of it or older.
	serving uint64
	// With bounded, records at end and above are not for this subscription.
	end     uint64
	bounded bool
	over    bool

	// The reader's side, under Subscription.turn.
	next, generation uint64
	gap              *Gap // to be told with the next record
}

// resume is what to ask the broker for.
func (s *shardState) resume() wire.Start {
	if !s.placed {
		return s.start
	}
	return wire.Start{Shard: s.id, Kind: wire.StartOffset, At: s.receive, Generation: s.received}
}

// place takes the broker's word for where the shard begins, and with untilMark where it ends. What it says when the
// subscription resumes changes neither.
func (s *shardState) place(at wire.Started, untilMark bool) {
	if !s.placed {
		s.placed = true
		s.receive, s.received = at.Offset, at.Generation
		if s.start.Kind == wire.StartOffset && !at.Resumed {
			// The generation that the position was taken at finds a cut; the shard's present one would hide it.
			s.received = s.start.Generation
		}
		s.next, s.generation = s.receive, s.received
	}
	s.serving = at.Generation
	if untilMark && !s.bounded {
		s.bounded, s.end = true, at.Latest
		s.over = s.receive >= s.end
	}
}

// deliver takes a batch; ok is false when nothing in it is new.
func (s *shardState) deliver(b batch.Batch, size int) (e entry, ok bool) {
	if !b.HasOffsets() {
		return entry{}, false
	}
	e, ok = s.take(b.BaseOffset(), b.NextOffset(), b.Generation(), size)
	e.batch = b
	return e, ok
}

// deliverSlice takes a slice, which speaks for all offsets of its source.
func (s *shardState) deliverSlice(b batch.Slice, size int) (e entry, ok bool) {
	e, ok = s.take(b.BaseOffset(), b.NextOffset(), b.Generation(), size)
	e.slice = b
	return e, ok
}

func (s *shardState) take(base, next, generation uint64, size int) (e entry, ok bool) {
	from, to := max(base, s.receive), next
	if s.over || to <= s.receive {
		return entry{}, false
	}
	s.receive, s.received = to, generation
	if s.bounded && to >= s.end {
		to, s.over = s.end, true
	}
	if from >= to {
		return entry{}, false
	}
	return entry{kind: entryRecords, shard: s, from: from, to: to, generation: generation, cost: int64(size)}, true
}

// skip takes a range that will not come.
func (s *shardState) skip(from, to uint64, reason GapReason) (e entry, ok bool) {
	from = max(from, s.receive)
	if s.bounded {
		to = min(to, s.end)
	}
	if s.over || to <= from {
		return entry{}, false
	}
	// The generation of the last record may have ended within the gap: resumed under it, the place behind the gap would be
	// taken for one that was cut off.
	s.receive, s.received = to, max(s.received, s.serving)
	s.over = s.bounded && to >= s.end
	return entry{kind: entryGap, shard: s, from: from, to: to, reason: reason}, true
}

// progress takes the word that nothing for this subscription lies below next.
func (s *shardState) progress(next, generation uint64) (e entry, ok bool) {
	if s.over || next < s.receive || next == s.receive && generation == s.received {
		return entry{}, false
	}
	s.receive, s.received = next, generation
	if s.bounded && next >= s.end {
		next, s.over = s.end, true
	}
	return entry{kind: entryProgress, shard: s, to: next, generation: generation}, true
}

// cut goes back to at: what lay from there on is not in the log any more.
func (s *shardState) cut(at, generation uint64) (e entry, ok bool) {
	s.placeAtStart()
	from, to := at, s.receive
	s.receive, s.received = at, generation
	if from >= to {
		return entry{}, false
	}
	return entry{kind: entryGap, shard: s, from: from, to: to, reason: GapCut}, true
}

// outOfRange moves to the earliest offset there is, if the broker's word allows that; retention cannot have removed
// what was never written.
func (s *shardState) outOfRange(d *code.Details) (e entry, ok bool) {
	earliest, known := d.Get(code.DetailEarliest)
	at := s.resume()
	if !known || at.Kind != wire.StartOffset || at.At >= earliest {
		return entry{}, false
	}
	s.placeAtStart()
	s.received, s.serving = 0, 0
	return s.skip(at.At, earliest, GapRetention)
}

// placeAtStart takes the caller's word for where the shard begins, when the broker answered with an error about it.
func (s *shardState) placeAtStart() {
	if s.placed {
		return
	}
	s.placed = true
	s.receive, s.received = s.start.At, s.start.Generation
	s.next, s.generation = s.receive, s.received
}

// told merges a gap with one that no record has carried yet. Called under Subscription.turn.
func (s *shardState) told(e *entry) {
	g := &Gap{From: e.from, To: e.to, Reason: e.reason}
	if s.gap != nil {
		g.From, g.To = min(g.From, s.gap.From), max(g.To, s.gap.To)
		if s.gap.Reason == GapCut {
			g.Reason = GapCut
		}
	}
	s.gap = g
}
