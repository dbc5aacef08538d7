// SPDX-License-Identifier: Apache-2.0

package history

// cut is a loss that a log's settings allow.
type cut struct {
	shard              Shard
	offset, generation uint64
	at                 int // moment
}

// Cut says that a shard lost, as its settings allow, what lay at offset and beyond, and that what stands there from
// generation on is new. An acknowledgement of what is lost binds no more, who read it read what was there then, and who is
// told from now on that it is not stored is told the truth. Records and answers must name their generations.
func (r *Recorder) Cut(s Shard, offset, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.cuts = append(r.cuts, cut{s, offset, generation, r.moment})
}

// dead says whether a place of this generation was lost by a cut.
func (c *checker) dead(s Shard, offset, generation uint64) bool {
	_, dead := c.died(s, offset, generation)
	return dead
}

// died is the moment of the first cut that took a place of this generation: cuts lie in the order in which they were told.
func (c *checker) died(s Shard, offset, generation uint64) (at int, dead bool) {
	for _, x := range c.cuts {
		if x.shard == s && offset >= x.offset && generation != 0 && generation < x.generation {
			return x.at, true
		}
	}
	return 0, false
}

// fresh says whether what was seen at a place has come there since a cut: an audit from before that cannot have had it.
func (c *checker) fresh(at place) bool {
	for _, x := range c.cuts {
		if x.shard == at.shard && at.offset >= x.offset && c.seen[at].Generation >= x.generation {
			return true
		}
	}
	return false
}

// checkLostOrigins holds what was lost since to what was true of it before: somebody wrote it, and was not told that it is
// not there while it was. A retry that comes after the loss may be refused for good, since nothing can prove more than what
// the log holds then.
func (c *checker) checkLostOrigins() {
	for _, r := range c.lost {
		a, ok := c.writer[r.Digest]
		died, _ := c.died(r.Shard, r.Offset, r.Generation)
		switch {
		case !ok:
			c.report(Phantom, r.Shard, r.Offset, "reader %s got key %q (%x), which nobody wrote", r.reader, r.Key, r.Digest)
		case (a.Outcome == Refused || a.Outcome == Fatal) && a.ended < died:
			c.report(Stored, r.Shard, r.Offset, "reader %s got it, %s", r.reader, a)
		}
	}
}

// checkSomewhere demands that a record that was promised without a place has one, where an audit saw all there is.
func (c *checker) checkSomewhere(a *attempt, places []place) {
	if len(places) > 0 {
		return
	}
	for _, x := range c.cuts {
		if x.shard == a.Shard {
			return // it may have been among what was lost
		}
	}
	for _, x := range c.audits {
		if x.shard == a.Shard && x.from == 0 {
			c.report(Lost, a.Shard, 0, "%s, audit %s of %d up to %d did not get it", a, x.reader, x.from, x.to)
			return
		}
	}
}
