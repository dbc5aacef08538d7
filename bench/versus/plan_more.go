// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"

	"margay.dev/bench/internal/systems"
	"margay.dev/bench/internal/table"
)

func (p planner) raw(id, system, transport string, args ...string) cell {
	return rate(id, system, p.Raw(transport, append([]string{"-duration", p.duration, "-warmup", p.warmup}, args...)...), "")
}

func megabytes(cells []cell) []cell {
	for i := range cells {
		cells[i] = bytesRate(cells[i])
	}
	return cells
}

// transporting: what the transport and the disk leave.
func (p planner) transporting() []row {
	log := systems.Load{Workload: "pub", Clients: 1, InFlight: 4000, Size: 4096, Storage: "memory", Fsync: "never"}
	shards := func(id, what string, n, connections int) cell {
		l := systems.Load{
			Workload: "pub", Clients: n, Connections: connections, Shards: n, InFlight: 64, Size: 128, Transport: "quic",
			Duration: p.duration, Warmup: p.warmup,
		}
		c := rate(id, fmt.Sprintf("Margay, %d shards, a publisher each, %s", n, what), p.Margay(l), "")
		c.extra = ofNode
		return c
	}
	return []row{
		named(table.Row{
			ID: "memory-4k", What: "Log in memory, 4 KiB, one way, 4,000 in flight",
			Note: "The raw transports write 64 KiB at a time, which is faster than 4 KiB at a time would be: Margay joins records before it writes.",
			Claims: []table.Claim{
				claim("memory-4k", mq, "raw-quic", "QUIC beside raw quic-go", 0.7, ""),
				claim("memory-4k", mt, "raw-tls", "TLS beside raw TLS", 0.6, ""),
			},
		}, megabytes(slices.Concat(p.margay(log), []cell{
			p.raw("raw-quic", "raw quic-go, one way, writes of 64 KiB", "quic", "-workload", "upload", "-size", "65536"),
			p.raw("raw-tls", "raw TLS over TCP, one way, writes of 64 KiB", "tls", "-workload", "upload", "-size", "65536"),
		}))...),
		p.storage(),
		named(table.Row{
			ID: "shards", What: "Many shards, flushed, 64 in flight for each publisher",
			Note: "Publishers of one program share a connection. With one for each, 256 of them cost more than their shards do.",
			Claims: []table.Claim{
				claim("shards", "shards-256", "shards-8", "256 shards beside 8, over 8 connections", 0.8, ""),
				also(claim("shards", "shards-256-own", "shards-8", "the same, over 256 connections", 0.8, "")),
			},
		},
			shards("shards-8", "8 connections", 8, 8), shards("shards-256", "8 connections", 256, 8),
			shards("shards-256-own", "a connection each", 256, 256)),
	}
}

// storage takes turns with bare writes within one command: both sides are in each of its results.
func (p planner) storage() row {
	const bare = "bare_mb_per_second"
	c := cell{
		Cell:  table.Cell{ID: "margay", System: "Margay's log", Unit: "MB/s"},
		job:   p.Storage("--writers", "8", "--batch", "64KiB", "--rounds", "2", "--duration", p.duration),
		value: func(o output) float64 { return o.Storage.BytesPerSecond / 1e6 },
		extra: func(o output) map[string]float64 { return map[string]float64{bare: o.Bare.BytesPerSecond / 1e6} },
	}
	against := claim("storage", "margay", "margay", "the log beside bare writes with the same flushes", 0.9, "")
	against.Against.Extra = bare
	return named(table.Row{
		ID: "storage", What: "Storage alone, batches of 64 KiB, flushed, 8 writers",
		Shown:  []table.Shown{{System: "bare writes, in turns with it", Unit: "MB/s", Value: table.Operand{Cell: "storage/margay", Extra: bare}}},
		Claims: []table.Claim{against},
	}, c)
}

// delivering: fan-out and replay.
func (p planner) delivering() []row {
	var rows []row
	for _, f := range []struct {
		subscribers, connections int
		want                     float64
	}{{10, 10, table.Near}, {100, 10, 1.2}, {1000, 100, 1.5}} {
		id := fmt.Sprintf("fanout-%d", f.subscribers)
		l := systems.Load{
			Workload: "fanout", Clients: 1, Size: 128, Subscribers: f.subscribers, Connections: f.connections, Storage: "memory", Fsync: "never",
		}
		cells := append(p.margay(l), p.peer("nats", "core NATS", "nats", "default", "core", l))
		l.TLS = true
		cells = append(cells, p.peer("nats-tls", "core NATS over TLS", "nats", "default", "core", l))
		rows = append(rows, named(table.Row{
			ID: id, What: fmt.Sprintf("Fan-out, 128 B, to %d subscribers on %d connections; deliveries", f.subscribers, f.connections),
			Claims: []table.Claim{
				claim(id, mq, "nats", "QUIC over core NATS", f.want, ""),
				also(claim(id, mt, "nats", "TLS over core NATS", f.want, "")),
				also(claim(id, mt, "nats-tls", "TLS over core NATS, TLS", f.want, "")),
			},
		}, cells...))
	}
	messages := func(n int64) int64 {
		if p.quick {
			return n / 10
		}
		return n
	}
	small := systems.Load{Workload: "sub", Size: 128, Messages: messages(500_000), Fsync: "never"}
	large := systems.Load{Workload: "sub", Size: 4096, Messages: messages(50_000), Fsync: "never"}
	js := func(l systems.Load) cell {
		return p.peer("js", "JetStream, ordered consumer", "nats", "default", "async", l)
	}
	return append(rows,
		named(table.Row{
			ID: "replay-128", What: "Replay from disk, 128 B",
			Claims: []table.Claim{
				claim("replay-128", mq, "js", "QUIC over JetStream", 3, ""),
				also(claim("replay-128", mt, "js", "TLS over JetStream", 3, "")),
			},
		}, append(p.margay(small), js(small))...),
		named(table.Row{
			ID: "replay-4k", What: "Replay from disk, 4 KiB",
			Claims: []table.Claim{
				claim("replay-4k", mq, "raw-quic", "QUIC beside raw quic-go", 0.8, ""),
				claim("replay-4k", mt, "js", "TLS over JetStream", 1.5, ""),
			},
		}, megabytes(append(
			p.margay(large), js(large),
			p.raw("raw-quic", "raw quic-go, one way, writes of 64 KiB", "quic", "-workload", "download", "-size", "65536"),
		))...),
	)
}

// remembering: memory.
func (p planner) remembering() []row {
	const twice = 2 // memory does not depend on the machine's weather
	amount := func(id, system, unit string, j systems.Job, value func(output) float64) cell {
		return cell{Cell: table.Cell{ID: id, System: system, Unit: unit}, job: j, value: value}
	}
	number := func(row, of, what, unit string, n float64) table.Claim {
		return table.Claim{What: what, Of: []table.Operand{{Cell: row + "/" + of}}, Number: n, Unit: unit, AtMost: 1}
	}
	rss := func(o output) float64 { return float64(o.Idle.RSS) / 1e6 }
	each := func(o output) float64 { return float64(o.Idle.Bytes) / 1e3 }
	connections, lanes := "500", "10000"
	if p.quick {
		connections, lanes = "50", "500"
	}
	idle := claim("connection", mq, "raw-quic", "an idle connection beside raw quic-go's", 0, "")
	idle.AtMost = 1.2
	return []row{
		named(table.Row{
			ID: "idle", What: "A node that does nothing: resident memory", Rounds: twice,
			Claims: []table.Claim{number("idle", "margay", "resident memory", "MB", 40)},
		}, amount("margay", "Margay", "MB", p.Idle("-measure", "process"), rss)),
		named(
			table.Row{ID: "connection", What: "An idle connection: memory of the server", Rounds: twice, Claims: []table.Claim{idle}},
			amount(mq, "Margay, QUIC", "KB", p.Idle("-measure", "connections", "-n", connections, "-transport", "quic"), each),
			amount(mt, "Margay, TLS", "KB", p.Idle("-measure", "connections", "-n", connections, "-transport", "tls"), each),
			amount("raw-quic", "raw quic-go", "KB", p.Raw("quic", "-workload", "idle", "-connections", connections), each),
			amount("raw-tls", "raw TLS over TCP", "KB", p.Raw("tls", "-workload", "idle", "-connections", connections), each),
		),
		named(table.Row{
			ID: "lane", What: "A subscription that waits: memory of the server", Rounds: twice,
			Note:   "What a node takes under minutes of load with slow subscribers, restarts and retention is what `./task soak` watches.",
			Claims: []table.Claim{number("lane", mq, "a subscription's lane, of "+lanes, "KB", 18)},
		}, amount(mq, "Margay, QUIC", "KB", p.Idle("-measure", "lanes", "-n", lanes, "-transport", "quic"), each)),
		named(table.Row{
			ID: "routing", What: "Routing a publish to its shard", Rounds: twice,
			Claims: []table.Claim{number("routing", "margay", "one look-up", "ns", 20)},
		}, amount("margay", "Margay", "ns", p.Alone("-measure", "routing"), func(o output) float64 { return 1e9 / o.Rate })),
	}
}

// limits of the machine, in the same run.
func (p planner) limits() []row {
	const rounds = 3
	var net []cell
	for _, t := range []struct{ kind, name string }{{"quic", "raw quic-go"}, {"tls", "raw TLS over TCP"}} {
		for _, size := range []int{4096, 64 << 10} {
			net = append(net, bytesRate(p.raw(fmt.Sprintf("%s-%dk", t.kind, size>>10), fmt.Sprintf("%s, one way, writes of %d KiB", t.name, size>>10),
				t.kind, "-workload", "upload", "-size", strconv.Itoa(size))))
		}
		for _, n := range []int{1, 16, 64} {
			net = append(net, p.raw(fmt.Sprintf("%s-ping-%d", t.kind, n), fmt.Sprintf("%s, 256 B there and back, %d in flight", t.name, n),
				t.kind, "-workload", "pingpong", "-size", "256", "-in-flight", strconv.Itoa(n)))
		}
	}
	return []row{
		named(table.Row{ID: "limits-net", What: "Limits of the machine: transports", Rounds: rounds}, net...),
		named(
			table.Row{ID: "limits-disk", What: "Limits of the machine: disk", Rounds: rounds},
			rate("flush-4k", "append 4 KiB and flush", p.Disk("-size", "4096", "-duration", p.duration), ""),
			rate("flush-4k-zeroed", "append 4 KiB into zeroed space and flush, as Margay does", p.Disk("-size", "4096", "-zeroed", "-duration", p.duration), ""),
			rate("flush-64k-8", "append 64 KiB and flush, 8 files at once", p.Disk("-size", "65536", "-writers", "8", "-duration", p.duration), ""),
			bytesRate(rate("sequential", "sequential writes", p.Disk("-workload", "sequential", "-size", "1048576", "-duration", p.duration), "")),
		),
	}
}
