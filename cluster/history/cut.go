// SPDX-License-Identifier: Apache-2.0

package history

// cut is a loss that a log's settings allow.
type cut struct {
	shard              Shard
	offset, generation uint64
}

// Cut says that a shard lost, as its settings allow, what lay at offset and beyond, and that what stands there from
// generation on is new. An acknowledgement of what is lost binds no more, and who read it read what was there then.
// Records and answers must name their generations.
func (r *Recorder) Cut(s Shard, offset, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.cuts = append(r.cuts, cut{s, offset, generation})
}

// dead says whether a place of this generation was lost by a cut.
func (c *checker) dead(s Shard, offset, generation uint64) bool {
	for _, x := range c.cuts {
		if x.shard == s && offset >= x.offset && generation != 0 && generation < x.generation {
			return true
		}
	}
	return false
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

// checkLostOrigins holds what was lost since to what was true of it when it was read: somebody wrote it, and was not told
// that it is not there.
func (c *checker) checkLostOrigins() {
	for _, r := range c.lost {
		a, ok := c.writer[r.Digest]
		switch {
		case !ok:
			c.report(Phantom, r.Shard, r.Offset, "reader %s got key %q (%x), which nobody wrote", r.reader, r.Key, r.Digest)
		case a.Outcome == Refused || a.Outcome == Fatal:
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
