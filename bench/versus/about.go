// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"runtime/debug"
	"strings"

	"margay.dev/bench/internal/report"
	"margay.dev/bench/internal/rounds"
	"margay.dev/bench/internal/table"
)

// about says, by the first words of a cell's system, how it is run. docs/benchmarks/README.md says more.
var about = []struct {
	prefix, tuning string
	ours           bool // nothing but the libraries has a version
}{
	{prefix: "Margay", tuning: "a fresh node with its defaults for each cell; streams and caches flush before the acknowledgement unless the row says otherwise; `margay bench` drives it"},
	{prefix: "JetStream", tuning: "the server as a library in a process of its own, file storage, one replica; `always` is `sync_interval: always`; KV buckets keep 64 values of a key, so that watchers have all"},
	{prefix: "core NATS", tuning: "the same server, no stream, plain TCP unless TLS is named"},
	{prefix: "Redis", tuning: "the machine's redis-server, append-only file; `always` is `appendfsync always`; commands of all clients are pipelined, where more than one is in flight"},
	{prefix: "etcd", tuning: "the server as a library in a process of its own, its defaults, which flush"},
	{prefix: "RabbitMQ", tuning: "the machine's rabbitmq-server, one quorum queue of one replica, publishers confirm, a channel and a connection for each consumer"},
	{prefix: "bare prototype", tuning: "batches over one stream for each client, CRC-32C, one append and one flush for all that queued; no product around it", ours: true},
	{prefix: "raw", tuning: "the transport alone, with the same windows, packet sizes and socket buffers as Margay's", ours: true},
}

// versions lists what was measured, in the order of about, with the versions that the drivers reported.
func versions(rows []table.Row, l *rounds.Log) []report.System {
	var all []report.System
	for _, a := range about {
		version, found := "", false
		for _, r := range rows {
			for _, c := range r.Cells {
				if !strings.HasPrefix(c.System, a.prefix) {
					continue
				}
				if v, ok := l.About[c.ID]; ok && !found {
					version, found = v.Version, true
					version, _, _ = strings.Cut(version, ",") // behind it stands how this cell used it
				}
			}
		}
		if a.ours {
			version = transports()
		}
		if found {
			all = append(all, report.System{Name: a.prefix, Version: version, Tuning: a.tuning})
		}
	}
	return all
}

// transports are the versions of what carries the bytes.
func transports() string {
	version := runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/quic-go/quic-go" {
				version = "quic-go " + d.Version + ", " + version
			}
		}
	}
	return version
}
