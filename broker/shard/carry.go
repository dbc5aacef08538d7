// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"math"
	"time"

	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	// reclaimShare is how many times its live records a log may take before its head is reclaimed. What is carried
	// meanwhile comes on top, so that the whole stays below three times.
	reclaimShare = 2
	carriedBatch = 16 << 10         // keys and values of a carried batch; one record may be larger
	reclaimPause = 10 * time.Second // after all that lives was carried once and next to nothing was given up
)

// ReclaimHead asks for the live records of the head of the log, up to the segment that begins at To, to be carried: read
// them in order, hand them over with Carry, and then move the start with Carried.
type ReclaimHead struct {
	From, To LogStart
	Bytes    int64 // that the head takes
	// Expired: give it up unless at least half of what it holds has expired by AsOf (us).
	Expired bool
	AsOf    int64
}

// Carry writes live records again behind the end, so that the segments that hold them can go.
type Carry struct {
	Records  []batch.Carried
	Sequence []uint64 // where each lies now, in the order of Records
	To       any      // answered when what is carried is committed; the ack's Count says how many were still live
}

// Carried ends the reclaiming of a head. Err says that it was given up; otherwise all that was live in it is carried and
// committed, and the log may begin behind it.
type Carried struct {
	Head    ReclaimHead
	Carried int64 // bytes
	Err     error
	Again   time.Duration // until another head is looked at, with Err; 0: a second
}

func (*Carry) shardEvent()  {}
func (Carried) shardEvent() {}

// reclaimHead begins the reclaiming of the oldest segment, when the log takes too much for what is live in it. One
// segment at a time, never the newest.
func (c *Core) reclaimHead(now int64, segments []Segment, eff *Effects) {
	if !c.cfg.KeepNewest || !c.keys.ready() || c.reclaiming || c.lost != nil || len(segments) < 2 || now < c.reclaimAt || len(c.moves) > 0 {
		return
	}
	var total int64
	for _, s := range segments {
		total += s.Bytes
	}
	live := c.keys.index.LiveBytes()
	crowded := c.cfg.MaxBytes > 0 && total > c.cfg.MaxBytes && total > live+2*c.cfg.SegmentBytes // in memory
	if total <= reclaimShare*live+c.cfg.SegmentBytes && !crowded {
		return
	}
	head, next := segments[0], segments[1]
	if next.BaseSequence > c.mark || next.BaseSequence <= c.start.Sequence {
		return
	}
	c.reclaiming = true
	eff.Reclaim = &ReclaimHead{From: c.start, To: LogStart{next.BaseSequence, next.BaseOffset}, Bytes: head.Bytes}
}

// carry appends what is still live of the records that are to be carried. That is decided here, in the order of appends:
// a record that was written anew, or deleted, a moment ago would come back from the dead when the log is read again. The
// answer waits for all that is pending, for what was left out rests on it.
func (c *Core) carry(now int64, ev *Carry, eff *Effects) {
	if c.lost != nil || !c.keys.ready() && !c.cfg.KeepUnsettled {
		err := c.lost
		if err == nil {
			err = code.New(code.Opening, "the shard does not know its keys").Retry(keysSoon)
		}
		eff.Answers = append(eff.Answers, Answer{To: ev.To, Err: err})
		return
	}
	live := ev.Records[:0]
	for i := range ev.Records {
		r := &ev.Records[i]
		if c.isLive(r, ev.Sequence[i]) {
			live = append(live, *r)
		}
	}
	batches, err := carriedBatches(live)
	if err != nil {
		eff.Answers = append(eff.Answers, Answer{To: ev.To, Err: code.New(code.Internal, "the records cannot be carried: %w", err)})
		return
	}
	for _, b := range batches {
		c.rollFor(now, int64(b.Size()), eff)
		c.open(now, eff)
		c.append(now, entry{batch: b}, eff)
		c.appended(now, b)
	}
	a := Answer{To: ev.To, Ack: Ack{Count: uint32(len(live)), Generation: c.cfg.Generation}}
	if c.length == 0 {
		eff.Answers = append(eff.Answers, a)
		return
	}
	c.answerBehind(c.length-1, a, eff)
}

// isLive says whether a record that lies in the batch of this sequence is one that the log has to keep.
func (c *Core) isLive(r *batch.Carried, sequence uint64) bool {
	if c.cfg.KeepUnsettled {
		place := c.places.Place(r.Offset)
		if c.groups.Len() == 0 && r.TTL > 0 && r.AppendTime+r.TTL.Microseconds() <= c.lastAppend {
			return false
		}
		return c.needed(r.Offset) && (place == sequence || place == 0 && r.Offset >= c.start.Offset)
	}
	n, known := c.keys.newest(r.Key)
	return known && !n.gone && n.Offset == r.Offset && n.Sequence == sequence
}

// carriedBatches puts records into batches that are small: whoever looks up one of their keys reads the whole batch.
func carriedBatches(records []batch.Carried) (out []batch.Batch, err error) {
	for len(records) > 0 {
		n, size := 0, 0
		for n < len(records) && (n == 0 || size+carriedSize(&records[n]) <= carriedBatch) {
			size += carriedSize(&records[n])
			n++
		}
		b, err := batch.BuildCarried(records[:n], batch.None)
		if err != nil {
			return nil, err
		}
		out, records = append(out, b), records[n:]
	}
	return out, nil
}

func carriedSize(r *batch.Carried) int { return len(r.Key) + len(r.Value) }

// carried moves the start behind a head that holds nothing live any more.
func (c *Core) carried(now int64, ev Carried, eff *Effects) {
	c.reclaiming = false
	switch {
	case ev.Err != nil:
		c.reclaimAt = now + max(ev.Again, time.Second).Microseconds()
		return
	case c.lost != nil || ev.Head.From != c.start: // it was read from another beginning
		return
	}
	// Behind a head in which everything lives there may be one of garbage, but not for ever.
	c.inVain += ev.Carried
	switch {
	case ev.Carried <= ev.Head.Bytes/8*7:
		c.inVain = 0
	case c.inVain > 2*c.liveBytes():
		c.inVain, c.reclaimAt = 0, now+reclaimPause.Microseconds()
	}
	c.moveStart(now, ev.Head.To, ByLiveness, eff)
}

// liveBytes is about what the records take that the log has to keep.
func (c *Core) liveBytes() int64 {
	switch {
	case c.cfg.KeepUnsettled:
		return c.places.bytes
	case c.keys.ready():
		return c.keys.index.LiveBytes()
	}
	return math.MaxInt64 / 4
}

// Live says whether the record of a key that lies at this offset and sequence is one that has to be carried, as far as
// is committed. One that has expired is, until its tombstone is there: whoever watches is owed that.
func Live(x *keyindex.Index, key []byte, offset, sequence uint64) bool {
	e, ok := x.Get(key)
	return ok && e.Offset == offset && e.Sequence == sequence
}
