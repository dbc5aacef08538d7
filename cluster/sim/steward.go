// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/cluster/history"
	historyqueue "margay.dev/cluster/history/queue"
)

// steward makes the groups of a queue, and gives them commands. It asks for one thing until it is told what came of it.
type steward struct {
	caller
	ledger *ledger
	todo   []*errand
	paused map[string]bool
}

// errand is one command on its way.
type errand struct {
	group   *groupPlan
	command group.Command
	order   historyqueue.Order
	id      historyqueue.CommandID
	told    bool // the history knows of it
}

func newSteward(w *world, l *logPlan) *steward {
	s := &steward{caller: caller{w: w, plan: l}, ledger: w.ledgerOf(host.Ref{Log: l.ID}), paused: map[string]bool{}}
	for i := range l.groups {
		g := &l.groups[i]
		settings := g.settings
		s.add(g, historyqueue.Restart, group.Command{Op: group.Create, Name: g.name, Group: w.rng.Uint64() | 1, Settings: &settings})
	}
	return s
}

func (s *steward) String() string { return "steward of " + s.plan.Name }

func (s *steward) start() { s.w.after(s.w.between(0, 20*time.Millisecond), "steward", always, s.step) }

func (s *steward) done() bool { return len(s.todo) == 0 && len(s.paused) == 0 }

func (s *steward) add(g *groupPlan, o historyqueue.Order, x group.Command) {
	binary.LittleEndian.PutUint64(x.ID[:], s.w.rng.Uint64())
	binary.LittleEndian.PutUint64(x.ID[8:], s.w.rng.Uint64())
	s.todo = append(s.todo, &errand{group: g, command: x, order: o})
}

func (s *steward) step() {
	s.w.after(s.w.between(5*time.Millisecond, 60*time.Millisecond), "steward", always, s.step)
	switch {
	case len(s.todo) > 0:
	case len(s.paused) > 0 && (s.w.calm || s.w.chance(4)):
		for i := range s.plan.groups {
			if g := &s.plan.groups[i]; s.paused[g.name] {
				s.add(g, historyqueue.Resume, group.Command{Op: group.Resume, Name: g.name})
				break
			}
		}
	case s.w.calm || !s.w.chance(6):
		return
	default:
		s.think()
	}
	if len(s.todo) > 0 && s.ready(s) {
		s.run(s.todo[0])
	}
}

// think draws a command.
func (s *steward) think() {
	g := &s.plan.groups[s.w.rng.IntN(len(s.plan.groups))]
	var some []uint64
	if tip := s.ledger.tip; tip > 0 {
		low := tip - min(tip, 40)
		for range 1 + s.w.rng.IntN(3) {
			some = append(some, low+uint64(s.w.rng.Int64N(int64(tip-low))))
		}
	}
	switch n := s.w.rng.IntN(20); {
	case n < 4:
		s.add(g, historyqueue.Pause, group.Command{Op: group.Pause, Name: g.name})
	case n < 8:
		s.add(g, historyqueue.Redrive, group.Command{Op: group.Redrive, Name: g.name, Rate: uint32(s.w.rng.IntN(2) * 200)})
	case n < 10:
		s.add(g, historyqueue.Discard, group.Command{Op: group.Discard, Name: g.name})
	case n < 14 && len(some) > 0:
		x := group.Command{Op: group.Cancel, Name: g.name, Offsets: some}
		if s.w.chance(3) {
			x.Name = ""
		}
		s.add(g, historyqueue.Cancel, x)
	case n == 14:
		s.add(g, historyqueue.Restart, group.Command{Op: group.Reset, Name: g.name})
	default:
	}
}

// run asks for it.
func (s *steward) run(e *errand) {
	if s.busy {
		return
	}
	q := &s.ledger.queue
	if !e.told {
		x := historyqueue.Command{Group: e.command.Name, Order: e.order}
		for _, o := range e.command.Offsets {
			x.Messages = append(x.Messages, historyqueue.Message{Offset: o})
		}
		e.id, e.told = q.Command(x), true
	}
	s.busy = true
	if e.order == historyqueue.Pause {
		s.paused[e.group.name] = true
	}
	c := s.conn
	s.w.aim(10)
	c.toBroker(64, func() {
		s.w.debugf("%s: %s of %q %v", s, e.order, e.command.Name, e.command.Offsets)
		c.post(s.plan.ID, func(_ *host.Shard, to any) shard.Event {
			x := e.command
			x.To = to
			return &shard.GroupCommand{Command: x}
		}, func(a shard.Answer) {
			s.busy = false
			o := outcome(a.Err)
			if o == history.Unknown || o == history.Refused { // the same again, by its id
				return
			}
			s.todo = s.todo[1:]
			if e.order == historyqueue.Resume {
				delete(s.paused, e.group.name)
			}
			if e.command.Op == group.Create && o != history.Acked {
				s.w.violate("%s: %s cannot be made: %s", s, e.group.name, a.Err.Message)
			}
			count := 0
			if a.Done != nil {
				count = int(a.Done.Count)
			}
			q.Commanded(e.id, o, count)
		})
	})
}
