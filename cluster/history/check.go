// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"fmt"
	"slices"
)

// place is where a record lies.
type place struct {
	shard  Shard
	offset uint64
}

type sighting struct {
	Record
	reader string
}

// checker holds one history and what was gathered from it. Each check below is one promise.
type checker struct {
	attempts []attempt
	readers  []*reader
	audits   []audit
	cuts     []cut
	cursors  []cursorEvent
	starts   []startEvent

	seen   map[place]sighting // the first sighting of each place
	order  []place            // the keys of seen in order of first sighting: reports must not depend on map order
	where  map[Digest][]place // every place where a digest was seen, in order of sighting
	writer map[Digest]*attempt
	holder map[place]*attempt // the attempt that was acknowledged with a place
	lost   []sighting         // of what a log was allowed to lose since

	found []Violation
}

func (c *checker) check() []Violation {
	c.gather()
	for _, rd := range c.readers {
		c.checkReader(rd)
	}
	c.checkOrigins()
	for _, a := range c.audits {
		c.checkAudit(a)
	}
	for i := range c.attempts {
		c.checkAttempt(&c.attempts[i])
	}
	c.checkGenerations()
	c.checkProducerOrder()
	c.checkShardOrder()
	c.checkConditions()
	c.checkCursors()
	c.checkStarts()
	return c.found
}

func (c *checker) report(k Kind, s Shard, offset uint64, format string, args ...any) {
	c.found = append(c.found, Violation{Kind: k, Shard: s, Offset: offset, Detail: fmt.Sprintf(format, args...)})
}

// gather indexes the attempts by digest and answered place and the records by place. What cannot share an index entry
// is a violation by itself.
func (c *checker) gather() {
	c.writer = make(map[Digest]*attempt, len(c.attempts))
	c.holder = make(map[place]*attempt, len(c.attempts))
	for i := range c.attempts {
		a := &c.attempts[i]
		if c.dead(a.Shard, a.Offset, a.Generation) {
			a.Weak = true // its log was allowed to lose it
		}
		if at := (place{a.Shard, a.Offset}); a.binding() {
			if other, ok := c.holder[at]; ok {
				c.report(Clash, a.Shard, a.Offset, "%s and %s", other, a)
			} else {
				c.holder[at] = a
			}
		}
		if other, ok := c.writer[a.Digest]; ok {
			c.report(Unusable, a.Shard, a.Offset, "%s and %s wrote the same bytes: a record that is read cannot be told apart",
				other, a)
			continue
		}
		c.writer[a.Digest] = a
	}
	c.seen = make(map[place]sighting)
	c.where = make(map[Digest][]place)
	for _, rd := range c.readers {
		for _, e := range rd.events {
			if e.kind == eventRead {
				c.sight(rd.name, e.record)
			}
		}
	}
}

func (c *checker) sight(name string, r Record) {
	at := place{r.Shard, r.Offset}
	if c.dead(r.Shard, r.Offset, r.Generation) {
		c.lost = append(c.lost, sighting{Record: r, reader: name})
		return
	}
	first, ok := c.seen[at]
	if !ok {
		c.seen[at] = sighting{Record: r, reader: name}
		c.order = append(c.order, at)
	} else if first.Digest != r.Digest || first.Key != r.Key {
		c.report(Disagree, r.Shard, r.Offset, "reader %s got key %q (%x), reader %s got key %q (%x)",
			first.reader, first.Key, first.Digest, name, r.Key, r.Digest)
	}
	if !slices.Contains(c.where[r.Digest], at) {
		c.where[r.Digest] = append(c.where[r.Digest], at)
	}
}

// checkReader holds a reader to contiguous offsets, each shard for itself, up to the gaps that it was told of.
func (c *checker) checkReader(rd *reader) {
	next := make(map[Shard]uint64)
	for _, e := range rd.events {
		s, offset := e.record.Shard, e.record.Offset
		want, begun := next[s]
		switch {
		case !begun:
		case offset < want:
			c.report(Repeated, s, offset, "reader %s was at %d already", rd.name, want)
			if e.kind == eventGap {
				next[s] = max(want, e.to)
			}
			continue // one step back is one violation, not one for each record that follows
		case offset > want && !rd.filtered:
			c.report(Skipped, s, want, "reader %s was led from %d to %d without being told", rd.name, want, offset)
		}
		switch e.kind {
		case eventStart:
			next[s] = offset
		case eventRead:
			next[s] = offset + 1
		case eventGap:
			if e.to <= offset {
				c.report(Unusable, s, offset, "reader %s was told of a gap that ends at %d", rd.name, e.to)
			}
			next[s] = max(offset, e.to)
		}
	}
}

// checkOrigins holds every record read to an attempt that wrote it, under its key.
func (c *checker) checkOrigins() {
	for _, at := range c.order {
		r := c.seen[at]
		a, ok := c.writer[r.Digest]
		switch {
		case !ok:
			c.report(Phantom, r.Shard, r.Offset, "reader %s got key %q (%x), which nobody wrote", r.reader, r.Key, r.Digest)
		case a.Key != r.Key:
			c.report(Altered, r.Shard, r.Offset, "reader %s got key %q, %s wrote it", r.reader, r.Key, a)
		}
	}
	c.checkLostOrigins()
}

// checkAudit demands that the audit got each offset of its range, and that nobody ever got one beyond its end.
func (c *checker) checkAudit(a audit) {
	got := c.offsetsOf(a)
	for offset := a.from; offset < a.to; offset++ {
		if got[offset] {
			continue
		}
		if r, ok := c.seen[place{a.shard, offset}]; ok {
			c.report(Vanished, a.shard, offset, "reader %s got key %q, audit %s did not", r.reader, r.Key, a.reader)
		} else if c.holder[place{a.shard, offset}] == nil { // else checkAttempt reports it as lost
			c.report(Skipped, a.shard, offset, "audit %s did not get it", a.reader)
		}
	}
	for _, at := range c.order {
		if at.shard == a.shard && at.offset >= a.to && !c.fresh(at) {
			c.report(Vanished, at.shard, at.offset, "reader %s got it, audit %s found the end at %d",
				c.seen[at].reader, a.reader, a.to)
		}
	}
}

func (c *checker) offsetsOf(a audit) map[uint64]bool {
	got := make(map[uint64]bool)
	for _, rd := range c.readers {
		if rd.name != a.reader {
			continue
		}
		for _, e := range rd.events {
			if e.kind == eventRead && e.record.Shard == a.shard {
				got[e.record.Offset] = true
			}
		}
	}
	return got
}

// checkAttempt holds what was stored to what the client was told.
func (c *checker) checkAttempt(a *attempt) {
	if c.writer[a.Digest] != a {
		return // unusable, and reported
	}
	places := c.where[a.Digest]
	switch {
	case a.Outcome == Refused || a.Outcome == Fatal:
		for _, at := range places {
			c.report(Stored, at.shard, at.offset, "reader %s got it, %s", c.seen[at].reader, a)
		}
		return
	case a.binding():
		c.checkAcked(a, places)
	case a.Outcome == Acked && a.Somewhere:
		c.checkSomewhere(a, places)
	}
	if len(places) > 1 && !a.MayRepeat {
		c.report(Twice, places[1].shard, places[1].offset, "%s is stored at %v", a, offsets(places))
	}
}

func (c *checker) checkAcked(a *attempt, places []place) {
	at := place{a.Shard, a.Offset}
	if slices.Contains(places, at) {
		return
	}
	if r, ok := c.seen[at]; ok {
		c.report(Altered, a.Shard, a.Offset, "reader %s got key %q (%x), %s%s", r.reader, r.Key, r.Digest, a, elsewhere(places))
		return
	}
	if len(places) > 0 {
		c.report(Altered, a.Shard, a.Offset, "%s%s", a, elsewhere(places))
		return
	}
	for _, audit := range c.audits {
		if audit.shard == a.Shard && a.Offset >= audit.from {
			c.report(Lost, a.Shard, a.Offset, "%s, audit %s of %d up to %d did not get it", a, audit.reader, audit.from, audit.to)
			return
		}
	}
}

// checkGenerations demands that generations only rise along the log.
func (c *checker) checkGenerations() {
	var acked []*attempt
	for i := range c.attempts {
		a := &c.attempts[i]
		if a.binding() && a.Generation != 0 && !a.Duplicate { // a duplicate is answered by whoever leads now
			acked = append(acked, a)
		}
	}
	slices.SortStableFunc(acked, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.Shard.Log, b.Shard.Log), cmp.Compare(a.Shard.Number, b.Shard.Number),
			cmp.Compare(a.Offset, b.Offset))
	})
	for i := 1; i < len(acked); i++ {
		before, a := acked[i-1], acked[i]
		if before.Shard == a.Shard && before.Generation > a.Generation {
			c.report(GenerationOrder, a.Shard, a.Offset, "acknowledged at generation %d, offset %d at generation %d",
				a.Generation, before.Offset, before.Generation)
		}
	}
}

// checkProducerOrder holds each producer's records, shard by shard, to the order in which their attempts began.
func (c *checker) checkProducerOrder() {
	type lane struct {
		producer string
		shard    Shard
	}
	last := make(map[lane]*attempt)
	for i := range c.attempts { // attempts lie in the order in which they began
		a := &c.attempts[i]
		at, ok := c.placeOf(a)
		if !ok || a.Producer == "" || a.MayRepeat {
			continue
		}
		l := lane{a.Producer, at.shard}
		if before, ok := last[l]; ok {
			if was, _ := c.placeOf(before); was.offset > at.offset {
				c.report(ProducerOrder, at.shard, at.offset, "producer %s: %s is stored behind %s, which began later (offset %d)",
					a.Producer, before, a, was.offset)
				continue
			}
		}
		last[l] = a
	}
}

// checkShardOrder demands that what began after an answer lies behind what was answered. One sweep per shard over
// begins, with the answers merged in by time.
func (c *checker) checkShardOrder() {
	byShard := make(map[Shard][]*attempt)
	var shards []Shard
	for i := range c.attempts {
		a := &c.attempts[i]
		at, ok := c.placeOf(a)
		if !ok || a.MayRepeat {
			continue
		}
		if byShard[at.shard] == nil {
			shards = append(shards, at.shard)
		}
		byShard[at.shard] = append(byShard[at.shard], a)
	}
	for _, s := range shards {
		begun := byShard[s]
		answered := slices.DeleteFunc(slices.Clone(begun), func(a *attempt) bool { return !a.binding() })
		slices.SortFunc(answered, func(a, b *attempt) int { return cmp.Compare(a.ended, b.ended) })
		var highest *attempt
		for _, a := range begun {
			for len(answered) > 0 && answered[0].ended < a.began {
				if highest == nil || answered[0].Offset > highest.Offset {
					highest = answered[0]
				}
				answered = answered[1:]
			}
			if at, _ := c.placeOf(a); highest != nil && at.offset < highest.Offset {
				c.report(ShardOrder, s, at.offset, "%s began after the answer of %s, and is stored before it", a, highest)
			}
		}
	}
}

// placeOf returns where an attempt is stored: where its answer said, or where the only sighting of it was.
func (c *checker) placeOf(a *attempt) (place, bool) {
	if a.binding() {
		return place{a.Shard, a.Offset}, true
	}
	if at := c.where[a.Digest]; len(at) == 1 && c.writer[a.Digest] == a {
		return at[0], true
	}
	return place{}, false
}

// binding says that the answer promised a place.
func (a *attempt) binding() bool { return a.Outcome == Acked && !a.Weak && !a.Somewhere }

func (a *attempt) String() string {
	s := fmt.Sprintf("%s of key %q by %s, answered %s", cmp.Or(a.Op, "attempt"), a.Key, cmp.Or(a.Client, "a client"), a.Outcome)
	if a.Outcome == Acked {
		s += fmt.Sprintf(" at offset %d generation %d", a.Offset, a.Generation)
	}
	return s
}

func elsewhere(places []place) string {
	if len(places) == 0 {
		return ""
	}
	return fmt.Sprintf(", found at %v", offsets(places))
}

func offsets(places []place) []string {
	out := make([]string, len(places))
	for i, at := range places {
		out[i] = fmt.Sprintf("%s/%d@%d", at.shard.Log, at.shard.Number, at.offset)
	}
	return out
}
