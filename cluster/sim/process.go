// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"margay.dev/broker/host"
	"margay.dev/router"
	"margay.dev/storage"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	reserve  = 32 << 10 // of the disk
	saveKeys = 6 << 10  // of a log, between two snapshots of its keys
)

// process is one life of the node. When it has died its step under way goes on to its end, as a ghost that reaches neither
// the disk nor anybody.
type process struct {
	w        *world
	gate     *gate
	host     *host.Stepped
	table    *router.Table
	dead     bool
	stopping bool
	paused   time.Duration // until then
	loops    []*loop       // of shards, in the order of their openings
	subs     []*served
	working  bool // a job is planned
	again    bool // another try is planned
	// reading counts readers of a log at work. They keep it from being closed, so that nothing may wait within them: in one
	// goroutine that would be for ever.
	reading int
}

// read is work that reads a log.
func (p *process) read(f func()) {
	p.reading++
	defer func() { p.reading-- }()
	f()
}

// loop is what drives one shard, as a goroutine would.
type loop struct {
	shard  *host.Shard
	ledger *ledger
	busy   bool          // a turn is under way
	began  time.Duration // the newest
	ended  bool
	due    bool     // a turn is planned
	timer  int      // tells the newest timer
	after  []func() // for when the turn is over
}

// boot starts the node.
func (w *world) boot() {
	p := &process{w: w, table: router.NewTable(nodeID)}
	w.starts++
	w.keepTime()
	p.gate = &gate{FS: w.disk.faulty, w: w, p: p}
	w.proc = p
	dir, err := storage.OpenDir(p.gate, "data", storage.Identity{Node: nodeID, Cluster: "c1", Random: (*source)(w.rng)})
	if p.dead {
		return
	}
	if err != nil {
		w.logf("start failed: %v", err)
		w.end(p)
		w.restartIn(100 * time.Millisecond)
		return
	}
	p.host = host.NewStepped(host.Config{
		Node: nodeID, FS: p.gate, Dir: dir, ControlPlane: w.catalog, Table: p.table, Wall: w.wall, Clock: w.clock, Reserve: reserve, SaveKeys: saveKeys,
		Logger: w.logger(),
	})
	w.logf("start %d", w.starts)
	if err := p.host.Apply(context.Background(), w.catalog.snap); err != nil {
		w.violate("apply: %v", err)
	}
	p.sync()
}

// source gives random bytes.
type source rand.Rand

func (s *source) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte((*rand.Rand)(s).Uint32())
	}
	return len(p), nil
}

// restartIn plans the next start. A life that has a step under way ends it first.
func (w *world) restartIn(d time.Duration) { w.after(d, "restart", nil, w.reboot) }

func (w *world) reboot() {
	if w.proc == nil {
		w.boot()
	}
}

// sync takes note of what the host has begun or ended.
func (p *process) sync() {
	if p.dead {
		return
	}
	if p.stopping {
		p.host.Stop() // also what was being opened when the end began
	}
	if p.host.Jobs() > 0 && !p.working {
		p.working = true
		p.w.after(p.w.between(0, 200*time.Microsecond), "work", nil, p.work)
	}
	for _, s := range p.host.Shards() {
		if p.loopOf(s) == nil {
			l := &loop{shard: s, ledger: p.w.ledgerOf(s.Ref)}
			p.loops = append(p.loops, l)
			l.ledger.opened(s)
			p.plan(l, 0)
		}
	}
	if d := p.host.UntilAgain(); d < time.Hour && !p.again && !p.stopping {
		p.again = true
		p.w.after(d, "again", nil, func() {
			p.again = false
			if p.dead || p.stopping {
				return
			}
			if err := p.host.Again(context.Background()); err != nil {
				p.w.violate("apply again: %v", err)
			}
			p.sync()
		})
	}
}

func (p *process) work() {
	p.working = false
	switch {
	case p.dead || p.stopping:
		return
	case p.w.now < p.paused:
		p.working = true
		p.w.after(p.paused-p.w.now, "work", nil, p.work)
		return
	}
	p.w.keepTime() // a shard may be opened again
	if err := p.host.Work(context.Background()); err != nil {
		p.w.violate("work: %v", err)
	}
	for _, l := range p.loops {
		p.plan(l, 0)
	}
	p.sync()
}

func (p *process) loopOf(s *host.Shard) *loop {
	for _, l := range p.loops {
		if l.shard == s {
			return l
		}
	}
	return nil
}

// plan lets a shard take a turn soon: something has come.
func (p *process) plan(l *loop, d time.Duration) {
	if l.due || l.ended || p.dead {
		return
	}
	l.due = true
	p.w.after(d+p.w.between(0, 50*time.Microsecond), "turn", func() bool { return !l.busy }, func() {
		l.due = false
		p.turn(l)
	})
}

// turn takes one turn of a shard.
func (p *process) turn(l *loop) {
	switch {
	case p.dead || l.ended:
		return
	case p.w.now < p.paused:
		p.plan(l, p.paused-p.w.now)
		return
	}
	l.busy, l.began = true, p.w.now
	ended, err := p.host.Turn(context.Background(), l.shard)
	l.busy = false
	if p.dead {
		return
	}
	if err != nil {
		p.w.violate("turn: %v", err)
	}
	l.ledger.saw(l.shard)
	if l.ledger.checked != l.shard && l.shard.View().Keys != nil || p.w.chance(40) {
		l.ledger.checked = l.shard
		p.read(func() { l.ledger.checkKeys(l.shard) })
	}
	if ended {
		l.ended = true
		l.ledger.closed(l.shard)
		p.w.logf("%s closed", l.ledger.plan.Name)
	}
	after := l.after
	l.after = nil
	for _, f := range after {
		f()
	}
	p.wakeSubscriptions()
	p.sync()
	switch {
	case l.ended:
		p.stopped()
	case l.shard.Busy():
		p.plan(l, 0)
	default:
		l.timer++
		n := l.timer
		p.w.after(l.shard.Pause(), "timer", func() bool { return !l.busy }, func() {
			if n == l.timer && !l.due {
				p.turn(l)
			}
		})
	}
}

// whenIdle runs what another goroutine would have to ask the shard's for.
func (p *process) whenIdle(s *host.Shard, f func()) {
	if l := p.loopOf(s); l != nil && l.busy {
		l.after = append(l.after, f)
		return
	}
	f()
}

// led finds the shard of a log as the broker's front does.
func (p *process) led(id batch.LogID) (*host.Shard, *code.Error) {
	r := p.table.Load().Resolve(router.LogID(id), 0)
	if s, ok := r.Shard.(*host.Shard); ok && r.Outcome == router.Local {
		return s, nil
	}
	if r.Reason == router.Quarantined {
		p.w.violate("R6 a shard was closed as damaged: %s", r.Fault)
		return nil, code.New(code.Quarantined, "%s", r.Fault)
	}
	return nil, code.New(code.Opening, "the shard is being opened").Retry(20 * time.Millisecond)
}

// came plans the turn that takes what was handed to a shard.
func (p *process) came(s *host.Shard) {
	if l := p.loopOf(s); l != nil {
		p.plan(l, 0)
	}
}

// stop begins an orderly end.
func (p *process) stop() {
	p.stopping = true
	p.host.Stop()
	for _, l := range p.loops {
		p.plan(l, 0)
	}
	p.stopped()
}

// stopped ends the process once its last shard is closed.
func (p *process) stopped() {
	if !p.stopping || p.dead || len(p.host.Shards()) > 0 {
		return
	}
	p.w.logf("stopped")
	p.w.end(p)
	p.w.restartIn(p.w.between(time.Millisecond, 100*time.Millisecond))
}

// whole says whether every shard is open.
func (p *process) whole() bool {
	if p == nil || p.dead || p.host == nil || p.stopping {
		return false
	}
	for i := range p.w.plan.logs {
		if _, err := p.led(p.w.plan.logs[i].ID); err != nil {
			return false
		}
	}
	return true
}

func (p *process) state() string {
	if p == nil {
		return "the node is down"
	}
	return fmt.Sprintf("the node: dead %t stopping %t jobs %d shards %d", p.dead, p.stopping, p.host.Jobs(), len(p.host.Shards()))
}

// die ends the process at once: by a power cut, or by kill -9.
func (w *world) die(power bool) {
	p := w.proc
	if power {
		defer func() { // after what was open has been counted
			for _, l := range w.ledgers {
				l.shake()
			}
		}()
	}
	if p == nil {
		if power {
			w.disk.lose()
		}
		return
	}
	for _, l := range p.loops {
		if !l.ended {
			l.ledger.died(l.shard)
		}
	}
	w.end(p)
	if power {
		w.disk.lose()
	}
	w.restartIn(w.between(time.Millisecond, 200*time.Millisecond))
}

// end is the end of a process, however it came.
func (w *world) end(p *process) {
	p.dead = true
	p.gate.die()
	w.disk.mem.DropLocks()
	w.proc = nil
	for _, l := range w.ledgers {
		l.gone()
	}
	for _, c := range w.conns {
		if c.proc == p {
			c.lost()
		}
	}
	w.trace.word(binary.LittleEndian.Uint64([]byte("the end.")))
}
