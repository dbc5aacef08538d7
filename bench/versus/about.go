// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"margay.dev/bench/internal/report"
	"margay.dev/bench/internal/rounds"
	"margay.dev/bench/internal/table"
)

// about says, by the first words of a cell's system, how it is run. docs/benchmarks/README.md says more.
var about = []struct{ prefix, tuning string }{
	{"Margay", "a fresh node with its defaults for each cell; streams flush before the acknowledgement unless the row says otherwise; `margay bench` drives it"},
	{"JetStream", "the server as a library in a process of its own, file storage, one replica; `always` is `sync_interval: always`"},
	{"core NATS", "the same server, no stream, plain TCP unless TLS is named"},
	{"Redis", "the machine's redis-server, append-only file; `always` is `appendfsync always`; commands of all clients are pipelined"},
	{"etcd", "the server as a library in a process of its own, its defaults, which flush"},
	{"bare prototype", "batches over one stream for each client, CRC-32C, one append and one flush for all that queued; no product around it"},
	{"raw", "the transport alone, with the same windows, packet sizes and socket buffers as Margay's"},
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
				}
			}
		}
		if found {
			all = append(all, report.System{Name: a.prefix, Version: version, Tuning: a.tuning})
		}
	}
	return all
}
