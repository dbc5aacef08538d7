// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/client/simulate"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// chain is what a named publisher is to publish, in order, whatever interrupts it.
type chain struct {
	p      *publisher
	list   []*outgoing // of sequences from 1 on
	pushed int
	known  uint64 // the last sequence that was acknowledged
	asking bool
	again  bool // the line is to begin anew
}

func (x *chain) more() {
	x.list = append(x.list, x.p.compose(1, false))
	if x.p.w.chance(40) {
		x.again = true // the process ends, and another goes on
	}
	x.check()
	x.feed()
}

func (x *chain) feed() {
	if x.asking || x.again {
		return
	}
	for x.pushed < len(x.list) && x.p.line.Broken() == nil {
		x.pushed++
		x.p.line.Push(&simulate.Item[*outgoing]{
			Value: x.list[x.pushed-1], Sequence: uint64(x.pushed), Deadline: x.p.w.clock().Add(deliveryTimeout),
		})
	}
	x.p.step()
}

func (x *chain) learn(seq uint64, f *wire.Published, err *code.Error) {
	if err == nil && f != nil && f.Reached.Has(wire.ReachedCommitted) {
		x.known = max(x.known, seq)
	}
}

// check begins anew when the line has ended: it asks the shard how far it got.
func (x *chain) check() {
	if x.asking || !x.again && x.p.line.Broken() == nil {
		return
	}
	x.asking, x.again = true, false
	if c := x.p.conn; c != nil {
		c.leave()
		x.p.conn = nil
		x.p.line.Lost()
	}
	x.p.line.Abort(code.Closed, "the process ended")
	x.p.finish(nil)
	x.p.line = simulate.NewLine[*outgoing](x.p.config())
	x.ask()
}

func (x *chain) ask() {
	p := x.p
	c := p.w.dial(x)
	if c == nil {
		p.later(20*time.Millisecond, x.ask)
		return
	}
	answered := false
	c.toBroker(64, func() {
		s, refused := c.proc.led(p.plan.ID)
		if refused != nil {
			return // a question without an answer is asked again
		}
		c.proc.whenIdle(s, func() {
			_ = s.Ask(context.Background(), func(core *shard.Core) {
				last, _, _ := core.ProducerLast(p.id)
				c.toClientRun(64, func() { answered = true; c.leave(); x.goOn(last) })
			})
		})
	})
	p.later(300*time.Millisecond, func() {
		if !answered {
			c.leave()
			x.ask()
		}
	})
}

// goOn publishes what the shard does not have.
func (x *chain) goOn(last uint64) {
	if !x.asking {
		return
	}
	x.asking = false
	p := x.p
	if last < x.known && p.plan.durable() && p.plan.MinAck != control.AckNone {
		p.w.violate("R18 %s: the shard knows sequence %d, and has acknowledged %d", p.name, last, x.known)
	}
	if last > uint64(len(x.list)) {
		p.w.violate("R18 %s: the shard knows sequence %d of %d", p.name, last, len(x.list))
		return
	}
	x.pushed = int(last)
	x.feed()
}

func (x *chain) receive(*conn, []byte) {}
func (x *chain) broken(*conn)          {}
