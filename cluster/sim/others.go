// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/cluster/history"
	"margay.dev/wire/batch"
)

// caller is a client that asks for one thing at a time.
type caller struct {
	w    *world
	plan *logPlan
	conn *conn
	busy bool
}

func (c *caller) receive(*conn, []byte) {}

func (c *caller) broken(of *conn) {
	if of == c.conn {
		c.conn, c.busy = nil, false
	}
}

func (c *caller) done() bool { return true }

// ready says whether something can be asked now.
func (c *caller) ready(self peer) bool {
	if c.conn == nil {
		c.conn = c.w.dial(self)
	}
	return c.conn != nil && !c.busy
}

// trimmer gives up the head of a log now and then.
type trimmer struct{ caller }

func (t *trimmer) String() string { return "trimmer of " + t.plan.Name }

func (t *trimmer) start() { t.w.after(t.w.between(0, time.Second), "trimmer", always, t.trim) }

func (t *trimmer) trim() {
	if t.w.calm {
		return
	}
	t.w.after(t.w.between(50*time.Millisecond, time.Second), "trimmer", always, t.trim)
	if !t.ready(t) {
		return
	}
	l := t.w.ledgerOf(host.Ref{Log: t.plan.ID})
	at := uint64(t.w.rng.Int64N(int64(l.tip) + 1))
	if t.w.chance(10) {
		at = l.tip
	}
	c, began := t.conn, t.w.history.Moment()
	t.busy = true
	t.w.aim(4)
	id := l.ask(at)
	c.toBroker(64, func() {
		c.post(t.plan.ID, func(s *host.Shard, to any) shard.Event {
			ev := &shard.Trim{Offset: at, To: to}
			if v := s.View(); at > v.Start.Offset {
				seq, err := s.Find(at)
				if err != nil {
					return nil
				}
				ev.Sequence = seq
			}
			return ev
		}, func(a shard.Answer) {
			t.busy = false
			if o := outcome(a.Err); o == history.Refused || o == history.Fatal {
				l.take(id)
			}
			if a.Err != nil {
				return
			}
			if a.Ack.BaseOffset < at {
				t.w.violate("R19 %s: a trim to %d was answered with %d", t.plan.Name, at, a.Ack.BaseOffset)
			}
			t.w.history.Begins(t.plan.shard, a.Ack.BaseOffset, began)
		})
	})
}

// sitter is a client with a last record. It sets it once, and then takes it back, is lost, or stays.
type sitter struct {
	caller
	name    string
	id      uint64
	batch   batch.Batch
	grace   time.Duration
	try     history.ID
	phase   phase
	at      time.Duration // when it came into the phase
	cleared bool          // it has asked for the record to be taken back
}

type phase uint8

const (
	setting phase = iota
	sitting
	lost // the record is to be published
	over
)

func newSitter(w *world, l *logPlan, n int) *sitter {
	s := &sitter{caller: caller{w: w, plan: l}, name: fmt.Sprintf("sitter of %s %d", l.Name, n), id: w.rng.Uint64() | 1}
	key, value := []byte(s.name), fmt.Appendf(nil, "%016x", w.unique())
	b := batch.NewBuilder(batch.Limits{})
	_ = b.Add(batch.Record{Key: key, Value: value, Timestamp: w.wall().UnixMicro()})
	s.batch, _ = b.Build(s.id, 1, batch.None)
	s.grace = w.between(10*time.Millisecond, 500*time.Millisecond)
	s.try = w.history.Begin(history.Attempt{Client: s.name, Op: "last record", Key: string(key), Digest: history.Sum(key, value)})
	return s
}

func (s *sitter) String() string { return s.name }

func (s *sitter) start() { s.w.after(s.w.between(0, time.Second), s.name, always, s.set) }

func (s *sitter) done() bool { return s.phase != lost || s.w.now-s.at > 5*time.Second }

func (s *sitter) enter(p phase) { s.phase, s.at = p, s.w.now }

// set says what is to be published when it is lost.
func (s *sitter) set() {
	if s.w.calm || s.phase != setting {
		return
	}
	s.w.after(100*time.Millisecond, s.name, always, s.set)
	if !s.ready(s) {
		return
	}
	c, ref := s.conn, host.Ref{Log: s.plan.ID}
	s.busy = true
	c.toBroker(len(s.batch), func() {
		sessions := c.proc.host.Host().Sessions()
		sessions.Claim(ref, s.id, c)
		c.sessions = append(c.sessions, session{ref, s.id})
		c.post(s.plan.ID, func(_ *host.Shard, to any) shard.Event {
			return &shard.SetLast{ID: s.id, Grace: s.grace, Batch: append(batch.Batch(nil), s.batch...), To: to}
		}, func(a shard.Answer) {
			if c != s.conn {
				return
			}
			if s.busy = false; a.Err != nil {
				c.leave() // a session that could not be set: ended, so that it is not half there
				s.conn = nil
				s.enter(over)
				return
			}
			s.enter(sitting)
			s.w.after(s.w.between(0, 2*time.Second), s.name, always, s.leave)
		})
	})
}

// leave takes the record back.
func (s *sitter) leave() {
	if s.phase != sitting || s.conn == nil || s.w.chance(3) {
		return
	}
	c := s.conn
	s.cleared = true
	c.toBroker(32, func() {
		c.post(s.plan.ID, func(_ *host.Shard, to any) shard.Event { return &shard.ClearLast{ID: s.id, To: to} },
			func(a shard.Answer) {
				if a.Err != nil || s.phase != sitting {
					return
				}
				s.enter(over)
				if s.plan.durable() { // else a power cut may take the word back
					s.w.history.End(s.try, history.Answer{Outcome: history.Refused, Shard: s.plan.shard})
				}
			})
	})
}

// getUp ends it, so that its record does not come at the next power cut only.
func (s *sitter) getUp() {
	if s.conn != nil {
		s.conn.breakOff()
	}
}

// broken is its end: from now on the record is to come.
func (s *sitter) broken(c *conn) {
	if c != s.conn {
		return
	}
	s.caller.broken(c)
	if s.phase != sitting {
		if s.phase == setting {
			s.enter(over) // it may have been set, or not
		}
		return
	}
	s.enter(lost)
	if !s.cleared {
		s.w.history.End(s.try, history.Answer{Outcome: history.Acked, Somewhere: true, Shard: s.plan.shard})
	}
}
