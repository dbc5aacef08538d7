// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"margay.dev/client/simulate"
	"margay.dev/cluster/history"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// How a publisher makes sure that a record is stored once.
type mode uint8

const (
	idempotent mode = iota
	named
	anonymous
	deduped
	conditional
	caching // for an owner who says what is published, and takes the answers
)

var modes = []string{"publisher", "named", "anonymous", "dedup", "conditional", "caching"}

const (
	lineWindow      = 4
	deliveryTimeout = 2500 * time.Millisecond
	answerWait      = 1200 * time.Millisecond
	answerMargin    = 200 * time.Millisecond
)

// outgoing is a batch on its way, and what the history knows of its records.
type outgoing struct {
	records    []batch.Record
	ids        []history.ID
	conditions []wire.Condition
	derives    []wire.Derive
	done       func(*wire.Published, *code.Error) // instead of the history
	level      wire.Ack
	tries      int
	unknown    bool // an earlier try may have stored it
}

// publisher is one client's publisher: the client's core, and what its goroutine does around it.
type publisher struct {
	w     *world
	plan  *logPlan
	mode  mode
	name  string
	id    uint64 // of a named one
	line  *simulate.Line[*outgoing]
	conn  *conn
	retry time.Duration // no connection before
	timer int
	// waiting counts what is to be published again soon.
	waiting int
	ledger  *keys // what it knows of versions, when it is conditional
	chain   *chain
}

func newPublisher(w *world, l *logPlan, m mode, n int) *publisher {
	p := &publisher{w: w, plan: l, mode: m, name: fmt.Sprintf("%s of %s %d", modes[m], l.Name, n)}
	switch m {
	case named:
		p.id = w.rng.Uint64() | 1
		p.chain = &chain{p: p}
	case conditional:
		p.ledger = newKeys(p)
	default:
	}
	p.line = simulate.NewLine[*outgoing](p.config())
	return p
}

func (p *publisher) String() string { return p.name }

func (p *publisher) config() simulate.Config {
	cfg := simulate.Config{
		Window: lineWindow, AnswerWait: answerWait, Margin: answerMargin,
		Wait: func(n int) time.Duration { return p.w.between(time.Millisecond, time.Duration(n)*10*time.Millisecond) },
	}
	switch p.mode {
	case idempotent, conditional, caching:
		cfg.NewID = func() uint64 { return p.w.rng.Uint64() | 1 }
	case named:
		cfg.Named = p.id
	default:
	}
	return cfg
}

func (p *publisher) start() { p.later(p.w.between(0, 30*time.Millisecond), p.produce) }

func (p *publisher) done() bool {
	return p.line.Len() == 0 && p.waiting == 0 && (p.chain == nil || !p.chain.asking)
}

func (p *publisher) later(d time.Duration, run func()) { p.w.after(d, p.name, always, run) }

// produce publishes something, and plans when to do so again.
func (p *publisher) produce() {
	if p.w.calm {
		return
	}
	pace := 60 * time.Millisecond
	if p.mode == conditional {
		pace = 30 * time.Millisecond
	}
	p.later(p.w.between(time.Millisecond, pace), p.produce)
	if p.line.Len() > 20 {
		return
	}
	switch p.mode {
	case named:
		p.chain.more()
	case conditional:
		if p.line.Len() == 0 {
			p.push(p.ledger.next())
		}
	case deduped:
		p.push(p.compose(1, true))
	default:
		p.push(p.compose(1+p.w.rng.IntN(4), false))
	}
}

// compose makes a batch of so many records.
func (p *publisher) compose(n int, dedup bool) *outgoing {
	o := &outgoing{level: p.level()}
	for range n {
		r := p.record(fmt.Sprintf("%s/%d", p.name, p.w.rng.IntN(3)))
		if dedup {
			r.Headers = []batch.Header{{Key: batch.DedupHeader, Value: fmt.Appendf(nil, "%x", p.w.rng.Uint64())}}
		}
		o.add(p, r, history.Attempt{})
	}
	return o
}

// record makes a record that no other equals.
func (p *publisher) record(key string) batch.Record {
	size := 8 + p.w.rng.IntN(200)
	if p.w.chance(20) {
		size = 3000
	}
	value := make([]byte, 0, size+16)
	value = fmt.Appendf(value, "%016x", p.w.unique())
	for len(value) < size {
		value = append(value, byte(p.w.rng.Uint32()))
	}
	return batch.Record{Key: []byte(key), Value: value, Timestamp: p.w.wall().UnixMicro()}
}

func (o *outgoing) add(p *publisher, r batch.Record, a history.Attempt) {
	a.Client, a.Op, a.Key, a.Digest = p.name, "publish", string(r.Key), history.Sum(r.Key, r.Value)
	if p.mode != deduped && p.mode != anonymous { // theirs are not sent again in order
		a.Producer = p.name
	}
	o.records = append(o.records, r)
	o.ids = append(o.ids, p.w.history.Begin(a))
}

func (p *publisher) level() wire.Ack {
	if p.plan.MinAck != control.AckNone {
		return wire.AckDefault
	}
	return oneOf(p.w.rng, wire.AckDefault, wire.AckNone, wire.AckLeader)
}

// push gives a batch to the line.
func (p *publisher) push(o *outgoing) {
	p.line.Push(&simulate.Item[*outgoing]{Value: o, Deadline: p.w.clock().Add(deliveryTimeout), Elsewhere: p.mode == deduped})
	p.step()
}

// step is one round of the client's publish lane.
func (p *publisher) step() {
	now := p.w.clock()
	p.line.Written(now)
	p.line.Expire(now, "")
	p.finish(nil)
	if p.line.Overdue(now) && p.conn != nil {
		c := p.conn
		c.leave()
		p.broken(c)
		return
	}
	if p.conn == nil && p.line.Len() > 0 && p.w.now >= p.retry {
		if p.conn = p.w.dial(p); p.conn != nil {
			p.line.Up()
		} else {
			p.retry = p.w.now + p.w.between(5*time.Millisecond, 50*time.Millisecond)
		}
	}
	for p.conn != nil {
		it, ok := p.line.Take(now)
		if !ok {
			break
		}
		p.send(it, now)
	}
	p.sleep(now)
}

// send writes one batch.
func (p *publisher) send(it *simulate.Item[*outgoing], now time.Time) {
	b := batch.NewBuilder(batch.Limits{})
	for _, r := range it.Value.records {
		if err := b.Add(r); err != nil {
			p.w.violate("build: %v", err)
			return
		}
	}
	encoded, err := b.Build(it.ID, it.Sequence, batch.None)
	if err != nil {
		p.w.violate("build: %v", err)
		return
	}
	wait := min(it.Deadline.Sub(now), answerWait)
	f := &wire.Publish{
		Log: p.plan.ID, Previous: it.Previous, Ack: it.Value.level, TimeoutMs: uint32(max(wait.Milliseconds(), 1)),
		Conditions: it.Value.conditions, Derives: it.Value.derives, Batch: encoded,
	}
	frame := wire.AppendFrame(nil, it.Ticket, f)
	c := p.conn
	c.toBroker(len(frame), func() { c.publish(frame) })
}

// sleep plans the next step without an event.
func (p *publisher) sleep(now time.Time) {
	at, ok := p.line.Wake(now.Add(-1))
	if p.conn == nil && p.line.Len() > 0 {
		if again := epoch.Add(p.retry); !ok || again.Before(at) {
			at, ok = again, true
		}
	}
	if !ok {
		return
	}
	p.timer++
	n := p.timer
	p.later(max(at.Sub(now), time.Microsecond), func() {
		if n == p.timer {
			p.step()
		}
	})
}

// receive takes an answer.
func (p *publisher) receive(c *conn, frame []byte) {
	if c != p.conn {
		return
	}
	h, body := split(frame)
	switch h.Type {
	case wire.TypePublished:
		var f wire.Published
		if err := wire.ParseFrame(h, &f, body); err != nil {
			p.w.violate("answer: %v", err)
			return
		}
		p.line.Stored(h.Corr, f.Reached.Has(wire.ReachedDuplicate))
		p.finish(&f)
	case wire.TypeError:
		var f wire.Error
		if err := f.Parse(body); err != nil {
			p.w.violate("answer: %v", err)
			return
		}
		if p.line.Failed(h.Corr, f.Err(), p.w.clock()) && p.plan.durable() && p.plan.MinAck != control.AckNone {
			p.w.violate("S7 %s: the shard has lost what it had acknowledged: %s", p.name, f.Message)
		}
		p.finish(nil)
	default:
		p.w.violate("a publisher was sent %s", h.Type)
	}
	p.step()
}

func (p *publisher) broken(c *conn) {
	if c != p.conn {
		return
	}
	p.conn = nil
	p.retry = p.w.now + p.w.between(time.Millisecond, 30*time.Millisecond)
	p.line.Lost()
	p.finish(nil)
	p.step()
}

// finish tells the history of what is done.
func (p *publisher) finish(f *wire.Published) {
	for _, d := range p.line.Finished() {
		o := d.Item.Value
		if o.done != nil {
			o.done(f, d.Err)
			continue
		}
		if p.mode == deduped && p.retryDedup(o, d.Err) {
			continue
		}
		// What an earlier life of a named publisher does not know, a later one that never sent it does not either.
		o.unknown = o.unknown || d.Err != nil && d.Err.Class == code.ClassUnknown
		for i, id := range o.ids {
			p.w.history.End(id, p.answer(o, f, d.Err, i))
		}
		if d.Err == nil {
			p.w.acked += len(o.ids)
		}
		switch p.mode {
		case conditional:
			p.ledger.learn(o, f, d.Err)
		case named:
			p.chain.learn(d.Item.Sequence, f, d.Err)
		default:
		}
	}
	if p.chain != nil {
		p.chain.check()
	}
}

// retryDedup sends a record with a dedup id again until it is known to be stored: whoever it is that does so.
func (p *publisher) retryDedup(o *outgoing, err *code.Error) bool {
	o.unknown = o.unknown || err != nil && err.Class == code.ClassUnknown
	if err == nil || o.tries >= 6 {
		return false
	}
	o.tries++
	p.waiting++
	p.later(p.w.between(time.Millisecond, 200*time.Millisecond), func() {
		p.waiting--
		p.push(o)
	})
	return true
}

func (p *publisher) answer(o *outgoing, f *wire.Published, err *code.Error, i int) history.Answer {
	a := history.Answer{Shard: p.plan.shard}
	switch {
	case err == nil && f != nil:
		a.Outcome, a.Offset, a.Generation = history.Acked, f.BaseOffset+uint64(i), f.Generation
		a.Duplicate, a.Weak = f.Reached.Has(wire.ReachedDuplicate), !f.Reached.Has(wire.ReachedCommitted)
	case err == nil || err.Class == code.ClassUnknown || o.unknown:
		a.Outcome = history.Unknown
	case err.Class == code.ClassRefused:
		a.Outcome = history.Refused
	default:
		a.Outcome = history.Fatal
	}
	if err != nil && err.Code == code.Conflict && a.Outcome == history.Fatal {
		if have, ok := err.Details.Get(code.DetailLatest); ok {
			v := history.Version(have)
			a.Have = &v
		}
	}
	return a
}

// keys is what a conditional publisher knows of a few keys that it shares with others.
type keys struct {
	p       *publisher
	version map[string]uint64
}

func newKeys(p *publisher) *keys { return &keys{p: p, version: map[string]uint64{}} }

func (k *keys) next() *outgoing {
	p := k.p
	key := fmt.Sprintf("shared/%d", p.w.rng.IntN(3))
	r := p.record(key)
	o := &outgoing{level: wire.AckDefault, conditions: []wire.Condition{{Version: k.version[key]}}}
	v := history.Version(k.version[key])
	o.add(p, r, history.Attempt{If: &v})
	return o
}

// learn takes the version that an answer tells.
func (k *keys) learn(o *outgoing, f *wire.Published, err *code.Error) {
	key := string(o.records[0].Key)
	switch {
	case err == nil && f != nil:
		k.version[key] = f.BaseOffset + 1
	case err != nil && err.Code == code.Conflict:
		if have, ok := err.Details.Get(code.DetailLatest); ok {
			k.version[key] = have
		}
	}
}
