// SPDX-License-Identifier: Apache-2.0

package group

import (
	"math"

	"margay.dev/wire/batch"
)

// Held says why a group hands out nothing, whatever is ready.
type Held uint8

// The reasons.
const (
	HeldNot Held = iota
	HeldPaused
	HeldRanges  // too many ranges are passed above the first gap: settle what is out, or what was skipped
	HeldDead    // as many dead letters as it may have: redrive or discard some
	HeldParked  // too many messages wait for their next attempt
	HeldOpening // the shard is still learning what there is
)

// held says why nothing is handed out.
func (s *Groups) held(g *Group) Held {
	switch {
	case g.settings.Paused:
		return HeldPaused
	case g.passed.len() >= MaxRanges:
		return HeldRanges
	case len(g.dead) >= int(g.settings.MaxDead):
		return HeldDead
	case len(g.parked) >= MaxParked:
		return HeldParked
	case g.work != nil && !g.work.loaded:
		return HeldOpening
	}
	return HeldNot
}

// dispatch hands out what is ready to those who may have more, in turn.
func (s *Groups) dispatch(g *Group) {
	w := g.work
	s.promote(g)
	if len(w.consumers) == 0 || s.held(g) != HeldNot {
		w.handedAt = s.asOf
		return
	}
	for !w.idle() {
		c, n := s.nextConsumer(w)
		if c == nil {
			return
		}
		items := s.pick(g, c, n)
		if rest := n - len(items); rest > 0 {
			c.Credit.Give(rest)
		}
		if len(items) > 0 {
			w.handedAt = s.asOf
			s.fx.Hands = append(s.fx.Hands, Hand{To: c, Group: g.id, Resets: g.resets, Items: items})
		}
	}
	w.handedAt = s.asOf
}

// nextConsumer is the next that may have something, and how much.
func (s *Groups) nextConsumer(w *work) (*Consumer, int) {
	want := int(min(w.held/uint64(len(w.consumers))+1, maxChunk))
	for range w.consumers {
		c := w.consumers[w.turn%len(w.consumers)]
		w.turn = (w.turn + 1) % len(w.consumers)
		if c.starved {
			continue
		}
		if n := c.Credit.Take(want); n > 0 {
			return c, n
		}
		c.starved = true
	}
	return nil, 0
}

// promote makes ready what has become due.
func (s *Groups) promote(g *Group) {
	w := g.work
	for w.later.len() > 0 && w.later.due() <= s.asOf {
		it := w.later.pop()
		if s.stale(g, &it) {
			continue
		}
		g.put(it)
	}
}

// stale says whether an item is not outstanding any more, or stands elsewhere.
func (s *Groups) stale(g *Group, it *item) bool {
	if _, claimed := g.work.claims[it.offset]; claimed {
		return true
	}
	if !it.parked {
		return g.passed.has(it.offset)
	}
	a, ok := g.parked[it.offset]
	return !ok || a.Due > s.asOf // put off since
}

// pick claims up to n messages for a consumer.
func (s *Groups) pick(g *Group, c *Consumer, n int) []Handed {
	w := g.work
	out := make([]Handed, 0, min(uint64(n), w.held))
	for len(out) < n {
		level := w.level(s.asOf, g.settings.PriorityAge)
		if level < 0 {
			break
		}
		q := &w.ready[level]
		if q.keyFirst() {
			out = s.pickKey(g, c, q.turns.pop(), out)
			continue
		}
		it := q.front()
		switch {
		case it.turn:
			key := it.key
			q.pop()
			out = s.pickKey(g, c, key, out)
		case it.parked || it.to-it.offset == 1:
			one := *it
			q.pop()
			w.held--
			out = s.handOne(g, c, &one, out)
		default:
			out = s.handRange(g, c, q, n, out)
		}
	}
	return out
}

// level is that whose turn it is, negative when nothing is ready: the highest that has something, unless what is first of
// another has waited for too long.
func (w *work) level(now int64, age uint64) int {
	best := -1
	oldest := int64(math.MaxInt64)
	for l := levels - 1; l >= 0; l-- {
		q := &w.ready[l]
		if q.empty() {
			continue
		}
		at := q.at()
		old := age > 0 && now-at > int64(age)
		switch {
		case old && at < oldest:
			best, oldest = l, at
		case best < 0:
			best = l
		}
	}
	return best
}

// pickKey hands out the first message of a key whose turn it is.
func (s *Groups) pickKey(g *Group, c *Consumer, key uint64, out []Handed) []Handed {
	x := g.work.keys[key]
	if x == nil {
		return out
	}
	x.inTurn = false
	if g.settings.OrderByKey && x.busy > 0 {
		return out
	}
	before := len(out)
	for len(x.items) > 0 && len(out) == before {
		it := x.items[0]
		if x.items = x.items[1:]; len(x.items) == 0 {
			x.items = nil
		}
		g.work.held--
		out = s.handOne(g, c, &it, out)
	}
	switch {
	case len(x.items) > 0:
		g.giveTurn(key, x)
	case x.busy == 0:
		delete(g.work.keys, key)
	}
	return out
}

// handOne claims a message, unless its time has ended, or it is not outstanding any more.
func (s *Groups) handOne(g *Group, c *Consumer, it *item, out []Handed) []Handed {
	if s.stale(g, it) {
		return out
	}
	if it.expires != 0 && it.expires <= s.asOf {
		s.expired = append(s.expired, expiredMessage{g, *it})
		return out
	}
	h := g.claim(c, it, s.asOf)
	h.Sequence = s.placeOf(it.offset)
	g.handed.add(it.offset, it.offset+1)
	return append(out, h)
}

// handRange claims the first of a range of messages that differ in nothing.
func (s *Groups) handRange(g *Group, c *Consumer, q *fifo, n int, out []Handed) []Handed {
	it := q.front()
	skip := func(to uint64) {
		to = min(to, it.to)
		g.work.held -= to - it.offset
		it.offset = to
		if it.offset == it.to {
			q.pop()
		}
	}
	passed := g.passed.next(it.offset)
	if passed == it.offset {
		skip(g.passed.gap(it.offset))
		return out
	}
	to := min(it.to, passed, it.offset+uint64(n-len(out)))
	from := it.offset
	for o := from; o < to; o++ {
		one := *it
		one.offset, one.to = o, o+1
		h := g.claim(c, &one, s.asOf)
		h.Sequence = s.placeOf(o)
		out = append(out, h)
	}
	g.handed.add(from, to)
	skip(to)
	return out
}

func (s *Groups) placeOf(offset uint64) uint64 {
	if s.carried == nil || offset >= s.start {
		return 0
	}
	return s.carried.Place(offset)
}

// expiredMessage is one whose time ended before it was handed out.
type expiredMessage struct {
	group *Group
	item  item
}

// settleExpired settles what was found to have expired.
func (s *Groups) settleExpired() {
	list := s.expired
	s.expired = nil
	gone := map[*Group][]batch.OffsetRange{}
	touched := map[*Group]bool{}
	var order []*Group
	for _, x := range list {
		g, it := x.group, &x.item
		if s.byID[g.id] != g || !g.outstanding(it.offset) || g.work != nil && s.claimed(g, it.offset) {
			continue
		}
		if it.parked { // it may not have been due
			touched[g] = true
		}
		if g.holds(it) {
			s.freeLater(g, it.key)
		}
		if g.settings.DeadExpired {
			s.add(batch.Dead{
				Group: g.id, Offset: it.offset, Attempts: g.parked[it.offset].Attempts, Reason: batch.DeadExpired, At: s.asOf,
				AppendTime: it.appended, Key: it.key, Priority: it.level, Error: g.parked[it.offset].Error,
			})
			continue
		}
		if gone[g] == nil {
			order = append(order, g)
		}
		gone[g] = append(gone[g], batch.OffsetRange{From: it.offset, To: it.offset + 1})
	}
	for _, g := range order {
		s.add(batch.Settled{Group: g.id, How: batch.SettledExpired, Ranges: joined(gone[g])})
	}
	for g := range touched {
		g.dropLater()
	}
}

func (s *Groups) claimed(g *Group, offset uint64) bool {
	if g.work == nil {
		return false
	}
	_, ok := g.work.claims[offset]
	return ok
}
