// SPDX-License-Identifier: Apache-2.0

package shard

import "margay.dev/broker/group"

// LiveMessages are the messages of a head that are still needed: a look, which the ordered append does not rely on.
type LiveMessages struct {
	spans  []group.Span // of offsets, rising
	places map[uint64]uint64
}

// Has says whether the record of this offset, that lies in the batch of this sequence, is needed.
func (l *LiveMessages) Has(offset, sequence uint64, carried bool) bool {
	if carried {
		return l.places[offset] == sequence
	}
	lo, hi := 0, len(l.spans)
	for lo < hi {
		mid := (lo + hi) / 2
		if l.spans[mid].To <= offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(l.spans) && l.spans[lo].From <= offset
}

// LiveMessages looks at what a head holds that is needed.
func (c *Core) LiveMessages(head ReclaimHead) *LiveMessages {
	l := &LiveMessages{places: map[uint64]uint64{}}
	l.spans = c.groups.LiveSpans(head.From.Offset, head.To.Offset)
	c.places.rows.Scan(func(o uint64, x place) bool {
		if x.sequence >= head.From.Sequence && x.sequence < head.To.Sequence && c.needed(o) {
			l.places[o] = x.sequence
		}
		return true
	})
	return l
}

// reclaimSettled makes room in a log that keeps what is not settled. Head segments in which nothing is needed go at once; one
// that holds back much garbage behind it is carried.
func (c *Core) reclaimSettled(now int64, segments []Segment, eff *Effects) {
	if !c.places.ready || c.reclaiming || len(c.moves) > 0 || len(segments) < 2 {
		return
	}
	if c.groups.Len() == 0 {
		c.reclaimExpired(now, segments, eff)
		return
	}
	c.forgetPlaces()
	to := c.start
	n := 0
	for ; n+1 < len(segments); n++ {
		next := segments[n+1]
		if next.BaseSequence > c.mark || c.headNeeded(segments[n], next) {
			break
		}
		if next.BaseSequence > to.Sequence {
			to = LogStart{next.BaseSequence, next.BaseOffset}
		}
	}
	if to != c.start {
		c.moveStart(now, to, ByLiveness, eff)
		return
	}
	if now < c.reclaimAt || c.full {
		return
	}
	var total int64
	live := c.places.bytes
	for i, s := range segments {
		total += s.Bytes
		end := c.ceiling
		if i+1 < len(segments) {
			end = segments[i+1].BaseOffset
		}
		if records := end - s.BaseOffset; end > s.BaseOffset {
			live += int64(float64(s.Bytes) * float64(c.groups.LiveWithin(s.BaseOffset, end)) / float64(records))
		}
	}
	if total <= reclaimShare*live+c.cfg.SegmentBytes {
		return
	}
	head, next := segments[0], segments[1]
	if next.BaseSequence > c.mark || next.BaseSequence <= c.start.Sequence {
		return
	}
	c.reclaiming = true
	eff.Reclaim = &ReclaimHead{From: c.start, To: LogStart{next.BaseSequence, next.BaseOffset}, Bytes: head.Bytes}
}

// reclaimExpired has the head of a log without groups looked at: nothing but its time ends a message there.
func (c *Core) reclaimExpired(now int64, segments []Segment, eff *Effects) {
	next := segments[1]
	if now < c.reclaimAt || c.full || next.BaseSequence > c.mark || next.BaseSequence <= c.start.Sequence {
		return
	}
	c.reclaiming = true
	eff.Reclaim = &ReclaimHead{
		From: c.start, To: LogStart{next.BaseSequence, next.BaseOffset}, Bytes: segments[0].Bytes, Expired: true, AsOf: c.lastAppend,
	}
}

// headNeeded says whether a segment holds a message that is needed.
func (c *Core) headNeeded(s, next Segment) bool {
	if next.BaseOffset > s.BaseOffset && c.groups.LiveWithin(s.BaseOffset, next.BaseOffset) > 0 {
		return true
	}
	needed := false
	c.places.rows.Scan(func(_ uint64, x place) bool {
		needed = x.sequence >= s.BaseSequence && x.sequence < next.BaseSequence
		return !needed
	})
	return needed
}
