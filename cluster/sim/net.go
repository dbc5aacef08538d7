// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"
)

const idle = 1500 * time.Millisecond // of silence after which an end of a connection gives it up

// conn is a connection of one client: a lane each way, in order, that can lose what is on its way when it breaks. Loss,
// repetition and disorder below that are what a transport makes good, so here they are delay; between two connections of
// a client they are seen as they are: what an old one still brings may come behind what a new one brought.
type conn struct {
	w        *world
	proc     *process
	client   peer
	up       pipe // to the broker
	down     pipe // to the client
	sub      *served
	sessions []session
	answers  *answers
	seat     *seat
}

// peer is the client's end.
type peer interface {
	receive(c *conn, frame []byte)
	// broken says that the client's end is gone.
	broken(c *conn)
}

// pipe is one direction. What is in it arrives in order.
type pipe struct {
	queue []parcel
	last  time.Duration
	size  int  // bytes on their way
	stuck bool // nothing comes through, and nobody is told
	dead  bool
}

type parcel struct {
	at   time.Duration
	size int
	run  func()
}

// dial connects a client to the node, if that is there.
func (w *world) dial(client peer) *conn {
	if w.proc == nil || w.proc.stopping || w.proc.host == nil || w.proc.dead {
		return nil
	}
	c := &conn{w: w, proc: w.proc, client: client}
	c.answers = &answers{c: c}
	w.conns = append(w.conns, c)
	return c
}

// toBroker sends what runs at the broker when it arrives.
func (c *conn) toBroker(size int, run func()) { c.send(&c.up, size, run, c.pumpUp) }

// toClient sends a frame to the client.
func (c *conn) toClient(frame []byte) {
	c.w.trace.add(frame)
	if c.w.trace.each != nil {
		c.w.debugf("to %v: %s", c.client, describe(split(frame)))
	}
	c.toClientRun(len(frame), func() { c.client.receive(c, frame) })
}

func (c *conn) toClientRun(size int, run func()) {
	if c.proc.dead {
		return // a ghost's
	}
	c.send(&c.down, size, run, c.pumpDown)
}

func (c *conn) send(p *pipe, size int, run, pump func()) {
	if p.dead {
		return
	}
	at := c.w.now + c.w.between(c.w.plan.latency/2, c.w.plan.latency)
	if c.w.chance(40) { // something was lost, and sent again
		at += c.w.between(0, 60*time.Millisecond)
	}
	p.last = max(p.last, at)
	p.queue = append(p.queue, parcel{p.last, size, run})
	p.size += size
	c.w.after(p.last-c.w.now, "arrival", always, pump)
}

func (c *conn) pumpUp() {
	if c.proc.dead {
		return
	}
	if c.w.now < c.proc.paused {
		c.w.after(c.proc.paused-c.w.now, "arrival", always, c.pumpUp)
		return
	}
	c.drain(&c.up)
}

func (c *conn) pumpDown() { c.drain(&c.down) }

func (c *conn) drain(p *pipe) {
	for len(p.queue) > 0 && !p.stuck && !p.dead && p.queue[0].at <= c.w.now {
		x := p.queue[0]
		p.queue = p.queue[1:]
		p.size -= x.size
		x.run()
	}
	c.proc.roomFor(c)
}

// kill ends a direction: what has not arrived never does.
func (p *pipe) kill() { p.dead, p.queue, p.size = true, nil, 0 }

// breakOff ends the connection. Each end learns it in its own time, and takes what still arrives until then.
func (c *conn) breakOff() {
	late := c.w.plan.latency
	if c.w.chance(3) {
		late = 800 * time.Millisecond // packets that were under way, or a broker that learns it by silence
	}
	c.w.after(c.w.between(0, c.w.plan.latency), "break", always, c.clientLost)
	c.w.after(c.w.between(0, late), "break", always, c.brokerLost)
}

// lost is the end of the node's process, as the client comes to know it.
func (c *conn) lost() {
	c.up.kill()
	d := c.w.between(0, 2*c.w.plan.latency)
	if c.w.chance(4) {
		d = idle
	}
	c.w.after(d, "break", always, c.clientLost)
}

// leave is the client's end of it, at its own will.
func (c *conn) leave() {
	c.down.kill()
	c.w.after(c.w.between(0, c.w.plan.latency), "leave", always, c.brokerLost)
}

func (c *conn) clientLost() {
	if c.down.dead {
		return
	}
	c.down.kill()
	c.client.broken(c)
}

func (c *conn) brokerLost() {
	if c.up.dead || c.proc.dead {
		return
	}
	c.up.kill()
	c.endSessions()
	if c.seat != nil {
		c.seat.leave(false, nil)
	}
	if c.sub != nil {
		c.sub.close()
	}
}

// cutOneWay lets nothing through in one direction for a while.
func (c *conn) cutOneWay() {
	p, pump := &c.up, c.pumpUp
	if c.w.chance(2) {
		p, pump = &c.down, c.pumpDown
	}
	p.stuck = true
	d := c.w.between(time.Millisecond, 3*time.Second)
	if d > idle {
		c.w.after(idle, "silence", always, c.breakOff)
	}
	c.w.after(d, "cut heals", always, func() {
		p.stuck = false
		pump()
	})
}
