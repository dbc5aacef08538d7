// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"math"
	"runtime/debug"
	"strings"

	"margay.dev/broker/host"
	"margay.dev/wire/control"
)

// maxUnwell bounds the shards that a status names.
const maxUnwell = 100

// status is how the node is, from the same checks and metrics that probes and scrapes see.
func (n *node) status() control.Status {
	r := n.broker.Report()
	s := control.Status{
		Node: n.id.Node, Cluster: n.id.Cluster, Version: n.cfg.Version,
		Addresses: n.addresses(), StartedAt: n.started.UTC(), Time: n.cfg.Wall().UTC(), Checks: n.checks(r),
		Disk: control.StatusDisk{FreeBytes: r.Free, ReserveBytes: r.Reserve, Full: r.DiskFull},
	}
	s.Verdict = verdict(s.Checks)
	s.Shards = shardsOf(r)
	m := n.samples()
	whole := func(name string) int64 { return int64(m[name]) }
	s.Memory = control.StatusMemory{ResidentBytes: whole("process_resident_memory_bytes"), HeapBytes: whole("go_memstats_heap_alloc_bytes")}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		s.Memory.LimitBytes = limit
	}
	s.Files = control.StatusUse{Used: whole("process_open_fds"), Limit: whole("process_max_fds")}
	s.Connections, s.Subscriptions = whole("margay_connections"), whole("margay_subscriptions")
	s.InFlight = control.StatusUse{Used: whole("margay_inflight_bytes"), Limit: whole("margay_inflight_limit_bytes")}
	s.QueuedBytes = whole("margay_subscription_queue_bytes")
	s.Totals = totals(m)
	return s
}

func verdict(checks []control.StatusCheck) string {
	v := control.Healthy
	for _, c := range checks {
		switch {
		case c.OK:
		case !c.Advisory:
			return control.Unhealthy
		default:
			v = control.Degraded
		}
	}
	return v
}

func shardsOf(r host.Report) control.StatusShards {
	s := control.StatusShards{States: map[string]int{}, Unknown: r.Unknown}
	for state, n := range r.Shards {
		s.States[host.State(state).String()] = n
	}
	for i, u := range r.Unwell {
		if i == maxUnwell {
			s.More = len(r.Unwell) - maxUnwell
			break
		}
		s.Unwell = append(s.Unwell, control.StatusShard{Log: u.Log, Shard: u.Ref.Shard, State: u.State.String(), Reason: u.Reason})
	}
	return s
}

// samples are the node's metrics summed over their labels, also by name{label=value}; of a histogram its sum and count.
func (n *node) samples() map[string]float64 {
	out := map[string]float64{}
	families, _ := n.registry.Gather() // what could be gathered is there, beside an error
	for _, f := range families {
		name := f.GetName()
		for _, m := range f.GetMetric() {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if h := m.GetHistogram(); h != nil {
				out[name+"_sum"] += h.GetSampleSum()
				out[name+"_count"] += float64(h.GetSampleCount())
			}
			out[name] += v
			for _, l := range m.GetLabel() {
				out[name+"{"+l.GetName()+"="+l.GetValue()+"}"] += v
			}
		}
	}
	return out
}

func totals(m map[string]float64) control.StatusTotals {
	of := func(name string, results ...string) (sum float64) {
		for _, r := range results {
			sum += m[name+"{result="+r+"}"]
		}
		return sum
	}
	return control.StatusTotals{
		Publishes:   of("margay_publishes_total", "stored", "duplicate"),
		RecordsIn:   of("margay_publish_records_total", "stored"),
		BytesIn:     of("margay_publish_bytes_total", "stored"),
		NotStored:   of("margay_publishes_total", "refused", "fatal", "unknown"),
		AckSeconds:  m["margay_publish_ack_seconds_sum"],
		Acks:        m["margay_publish_ack_seconds_count"],
		RecordsOut:  m["margay_delivery_records_total"],
		BytesOut:    m["margay_delivery_bytes_total"],
		LostRecords: m["margay_gap_records_total"],
		Errors:      m["margay_errors_total"],
		GivenUp:     m["margay_log_start_records_total"],
		Flushes:     m["margay_flush_seconds_count"],
	}
}

// checks are the named conditions of readiness, and those that only advise.
func (n *node) checks(r host.Report) []control.StatusCheck {
	open := control.StatusCheck{Name: "shards_open", OK: n.health.ready.Load() && r.Ready}
	if !open.OK {
		open.Reason = notOpen(r)
	}
	disk := control.StatusCheck{Name: "disk_space", OK: !r.DiskFull}
	if r.DiskFull {
		disk.Reason = "the disk is full: records are refused, reads go on"
	}
	damage := control.StatusCheck{Name: "shards_sound", OK: len(r.Quarantined) == 0, Advisory: true}
	if !damage.OK {
		damage.Reason = fmt.Sprintf("%d shards are damaged and stay closed; `margay status` names them", len(r.Quarantined))
	}
	return []control.StatusCheck{open, disk, damage}
}

// notOpen says what is waited for, without a name: whoever has no credential reads it too.
func notOpen(r host.Report) string {
	var parts []string
	for _, s := range []struct {
		state host.State
		text  string
	}{{host.Opening, "are being opened"}, {host.Waiting, "failed and are opened again"}, {host.NoRoom, "have no descriptor left"}} {
		if n := r.Shards[s.state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d shards %s", n, s.text))
		}
	}
	if len(parts) == 0 {
		return "the node is starting or shutting down"
	}
	return strings.Join(parts, ", ")
}
