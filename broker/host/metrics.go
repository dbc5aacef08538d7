// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/shard"
)

// metrics are the host's, summed over its shards: a label per shard would grow with the catalog.
type metrics struct {
	bytes, batches, reclaimed, poisoned, repairedTails, quarantined prometheus.Counter
	expired, lasts                                                  prometheus.Counter
	flushRecords, flushSeconds                                      prometheus.Histogram
	shards, unknown                                                 prometheus.Gauge
	moves, given                                                    [3]prometheus.Counter // by cause
}

func newMetrics(r prometheus.Registerer) *metrics {
	if r == nil {
		r = prometheus.NewRegistry()
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		r.MustRegister(h)
		return h
	}
	causes := []string{"retention", "trim", "full_disk"} // in the order of shard.Cause
	perCause := func(name, help string) (out [3]prometheus.Counter) {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"cause"})
		r.MustRegister(v)
		for i, c := range causes {
			out[i] = v.WithLabelValues(c)
		}
		return out
	}
	return &metrics{
		moves:         perCause("margay_log_start_moves_total", "Moves of the start of a log, by what caused them."),
		given:         perCause("margay_log_start_records_total", "Records that moves of a log's start gave up, by what caused them."),
		bytes:         counter("margay_append_bytes_total", "Bytes appended to logs."),
		batches:       counter("margay_append_batches_total", "Batches appended to logs, control batches too."),
		reclaimed:     counter("margay_reclaimed_bytes_total", "Bytes of segments dropped by retention."),
		poisoned:      counter("margay_flush_failures_total", "Flushes that failed; each closes its shard and opens it again."),
		repairedTails: counter("margay_repaired_tails_total", "Torn tails cut off at an opening."),
		quarantined:   counter("margay_quarantined_shards_total", "Shards kept closed because their data is damaged."),
		expired:       counter("margay_cursors_expired_total", "Cursors of durable subscriptions forgotten because nobody used them."),
		lasts:         counter("margay_last_records_published_total", "Records published because their session ended other than by close."),
		flushRecords:  histogram("margay_flush_records", "Records made durable by one flush.", prometheus.ExponentialBuckets(1, 4, 10)),
		flushSeconds:  histogram("margay_flush_seconds", "Duration of one flush.", prometheus.ExponentialBuckets(50e-6, 2, 16)),
		shards:        gauge("margay_shards_led", "Shards that this broker leads and has opened."),
		unknown:       gauge("margay_unknown_shards", "Shard directories that the catalog does not know; they are kept."),
	}
}

func (m *metrics) moved(v shard.Move) {
	m.moves[v.Cause].Inc()
	m.given[v.Cause].Add(float64(v.To.Offset - v.From.Offset))
}

func (m *metrics) wrote(bytes int64, batches int) {
	m.bytes.Add(float64(bytes))
	m.batches.Add(float64(batches))
}

// did counts what cores have done by themselves.
func (m *metrics) did(eff *shard.Effects) {
	m.expired.Add(float64(eff.CursorsExpired))
	m.lasts.Add(float64(eff.LastsPublished))
}

func (m *metrics) flushed(records int64, took time.Duration) {
	m.flushRecords.Observe(float64(records))
	m.flushSeconds.Observe(took.Seconds())
}
