// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"time"

	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire"
)

// strike lets a fault happen.
func (w *world) strike(f fault) {
	if w.calm || len(w.found) > 0 {
		return
	}
	w.logf("fault: %s", f.kind)
	w.faults[f.kind]++
	d := w.disk
	switch f.kind {
	case kill, powerCut:
		w.die(f.kind == powerCut)
	case killAt, powerCutAt:
		if w.proc != nil {
			w.proc.gate.how, w.proc.gate.armed = f.kind, 1+w.rng.IntN(25)
		}
	case stop:
		if w.proc != nil && !w.proc.stopping && w.proc.host != nil {
			w.proc.stop()
		}
	case pause:
		if w.proc != nil {
			w.proc.paused = w.now + w.between(time.Millisecond, 3*time.Second)
		}
	case clockStep:
		d := w.between(-30*time.Second, 30*time.Second)
		w.skew += d
		w.walls = append(w.walls, struct{ at, skew time.Duration }{w.now, w.skew})
		w.back += max(-d, 0)
	case breakConns:
		for _, c := range w.conns {
			if !c.down.dead && w.chance(2) {
				c.breakOff()
			}
		}
	case oneWay:
		for _, c := range w.conns {
			if !c.down.dead && w.chance(2) {
				c.cutOneWay()
			}
		}
	case catalogOut:
		w.catalog.away = w.now + w.between(10*time.Millisecond, 2*time.Second)
	case slowDisk:
		d.slow = w.now + w.between(10*time.Millisecond, 2*time.Second)
	case diskFull:
		d.mem.SetCapacity(d.mem.Used() + w.rng.Int64N(96<<10))
		w.after(w.between(10*time.Millisecond, time.Second), "room", always, func() { d.mem.SetCapacity(0) })
	case storm:
		w.storm()
	default:
		w.breakDisk(f.kind)
	}
}

// storm lets retries of what is on its way come into the queue behind the first tries, and then fails the flush of both.
func (w *world) storm() {
	w.disk.slow = w.now + w.between(200*time.Millisecond, 800*time.Millisecond)
	for range 3 {
		w.after(w.between(5*time.Millisecond, 150*time.Millisecond), "storm", always, func() {
			for _, c := range w.conns {
				if !c.down.dead && w.chance(2) {
					c.breakOff()
				}
			}
		})
	}
	w.after(w.between(5*time.Millisecond, 300*time.Millisecond), "storm", always, func() {
		if !w.calm {
			w.disk.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Max: 1})
		}
	})
}

// aim lets the next write fail one time in n, in a world that is like that: just when somebody asks for something.
func (w *world) aim(n int) {
	if w.plan.aimed && !w.calm && w.chance(n) {
		w.faults[writeFails]++
		w.disk.faulty.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Path: ofShards, Err: vfs.ErrFull, Max: 1})
	}
}

// breakDisk makes calls of the file system fail.
func (w *world) breakDisk(kind string) {
	d := w.disk
	switch kind {
	case writeFails:
		d.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Err: oneOf(w.rng, nil, vfs.ErrFull)})
	case shortWrite:
		d.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Short: 1 + w.rng.IntN(400)})
	case shortDeath:
		r := &faultfs.Rule{Ops: []faultfs.Op{faultfs.WriteAt}, Short: 100 + w.rng.IntN(1500), Max: 1}
		r.Hook = func(faultfs.Call) {
			if p := w.proc; p != nil && p.gate.armed == 0 {
				p.gate.how, p.gate.armed = oneOf(w.rng, killAt, powerCutAt), 1+w.rng.IntN(4)
			}
		}
		d.fail(r)
	case flushFails:
		d.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}})
	case namesFail:
		d.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.SyncDir}})
	case createFail:
		d.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Create}})
	case removeFail:
		d.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Remove}})
	case readFails:
		d.fail(&faultfs.Rule{Ops: []faultfs.Op{faultfs.ReadAt}})
	}
}

// heal ends every fault.
func (w *world) heal() {
	w.logf("calm")
	w.disk.faulty.Clear()
	w.disk.mem.SetCapacity(0)
	w.disk.slow, w.catalog.away = 0, 0
	if w.proc != nil {
		w.proc.gate.armed, w.proc.paused = 0, 0
	}
	for _, a := range w.actors {
		if c, ok := a.(*consumer); ok {
			c.wants(8)
		}
	}
	for _, c := range w.conns {
		c.up.stuck, c.down.stuck = false, false
		c.pumpUp()
		c.pumpDown()
	}
}

// cutPower is one more power cut.
func (w *world) cutPower() {
	w.logf("the last power cut")
	w.die(true)
}

// populate makes the clients.
func (w *world) populate() {
	for i := range w.plan.logs {
		l := &w.plan.logs[i]
		for m, n := range publishersOf(l) {
			for k := range n {
				w.actors = append(w.actors, newPublisher(w, l, mode(m), k))
			}
		}
		for n := range l.subscribers {
			w.actors = append(w.actors, newSubscriber(w, l, n))
		}
		for n := range l.cursors {
			w.actors = append(w.actors, newCursor(w, l, n))
		}
		for n := range l.lasts {
			w.actors = append(w.actors, newSitter(w, l, n))
		}
		for n := range l.pushers {
			w.actors = append(w.actors, newPusher(w, l, n))
		}
		if len(l.groups) > 0 {
			w.actors = append(w.actors, newSteward(w, l))
		}
		for k := range l.groups {
			for n := range l.groups[k].consumers {
				w.actors = append(w.actors, newConsumer(w, l, &l.groups[k], n))
			}
		}
		for n := range l.cachers {
			w.actors = append(w.actors, newCacher(w, l, n))
		}
		if l.trims {
			w.actors = append(w.actors, &trimmer{caller{w: w, plan: l}})
		}
		if l.changes {
			w.after(w.between(0, w.plan.length), "settings", nil, func() {
				w.catalog.change(i)
				if p := w.proc; p != nil && p.host != nil && !p.stopping {
					w.logf("settings of %s change", l.Name)
					if err := p.host.Apply(context.Background(), w.catalog.snap); err != nil {
						w.violate("apply: %v", err)
					}
					for _, x := range p.loops {
						p.plan(x, 0)
					}
					p.sync()
				}
			})
		}
	}
	for _, a := range w.actors {
		a.start()
	}
	w.pulse()
}

// publishersOf is how many publishers of each mode a log has.
func publishersOf(l *logPlan) []int {
	return []int{idempotent: l.publishers, named: l.named, anonymous: l.anonymous, deduped: l.dedup, conditional: l.conditional}
}

// pulse lets idle subscriptions hear where they stand.
func (w *world) pulse() {
	if w.proc != nil && w.proc.host != nil {
		w.proc.wakeSubscriptions()
	}
	w.after(100*time.Millisecond, "pulse", always, w.pulse)
}

// unique is a number that nothing else has.
func (w *world) unique() uint64 {
	w.uniques++
	return w.uniques
}

// audit reads all that every log holds, as a subscriber does that is connected directly.
func (w *world) audit(name string) {
	for _, l := range w.ledgers {
		if len(w.found) > 0 {
			return
		}
		if l.plan.cachers > 0 || l.plan.pushers > 0 {
			continue
		}
		w.logf("%s of %s", name, l.plan.Name)
		s := &subscriber{w: w, plan: l.plan, name: name}
		s.from.Kind = wire.StartEarliest
		s.sub = wire.Subscribe{Log: l.plan.ID, Policy: wire.PolicyCatchUp, UntilMark: true}
		r := &reading{subscriber: s}
		if r.conn = w.dial(r); r.conn == nil {
			w.violate("%s: the node is down", name)
			return
		}
		s.conn = r.conn
		s.subscribe()
		if !w.runWhile(func() bool { return !r.ended }) {
			return
		}
		w.history.Audit(s.reader(), l.plan.shard, r.first, s.next)
		w.history.Begins(l.plan.shard, r.first, w.history.Moment())
		r.conn.leave()
	}
}

// reading is a subscriber that reads once up to the end.
type reading struct {
	*subscriber
	first uint64
	ended bool
}

func (r *reading) receive(c *conn, frame []byte) {
	switch h, _ := split(frame); h.Type {
	case wire.TypeEnd:
		r.ended = true
		return
	case wire.TypeError:
		r.w.violate("an audit is refused: %x", frame)
		return
	case wire.TypeSubscribed:
		r.subscriber.receive(c, frame)
		r.first = r.next
	case wire.TypeGap: // what retention took since
		r.subscriber.receive(c, frame)
		r.first = r.next
	default:
		r.subscriber.receive(c, frame)
	}
}

func (r *reading) broken(*conn) { r.w.violate("an audit's connection broke") }
