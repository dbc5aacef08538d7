// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/cluster/history"
	historyqueue "margay.dev/cluster/history/queue"
	"margay.dev/wire/code"
)

// consumer works for a group, well or badly, over any number of connections.
type consumer struct {
	w      *world
	plan   *logPlan
	ledger *ledger
	group  *groupPlan
	name   string
	life   int
	conn   *conn
	seat   *seat
	held   []*message // what it has and has not settled
	old    []*message // what it had when it was parted from its group
}

func newConsumer(w *world, l *logPlan, g *groupPlan, n int) *consumer {
	return &consumer{w: w, plan: l, ledger: w.ledgerOf(host.Ref{Log: l.ID}), group: g, name: fmt.Sprintf("consumer %d of %s of %s", n, g.name, l.Name)}
}

func (c *consumer) String() string { return c.name }

func (c *consumer) start() {
	c.later(c.w.between(0, 300*time.Millisecond), c.connect)
	c.later(c.w.between(0, time.Second), c.misbehave)
}

// done says whether it has settled all that it has, and sits where more would come.
func (c *consumer) done() bool { return c.seat != nil && !c.seat.over && len(c.held) == 0 }

func (c *consumer) later(d time.Duration, run func()) { c.w.after(d, c.name, always, run) }

func (c *consumer) receive(*conn, []byte) {}

func (c *consumer) broken(cn *conn) {
	if cn != c.conn {
		return
	}
	c.conn = nil
	c.parted()
	c.later(c.w.between(time.Millisecond, 60*time.Millisecond), c.connect)
}

// parted is the end of a seat: what it held may be somebody else's by now.
func (c *consumer) parted() {
	c.seat = nil
	c.old = append(c.old, c.held...)
	c.held = nil
	if n := len(c.old); n > 20 {
		c.old = c.old[n-20:]
	}
}

func (c *consumer) connect() {
	if c.conn != nil {
		return
	}
	if c.conn = c.w.dial(c); c.conn == nil {
		c.later(c.w.between(5*time.Millisecond, 60*time.Millisecond), c.connect)
		return
	}
	c.join()
}

func (c *consumer) join() {
	cn := c.conn
	cn.toBroker(64, func() { c.sit(cn) })
	c.later(2*time.Second, func() { // an answer that does not come
		if c.conn == cn && c.seat == nil {
			cn.leave()
			c.broken(cn)
		}
	})
}

func (c *consumer) refused(cn *conn, err *code.Error) {
	if cn != c.conn {
		return
	}
	if err.Class == code.ClassFatal && err.Code != code.NotFound { // nobody has made the group yet
		c.w.violate("%s is refused for good: %s", c.name, err.Message)
	}
	c.again(cn)
}

// again joins once more, over the same connection or another one.
func (c *consumer) again(cn *conn) {
	c.later(c.w.between(time.Millisecond, 80*time.Millisecond), func() {
		if c.conn == cn && c.seat == nil {
			c.join()
		}
	})
}

func (c *consumer) seated(cn *conn, x *seat) {
	if cn != c.conn || x.over {
		return
	}
	c.seat = x
	if c.w.chance(2) { // an ack whose answer was lost, or which never left
		for _, m := range c.old {
			c.settle(m, historyqueue.Ack, 0)
		}
		c.old = nil
	}
}

func (c *consumer) unseated(x *seat) {
	if x != c.seat {
		return
	}
	c.parted()
	if c.conn != nil {
		c.again(c.conn)
	}
}

// misbehave goes away for a while, in order or not, or wants more or less.
func (c *consumer) misbehave() {
	if c.w.calm {
		return
	}
	c.later(c.w.between(20*time.Millisecond, time.Second), c.misbehave)
	x := c.seat
	switch {
	case x == nil || c.conn == nil:
	case c.w.chance(4):
		c.conn.breakOff()
	case c.w.chance(4):
		cn := c.conn
		cn.toBroker(32, func() {
			x.leave(true, func(shard.Answer) {
				cn.toClientRun(32, func() { c.unseated(x) })
			})
		})
	case c.w.chance(2):
		c.wants(c.w.rng.IntN(8))
	}
}

// wants says how much it may have at once.
func (c *consumer) wants(n int) {
	if x := c.seat; x != nil && c.conn != nil {
		c.conn.toBroker(32, func() { x.limit(n) })
	}
}

// gets takes messages.
func (c *consumer) gets(x *seat, all []*message) {
	if x != c.seat && c.seat != nil {
		return
	}
	if c.seat == nil { // they overtook the word that it is let in
		if x.conn != c.conn || x.over {
			return
		}
		c.seat = x
	}
	c.held = append(c.held, all...)
	for _, m := range all {
		wait := c.w.between(0, 40*time.Millisecond)
		if c.w.chance(12) {
			wait = c.w.between(0, time.Second)
		}
		c.later(wait, func() { c.work(m) })
	}
}

// has says whether it still has a message.
func (c *consumer) has(m *message) bool { return slices.Contains(c.held, m) }

func (c *consumer) drop(m *message) {
	c.held = slices.DeleteFunc(c.held, func(x *message) bool { return x == m })
}

// work does something with a message.
func (c *consumer) work(m *message) {
	if !c.has(m) {
		return
	}
	c.begin(m)
	switch n := c.w.rng.IntN(40); {
	case c.w.calm || n < 22:
		c.settle(m, historyqueue.Ack, 0)
	case n < 25:
		c.settle(m, historyqueue.Nack, 0)
	case n < 27:
		c.settle(m, historyqueue.Nack, c.w.between(time.Millisecond, 400*time.Millisecond).Truncate(time.Microsecond))
	case n < 29:
		c.settle(m, historyqueue.Reject, 0)
	case n < 31:
		c.settle(m, historyqueue.Release, 0)
	case n < 34:
		c.extend(m)
		c.later(c.w.between(0, 700*time.Millisecond), func() { c.work(m) })
	case n < 36: // for long
		c.later(c.w.between(0, 2*time.Duration(c.group.settings.AckWait)*time.Microsecond), func() { c.work(m) })
	case n < 37 && c.conn != nil: // it dies of it
		c.conn.breakOff()
	case n < 38: // and forgets it
		c.drop(m)
		c.old = append(c.old, m)
	default: // twice
		c.settle(m, oneOf(c.w.rng, historyqueue.Ack, historyqueue.Nack), 0)
		c.settle(m, oneOf(c.w.rng, historyqueue.Ack, historyqueue.Nack, historyqueue.Reject), 0)
	}
}

// begin says that it works on a message.
func (c *consumer) begin(m *message) {
	if c.conn == nil || c.w.chance(3) {
		return
	}
	c.conn.toBroker(24, func() { m.seat.begun = max(m.seat.begun, m.handOut) })
}

var opsOf = map[historyqueue.Op]group.Op{historyqueue.Ack: group.Ack, historyqueue.Nack: group.Nack, historyqueue.Reject: group.Reject, historyqueue.Release: group.Release}

// settle asks for one thing, and forgets the message.
func (c *consumer) settle(m *message, op historyqueue.Op, after time.Duration) {
	c.drop(m)
	cn := c.conn
	if cn == nil {
		return
	}
	from := c.w.now
	id := c.ledger.queue.Settle(historyqueue.Settlement{Claim: m.id, Op: op, For: after, NotBefore: c.w.wall().UnixMicro()})
	c.w.debugf("%s: %s of %d, hand-out %d, in %s", c.name, op, m.offset, m.handOut, after)
	c.w.aim(60)
	cn.toBroker(48, func() {
		cn.post(c.plan.ID, func(_ *host.Shard, to any) shard.Event {
			return &shard.Settle{List: []*group.Settlement{{
				Group: m.group, Resets: m.resets, Generation: m.seat.gen, To: to,
				Tokens: []group.Token{{Op: opsOf[op], HandOut: m.handOut, Offset: m.offset, After: after.Microseconds(), Reason: "no"}},
			}}}
		}, func(a shard.Answer) { c.settled(id, from, a) })
	})
}

// settled takes an answer. What was refused as not known is a group that was deleted, which nobody does here.
func (c *consumer) settled(id historyqueue.SettleID, from time.Duration, a shard.Answer) {
	s := span{from, c.w.now}
	r := historyqueue.SettleAnswer{Outcome: outcome(a.Err), NotBefore: c.w.wallAtLeast(s), NotAfter: c.w.wallAtMost(s)}
	if len(a.Failed) > 0 {
		r.Outcome, r.Ended = history.Refused, a.Failed[0].Code == code.NoLongerOwner
	}
	if r.Outcome == history.Acked {
		c.w.settles++
	}
	c.w.debugf("%s: settlement %d is %s, ended %t, %v", c.name, id, r.Outcome, r.Ended, a.Err)
	c.ledger.queue.Settled(id, r)
}

// extend asks for more time.
func (c *consumer) extend(m *message) {
	cn := c.conn
	if cn == nil {
		return
	}
	from := c.w.now
	span := c.w.between(100*time.Millisecond, time.Second).Truncate(time.Microsecond)
	// A clock that is set back before it arrives makes the new deadline earlier; the answer says when it was.
	id := c.ledger.queue.Settle(historyqueue.Settlement{Claim: m.id, Op: historyqueue.Extend, For: span, NotBefore: c.w.wall().Add(-time.Hour).UnixMicro()})
	cn.toBroker(48, func() {
		cn.post(c.plan.ID, func(_ *host.Shard, to any) shard.Event {
			return &shard.ExtendClaims{To: to, Extension: group.Extension{
				Group: m.group, Resets: m.resets, Generation: m.seat.gen, For: span.Microseconds(),
				Tokens: []group.Token{{HandOut: m.handOut, Offset: m.offset}},
			}}
		}, func(a shard.Answer) { c.settled(id, from, a) })
	})
}
