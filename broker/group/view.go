// SPDX-License-Identifier: Apache-2.0

package group

import (
	"slices"
	"strings"

	"margay.dev/wire/batch"
)

// Info is how a group stands.
type Info struct {
	ID        uint64
	Name      string
	Resets    uint32
	Settings  batch.GroupSettings
	Totals    batch.GroupTotals
	Created   int64
	Start     uint64 // of the log
	Next      uint64 // the first that is outstanding; End when none is
	End       uint64
	Ready     uint64
	InFlight  uint64
	Delayed   uint64
	Dead      uint64
	Ranges    uint64
	Held      Held
	Exact     bool // all that is outstanding was looked at: what is delayed is counted as that, and not as ready
	Consumers []ConsumerInfo
	StalledAt int64 // since when something is ready, and nobody is handed it who could be; 0: that is not so
}

// ConsumerInfo is one consumer of a group.
type ConsumerInfo struct {
	Name     string
	InFlight int
	Starved  bool // it has as much as it may
}

// View is what may be read of the groups.
type View struct{ s *Groups }

// View is for who reads, in the core's goroutine.
func (s *Groups) View() *View { return &View{s} }

// Infos are up to limit groups behind a name, by name; withConsumers names who consumes.
func (v *View) Infos(after string, limit int, withConsumers bool) []Info {
	var all []*Group
	for name, g := range v.s.byName {
		if name > after {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *Group) int { return strings.Compare(a.name, b.name) })
	all = all[:min(len(all), limit)]
	out := make([]Info, len(all))
	for i, g := range all {
		out[i] = v.s.info(g, withConsumers)
	}
	return out
}

// Info is how one group stands.
func (v *View) Info(name string) (Info, bool) {
	g := v.s.byName[name]
	if g == nil {
		return Info{}, false
	}
	return v.s.info(g, true), true
}

func (s *Groups) info(g *Group, consumers bool) Info {
	i := Info{
		ID: g.id, Name: g.name, Resets: g.resets, Settings: *g.settings, Totals: g.totals, Created: g.created, Start: s.start,
		Next: g.lowest(s.end), End: s.end, Dead: uint64(len(g.dead)), Ranges: uint64(g.passed.len()), Held: s.held(g),
	}
	outstanding := g.unsettled(s.end)
	if w := g.work; w != nil {
		i.InFlight, i.Delayed = uint64(len(w.claims)), uint64(w.later.len())
		i.Exact = w.scan >= s.end
		if consumers {
			for _, c := range w.consumers {
				i.Consumers = append(i.Consumers, ConsumerInfo{Name: c.Name, InFlight: c.out, Starved: c.starved})
			}
		}
		if i.Held == HeldNot && !w.idle() && slices.ContainsFunc(w.consumers, func(c *Consumer) bool { return !c.starved }) {
			i.StalledAt = w.handedAt
		}
	}
	if g.work == nil || !g.work.loaded { // of what waits beside the cursor it is known
		for _, a := range g.parked {
			if a.Due > s.asOf {
				i.Delayed++
			}
		}
		i.Exact = uint64(len(g.parked)) == outstanding
	}
	if taken := i.InFlight + i.Delayed; taken < outstanding {
		i.Ready = outstanding - taken
	}
	return i
}

// State is where a message stands in a group.
type State uint8

// The states.
const (
	StateSettled State = iota
	StateReady
	StateDelayed
	StateInFlight
	StateDead
)

// MessageState is how a message stands.
type MessageState struct {
	State    State
	Attempts uint32 // that have ended
	Due      int64  // of one that is delayed by the group: its own delay is the record's
	Deadline int64  // of its claim
	Consumer string
	Dead     batch.Dead
	Error    string
}

// StateOf is how a message stands in a group.
func (v *View) StateOf(name string, offset uint64) (m MessageState, ok bool) {
	g := v.s.byName[name]
	if g == nil {
		return m, false
	}
	if d, dead := g.dead[offset]; dead {
		return MessageState{State: StateDead, Attempts: d.Attempts, Dead: d, Error: d.Error}, true
	}
	if g.work != nil {
		if c, claimed := g.work.claims[offset]; claimed {
			return MessageState{State: StateInFlight, Attempts: c.attempts, Deadline: c.deadline, Consumer: c.to.Name}, true
		}
	}
	if a, parked := g.parked[offset]; parked {
		m = MessageState{State: StateReady, Attempts: a.Attempts, Error: a.Error}
		if a.Due > v.s.asOf {
			m.State, m.Due = StateDelayed, a.Due
		}
		return m, true
	}
	if g.passed.has(offset) {
		return MessageState{}, true
	}
	return MessageState{State: StateReady}, true // its own delay may hold it back yet
}

// Dead are up to limit dead letters of a group from an offset on.
func (v *View) Dead(name string, from uint64, limit int) []batch.Dead {
	g := v.s.byName[name]
	if g == nil {
		return nil
	}
	var out []batch.Dead
	for _, o := range sortedKeys(g.dead) {
		if o >= from && len(out) < limit {
			out = append(out, g.dead[o])
		}
	}
	return out
}

// Outstanding is the first message of a group at or above an offset that is neither settled nor dead; false when none is.
func (v *View) Outstanding(name string, from uint64) (uint64, bool) {
	g := v.s.byName[name]
	if g == nil {
		return 0, false
	}
	at := g.passed.gap(from)
	for o := range g.parked {
		if o >= from && o < at {
			at = o
		}
	}
	return at, at < v.s.end
}

// Now is the shard's time (us).
func (v *View) Now() int64 { return v.s.asOf }

// Look makes a group know what is outstanding for a while, also when nobody consumes.
func (v *View) Look(name string) {
	g := v.s.byName[name]
	if g == nil {
		return
	}
	v.s.begin(g)
	g.work.lookedAt = v.s.asOf
	v.s.dirty = true
}
