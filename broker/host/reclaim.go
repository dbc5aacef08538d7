// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire/batch"
)

const (
	carryRead  = 1 << 20   // of the head that is read at once
	carryBytes = 256 << 10 // that are carried in one turn: a publish behind it waits for no more than that

	lookTimeout   = time.Minute      // until the shard has said what is needed
	notWorthAgain = 10 * time.Minute // until a head of which little had expired is looked at again
)

var errNotWorth = errors.New("too little of the head has expired")

// carrying reads the head of a log beside the shard's goroutine and has the core carry what is live in it: a part at a
// time, each committed before the next, so that publishes come in between.
type carrying struct {
	s       *Shard
	head    shard.ReclaimHead
	seq     uint64 // the next batch to look at
	skip    int    // records of it that are done
	carried int64
	file    []byte // read and not looked at yet, from seq on

	needed *shard.LiveMessages // of a log that keeps what is not settled
}

// reclaim begins to carry a head.
func (s *Shard) reclaim(head shard.ReclaimHead) {
	c := &carrying{s: s, head: head, seq: head.From.Sequence}
	s.host.beside(&s.beside, c.next)
}

// next hands over the next live records, or the end.
func (c *carrying) next() {
	ev, err := &shard.Carry{}, c.look()
	if err == nil {
		ev, err = c.collect()
	}
	switch {
	case errors.Is(err, errClosing), errors.Is(err, errNotWorth):
		c.end(err)
		return
	case err != nil:
		c.s.host.log.Error("the head of the log cannot be reclaimed", "log", c.s.Ref.Log, "shard", c.s.Ref.Shard, "sequence", c.seq, "error", err)
		c.end(err)
		return
	case len(ev.Records) == 0:
		c.end(nil)
		return
	}
	share := c.share(ev)
	to := Func(func(a shard.Answer) {
		if a.Err != nil {
			c.later(func() { c.end(a.Err) })
			return
		}
		c.carried += share
		c.s.host.metrics.carried.Add(float64(a.Ack.Count))
		c.later(c.next)
	})
	ev.To = to
	c.s.handOverTo(ev, to)
}

// later goes on beside the shard's goroutine, which this is, unless the shard ends: then nobody waits any more.
func (c *carrying) later(f func()) {
	select {
	case <-c.s.quit:
	default:
		c.s.host.beside(&c.s.beside, f)
	}
}

func (c *carrying) end(err error) {
	done := shard.Carried{Head: c.head, Carried: c.carried, Err: err}
	if errors.Is(err, errNotWorth) {
		done.Again = notWorthAgain
	}
	c.s.handOver(done)
}

// collect gathers live records up to carryBytes, none when the head is done.
func (c *carrying) collect() (*shard.Carry, error) {
	ev := &shard.Carry{}
	var size int64
	for size < carryBytes && c.seq < c.head.To.Sequence {
		if len(c.file) == 0 {
			if err := c.read(); err != nil {
				return nil, err
			}
			continue
		}
		b := batch.Batch(c.file)
		b = b[:b.Size()]
		done, err := c.pick(b, ev, &size)
		if err != nil {
			return nil, err
		}
		if !done { // the rest of it is for the next turn
			break
		}
		c.file = c.file[len(b):]
		c.seq, c.skip = b.Sequence()+1, 0
	}
	return ev, nil
}

// look asks what the head holds that is needed. The core decides again when it is carried.
func (c *carrying) look() error {
	if !c.s.cfg.KeepUnsettled || c.needed != nil {
		return nil
	}
	if c.head.Expired {
		if worth, err := c.expired(); err != nil || !worth {
			return errors.Join(err, errNotWorth)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	return c.s.Ask(ctx, func(core *shard.Core) { c.needed = core.LiveMessages(c.head) })
}

// expired says whether at least half of the records of the head have expired.
func (c *carrying) expired() (worth bool, err error) {
	gone, all := 0, 0
	for seq := c.seq; seq < c.head.To.Sequence; {
		x := carrying{s: c.s, head: c.head, seq: seq}
		if err := x.read(); err != nil {
			return false, err
		}
		seq = x.seq
		for len(x.file) > 0 {
			b := batch.Batch(x.file)
			b = b[:b.Size()]
			x.file, seq = x.file[len(b):], b.Sequence()+1
			if b.IsControl() {
				continue
			}
			all += b.Count()
			var m batch.Meta
			for metas := b.Metas(); b.Scheduled(); {
				ok, err := metas.Next(&m)
				if err != nil {
					return false, err
				}
				if !ok {
					break
				}
				if m.TTL > 0 && metas.AppendTime()+m.TTL.Microseconds() <= c.head.AsOf {
					gone++
				}
			}
		}
	}
	return all == 0 || 2*gone >= all, nil
}

// share is what records take of the head: not what they take where they are carried to, which is more when they are small.
func (c *carrying) share(ev *shard.Carry) (n int64) {
	if c.needed != nil {
		for i := range ev.Records {
			n += int64(len(ev.Records[i].Key) + len(ev.Records[i].Value) + 64)
		}
		return n
	}
	keys := c.s.View().Keys
	if keys == nil {
		return 0
	}
	for i := range ev.Records {
		if e, ok := keys.Get(ev.Records[i].Key); ok && e.Sequence == ev.Sequence[i] {
			n += int64(e.Size)
		}
	}
	return n
}

func (c *carrying) read() error {
	select {
	case <-c.s.quit:
		return errClosing
	default:
	}
	chunk, err := c.s.log.Load().Read(c.seq, c.head.To.Sequence, carryRead)
	if gap, ok := errors.AsType[*storage.GapError](err); ok {
		c.seq = gap.ToSequence
		return nil
	}
	if err == nil && len(chunk) == 0 {
		err = fmt.Errorf("nothing at sequence %d", c.seq)
	}
	c.file = chunk
	return err
}

// pick takes the live records of a batch, and says whether it has seen all of it.
func (c *carrying) pick(b batch.Batch, ev *shard.Carry, size *int64) (done bool, err error) {
	if !b.HasOffsets() && !b.IsCarried() {
		return true, nil
	}
	keys := c.s.View().Keys
	if keys == nil && c.needed == nil {
		return false, errClosing
	}
	live := func(key []byte, null bool, offset uint64) bool {
		if c.needed != nil {
			return c.needed.Has(offset, b.Sequence(), b.IsCarried())
		}
		return key != nil && !null && shard.Live(keys, key, offset, b.Sequence())
	}
	var m batch.Meta
	found := false
	for metas := b.Metas(); !found; {
		ok, err := metas.Next(&m)
		if err != nil {
			return false, err
		}
		if !ok {
			return true, nil
		}
		found = live(m.Key, m.Null, metas.Offset())
	}
	records := b.Records()
	for i := 0; ; i++ {
		var r batch.Record
		ok, err := records.Next(&r)
		if err != nil || !ok {
			return err == nil, err
		}
		if i < c.skip || !live(r.Key, r.Value == nil, records.Offset()) {
			continue
		}
		n := int64(len(r.Key) + len(r.Value) + 64)
		if *size > 0 && *size+n > carryBytes {
			c.skip = i
			return false, nil
		}
		*size += n
		ev.Records = append(ev.Records, batch.Carried{
			Record: r.Clone(), Offset: records.Offset(), Generation: records.Generation(), AppendTime: records.AppendTime(),
		})
		ev.Sequence = append(ev.Sequence, b.Sequence())
	}
}
