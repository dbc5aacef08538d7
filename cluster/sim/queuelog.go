// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	historyqueue "margay.dev/cluster/history/queue"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// groupPlan is one group of a queue, and who works for it.
type groupPlan struct {
	name      string
	settings  batch.GroupSettings
	consumers int
}

// drawQueue draws a log that is read through groups.
func drawQueue(rng *rand.Rand, i int) logPlan {
	l := logPlan{Log: control.Log{
		ID: batch.LogID{byte(i + 1)}, Name: fmt.Sprintf("queue%d", i), Shards: 1, Preset: control.PresetQueue,
		MinAck: oneOf(rng, control.AckNone, control.AckQuorum), SegmentBytes: oneOf[int64](rng, 4<<10, 4<<10, 8<<10, 64<<10),
		DedupWindow: time.Hour,
	}}
	if rng.IntN(4) == 0 {
		l.Keep = control.KeepAll
	}
	l.SetDefaults()
	switch {
	case l.Keep == control.KeepAll && rng.IntN(2) == 0:
		l.MaxBytes = oneOf[int64](rng, 32<<10, 64<<10)
	case rng.IntN(8) == 0:
		l.MaxBytes = oneOf[int64](rng, 16<<10, 32<<10) // and what is not settled goes, too
	}
	l.shard.Log = l.Name
	l.pushers, l.changes = 1+rng.IntN(3), rng.IntN(4) == 0
	for n := range 1 + rng.IntN(3) {
		g := groupPlan{name: fmt.Sprintf("group%d", n), settings: batch.DefaultGroupSettings(), consumers: 1 + rng.IntN(3)}
		s := &g.settings
		s.AckWait = uint64(oneOf(rng, 150*time.Millisecond, 400*time.Millisecond, 5*time.Second) / time.Microsecond)
		s.MaxAttempts = oneOf[uint32](rng, 0, 2, 3, 10)
		s.Backoff = oneOf(rng, []uint64{1000}, []uint64{2000, 50_000}, []uint64{10_000, 100_000, 300_000})
		s.OrderByKey, s.FairKeys, s.DeadExpired = rng.IntN(2) == 0, rng.IntN(4) == 0, rng.IntN(3) == 0
		s.PriorityAge = uint64(oneOf(rng, 50*time.Millisecond, time.Minute) / time.Microsecond)
		l.groups = append(l.groups, g)
	}
	return l
}

// declare tells the history of the groups.
func (l *ledger) declare() {
	for i := range l.plan.groups {
		g := &l.plan.groups[i]
		x := historyqueue.Group{
			AckWait: time.Duration(g.settings.AckWait) * time.Microsecond, MaxAttempts: g.settings.MaxAttempts, ByKey: g.settings.OrderByKey,
			Exact: true, WritesFail: l.w.plan.writesFail(), Loses: l.plan.MaxBytes > 0,
		}
		for _, b := range g.settings.Backoff {
			x.Backoff = append(x.Backoff, time.Duration(b)*time.Microsecond)
		}
		l.queue.Group(g.name, x)
	}
}

// writesFail says whether a write may fail and its shard go on.
func (p *plan) writesFail() bool {
	return p.aimed || slices.ContainsFunc(p.faults, func(f fault) bool {
		return slices.Contains([]string{writeFails, shortWrite, shortDeath, createFail, diskFull, namesFail, storm, flushFails}, f.kind)
	})
}

// standing is how a group stands, as its shard says.
type standing struct {
	info group.Info
	open []uint64
	dead []batch.Dead
	now  int64
}

// stands asks a shard how its groups stand.
func (l *ledger) stands() map[string]*standing {
	w := l.w
	var found map[string]*standing
	for range 50 {
		answered := false
		s, refused := w.proc.led(l.plan.ID)
		if refused == nil {
			all := map[string]*standing{}
			to := host.Func(func(a shard.Answer) {
				if answered = true; a.Err == nil {
					found = all
				}
			})
			if s.Post(l.inspect(all, to), to) == nil {
				w.proc.came(s)
				if !w.runWhile(func() bool { return !answered }) {
					return nil
				}
			}
		}
		if found != nil {
			return found
		}
		w.runUntil(w.now + 50*time.Millisecond)
	}
	w.violate("Q1 %s: nobody can be asked how its groups stand", l.plan.Name)
	return nil
}

func (l *ledger) inspect(all map[string]*standing, to host.Waiter) shard.Event {
	return &shard.Inspect{To: to, Look: func(v *group.View) {
		for i := range l.plan.groups {
			name := l.plan.groups[i].name
			info, ok := v.Info(name)
			if !ok {
				continue
			}
			x := &standing{info: info, dead: v.Dead(name, 0, int(info.Dead)+1), now: v.Now()}
			for at, ok := v.Outstanding(name, 0); ok; at, ok = v.Outstanding(name, at+1) {
				x.open = append(x.open, at)
			}
			all[name] = x
		}
	}}
}

// lookAtQueues holds the groups of every queue to what is at rest: the numbers add up, and nothing that could be handed out
// waits. The last look goes to the history.
func (w *world) lookAtQueues(last bool) bool {
	for _, l := range w.ledgers {
		if len(l.plan.groups) == 0 {
			continue
		}
		all := l.rests()
		if len(w.found) > 0 {
			return false
		}
		for i := range l.plan.groups {
			g := &l.plan.groups[i]
			x := all[g.name]
			if x == nil {
				w.violate("S9 %s: %s is gone", l.plan.Name, g.name)
				return false
			}
			w.logf("%s of %s stands: %d open, %d dead, %+v", g.name, l.plan.Name, len(x.open), len(x.dead), x.info.Totals)
			l.checkStanding(g, x)
			if last {
				l.auditGroup(g, x)
			}
		}
	}
	return len(w.found) == 0
}

// rests waits until everything is handed out and settled, also what somebody holds who has forgotten it.
func (l *ledger) rests() (all map[string]*standing) {
	for range 30 {
		if all = l.stands(); len(l.w.found) > 0 {
			return nil
		}
		waits := false
		for _, x := range all {
			waits = waits || len(l.stuck(x)) > 0
		}
		if !waits {
			break
		}
		l.w.runUntil(l.w.now + 2*time.Second)
	}
	return all
}

// stuck lists what is outstanding though the group hands out. What has expired may wait for the next time that somebody looks.
func (l *ledger) stuck(x *standing) []uint64 {
	if x.info.Held != group.HeldNot {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(x.open), func(o uint64) bool { return !l.lasting[o] })
}

func (l *ledger) checkStanding(g *groupPlan, x *standing) {
	i, t := &x.info, &x.info.Totals
	ended := t.Acked + t.Expired + t.Cancelled + t.Lost + t.Discarded
	if got, want := ended+uint64(len(x.open))+uint64(len(x.dead)), i.End-t.Base; got != want {
		l.w.violate("Q8 %s of %s: %d of %d messages are accounted for: %d outstanding, %d dead, %+v", g.name, l.plan.Name, got, want,
			len(x.open), len(x.dead), *t)
	}
	if i.Ready+i.InFlight+i.Delayed != uint64(len(x.open)) {
		l.w.violate("Q8 %s of %s: %d ready, %d out, %d delayed, and %d are outstanding", g.name, l.plan.Name, i.Ready, i.InFlight,
			i.Delayed, len(x.open))
	}
	if stuck := l.stuck(x); len(stuck) > 0 {
		l.w.violate("Q1 %s of %s: %d messages wait for nothing, the first is %d: %+v", g.name, l.plan.Name, len(stuck), stuck[0], *i)
	}
}

// auditGroup tells the history what there is in the end.
func (l *ledger) auditGroup(g *groupPlan, x *standing) {
	a := historyqueue.Audit{
		Group: g.name, Resets: x.info.Resets, From: x.info.Totals.Base, To: x.info.End, NotAfter: max(x.now, l.w.wallAtMost(span{to: l.w.now})),
	}
	if l.plan.Keep == control.KeepUnsettled {
		a.From, a.Fresh = 0, x.info.Resets > 0 || len(l.plan.groups) > 1
	}
	if l.plan.MaxBytes > 0 {
		a.From = max(a.From, x.info.Start) // what lay below is lost, and counted
	}
	for _, o := range x.open {
		a.Open = append(a.Open, historyqueue.Message{Offset: o})
	}
	for _, d := range x.dead {
		a.Dead = append(a.Dead, historyqueue.DeadLetter{Message: historyqueue.Message{Offset: d.Offset}, Attempts: d.Attempts, Reason: historyqueue.Reason(d.Reason)})
	}
	l.queue.Audit(a)
}

// judgeQueue says what the history of a queue comes to.
func (l *ledger) judgeQueue() {
	for _, v := range l.queue.Check() {
		l.w.violate("%s: %s", l.plan.Name, v)
	}
}

// endSeats ends what consumers have of a shard whose leader has ended.
func (l *ledger) endSeats() {
	if len(l.plan.groups) == 0 {
		return
	}
	l.queue.LeaderEnds(0)
	for _, x := range l.seats {
		x.closed()
	}
	l.seats = nil
}
