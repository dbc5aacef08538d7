// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/broker/stream"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// answers is what a publish lane is to a shard: its end that takes answers.
type answers struct {
	c   *conn
	out []byte
}

func (a *answers) Answer(r *host.Request, ack shard.Ack, err *code.Error) (first bool) {
	first = len(a.out) == 0
	if err != nil {
		a.out = wire.AppendFrame(a.out, r.Correlation, wire.NewError(err))
		return first
	}
	ok := wire.Published{
		BaseOffset: ack.BaseOffset, Generation: ack.Generation, AppendTime: ack.AppendTime, Count: ack.Count, Replicas: ack.Replicas,
		Sums: ack.Sums,
	}
	if ack.Flushed {
		ok.Reached |= wire.ReachedFlushed
	}
	if ack.Committed {
		ok.Reached |= wire.ReachedCommitted
	}
	if ack.Duplicate {
		ok.Reached |= wire.ReachedDuplicate
	}
	a.out = wire.AppendFrame(a.out, r.Correlation, &ok)
	return first
}

func (a *answers) Flush() {
	out := a.out
	a.out = nil
	eachFrame(out, func(frame []byte) { a.c.toClient(frame) })
}

// eachFrame takes bytes apart into frames and returns what is the beginning of another.
func eachFrame(p []byte, f func(frame []byte)) (rest []byte) {
	for len(p) >= wire.HeaderSize {
		h, _ := wire.ParseHeader([wire.HeaderSize]byte(p))
		n := wire.HeaderSize + int(h.Size)
		if len(p) < n {
			break
		}
		f(p[:n:n])
		p = p[n:]
	}
	return append([]byte(nil), p...)
}

// publish is what the broker does with a publish: the same as its ingress, without lanes.
func (c *conn) publish(frame []byte) {
	h, body := split(frame)
	buf := append(make([]byte, 0, len(body)), body...)
	refuse := func(err error) { c.toClient(wire.AppendFrame(nil, h.Corr, wire.NewError(err))) }
	var f wire.Publish
	if err := wire.ParseFrame(h, &f, buf); err != nil {
		refuse(err)
		return
	}
	s, refused := c.proc.led(f.Log)
	if refused != nil {
		refuse(refused)
		return
	}
	b, err := batch.CheckProduced(f.Batch, batch.Limits{})
	if err != nil {
		refuse(err)
		return
	}
	r := &host.Request{
		Buffer: buf, Head: f.Head(), Correlation: h.Corr, Lane: c.answers,
		Publish: shard.Publish{Batch: b, Previous: f.Previous, Level: shard.AckLevel(f.Ack)},
	}
	for _, x := range f.Conditions {
		r.Publish.Conditions = append(r.Publish.Conditions, shard.Condition{Record: int(x.Record), Version: x.Version})
	}
	for _, x := range f.Derives {
		r.Publish.Derives = append(r.Publish.Derives, shard.Derive{Record: int(x.Record), Op: shard.Op(x.Op)})
	}
	if f.TimeoutMs > 0 {
		r.Publish.Deadline = c.w.wall().Add(time.Duration(f.TimeoutMs) * time.Millisecond).UnixMicro()
	}
	r.Publish.To = r
	if refused := s.Submit(r); refused != nil {
		refuse(refused)
		return
	}
	c.proc.came(s)
}

func split(frame []byte) (wire.Header, []byte) {
	h, _ := wire.ParseHeader([wire.HeaderSize]byte(frame))
	return h, frame[wire.HeaderSize:]
}

// post gives a shard an event and hands the answer to the client.
func (c *conn) post(id batch.LogID, event func(s *host.Shard, to any) shard.Event, answered func(shard.Answer)) {
	back := host.Func(func(a shard.Answer) { c.toClientRun(64, func() { answered(a) }) })
	s, refused := c.proc.led(id)
	if refused != nil {
		back(shard.Answer{Err: refused})
		return
	}
	var ev shard.Event
	c.proc.read(func() { ev = event(s, back) })
	if ev == nil {
		back(shard.Answer{Err: code.New(code.Unavailable, "nothing could be asked")})
		return
	}
	if refused := s.Post(ev, back); refused != nil {
		back(shard.Answer{Err: refused})
		return
	}
	c.proc.came(s)
}

// session is a last record that lives on the connection.
type session struct {
	ref host.Ref
	id  uint64
}

// endSessions is what the broker does when a connection ends other than by close.
func (c *conn) endSessions() {
	sessions := c.sessions
	c.sessions = nil
	if c.proc.stopping {
		return
	}
	for _, x := range sessions {
		if !c.proc.host.Host().Sessions().Release(x.ref, x.id, c) {
			continue
		}
		c.connectionLost(x, 0)
	}
}

// connectionLost tells the shard, in a while when it is being opened.
func (c *conn) connectionLost(x session, tries int) {
	if c.proc.dead || c.proc.stopping {
		return
	}
	s, refused := c.proc.led(x.ref.Log)
	if refused == nil {
		refused = s.Post(shard.ConnectionLost{ID: x.id}, nil)
	}
	if refused != nil {
		c.w.after(50*time.Millisecond, "session", always, func() { c.connectionLost(x, tries+1) })
		return
	}
	c.proc.came(s)
}

// served is a subscription at the broker.
type served struct {
	c       *conn
	corr    uint64
	sub     *stream.Subscription
	shard   *host.Shard
	due     bool
	blocked bool // its lane is full
	over    bool
	rest    []byte        // the beginning of a frame
	at      time.Duration // of its last step
}

// window is how much may be on its way to a subscriber.
const window = 16 << 10

// Write is the subscription's lane.
func (s *served) Write(parts ...[]byte) error {
	for _, p := range parts {
		s.rest = append(s.rest, p...)
	}
	out := s.rest
	s.rest = eachFrame(out, func(frame []byte) { s.c.toClient(frame) })
	return nil
}

// subscribe is what the broker does with a subscription.
func (c *conn) subscribe(frame []byte) {
	h, body := split(frame)
	var f wire.Subscribe
	if err := wire.ParseFrame(h, &f, append([]byte(nil), body...)); err != nil {
		c.toClient(wire.AppendFrame(nil, h.Corr, wire.NewError(err)))
		return
	}
	s, refused := c.proc.led(f.Log)
	if refused != nil {
		c.toClient(wire.AppendFrame(nil, h.Corr, wire.NewError(refused)))
		return
	}
	open := func() {
		if c.up.dead || c.proc.dead {
			return
		}
		x := &served{c: c, corr: h.Corr, shard: s}
		var (
			sub *stream.Subscription
			ok  *wire.Subscribed
			err error
		)
		parts := []stream.Part{{Start: f.Shards[0], Shard: s}}
		c.proc.read(func() { sub, ok, err = stream.Open(context.Background(), x, &f, parts, c.w.wall(), stream.Durable{}) })
		if err != nil {
			c.toClient(wire.AppendFrame(nil, h.Corr, wire.NewError(err)))
			return
		}
		x.sub, c.sub = sub, x
		c.proc.subs = append(c.proc.subs, x)
		c.toClient(wire.AppendFrame(nil, h.Corr, ok))
		x.plan()
	}
	if f.Shards[0].Kind == wire.StartOffset { // the core is asked whether that is there
		c.proc.whenIdle(s, open)
		return
	}
	open()
}

// plan lets the subscription take a step soon.
func (s *served) plan() {
	if s.due || s.over {
		return
	}
	s.due = true
	s.c.w.after(s.c.w.between(0, 100*time.Microsecond), "subscription", always, s.step)
}

func (s *served) step() {
	s.due = false
	p := s.c.proc
	switch {
	case s.over || p.dead:
		return
	case p.w.now < p.paused:
		s.due = true
		p.w.after(p.paused-p.w.now, "subscription", always, s.step)
		return
	case s.c.down.size > window:
		s.blocked = true // a write would wait; room for it calls
		return
	}
	s.at = p.w.now
	var more, over bool
	var end *wire.End
	p.read(func() { more, over, end = s.sub.Step(context.Background()) })
	if over {
		if end != nil {
			s.c.toClient(wire.AppendFrame(nil, s.corr, end))
		}
		s.close()
		return
	}
	if more || !s.sub.Waits() {
		s.plan()
	}
}

func (s *served) close() {
	if s.over {
		return
	}
	s.over = true
	s.sub.Close()
}

// roomFor goes on with a subscription whose lane has room again.
func (p *process) roomFor(c *conn) {
	if s := c.sub; s != nil && s.blocked && c.down.size <= window {
		s.blocked = false
		s.plan()
	}
}

const progressEvery = 500 * time.Millisecond

// wakeSubscriptions plans steps of those that something has come for.
func (p *process) wakeSubscriptions() {
	open := p.subs[:0]
	for _, s := range p.subs {
		if s.over {
			continue
		}
		open = append(open, s)
		switch {
		case s.due || s.blocked:
		case !s.sub.Waits():
			s.plan()
		case p.w.now-s.at > progressEvery:
			s.sub.Idle(p.w.clock())
			s.plan()
		}
	}
	clear(p.subs[len(open):])
	p.subs = open
}
