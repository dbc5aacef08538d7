// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/cache"
	"margay.dev/broker/internal/meter"
	"margay.dev/broker/queue"
	"margay.dev/broker/stream"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// outcome is how a publish ended.
type outcome uint8

const (
	stored outcome = iota
	duplicate
	refused
	fatal
	unknown
	outcomes
)

var outcomeNames = [outcomes]string{"stored", "duplicate", "refused", "fatal", "unknown"}

// outcomeOf is by the error's class, which is what its producer may conclude.
func outcomeOf(err error) outcome {
	switch code.From(err).Class {
	case code.ClassRefused:
		return refused
	case code.ClassFatal:
		return fatal
	default:
		return unknown
	}
}

// Why a connection was ended or not taken.
const (
	overTotal = iota
	overAddress
)

const (
	endProtocol = iota
	endSilent
	endExpired
)

const (
	readGet = iota
	readList
	readCount
)

const (
	tokenValid = iota
	tokenInvalid
	tokenEarly
)

type metrics struct {
	connections, subscriptions prometheus.Gauge
	refused, ended, tokens     []prometheus.Counter
	errors                     []prometheus.Counter // by code

	publishes, records, bytes []prometheus.Counter // by outcome
	ack                       prometheus.Histogram
	reads                     []prometheus.Counter // by kind
	read                      prometheus.Counter
	stream                    stream.Stats
	watches                   cache.Stats
	queues                    queue.Stats

	mu    sync.Mutex
	live  map[*stream.Subscription]struct{}
	lanes map[*queue.Lane]struct{} // of consumers
}

func newMetrics(s *Server) *metrics {
	on := meter.On(s.cfg.Registerer)
	m := &metrics{
		connections:   on.Gauge("margay_connections", "Client connections being served."),
		subscriptions: on.Gauge("margay_subscriptions", "Subscriptions being served."),
		refused:       on.Counters("margay_connections_refused_total", "Connections refused because there were too many, in all or from one address.", "limit", "total", "address"),
		ended: on.Counters("margay_connections_ended_total", "Connections that the broker ended: the peer broke the protocol, showed no valid token in time, or its token ran out.",
			"reason", "protocol", "no_token", "token_expired"),
		tokens: on.Counters("margay_token_verifications_total", "Tokens shown on connections; early are those shown before the broker knew the signing keys.",
			"result", "valid", "invalid", "early"),
		publishes: on.Counters("margay_publishes_total", "Publishes (batches) answered, by what their producers may conclude.", "result", outcomeNames[:]...),
		records:   on.Counters("margay_publish_records_total", "Records of the publishes that reached their shard.", "result", outcomeNames[:]...),
		bytes:     on.Counters("margay_publish_bytes_total", "Bytes of the publishes answered, as they came.", "result", outcomeNames[:]...),
		ack: on.Histogram("margay_publish_ack_seconds", "Time from the arrival of a publish that was stored to its answer.",
			prometheus.ExponentialBuckets(100e-6, 2, 18)),
		reads: on.Counters("margay_cache_reads_total", "Requests for the newest records of keys that were answered.", "kind", "get", "list", "count"),
		read:  on.Counter("margay_cache_read_entries_total", "Values and keys that those requests were answered with."),
		live:  map[*stream.Subscription]struct{}{},
		lanes: map[*queue.Lane]struct{}{},
	}
	var names []string
	for c := code.Internal; c.Known(); c++ {
		names = append(names, c.Error())
	}
	m.errors = on.Counters("margay_errors_total", "Errors that requests and subscriptions were answered with.", "code", names...)
	m.outMetrics(on)
	m.watchMetrics(on)
	m.queueMetrics(on)
	on.GaugeFunc("margay_inflight_bytes", "Bytes of publishes that have arrived and are not answered.", func() float64 { return float64(s.held.Load()) })
	on.GaugeFunc("margay_inflight_limit_bytes", "Bytes of unanswered publishes at which the broker reads no more of them.", func() float64 { return float64(s.cfg.InFlightBroker) })
	return m
}

// outMetrics are what subscriptions are sent and what waits for them.
func (m *metrics) outMetrics(on meter.Set) {
	st := &m.stream
	on.CounterFunc("margay_deliveries_total", "Frames of records sent to subscriptions.", st.Deliveries.Load)
	on.CounterFunc("margay_delivery_records_total", "Records sent to subscriptions.", st.Records.Load)
	on.CounterFunc("margay_delivery_bytes_total", "Bytes of records sent to subscriptions.", st.Bytes.Load)
	on.CounterFunc("margay_catch_ups_total", "Times that a subscription left the live end and went on from the log, its queue being full.", st.CatchUps.Load)
	on.CounterFunc("margay_slow_consumers_total", "Subscriptions that were ended because their queue was full.", st.SlowConsumers.Load)
	reasons := make([]string, stream.GapReasons)
	for i := range reasons {
		reasons[i] = wire.GapReason(i + 1).String()
	}
	on.CounterFuncs("margay_gaps_total", "Gaps that subscriptions were told of.", "reason", func(i int) uint64 { return st.Gaps[i].Load() }, reasons...)
	on.CounterFuncs("margay_gap_records_total", "Offsets that those gaps span: records that subscriptions did not get.", "reason", func(i int) uint64 { return st.Lost[i].Load() }, reasons...)
	on.GaugeFunc("margay_subscription_queue_records", "Records that wait in the queues of subscriptions.", func() float64 {
		n, _ := m.queued()
		return float64(n)
	})
	on.GaugeFunc("margay_subscription_queue_bytes", "Bytes that wait in the queues of subscriptions; those that share a record count it each.", func() float64 {
		_, n := m.queued()
		return float64(n)
	})
}

// watchMetrics are what watches begin with; what they are sent live counts with the subscriptions.
func (m *metrics) watchMetrics(on meter.Set) {
	st := &m.watches
	on.GaugeFunc("margay_watches", "Watches being served.", func() float64 { return float64(st.Watches.Load()) })
	on.GaugeFunc("margay_watch_feeds", "Feeds of watches: one for each lane of watches and shard.", func() float64 { return float64(st.Feeds.Load()) })
	on.CounterFunc("margay_watch_entries_total", "Entries of snapshots and history sent to watches.", st.Entries.Load)
	on.CounterFunc("margay_watch_snapshots_total", "Snapshots that watches began with.", st.Snapshots.Load)
	on.CounterFunc("margay_watch_resets_total", "Of those snapshots, the ones of watches whose offset was gone.", st.Resets.Load)
	on.CounterFunc("margay_watch_histories_total", "Readings of the log for watches that began with an offset; those that begin together share one.", st.Histories.Load)
}

// watch counts a subscription until the function it returns is called.
func (m *metrics) watch(s *stream.Subscription) (forget func()) {
	s.CountIn(&m.stream)
	m.mu.Lock()
	m.live[s] = struct{}{}
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		delete(m.live, s)
		m.mu.Unlock()
	}
}

// queued is asked for by a scrape, not kept: an account of every enqueue and dequeue would drift (SB-14).
func (m *metrics) queued() (records, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.live {
		r, b := s.Depth()
		records, bytes = records+r, bytes+b
	}
	return records, bytes
}

// error counts one that somebody is told.
func (m *metrics) error(c code.Code) {
	if i := int(c) - 1; i >= 0 && i < len(m.errors) {
		m.errors[i].Inc()
	}
}

// published counts a publish that is answered; began is zero when it did not reach its shard.
func (m *metrics) published(o outcome, records, bytes int, began time.Time) {
	m.publishes[o].Inc()
	m.records[o].Add(float64(records))
	m.bytes[o].Add(float64(bytes))
	if o == stored && !began.IsZero() {
		m.ack.Observe(time.Since(began).Seconds())
	}
}

// answeredRead counts a request for the newest records of keys.
func (m *metrics) answeredRead(kind, entries int) {
	m.reads[kind].Inc()
	m.read.Add(float64(entries))
}
