// SPDX-License-Identifier: Apache-2.0

package fakebroker

import (
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

func (b *Broker) serve(r *running, c session.Conn) {
	defer func() { _ = c.Close(0, "") }()
	control, err := c.AcceptLane(r.ctx)
	if err != nil {
		return
	}
	r.wg.Go(func() { b.control(c, control) })
	for {
		lane, err := c.AcceptLane(r.ctx)
		if err != nil {
			break
		}
		r.wg.Go(func() {
			defer func() { _ = lane.Close() }()
			b.lane(r, c, lane)
		})
	}
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
	b.wake()
}

func read(lane *session.Lane) (wire.Header, []byte, error) {
	h, err := lane.ReadSupported()
	if err != nil {
		return h, nil, err
	}
	body, err := lane.AppendBody(nil)
	return h, body, err
}

func (b *Broker) control(c session.Conn, lane *session.Lane) {
	for {
		h, body, err := read(lane)
		if err != nil {
			return
		}
		switch h.Type {
		case wire.TypeHello:
			// One feature more than anybody knows: a client is to pass over it (WR-12).
			_ = lane.SendFrame(h.Corr, &wire.HelloOk{
				Version: 1, Features: wire.AllFeatures | 1<<62, Node: "fake", Cluster: "test", Limits: wire.Limits{
					MaxFrame: wire.MaxFrame, MaxBatch: batch.MaxBatch, MaxRecord: batch.MaxRecord, MaxKey: batch.MaxKey,
					MaxHeaders: batch.MaxHeaders, MaxHeaderBytes: batch.MaxHeaderBytes,
				},
			})
		case wire.TypeAuth:
			var a wire.Auth
			if a.Parse(body) != nil {
				return
			}
			b.auth(c, lane, h.Corr, a.Token)
		case wire.TypePing:
			_ = lane.SendFrame(h.Corr, &wire.Pong{})
		default:
		}
	}
}

func (b *Broker) auth(c session.Conn, lane *session.Lane, corr uint64, token string) {
	expires, err := time.Now().Add(time.Hour), error(nil)
	if f := b.current().Auth; f != nil {
		expires, err = f(token)
	}
	b.mu.Lock()
	b.auths = append(b.auths, token)
	if err == nil && b.conns[c] == nil {
		b.conns[c] = lane
		b.opened++
	}
	b.mu.Unlock()
	if err != nil {
		_ = lane.SendFrame(corr, wire.NewError(err))
		return
	}
	c.SetMaxFrame(wire.MaxFrame)
	_ = lane.SendFrame(corr, &wire.AuthOk{Expires: expires.UnixMicro(), Subject: "test"})
}

// lane serves any other lane by its first frame.
func (b *Broker) lane(r *running, c session.Conn, lane *session.Lane) {
	answers := newAnswers(r, c, lane)
	defer answers.stop()
	for {
		h, body, err := read(lane)
		if err != nil {
			return
		}
		switch h.Type {
		case wire.TypeLookup:
			b.lookup(c, lane, h.Corr, body)
		case wire.TypeOffsets:
			b.offsets(lane, h.Corr, body)
		case wire.TypeProducerState:
			b.producerState(lane, h.Corr, body)
		case wire.TypePublish:
			b.publish(answers, h, body)
		case wire.TypeSubscribe:
			b.subscribe(r, c, lane, h.Corr, body)
			return
		case wire.TypeWatch:
			b.watch(r, lane, h, body)
			return
		case wire.TypeConsume:
			b.consume(r, lane, h, body)
			return
		default:
			_ = b.ask(lane, h, body) || b.askQueue(lane, h, body)
		}
	}
}

func (b *Broker) lookup(c session.Conn, lane *session.Lane, corr uint64, body []byte) {
	var f wire.Lookup
	if err := f.Parse(body); err != nil {
		_ = lane.SendFrame(corr, wire.NewError(err))
		return
	}
	if hook := b.current().Lookup; hook != nil {
		if err := hook(f.Name); err != nil {
			_ = lane.SendFrame(corr, wire.NewError(err))
			return
		}
	}
	b.mu.Lock()
	l := b.logs[f.Name]
	b.asker = c.RemoteAddr().String()
	b.mu.Unlock()
	if l == nil {
		_ = lane.SendFrame(corr, wire.NewError(code.New(code.NotFound, "no log %s", f.Name)))
		return
	}
	info := &wire.LogInfo{Log: l.ID, Name: l.Name, Ack: wire.AckQuorum, MinAck: wire.AckNone, Keep: wire.KeepNewest, DefaultTTL: b.current().DefaultTTL}
	for range l.Shards {
		info.Shards = append(info.Shards, wire.Route{Address: b.Address(), Generation: 1})
	}
	_ = lane.SendFrame(corr, info)
}

func (b *Broker) offsets(lane *session.Lane, corr uint64, body []byte) {
	var f wire.Offsets
	if f.Parse(body) != nil {
		return
	}
	b.mu.Lock()
	ok := &wire.OffsetsOk{Shard: f.Shard}
	if l := b.byID[f.Log]; l != nil {
		s := l.Shards[f.Shard]
		ok.Generation, ok.Earliest, ok.Latest = s.Generation, s.Earliest, s.next
	}
	b.mu.Unlock()
	_ = lane.SendFrame(corr, ok)
}

func (b *Broker) producerState(lane *session.Lane, corr uint64, body []byte) {
	var f wire.ProducerState
	if f.Parse(body) != nil {
		return
	}
	ok := &wire.ProducerLast{}
	b.mu.Lock()
	if l := b.byID[f.Log]; l != nil {
		if p := l.Shards[f.Shard].producers[f.Producer]; p != nil {
			ok.LastSequence, ok.Known = p.last, true
		}
	}
	b.mu.Unlock()
	_ = lane.SendFrame(corr, ok)
}

// answers sends the answers of a publish lane in order, each when it is no longer held.
type answers struct {
	queue chan answer
	done  chan struct{}
	conn  session.Conn
}

type answer struct {
	hold   <-chan struct{}
	kill   bool
	twice  bool
	before []byte
	corr   uint64
	frame  wire.Frame
}

func newAnswers(r *running, c session.Conn, lane *session.Lane) *answers {
	a := &answers{queue: make(chan answer, 1024), done: make(chan struct{}), conn: c}
	go func() {
		defer close(a.done)
		for x := range a.queue {
			if x.hold != nil {
				select {
				case <-x.hold:
				case <-r.ctx.Done():
				case <-c.Done():
				}
			}
			if x.kill {
				_ = c.Close(code.Unavailable, "killed by the script")
				continue
			}
			if len(x.before) > 0 {
				_ = lane.Send(x.before)
			}
			_ = lane.SendFrame(x.corr, x.frame)
			if x.twice {
				_ = lane.SendFrame(x.corr, x.frame)
			}
		}
	}()
	return a
}

func (a *answers) stop() {
	close(a.queue)
	<-a.done
}

func (b *Broker) publish(out *answers, h wire.Header, body []byte) {
	var f wire.Publish
	corr := h.Corr
	if err := wire.ParseFrame(h, &f, body); err != nil {
		out.queue <- answer{corr: corr, frame: wire.NewError(err)}
		return
	}
	bt, err := batch.CheckProduced(f.Batch, batch.Limits{})
	if err != nil {
		out.queue <- answer{corr: corr, frame: wire.NewError(code.New(code.CorruptBatch, "%w", err))}
		return
	}
	p := Publish{
		From:  out.conn.RemoteAddr().String(),
		Shard: f.Shard, Producer: bt.ProducerID(), Sequence: bt.ProducerSequence(), Before: f.Previous,
		Count: bt.Count(), Size: bt.Size(), TimeoutMs: f.TimeoutMs, Ack: f.Ack, Values: values(bt),
		Conditions: f.Conditions, DedupID: string(bt.DedupID()),
	}
	b.mu.Lock()
	b.seen = append(b.seen, p)
	hook := b.script.Publish
	b.mu.Unlock()
	var v Verdict
	if hook != nil {
		v = hook(p)
	}
	a := answer{hold: v.Hold, kill: v.Kill, twice: v.Twice, before: v.Before, corr: corr}
	if v.Err == nil || v.Apply {
		ok, err := b.apply(&f, bt)
		a.frame = ok
		if err != nil {
			a.frame = wire.NewError(err)
		}
	}
	if v.Err != nil {
		a.frame = wire.NewError(v.Err)
	}
	out.queue <- a
}

// apply is the leader's rule for idempotent producers.
func (b *Broker) apply(f *wire.Publish, bt batch.Batch) (*wire.Published, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byID[f.Log]
	if l == nil {
		return nil, code.New(code.Deleted, "log %s", f.Log)
	}
	s := l.Shards[f.Shard]
	var reached wire.Reached
	var sums []int64
	id, seq := bt.ProducerID(), bt.ProducerSequence()
	if id != 0 {
		p := s.producers[id]
		switch {
		case p == nil && f.Previous != 0:
			return nil, code.New(code.ProducerUnknown, "producer %d", id)
		case p == nil:
			p = &producer{stored: map[uint64]batch.Batch{}, sums: map[uint64][]int64{}}
			s.producers[id] = p
		case p.stored[seq] != nil:
			reached = wire.ReachedDuplicate
			bt, sums = p.stored[seq], p.sums[seq]
		case p.last != f.Previous, seq <= p.last:
			return nil, code.New(code.OutOfOrder, "after %d", p.last).With(code.DetailLastSequence, p.last)
		}
	}
	if d := string(bt.DedupID()); reached == 0 && d != "" {
		if first := s.ids[d]; first != nil {
			reached, bt = wire.ReachedDuplicate, first
		} else {
			s.ids[d] = bt
		}
	}
	if reached == 0 && len(f.Derives) > 0 {
		made, came, err := s.derive(f, bt)
		if err != nil {
			return nil, err
		}
		bt, sums = made, came
	}
	if s, ok, _ := bt.Settlement(); ok && reached == 0 {
		if err := b.settlePublished(l, f.Shard, &s); err != nil {
			return nil, err
		}
	}
	if id != 0 && reached == 0 {
		p := s.producers[id]
		p.last, p.stored[seq], p.sums[seq] = seq, bt, sums
	}
	if reached == 0 {
		bt.Assign(batch.Assigned{
			Sequence: uint64(len(s.Batches)), BaseOffset: s.next, Generation: s.Generation, AppendTime: time.Now().UnixMicro(),
		})
		s.Batches = append(s.Batches, bt)
		s.next = bt.NextOffset()
		b.changed.Broadcast()
	}
	return &wire.Published{
		BaseOffset: bt.BaseOffset(), Generation: bt.Generation(), AppendTime: bt.AppendTime(), Count: uint32(bt.Count()),
		Replicas: 1, Reached: reached | wire.ReachedFlushed | wire.ReachedCommitted, Sums: sums,
	}, nil
}
