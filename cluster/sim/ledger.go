// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"

	"margay.dev/broker/host"
	historyqueue "margay.dev/cluster/history/queue"
	"margay.dev/wire/control"
)

// ledger is what is known of one log from outside of it: how far it must come back, whatever happens.
type ledger struct {
	w     *world
	plan  *logPlan
	floor uint64 // offset: what lies below must be there at the next opening
	tip   uint64 // offset: what lies below was visible
	start uint64
	gen   uint64
	// flushed is what a power cut leaves of a log that is not flushed at each append, and shaken says that it may have come
	// to that.
	flushed uint64
	shaken  bool
	asked   []uint64 // the offsets of trims that were not refused
	cache   cacheLog
	queue   historyqueue.Recorder
	seats   []*seat         // of consumers at the shard
	lasting map[uint64]bool // offsets of messages that are known to live for ever
	checked *host.Shard     // whose key index was looked at
}

func newLedger(w *world, l *logPlan) *ledger {
	x := &ledger{w: w, plan: l, lasting: map[uint64]bool{}}
	x.declare()
	return x
}

func (w *world) ledgerOf(ref host.Ref) *ledger {
	for _, l := range w.ledgers {
		if l.plan.ID == ref.Log {
			return l
		}
	}
	panic("no such log")
}

// opened takes note of an opening.
func (l *ledger) opened(s *host.Shard) {
	v := s.View()
	l.w.logf("%s opens at generation %d: %d to %d", l.plan.Name, v.Generation, v.Start.Offset, v.NextOffset)
	if v.Generation <= l.gen {
		l.w.violate("S1 %s: opened at generation %d after %d", l.plan.Name, v.Generation, l.gen)
	}
	l.gen = v.Generation
	if v.NextOffset < l.floor {
		l.w.violate("S2 %s: %d records were there to stay, and %d came back", l.plan.Name, l.floor, v.NextOffset)
	}
	if l.shaken || v.NextOffset < l.tip && l.plan.Storage == control.StorageMemory {
		l.w.logf("%s lost what lay from %d on", l.plan.Name, v.NextOffset)
		l.w.history.Cut(l.plan.shard, v.NextOffset, v.Generation)
		l.start = min(l.start, v.NextOffset)
	}
	l.tip, l.floor, l.flushed, l.shaken = v.NextOffset, v.NextOffset, v.NextOffset, false
	l.began(s)
}

// saw takes note of a turn.
func (l *ledger) saw(s *host.Shard) {
	l.tip = max(l.tip, s.View().Ceiling)
	l.began(s)
}

func (l *ledger) began(s *host.Shard) {
	v := s.View()
	if v.Start.Offset < l.start {
		l.w.violate("R19 %s: begins at %d, and began at %d before", l.plan.Name, v.Start.Offset, l.start)
	}
	if v.Start.Offset > v.Ceiling {
		l.w.violate("R19 %s: begins at %d, beyond its end at %d", l.plan.Name, v.Start.Offset, v.Ceiling)
	}
	l.start = v.Start.Offset
	if most := slices.Max(append([]uint64{0}, l.asked...)); l.plan.untouched() && l.start > most {
		l.w.violate("S11 %s: begins at %d, and nobody asked for more than %d", l.plan.Name, l.start, most)
	}
}

// ask takes note of a trim, and take of one that was refused.
func (l *ledger) ask(offset uint64) (id int) {
	l.asked = append(l.asked, offset)
	return len(l.asked) - 1
}

func (l *ledger) take(id int) { l.asked[id] = 0 }

// closed takes note of the end of an opening: in order, or because a flush failed.
func (l *ledger) closed(s *host.Shard) {
	l.endSeats()
	l.tip, l.floor = max(l.tip, s.View().Ceiling), s.View().Ceiling
	l.flushed = l.floor
	if st, ok := s.LogState(); ok {
		l.flushed = min(l.floor, st.FlushedOffset)
		if st.Poisoned {
			l.shake()
		}
	}
}

// died takes note of the end of a process while the shard was open.
func (l *ledger) died(s *host.Shard) { l.closed(s) }

// shake is what may have taken all that was not flushed.
func (l *ledger) shake() {
	if l.plan.Storage == control.StorageDisk && !l.plan.durable() {
		l.shaken, l.floor = true, min(l.floor, l.flushed)
	}
}

// gone is after the end of a process, for a log that nothing keeps.
func (l *ledger) gone() {
	if l.plan.Storage == control.StorageMemory {
		l.floor = 0
	}
}
