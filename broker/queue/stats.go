// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/group"
	"margay.dev/wire"
)

// Stats are counted over all lanes.
type Stats struct {
	Lanes      atomic.Int64
	Messages   atomic.Uint64 // written
	Frames     atomic.Uint64 // that they were written in
	Bytes      atomic.Uint64 // of them
	Unreadable atomic.Uint64 // that could not be read and were given back or rejected
	Asked      [wire.SettleRelease + 1]atomic.Uint64
	Refused    atomic.Uint64 // messages whose claim had ended when they were to be settled
	// Waited and Worked observe in seconds, of some of the messages, how long they could have been handed out before they were,
	// and how long they were out before they were settled. Nil for nobody who wants to know.
	Waited, Worked prometheus.Observer
}

// samples are messages of a lane whose settlement is awaited, to be measured.
type samples struct{ out []sample }

type sample struct {
	shard   uint32
	handOut uint64
	at      time.Time
}

// maxSamples is how many messages of a lane are measured at a time.
const maxSamples = 16

// handed measures the first of a hand, and begins to measure how long that is worked on.
func (s *Stats) handed(x *samples, shard uint32, h *group.Hand, now int64) {
	first := &h.Items[0]
	if s.Waited != nil {
		s.Waited.Observe(max(0, time.Duration(now-first.At)*time.Microsecond).Seconds())
	}
	if s.Worked == nil {
		return
	}
	if len(x.out) == maxSamples { // the oldest may never be settled
		x.out = append(x.out[:0], x.out[1:]...)
	}
	x.out = append(x.out, sample{shard, first.HandOut, time.Now()})
}

// settled ends the measuring of messages that are settled.
func (s *Stats) settled(x *samples, shard uint32, runs []wire.SettleRun) {
	x.out = slices.DeleteFunc(x.out, func(p sample) bool {
		for i := range runs {
			if r := &runs[i]; p.shard == shard && p.handOut >= r.HandOut && p.handOut-r.HandOut < uint64(r.Count) {
				s.Worked.Observe(time.Since(p.at).Seconds())
				return true
			}
		}
		return false
	})
}

func (s *Stats) wrote(messages, bytes int) {
	s.Messages.Add(uint64(messages))
	s.Frames.Add(1)
	s.Bytes.Add(uint64(bytes))
}
