// SPDX-License-Identifier: Apache-2.0

package host

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/internal/meter"
	"margay.dev/broker/shard"
)

// metrics are the host's, summed over its shards: a label per shard would grow with the catalog.
type metrics struct {
	bytes, batches, reclaimed, poisoned, repairedTails prometheus.Counter
	expired, lasts, expiredKeys, carried               prometheus.Counter
	flushRecords, flushSeconds, openSeconds            prometheus.Histogram
	unknown                                            prometheus.Gauge
	shards                                             []prometheus.Gauge   // by State
	moves, given                                       []prometheus.Counter // by shard.Cause
}

// causes are spelled in the order of shard.Cause.
var causes = []string{"retention", "trim", "full_disk", "liveness"}

func newMetrics(h *Host) *metrics {
	on := meter.On(h.cfg.Registerer)
	h.diskMetrics(on)
	on.GaugeFunc("margay_inbox_requests", "Publishes and other requests that wait for their shards, over all of them.", func() float64 {
		n, _ := h.queued()
		return float64(n)
	})
	on.GaugeFunc("margay_inbox_bytes", "Bytes of publishes that wait for their shards, over all of them.", func() float64 {
		_, n := h.queued()
		return float64(n)
	})
	on.GaugeFunc("margay_cursors", "Cursors of durable subscriptions, by name and shard.", func() float64 {
		n, _ := h.remembered()
		return float64(n)
	})
	on.GaugeFunc("margay_last_records", "Records that wait for their session to be lost.", func() float64 {
		_, n := h.remembered()
		return float64(n)
	})
	return &metrics{
		bytes:         on.Counter("margay_append_bytes_total", "Bytes appended to logs."),
		batches:       on.Counter("margay_append_batches_total", "Batches appended to logs, control batches too."),
		reclaimed:     on.Counter("margay_reclaimed_bytes_total", "Bytes of the segments that were removed below the start of their log."),
		poisoned:      on.Counter("margay_flush_failures_total", "Flushes that failed; each closes its shard and opens it again."),
		repairedTails: on.Counter("margay_repaired_tails_total", "Torn tails cut off at an opening."),
		expired:       on.Counter("margay_cursors_expired_total", "Cursors of durable subscriptions forgotten because nobody used them."),
		lasts:         on.Counter("margay_last_records_published_total", "Records published because their session ended other than by close."),
		expiredKeys:   on.Counter("margay_keys_expired_total", "Keys whose time to live has ended, and whose tombstone was appended."),
		carried:       on.Counter("margay_carried_records_total", "Records written again because they were the newest of their key in a segment that was given up."),
		flushRecords:  on.Histogram("margay_flush_records", "Records made durable by one flush.", prometheus.ExponentialBuckets(1, 4, 10)),
		flushSeconds:  on.Histogram("margay_flush_seconds", "Duration of one flush.", prometheus.ExponentialBuckets(50e-6, 2, 16)),
		openSeconds:   on.Histogram("margay_shard_open_seconds", "Duration of one opening of a shard, failed ones too.", prometheus.ExponentialBuckets(1e-3, 4, 9)),
		unknown:       on.Gauge("margay_unknown_shards", "Shard directories that the catalog does not know; they are kept."),
		shards:        on.Gauges("margay_shards", "Shards that this broker is to lead, by how they stand.", "state", stateNames[:]...),
		moves:         on.Counters("margay_log_start_moves_total", "Moves of the start of a log, by what caused them.", "cause", causes...),
		given:         on.Counters("margay_log_start_records_total", "Records that moves of a log's start gave up, by what caused them.", "cause", causes...),
	}
}

// diskMetrics say what is left of what the data takes.
func (h *Host) diskMetrics(on meter.Set) {
	on.GaugeFunc("margay_disk_free_bytes", "Free bytes of the data disk; not a number when it cannot be asked.", func() float64 {
		free, err := h.cfg.FS.Free(h.cfg.Dir.Path())
		if err != nil {
			return math.NaN()
		}
		return float64(free)
	})
	on.GaugeFunc("margay_disk_reserve_bytes", "Free bytes below which records are refused.", func() float64 { return float64(h.space.reserve) })
	on.GaugeFunc("margay_disk_full", "1 while records are refused because the disk is full.", func() float64 {
		if h.space.isFull.Load() {
			return 1
		}
		return 0
	})
	on.GaugeFunc("margay_open_logs", "Logs on disk that are open; each holds a descriptor.", func() float64 { return float64(h.budget.used.Load()) })
	on.GaugeFunc("margay_open_logs_limit", "Logs on disk that may be open, by the descriptors of the process; 0 for no limit.", func() float64 { return float64(h.budget.limit) })
	on.GaugeFunc("margay_key_index_bytes", "Bytes that the key indexes of all shards take.", func() float64 { return float64(h.keyBytes.Load()) })
	on.GaugeFunc("margay_key_index_limit_bytes", "Bytes that they may take; beyond it new keys, and reads by key of logs that do not keep an index, are refused.", func() float64 { return float64(h.cfg.KeyBytes) })
	on.GaugeFunc("margay_sealed_files", "Finished segments that are kept open for readers.", func() float64 { return float64(h.files.Open()) })
	on.GaugeFunc("margay_sealed_files_limit", "Finished segments that may be kept open for readers.", func() float64 { return float64(h.cfg.SealedFiles) })
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
	m.expiredKeys.Add(float64(eff.Expired))
}

func (m *metrics) flushed(records int64, took time.Duration) {
	m.flushRecords.Observe(float64(records))
	m.flushSeconds.Observe(took.Seconds())
}
