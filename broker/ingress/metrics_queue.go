// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/internal/meter"
	"margay.dev/broker/queue"
	"margay.dev/wire"
)

// queueMetrics are what consumers are sent and what they settle.
func (m *metrics) queueMetrics(on meter.Set) {
	st := &m.queues
	on.GaugeFunc("margay_consumers", "Consumers of groups being served: one for each lane.", func() float64 { return float64(st.Lanes.Load()) })
	on.CounterFunc("margay_consume_messages_total", "Messages sent to consumers.", st.Messages.Load)
	on.CounterFunc("margay_consume_frames_total", "Frames that they were sent in.", st.Frames.Load)
	on.CounterFunc("margay_consume_bytes_total", "Bytes of those messages.", st.Bytes.Load)
	on.CounterFunc("margay_consume_unreadable_total", "Messages that were handed out and could not be read: given back, or rejected when their producer compressed them wrongly.", st.Unreadable.Load)
	on.CounterFuncs("margay_settle_requests_total", "Messages that consumers asked to have settled, by how.", "op", func(i int) uint64 {
		return st.Asked[i+int(wire.SettleAck)].Load()
	}, "ack", "nack", "reject", "release")
	on.CounterFunc("margay_settle_refused_total", "Of those, the ones that the consumer did not have any more.", st.Refused.Load)
	st.Waited = on.Histogram("margay_consume_wait_seconds", "Time from when a message could be handed out (it was published, due or given back) to when it was; of one message of each hand-out.",
		prometheus.ExponentialBuckets(1e-3, 4, 12))
	st.Worked = on.Histogram("margay_consume_work_seconds", "Time from when a message was handed out to when its consumer settled it; of some messages.",
		prometheus.ExponentialBuckets(1e-3, 4, 12))
	on.GaugeFunc("margay_consume_out", "Messages that consumers have and have not settled.", func() float64 {
		n, _ := m.consumed()
		return float64(n)
	})
	on.GaugeFunc("margay_consume_unsent", "Of those, the ones that wait to be sent.", func() float64 {
		_, n := m.consumed()
		return float64(n)
	})
}

// consumes counts a lane until the function it returns is called.
func (m *metrics) consumes(q *queue.Lane) (forget func()) {
	m.mu.Lock()
	m.lanes[q] = struct{}{}
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		delete(m.lanes, q)
		m.mu.Unlock()
	}
}

// consumed is asked for by a scrape, not kept.
func (m *metrics) consumed() (out, unsent int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for q := range m.lanes {
		o, u := q.Depth()
		out, unsent = out+o, unsent+u
	}
	return out, unsent
}
