// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync/atomic"

	"margay.dev/wire"
)

// GapReasons is how many reasons of gaps there are, the first being 1.
const GapReasons = int(wire.GapUnreadable)

// Stats counts what any number of subscriptions do.
type Stats struct {
	Deliveries    atomic.Uint64 // frames of records
	Records       atomic.Uint64
	Bytes         atomic.Uint64 // of those frames
	CatchUps      atomic.Uint64 // changes from the live end to the log
	SlowConsumers atomic.Uint64 // subscriptions ended because they were too slow
	Gaps          [GapReasons]atomic.Uint64
	Lost          [GapReasons]atomic.Uint64 // offsets that gaps span
}

// tally is what one turn of one subscription has come to: it is added when the turn is over, so that a thousand
// subscriptions do not contend for a counter at each delivery.
type tally struct {
	deliveries, records, bytes, catchUps, slow uint64
	gaps, lost                                 [GapReasons]uint64
}

// CountIn makes the subscription count in st.
func (s *Subscription) CountIn(st *Stats) { s.stats = st }

// Depth is what waits in the subscription's queue.
func (s *Subscription) Depth() (records, bytes int) { return s.queue.Depth() }

func (t *tally) delivery(records, bytes int) {
	t.deliveries++
	t.records += uint64(records)
	t.bytes += uint64(bytes)
}

func (t *tally) gap(why wire.GapReason, from, to uint64) {
	t.gaps[why-1]++
	t.lost[why-1] += to - from
}

// count adds the tally of a turn.
func (s *Subscription) count() {
	t, st := s.tally, s.stats
	s.tally = tally{}
	if st == nil {
		return
	}
	add := func(to *atomic.Uint64, n uint64) {
		if n > 0 {
			to.Add(n)
		}
	}
	add(&st.Deliveries, t.deliveries)
	add(&st.Records, t.records)
	add(&st.Bytes, t.bytes)
	add(&st.CatchUps, t.catchUps)
	add(&st.SlowConsumers, t.slow)
	for i := range t.gaps {
		add(&st.Gaps[i], t.gaps[i])
		add(&st.Lost[i], t.lost[i])
	}
}
