// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"
	"time"

	"margay.dev/client/internal/settle"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// delivery is a frame of messages: read record by record when the application asks for them.
type delivery struct {
	lane   *consumeLane
	shard  *consumeShard
	claims settle.Claims
	// at is when it came, wait how long its claims live from then on, at most.
	at   time.Time
	wait time.Duration
	// first is the hand-out of the first record; the others follow.
	first    uint64
	attempts []wire.MessageAttempt
	batch    batch.Batch
	slice    batch.Slice
	taken    int
	size     int64
	// adopted are hand-outs of messages that the application had already, rising.
	adopted []uint64
}

// messageBuffer is what waits for the application, in the order of its coming. It is the consumer's, under its mu.
type messageBuffer struct {
	queue []*delivery
	bytes int64
	// full: more is given back until half of the room is free. unread: nobody has taken anything for so long that messages were
	// given back, and none are asked for until somebody does.
	full, unread bool
	read         time.Time // when a message was taken last

	// Of the first delivery.
	opened  bool
	records batch.Reader
	sliced  batch.SliceReader
}

func (b *messageBuffer) put(d *delivery) {
	b.queue = append(b.queue, d)
	b.bytes += d.size
}

// shift takes out the first delivery.
func (b *messageBuffer) shift() {
	b.bytes -= b.queue[0].size
	b.queue[0] = nil
	if b.queue = b.queue[1:]; len(b.queue) == 0 {
		b.queue = nil
	}
	b.shut()
}

func (b *messageBuffer) shut() {
	if b.opened {
		b.opened = false
		b.records.Reset(nil)
		b.sliced.Reset(nil)
	}
}

// next reads the next record of the first delivery.
func (b *messageBuffer) next(rec *batch.Record) (ok bool, err error) {
	d := b.queue[0]
	if !b.opened {
		b.opened = true
		if d.slice != nil {
			b.sliced.Reset(d.slice)
		} else {
			b.records.Reset(d.batch)
		}
	}
	if d.slice != nil {
		return b.sliced.Next(rec)
	}
	return b.records.Next(rec)
}

func (b *messageBuffer) offset() uint64 {
	if b.queue[0].slice != nil {
		return b.sliced.Offset()
	}
	return b.records.Offset()
}

// drop throws away what matches.
func (b *messageBuffer) drop(match func(d *delivery) bool) {
	if len(b.queue) > 0 && match(b.queue[0]) {
		b.shut()
	}
	b.queue = slices.DeleteFunc(b.queue, match)
	b.bytes = 0
	for _, d := range b.queue {
		b.bytes += d.size
	}
}

func (b *messageBuffer) clear() { b.drop(func(*delivery) bool { return true }) }

// empty takes out everything, to be given back.
func (b *messageBuffer) empty() []*delivery { return b.before(time.Time{}) }

// before takes out what came before at, everything when that is zero. Deliveries lie in the order of their coming.
func (b *messageBuffer) before(at time.Time) []*delivery {
	n := 0
	for n < len(b.queue) && (at.IsZero() || b.queue[n].at.Before(at)) {
		n++
	}
	if n == 0 {
		return nil
	}
	b.shut()
	out := slices.Clone(b.queue[:n])
	for _, d := range out {
		b.bytes -= d.size
	}
	clear(b.queue[:n])
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	return out
}

func (d *delivery) ended(now time.Time) bool { return now.Sub(d.at) >= d.wait }

// attempt is the number of the record at index.
func (d *delivery) attempt(index int) int {
	for len(d.attempts) > 0 && int(d.attempts[0].Index) < index {
		d.attempts = d.attempts[1:]
	}
	if len(d.attempts) > 0 && int(d.attempts[0].Index) == index {
		return int(d.attempts[0].Attempt)
	}
	return 1
}

// pull takes the next message out of the buffer, nil when there is none.
func (g *Consumer) pull(now time.Time) (*Message, *Error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return nil, g.err
	}
	if g.draining {
		poke(g.ready) // for whoever else waits
		return nil, errClosed("the consumer of " + g.q.name)
	}
	b := &g.buffer
	b.read = now
	if b.unread {
		b.unread = false
		g.rouseAll()
	}
	if g.book.Pending() >= maxSettling {
		return nil, nil
	}
	for len(b.queue) > 0 {
		d := b.queue[0]
		if d.ended(now) {
			g.shift() // the broker has handed it to somebody else, or will
			continue
		}
		var rec batch.Record
		ok, err := b.next(&rec)
		if err != nil {
			g.unreadable(d, err)
			continue
		}
		if !ok {
			g.shift()
			continue
		}
		if handOut := d.first + uint64(d.taken); slices.Contains(d.adopted, handOut) {
			d.taken++
			d.shard.begun = handOut
			d.lane.begin()
			continue
		}
		m := newMessage(g, d, &rec, b.offset())
		d.taken++
		g.out++
		d.shard.begun = m.handOut
		d.lane.begin()
		if len(b.queue) > 0 {
			poke(g.ready) // for another reader
		}
		return m, nil
	}
	return nil, nil
}

// shift takes out the first delivery, which may make room for more.
func (g *Consumer) shift() {
	b := &g.buffer
	b.shift()
	if b.full && b.bytes <= g.cfg.buffer/2 {
		b.full = false
		g.rouseAll()
	}
}

// unreadable ends a lane that brought records which cannot be read.
func (g *Consumer) unreadable(d *delivery, err error) {
	g.c.cfg.logger.Warn("messages cannot be read", "queue", g.q.name, "shard", d.claims.Shard, "error", err)
	d.lane.fail(code.New(code.CorruptBatch, "messages of shard %d from hand-out %d on: %w", d.claims.Shard, d.first, err))
	g.shift()
}

// enqueue takes a delivery off the lane.
func (g *Consumer) enqueue(d *delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &g.buffer
	switch {
	case d.shard.lane != d.lane || d.lane.leaving: // ended, or about to: the broker takes all of it back
		return
	case g.adoptClaims(d): // and nothing else is in it
		return
	case g.draining || b.unread:
		g.giveBack([]*delivery{d})
		return
	case len(b.queue) > 0 && b.bytes+d.size > g.cfg.buffer:
		// Answers to settlements come over the same lane, so it is read whatever there is.
		if !b.full {
			b.full = true
			g.rouseAll()
		}
		g.giveBack([]*delivery{d})
		return
	}
	b.put(d)
	poke(g.ready)
}

// giveBack releases what of deliveries the application has not got: others can have it at once, and no attempt is counted.
// Called with mu held.
func (g *Consumer) giveBack(ds []*delivery) {
	now := time.Now()
	for _, d := range ds {
		if d.shard.lane != d.lane || d.ended(now) {
			continue
		}
		err := d.each(func(handOut, offset uint64) {
			g.book.Add(d.claims, settle.Token{HandOut: handOut, Offset: offset, Op: wire.SettleRelease})
		})
		if err != nil {
			d.lane.fail(code.New(code.CorruptBatch, "messages of shard %d from hand-out %d on: %w", d.claims.Shard, d.first, err))
		}
		d.lane.settled()
	}
}

// each walks the records that were not taken.
func (d *delivery) each(f func(handOut, offset uint64)) error {
	var m batch.Meta
	var metas *batch.Metas
	if d.slice != nil {
		metas = d.slice.Metas()
	} else {
		metas = d.batch.Metas()
	}
	for i := 0; ; i++ {
		ok, err := metas.Next(&m)
		if err != nil || !ok {
			return err
		}
		if i >= d.taken && !slices.Contains(d.adopted, d.first+uint64(i)) {
			f(d.first+uint64(i), metas.Offset())
		}
	}
}

// sweep gives back what has waited for most of its claim: counted as an attempt that timed out, it would come a step nearer to
// the dead letters without anybody having looked at it. When nobody reads, nothing more is asked for.
func (g *Consumer) sweep() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		g.mu.Lock()
		b, now := &g.buffer, time.Now()
		ripe := g.ackWait / 4 * 3
		if old := b.before(now.Add(-ripe)); old != nil {
			g.giveBack(old)
			if now.Sub(b.read) >= ripe && !b.unread {
				b.unread = true
				g.giveBack(b.empty())
			}
			b.full = b.full && b.bytes > g.cfg.buffer/2
			g.rouseAll()
		}
		at := now.Add(max(ripe, time.Millisecond)) // what comes from now on is not ripe before
		if len(b.queue) > 0 {
			at = b.queue[0].at.Add(ripe + 1) // before leaves out what is just that old
		}
		g.mu.Unlock()
		resetTimer(timer, at)
		select {
		case <-timer.C:
		case <-g.ctx.Done():
			return
		}
	}
}
