// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"time"

	"margay.dev/broker/host"
	"margay.dev/cluster/history"
	historyqueue "margay.dev/cluster/history/queue"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// pusher puts messages into a queue, through a publisher as the client library does.
type pusher struct {
	w      *world
	plan   *logPlan
	ledger *ledger
	name   string
	pub    *publisher
}

func newPusher(w *world, l *logPlan, n int) *pusher {
	return &pusher{
		w: w, plan: l, ledger: w.ledgerOf(host.Ref{Log: l.ID}), name: fmt.Sprintf("pusher of %s %d", l.Name, n), pub: newPublisher(w, l, caching, n),
	}
}

func (p *pusher) String() string { return p.name }
func (p *pusher) start()         { p.w.after(p.w.between(0, 30*time.Millisecond), p.name, always, p.push) }
func (p *pusher) done() bool     { return p.pub.done() }

func (p *pusher) push() {
	if p.w.calm {
		return
	}
	p.w.after(p.w.between(time.Millisecond, 50*time.Millisecond), p.name, always, p.push)
	if p.pub.line.Len() > 8 {
		return
	}
	n := 1
	if p.w.chance(4) {
		n += 1 + p.w.rng.IntN(4)
	}
	o, x := &outgoing{level: wire.AckDefault}, &pushing{p: p, from: p.w.now}
	for range n {
		x.add(o)
	}
	o.done = x.done
	p.pub.push(o)
}

// pushing is what one publish pushes.
type pushing struct {
	p    *pusher
	from time.Duration
	ids  []historyqueue.PushID
	ends []bool
	what []string // for who traces
}

func (x *pushing) add(o *outgoing) {
	w := x.p.w
	size := 8 + w.rng.IntN(200)
	if w.chance(20) {
		size = 1500
	}
	body := fmt.Appendf(nil, "%016x", w.unique())
	r := batch.Record{Timestamp: w.wall().UnixMicro()}
	if !w.chance(4) {
		r.Key = []byte{"abcd"[w.rng.IntN(4)]}
	}
	if w.chance(6) {
		r.Delay = w.between(time.Millisecond, 800*time.Millisecond).Truncate(time.Microsecond)
	}
	if w.chance(8) {
		r.TTL = r.Delay + w.between(time.Millisecond, 900*time.Millisecond).Truncate(time.Microsecond)
	}
	if w.chance(5) {
		r.Priority = uint8(1 + w.rng.IntN(9))
	}
	x.ids = append(x.ids, x.p.ledger.queue.Push(historyqueue.Push{
		Client: x.p.name, Body: string(body), Key: string(r.Key), Delay: r.Delay, TTL: r.TTL, Priority: r.Priority,
	}))
	for len(body) < size {
		body = append(body, byte('a'+w.rng.IntN(26)))
	}
	r.Value = body
	x.ends = append(x.ends, r.TTL > 0)
	x.what = append(x.what, fmt.Sprintf("%s: key %q, priority %d, %s, %s", x.p.name, r.Key, r.Priority, r.Delay, r.TTL))
	o.records = append(o.records, r)
}

func (x *pushing) done(f *wire.Published, err *code.Error) {
	for i, id := range x.ids {
		a := historyqueue.PushAnswer{Outcome: outcome(err)}
		switch {
		case err == nil && f == nil:
			a.Outcome = history.Unknown
		case err == nil:
			a.Message, a.AppendTime = historyqueue.Message{Offset: f.BaseOffset + uint64(i)}, f.AppendTime
			x.p.w.acked++
			x.p.w.debugf("%s has pushed %d", x.what[i], a.Offset)
			x.p.ledger.lasting[a.Offset] = !x.ends[i]
		default:
		}
		x.p.ledger.queue.Pushed(id, a)
	}
}

// bodyOf is what tells a message apart.
func bodyOf(value []byte) string { return string(value[:min(16, len(value))]) }
