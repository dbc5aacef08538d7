// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

func (c *Core) publish(now int64, p *Publish, eff *Effects) {
	if err := c.admit(p); err != nil {
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: err})
		return
	}
	id, seq := p.Batch.ProducerID(), p.Batch.ProducerSequence()
	if id != 0 {
		was, err := c.producers.check(id, seq, p.Previous, c.lastAppend)
		if err != nil {
			// It says what the last stored is: a publisher that goes on behind what a failed write takes back would be told then
			// that the shard has lost it.
			c.refuseBehind(p, c.producers.end(id), err, eff)
			return
		}
		if was != nil {
			c.duplicate(p, was, eff)
			return
		}
	}
	if c.seenBefore(now, p, eff) {
		return
	}
	if c.full && !c.makesRoom(p) { // not before: a retry of what is stored is no new record
		eff.Answers = append(eff.Answers, Answer{To: p.To, Err: code.New(code.StorageFull, "there is no room for records")})
		return
	}
	if !c.conditionsHold(now, p, eff) {
		return
	}
	settled, err := c.settlementHolds(p)
	if err != nil {
		c.answerGroups(Answer{To: p.To, Err: err}, eff)
		return
	}
	sums, counters, ok := c.derive(now, p, eff)
	if !ok {
		return
	}
	if err := c.roomForKeys(p.Batch); err != nil {
		rests := c.ceiling
		if err.Class == code.ClassFatal && c.keys.pending.len() > 0 {
			rests = c.nextOffset // the keys that fill the shard may still be taken back
		}
		c.refuseBehind(p, rests, err, eff)
		return
	}
	c.sums.note(counters)
	c.appendRecords(now, p, sums, settled, eff)
}

// makesRoom says whether a publish only deletes keys that are there, in a log in memory: nothing else makes room in one that
// is full of what lives for ever.
func (c *Core) makesRoom(p *Publish) bool {
	if !c.cfg.Memory || !c.cfg.KeepNewest || !c.keys.ready() {
		return false
	}
	var m batch.Meta
	for metas := p.Batch.Metas(); ; {
		ok, err := metas.Next(&m)
		if !ok || err != nil {
			return err == nil
		}
		if n, known := c.keys.newest(m.Key); m.Key == nil || !m.Null || !known || n.gone {
			return false
		}
	}
}

// admit refuses what must not take an offset.
func (c *Core) admit(p *Publish) *code.Error {
	switch {
	case c.lost != nil:
		return c.lost
	case p.Level > AckQuorum:
		return code.New(code.BadRequest, "ack level %d is unknown: use none, leader or quorum", p.Level)
	case p.Level > c.cfg.Rule:
		return code.New(code.BadRequest, "ack %s is more than the log's rule %s: ask for less, or change the log", p.Level, c.cfg.Rule)
	case p.Level != AckDefault && p.Level < c.cfg.MinAck:
		return code.New(code.BadRequest, "ack %s is less than the log's min-ack %s: ask for more, or change the log", p.Level, c.cfg.MinAck)
	case c.cfg.KeepNewest && p.Batch.Size() > batch.MaxBatch-batch.MaxOrigin:
		// It could not be carried, and would keep its segment, and all before it, for as long as it is the newest of its key.
		return code.New(code.TooLarge, "a batch of %d bytes in a log that keeps the newest of each key", p.Batch.Size()).
			With(code.DetailLimit, batch.MaxBatch-batch.MaxOrigin)
	}
	return nil
}

// appendRecords claims the batch's place the instant it is appended, before anything is written or
// flushed: offsets taken later would follow disk timing (GC-04).
func (c *Core) appendRecords(now int64, p *Publish, sums []int64, settled *batch.Settlement, eff *Effects) {
	c.rollFor(now, int64(p.Batch.Size()), eff)
	c.open(now, eff)
	if settled != nil {
		c.groups.Settle(c.length, settled)
	}
	level := p.Level
	if level == AckDefault {
		level = c.cfg.Rule
	}
	c.append(now, entry{batch: p.Batch, to: p.To, level: level, dead: p.Deadline, sums: sums, waiting: true}, eff)
	if p.Deadline > 0 && (c.nextDead == 0 || p.Deadline < c.nextDead) {
		c.nextDead = p.Deadline
	}
	if id := p.Batch.ProducerID(); id != 0 && !c.endsLast(p.Batch) {
		c.producers.store(id, stored{
			sequence: p.Batch.ProducerSequence(), base: p.Batch.BaseOffset(), count: uint32(p.Batch.Count()),
			appendTime: c.lastAppend, generation: c.cfg.Generation,
		}, c.ceiling)
	}
	c.remember(p.Batch)
	c.appended(now, p.Batch)
}

// open appends this generation's opening batch before its first records, and the first checkpoint before
// all else: an idle shard costs no write at a restart, and nothing of a generation precedes its opening.
func (c *Core) open(now int64, eff *Effects) {
	if c.opened {
		return
	}
	if c.needsCheckpoint {
		c.checkpoint(now, eff)
	}
	c.opened = true
	o := batch.Opening{Generation: c.cfg.Generation, Leader: c.cfg.Node, Replicas: []string{c.cfg.Node}}
	if c.cfg.Memory && c.ceiling == 0 && c.nextOffset == 0 {
		o.Lossy = true // all that an earlier start held is gone: from sequence 0, offset 0
	}
	c.gens.add(generation{c.cfg.Generation, c.length, c.nextOffset})
	c.control(now, eff, o)
	eff.Flush = eff.Flush || !c.cfg.Memory
}

// control appends one control batch.
func (c *Core) control(now int64, eff *Effects, entries ...batch.Entry) {
	c.append(now, entry{batch: batch.BuildControl(entries...)}, eff)
}

// append gives the entry's batch its place at the tail.
func (c *Core) append(now int64, e entry, eff *Effects) {
	b := e.batch
	e.before, e.needed = c.segment, c.needsCheckpoint
	c.lastAppend = c.at(now)
	b.Assign(batch.Assigned{
		Sequence: c.length, BaseOffset: c.nextOffset, Generation: c.cfg.Generation,
		AppendTime: c.lastAppend, Flushed: c.flushed,
	})
	c.length++
	c.nextOffset = b.NextOffset()
	c.segment.grow(b)
	c.pending = append(c.pending, e)
	eff.Append = append(eff.Append, b)
}

func (a *account) grow(b batch.Batch) {
	size := int64(b.Size())
	switch {
	case b.IsCheckpointStart():
		*a = account{checkpoint: size}
	case b.IsCheckpoint():
		a.checkpoint += size
	default:
		if a.first == 0 {
			a.first = b.AppendTime()
		}
		a.bytes += size
		a.records = a.records || b.HasOffsets()
	}
}

// duplicate answers a retry with the place of the original, once that is committed: an answer that rests
// on the pending layer must not outlive it.
func (c *Core) duplicate(p *Publish, was *stored, eff *Effects) {
	ack := Ack{
		BaseOffset: was.base, Generation: was.generation, AppendTime: was.appendTime, Count: was.count,
		Replicas: 1, Committed: true, Duplicate: true,
	}
	if was.base < c.ceiling {
		ack.Flushed = c.allFlushed()
		eff.Answers = append(eff.Answers, Answer{To: p.To, Ack: ack})
		return
	}
	c.retries = append(c.retries, retry{rests: was.base + 1, ack: ack, to: p.To})
}

// String names the level as the API and the command line spell it.
func (l AckLevel) String() string {
	switch l {
	case AckNone:
		return "none"
	case AckLeader:
		return "leader"
	case AckQuorum:
		return "quorum"
	default:
		return "default"
	}
}
