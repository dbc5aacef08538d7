// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	historyqueue "margay.dev/cluster/history/queue"
	"margay.dev/storage"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// seat is a consumer at the broker: its lane, and its credit.
type seat struct {
	c      *consumer
	conn   *conn
	shard  *host.Shard
	name   string // of this life of the consumer
	member group.Consumer
	joined *group.Joined
	gen    uint64

	most, out int
	credited  int  // the most that it has been
	wants     bool // the core was refused credit
	delivered uint64
	begun     uint64
	over      bool
}

// message is one as a consumer gets it.
type message struct {
	seat    *seat
	id      historyqueue.ClaimID
	handOut uint64
	offset  uint64
	group   uint64
	resets  uint32
}

// sit lets a consumer into its group.
func (c *consumer) sit(cn *conn) {
	s, refused := cn.proc.led(c.plan.ID)
	if refused != nil {
		cn.toClientRun(64, func() { c.refused(cn, refused) })
		return
	}
	c.life++
	x := &seat{c: c, conn: cn, shard: s, name: fmt.Sprintf("%s.%d", c.name, c.life), gen: s.View().Generation, most: 1 + c.w.rng.IntN(6)}
	x.member = group.Consumer{Name: c.name, Concurrency: 1 + c.w.rng.IntN(2), Credit: credit{x}, Lane: x}
	to := host.Func(func(a shard.Answer) {
		if a.Err != nil { // it may be in all the same
			cn.toClientRun(64, func() { c.refused(cn, a.Err) })
			x.leave(true, nil)
			return
		}
		if x.joined = a.Joined; cn.up.dead { // it went while it was let in
			x.leave(false, nil)
			return
		}
		cn.toClientRun(64, func() { c.seated(cn, x) })
	})
	if refused := s.Post(&shard.JoinGroup{Group: c.group.name, Consumer: &x.member, To: to}, to); refused != nil {
		to(shard.Answer{Err: refused})
		return
	}
	x.credited = x.most
	c.ledger.queue.Credit(c.group.name, x.name, x.most)
	c.ledger.seats = append(c.ledger.seats, x)
	cn.seat = x
	cn.proc.came(s)
}

// Take is the group's, for credit.
func (x *seat) take(n int) int {
	got := max(0, min(n, x.most-x.out))
	if x.out += got; got < n {
		x.wants = true
	}
	return got
}

// limit changes how much the consumer may have.
func (x *seat) limit(n int) {
	if x.over {
		return
	}
	if n > x.credited { // of less it may be handed more, which was decided before
		x.credited = n
		x.c.ledger.queue.Credit(x.c.group.name, x.name, n)
	}
	x.most = n
	x.wake()
}

// credit is a seat as the group's credit.
type credit struct{ *seat }

func (x credit) Take(n int) int { return x.take(n) }

func (x credit) Give(n int) {
	x.out -= n
	if x.out < 0 {
		x.c.w.violate("Q5 %s: %d more messages came back than were out", x.name, -x.out)
	}
	x.wake()
}

// wake tells the core that there is credit again.
func (x *seat) wake() {
	if !x.wants || x.over || x.out >= x.most {
		return
	}
	x.wants = false
	x.c.w.after(x.c.w.between(0, 100*time.Microsecond), "credit", always, func() {
		if x.over || x.conn.proc.dead {
			return
		}
		if x.shard.Post(shard.CreditBack{Consumer: &x.member}, nil) != nil {
			x.wants = true
			x.c.w.after(10*time.Millisecond, "credit", always, x.wake)
			return
		}
		x.conn.proc.came(x.shard)
	})
}

// Take is the lane's: the shard hands something out, within its turn.
func (x *seat) Take(_ *host.Shard, h *group.Hand) {
	w, p := x.c.w, x.conn.proc
	if p.dead {
		return // a ghost's
	}
	l := p.loopOf(x.shard)
	all := make([]*message, 0, len(h.Items))
	for _, it := range h.Items {
		id := x.c.ledger.queue.HandOut(historyqueue.Claim{
			Group: x.c.group.name, Consumer: x.name, Message: historyqueue.Message{Offset: it.Offset}, Resets: h.Resets, Generation: x.gen,
			HandOut: it.HandOut, Attempt: it.Attempt, NotBefore: w.wallAtLeast(span{l.began, w.now}), NotAfter: w.wallAtMost(span{to: w.now}),
		})
		w.handed++
		w.debugf("%s is handed %d by hand-out %d of generation %d, attempt %d", x.name, it.Offset, it.HandOut, x.gen, it.Attempt)
		all = append(all, &message{x, id, it.HandOut, it.Offset, h.Group, h.Resets})
	}
	if x.over {
		return // the core hears of it soon
	}
	items := h.Items
	w.after(w.between(0, 200*time.Microsecond), "hand", always, func() { x.write(items, all) })
}

// Gone is the end of the group, which nobody deletes here.
func (x *seat) Gone(*host.Shard, *group.Consumer) { x.c.w.violate("S9 %s: its group is gone", x.name) }

// write sends what was handed out.
func (x *seat) write(items []group.Handed, all []*message) {
	w, p := x.c.w, x.conn.proc
	switch {
	case x.over || p.dead || x.conn.up.dead:
		return
	case w.now < p.paused:
		w.after(p.paused-w.now, "hand", always, func() { x.write(items, all) })
		return
	}
	size := 0
	for i, it := range items {
		r, err := x.read(it)
		switch {
		case err == nil:
			x.c.ledger.queue.Got(all[i].id, bodyOf(r.Value), string(r.Key))
			size += len(r.Value)
		case errors.Is(err, storage.ErrDropped):
		default: // the disk
			x.conn.breakOff()
			return
		}
		x.delivered = max(x.delivered, it.HandOut)
	}
	x.conn.toClientRun(size, func() { x.c.gets(x, all) })
}

var errNotThere = errors.New("the message is not where it is said to be")

// read finds a message in the log.
func (x *seat) read(it group.Handed) (r batch.Record, err error) {
	x.conn.proc.read(func() {
		seq := it.Sequence
		if seq == 0 {
			if seq, err = x.shard.Find(it.Offset); err != nil {
				return
			}
		}
		var b batch.Batch
		if b, err = x.shard.Batch(nil, seq); err != nil {
			return
		}
		for records := b.Records(); ; {
			ok, e := records.Next(&r)
			switch {
			case e != nil:
				err = e
				return
			case !ok:
				x.c.w.violate("S2 %s: message %d, by hand-out %d, is not in batch %d", x.name, it.Offset, it.HandOut, seq)
				err = errNotThere
				return
			case records.Offset() == it.Offset:
				return
			}
		}
	})
	return r, err
}

// leave tells the group that the consumer is gone.
func (x *seat) leave(orderly bool, done func(shard.Answer)) {
	p := x.conn.proc
	if x.over || p.dead || p.stopping {
		return
	}
	x.over = true
	x.c.ledger.queue.Gone(x.c.group.name, x.name, orderly)
	x.c.w.debugf("%s leaves: orderly %t, delivered %d, begun %d", x.name, orderly, x.delivered, x.begun)
	x.post(orderly, done)
}

func (x *seat) post(orderly bool, done func(shard.Answer)) {
	p := x.conn.proc
	if p.dead {
		return
	}
	ev := &shard.LeaveGroup{Consumer: &x.member, Orderly: orderly, Delivered: x.delivered, Begun: x.begun}
	var to host.Waiter
	if done != nil {
		f := host.Func(done)
		to, ev.To = f, f
	}
	switch refused := x.shard.Post(ev, to); {
	case refused == nil:
		p.came(x.shard)
	case errors.Is(refused, code.Overloaded):
		x.c.w.after(20*time.Millisecond, "leave", always, func() { x.post(orderly, done) })
	case done != nil:
		done(shard.Answer{Err: refused})
	}
}

// closed is the end of the shard, and of all claims there.
func (x *seat) closed() {
	if x.over {
		return
	}
	x.over = true
	if !x.conn.proc.dead {
		x.conn.toClientRun(32, func() { x.c.unseated(x) })
	}
}
