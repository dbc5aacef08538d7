// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/cluster/history"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// subscriber is one client's subscription, over any number of connections.
type subscriber struct {
	w    *world
	plan *logPlan
	name string
	life int // a reader that begins anew elsewhere is another one to the history
	conn *conn
	from wire.Start
	sub  wire.Subscribe

	begun, live bool
	// seeking: it starts at a time, and what lies before that is passed over without a word until the first record.
	seeking   bool
	next, gen uint64
	skip      uint64 // the log is known to begin there

	cursor *cursor
}

func newSubscriber(w *world, l *logPlan, n int) *subscriber {
	s := &subscriber{w: w, plan: l, name: fmt.Sprintf("subscriber of %s %d", l.Name, n)}
	s.from.Kind = oneOf(w.rng, wire.StartLatest, wire.StartEarliest, wire.StartEarliest, wire.StartTime)
	if s.from.Kind == wire.StartTime {
		s.from.At = uint64(w.wall().Add(w.between(0, time.Second)).UnixMicro())
	}
	s.sub = wire.Subscribe{
		Log: l.ID, Policy: oneOf(w.rng, wire.PolicyDefault, wire.PolicyCatchUp, wire.PolicyDropNew, wire.PolicyDropOld, wire.PolicyDisconnect),
	}
	if w.chance(2) {
		s.sub.QueueRecords = uint32(1 + w.rng.IntN(8))
	}
	return s
}

func (s *subscriber) String() string { return s.name }

func (s *subscriber) start() {
	s.later(s.w.between(0, s.w.plan.length*3/4), s.connect)
	s.later(s.w.between(0, time.Second), s.misbehave)
}

// done says whether it has got all there is.
func (s *subscriber) done() bool {
	for _, l := range s.w.ledgers {
		if l.plan == s.plan {
			return (s.begun || s.seeking && s.live) && s.next >= l.tip
		}
	}
	return true
}

func (s *subscriber) later(d time.Duration, run func()) { s.w.after(d, s.name, always, run) }

// misbehave reads slowly for a while, or goes away and comes back.
func (s *subscriber) misbehave() {
	if s.w.calm {
		return
	}
	s.later(s.w.between(10*time.Millisecond, time.Second), s.misbehave)
	c := s.conn
	switch {
	case c == nil:
	case s.w.chance(3):
		c.leave()
		s.broken(c)
	default:
		c.down.stuck = true
		s.later(s.w.between(0, 200*time.Millisecond), func() {
			c.down.stuck = false
			c.pumpDown()
		})
	}
}

func (s *subscriber) reader() string { return fmt.Sprintf("%s.%d", s.name, s.life) }

// connect subscribes from where it stands.
func (s *subscriber) connect() {
	if s.conn != nil {
		return
	}
	if s.conn = s.w.dial(s); s.conn == nil {
		s.later(s.w.between(5*time.Millisecond, 60*time.Millisecond), s.connect)
		return
	}
	if s.cursor != nil {
		s.cursor.open()
		return
	}
	s.subscribe()
}

func (s *subscriber) subscribe() {
	st := s.from
	if s.begun {
		st = wire.Start{Kind: wire.StartOffset, At: s.next, Generation: s.gen}
	}
	s.sub.Shards = []wire.Start{st}
	frame := wire.AppendFrame(nil, 1, &s.sub)
	c := s.conn
	c.toBroker(len(frame), func() { c.subscribe(frame) })
	s.later(2*time.Second, func() { // an answer that does not come
		if s.conn == c && !s.live {
			c.leave()
			s.broken(c)
		}
	})
}

func (s *subscriber) broken(c *conn) {
	if c != s.conn {
		return
	}
	s.conn, s.live = nil, false
	s.later(s.w.between(time.Millisecond, 60*time.Millisecond), s.connect)
}

// again leaves the connection and comes back.
func (s *subscriber) again() {
	if c := s.conn; c != nil {
		c.leave()
		s.broken(c)
	}
}

// anew goes on as another reader, at an offset.
func (s *subscriber) anew(at uint64) {
	s.life++
	s.begun, s.next, s.gen = true, at, 0
	s.w.history.Start(s.reader(), s.plan.shard, at)
}

func (s *subscriber) receive(c *conn, frame []byte) {
	if c != s.conn {
		return
	}
	h, body := split(frame)
	s.w.debugf("%s at %d gets %s", s.reader(), s.next, describe(h, body))
	var err error
	switch h.Type {
	case wire.TypeSubscribed:
		err = s.subscribed(body)
	case wire.TypeDeliver:
		err = s.deliver(body)
	case wire.TypeGap:
		var f wire.Gap
		if err = f.Parse(body); err == nil && s.seeking { // it may be of what lies before its time
			s.next = max(s.next, f.To)
		} else if err == nil {
			s.w.history.Gap(s.reader(), s.plan.shard, f.From, f.To)
			s.next, s.gen = max(s.next, f.To), 0
		}
	case wire.TypeProgress:
		var f wire.Progress
		if err = f.Parse(body); err == nil && s.seeking {
			s.next = max(s.next, f.Next)
		} else if err == nil && f.Next != s.next {
			s.w.violate("R2 %s stands at %d, and is told that it stands at %d", s.name, s.next, f.Next)
		}
	case wire.TypeEnd:
		s.again()
	case wire.TypeError:
		var f wire.Error
		if err = f.Parse(body); err == nil {
			s.refused(&f)
		}
	default:
		err = fmt.Errorf("frame %s", h.Type)
	}
	if err != nil {
		s.w.violate("%s was sent what it cannot read: %v", s.name, err)
	}
}

func (s *subscriber) subscribed(body []byte) error {
	var f wire.Subscribed
	if err := f.Parse(body); err != nil {
		return err
	}
	st := f.Shards[0]
	s.live = true
	switch {
	case s.begun:
		s.w.history.Start(s.reader(), s.plan.shard, st.Offset)
	case s.from.Kind == wire.StartTime:
		s.seeking, s.next = true, st.Offset
	default:
		s.first(st.Offset)
	}
	return nil
}

// first is where it begins, when it has not begun yet.
func (s *subscriber) first(offset uint64) {
	if s.begun {
		return
	}
	s.begun, s.seeking, s.next = true, false, offset
	s.w.history.Start(s.reader(), s.plan.shard, offset)
}

// deliver takes records.
func (s *subscriber) deliver(body []byte) error {
	var f wire.Deliver
	if err := f.Parse(body); err != nil {
		return err
	}
	for rest := []byte(f.Batch); len(rest) > 0; {
		n, err := batch.Peek(rest)
		if err != nil {
			return err
		}
		b, err := batch.CheckStored(rest[:n])
		if err != nil {
			return err
		}
		rest = rest[n:]
		if err := s.take(b); err != nil {
			return err
		}
	}
	if s.cursor != nil {
		s.cursor.moved()
	}
	return nil
}

func (s *subscriber) take(b batch.Batch) error {
	var r batch.Record
	for records := b.Records(); ; {
		if ok, err := records.Next(&r); err != nil || !ok {
			return err
		}
		offset := records.Offset()
		s.first(offset)
		if offset < s.next {
			continue
		}
		s.w.history.Read(s.reader(), history.Record{
			Shard: s.plan.shard, Offset: offset, Key: string(r.Key), Digest: history.Sum(r.Key, r.Value), Generation: b.Generation(),
		})
		s.next, s.gen = offset+1, b.Generation()
	}
}

// refused is what comes instead of a subscription.
func (s *subscriber) refused(f *wire.Error) {
	earliest, _ := f.Details.Get(code.DetailEarliest)
	latest, _ := f.Details.Get(code.DetailLatest)
	switch {
	case f.Code == code.Cut:
		at, _ := f.Details.Get(code.DetailResumeAt)
		if s.plan.durable() {
			s.w.violate("S4 %s is told that what it read was cut off at %d: it stands at %d", s.name, at, s.next)
		}
		s.anew(at)
	case f.Code == code.OutOfRange && s.begun && s.next < earliest:
		s.w.history.Gap(s.reader(), s.plan.shard, s.next, earliest)
		s.next, s.gen, s.skip = earliest, 0, earliest
	case f.Code == code.OutOfRange && s.begun && s.next > latest:
		if s.plan.durable() {
			s.w.violate("S4 %s stands at %d, and the log is said to end at %d", s.name, s.next, latest)
		}
		s.anew(earliest)
	case f.Class == code.ClassFatal:
		s.w.violate("%s is refused for good: %s", s.name, f.Message)
	}
	s.again()
}

// cursor makes a subscriber one whose place the broker keeps.
type cursor struct {
	s     *subscriber
	name  string
	epoch uint64
}

func newCursor(w *world, l *logPlan, n int) *subscriber {
	s := newSubscriber(w, l, n)
	s.name = fmt.Sprintf("durable subscriber of %s %d", l.Name, n)
	s.sub.Policy = wire.PolicyCatchUp
	s.cursor = &cursor{s: s, name: fmt.Sprintf("cursor %d", w.rng.IntN(2))}
	return s
}

// open takes the cursor, and then reads from where it stands.
func (x *cursor) open() {
	s, c := x.s, x.s.conn
	began := s.w.history.Moment()
	s.w.aim(30)
	c.toBroker(64, func() {
		c.post(s.plan.ID, func(_ *host.Shard, to any) shard.Event {
			return &shard.OpenCursor{Name: x.name, Create: true, To: to}
		}, func(a shard.Answer) {
			if c != s.conn {
				return
			}
			if a.Err != nil {
				s.again()
				return
			}
			if a.Cursor.Resumed {
				s.w.history.Found(x.name, s.plan.shard, a.Cursor.Offset, began)
			}
			x.epoch = a.Cursor.Epoch
			s.anew(max(a.Cursor.Offset, s.skip))
			s.subscribe()
		})
	})
	s.later(2*time.Second, func() {
		if s.conn == c && !s.live {
			s.again()
		}
	})
}

// moved commits now and then.
func (x *cursor) moved() {
	s, c := x.s, x.s.conn
	if !s.w.chance(3) {
		return
	}
	at, epoch := s.next, x.epoch
	if s.w.chance(6) { // one that was overtaken: it must not move the cursor back
		at -= min(at, uint64(s.w.rng.IntN(20)))
	}
	id := s.w.history.Commit(x.name, s.plan.shard, at)
	s.w.aim(60)
	c.toBroker(64, func() {
		c.post(s.plan.ID, func(_ *host.Shard, to any) shard.Event {
			return &shard.CommitCursors{List: []shard.CursorCommit{{Name: x.name, Epoch: epoch, Offset: at, To: to}}}
		}, func(a shard.Answer) {
			s.w.history.Committed(id, outcome(a.Err))
			switch {
			case a.Err == nil:
			case a.Err.Code == code.OutOfRange && s.plan.durable():
				s.w.violate("S4 %s has read up to %d, and may not commit that: %s", s.name, at, a.Err.Message)
			case a.Err.Code == code.TakenOver && c == s.conn && !s.w.calm:
				s.again()
			}
		})
	})
}

// describe is a frame for who traces.
func describe(h wire.Header, body []byte) string {
	switch h.Type {
	case wire.TypeDeliver:
		var f wire.Deliver
		_ = f.Parse(body)
		text := fmt.Sprintf("deliver mark %d:", f.Mark)
		for rest := []byte(f.Batch); len(rest) > 0; {
			n, err := batch.Peek(rest)
			if err != nil {
				return text + err.Error()
			}
			b := batch.Batch(rest[:n])
			text += fmt.Sprintf(" [%d,%d)@%d", b.BaseOffset(), b.NextOffset(), b.Generation())
			rest = rest[n:]
		}
		return text
	case wire.TypeGap:
		var f wire.Gap
		_ = f.Parse(body)
		return fmt.Sprintf("gap %d to %d: %s", f.From, f.To, f.Reason)
	case wire.TypeSubscribed:
		var f wire.Subscribed
		_ = f.Parse(body)
		return fmt.Sprintf("subscribed %+v", f.Shards)
	case wire.TypeError:
		var f wire.Error
		_ = f.Parse(body)
		return fmt.Sprintf("error %s: %s", f.Code.Error(), f.Message)
	case wire.TypeEnd:
		var f wire.End
		_ = f.Parse(body)
		return fmt.Sprintf("end %s: %s %+v", f.Code.Error(), f.Message, f.Resume)
	case wire.TypeProgress:
		var f wire.Progress
		_ = f.Parse(body)
		return fmt.Sprintf("progress %+v", f)
	default:
		return h.Type.String()
	}
}

// outcome is what an error says of what was asked.
func outcome(err *code.Error) history.Outcome {
	switch {
	case err == nil:
		return history.Acked
	case err.Class == code.ClassRefused:
		return history.Refused
	case err.Class == code.ClassFatal:
		return history.Fatal
	}
	return history.Unknown
}
