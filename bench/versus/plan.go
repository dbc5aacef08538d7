// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"margay.dev/bench/internal/systems"
	"margay.dev/bench/internal/table"
)

// row is a row of the table with its cells.
type row struct {
	table.Row
	cells []cell
}

// planner builds rows.
type planner struct {
	systems.Binaries
	duration, warmup string
	quick            bool
}

// plan is everything that is compared, in the order of the report.
func (p planner) plan() []row {
	return slices.Concat(p.publishing(), p.transporting(), p.delivering(), p.caching(), p.watching(), p.queueing(), p.remembering(), p.limits())
}

// named gives a row the cells, under names that begin with its own.
func named(r table.Row, cells ...cell) row {
	for i := range cells {
		cells[i].ID = r.ID + "/" + cells[i].ID
		r.Cells = append(r.Cells, cells[i].Cell)
	}
	return row{r, cells}
}

func rate(id, system string, j systems.Job, needs string) cell {
	return cell{Cell: table.Cell{ID: id, System: system, Unit: "/s"}, job: j, needs: needs}
}

// bytesRate turns a cell's messages into bytes a second.
func bytesRate(c cell) cell {
	c.Unit = "MB/s"
	c.value = func(o output) float64 { return float64(o.Bytes) / o.Seconds / 1e6 }
	return c
}

// The cells that most rows have, by what they are called in every row.
const (
	mq = "margay-quic"
	mt = "margay-tls"
	bq = "bare-quic"
	bt = "bare-tls"
)

func (p planner) margay(l systems.Load) []cell {
	l.Duration, l.Warmup = p.duration, p.warmup
	var cells []cell
	for _, t := range []string{"quic", "tls"} {
		l.Transport = t
		c := rate("margay-"+t, "Margay, "+strings.ToUpper(t), p.Margay(l), "")
		c.extra = ofNode
		cells = append(cells, c)
	}
	return cells
}

func (p planner) bare(l systems.Load) []cell {
	l.Duration, l.Warmup = p.duration, p.warmup
	var cells []cell
	for _, t := range []string{"quic", "tls"} {
		l.Transport = t
		cells = append(cells, rate("bare-"+t, "bare prototype, "+strings.ToUpper(t), p.Bare(l), ""))
	}
	return cells
}

// peer is a cell of a peer; via is how it is to publish where that has several ways.
func (p planner) peer(id, system, name, mode, via string, l systems.Load) cell {
	l.Duration, l.Warmup, l.Mode, l.Via = p.duration, p.warmup, mode, via
	l.Fsync, l.Storage, l.Transport = "", "", ""
	return rate(id, system, p.Peer(name, l), name)
}

// Names of extra values that only a node has.
const (
	recordsPerFlush = "records_per_flush"
	allocsPerRecord = "allocations_per_record"
	allocsPerBatch  = "allocations_per_batch"
)

// ofNode is what a node's metrics say of a run. The node was started for it, so they are of nothing else.
func ofNode(o output) map[string]float64 {
	e := map[string]float64{}
	per := func(name string, all, n float64) {
		if n > 0 {
			e[name] = all / n
		}
	}
	m := o.Metrics
	per(recordsPerFlush, m["margay_flush_records_sum"], m["margay_flush_records_count"])
	per(allocsPerRecord, m["go_memstats_mallocs_total"], m[`margay_publish_records_total{result="stored"}`])
	per(allocsPerBatch, m["go_memstats_mallocs_total"], m["margay_append_batches_total"])
	return e
}

// claim says that one cell of a row is at least so many times another; with bare, 0.9 of that one will do.
func claim(row, of, against, what string, atLeast float64, bare string) table.Claim {
	c := table.Claim{
		What: what, Of: []table.Operand{{Cell: row + "/" + of}}, Against: table.Operand{Cell: row + "/" + against}, AtLeast: atLeast,
	}
	if bare != "" {
		c.Bare = row + "/" + bare
	}
	return c
}

// also makes a claim one that is shown and does not count.
func also(c table.Claim) table.Claim {
	c.Also = true
	return c
}

func (p planner) publishing() []row {
	load := systems.Load{Workload: "pub", Clients: 1, InFlight: 500, Size: 128}
	one128 := slices.Concat(p.margay(load), []cell{
		p.peer("js-async", "JetStream, async", "nats", "default", "async", load),
		p.peer("js-fast", "JetStream, fast batch", "nats", "default", "fast", load),
		p.peer("js-always", "JetStream, always", "nats", "always", "async", load),
		p.peer("redis-always", "Redis XADD, always, pipelined", "redis", "always", "", load),
	}, p.bare(load))
	tls := load
	tls.TLS = true
	one128 = append(one128, p.peer("js-async-tls", "JetStream, async, over TLS", "nats", "default", "async", tls))
	load.Size = 1024
	one1k := slices.Concat(p.margay(load), []cell{
		p.peer("js-async", "JetStream, async", "nats", "default", "async", load),
		p.peer("js-always", "JetStream, always", "nats", "always", "async", load),
	}, p.bare(load)[:1])
	return slices.Concat([]row{
		named(table.Row{
			ID: "publish-128", What: "Durable publish, 128 B, one client, 500 in flight",
			Note: "Margay, Redis `always` and JetStream `always` acknowledge what is flushed; JetStream async and fast batch what is written.",
			Claims: []table.Claim{
				claim("publish-128", mq, "js-async", "QUIC over JetStream async", 2, bq),
				claim("publish-128", mq, "js-fast", "QUIC over JetStream fast batch", 1.5, bq),
				claim("publish-128", mq, "js-always", "QUIC over JetStream always", 40, bq),
				claim("publish-128", mq, "redis-always", "QUIC over Redis always", 1.2, bq),
				also(claim("publish-128", mt, "redis-always", "TLS over Redis always", 1.2, bt)),
				also(claim("publish-128", mt, "js-async-tls", "TLS over JetStream async, TLS", 2, bt)),
			},
		}, one128...),
		named(table.Row{
			ID: "publish-1k", What: "Durable publish, 1 KiB, one client, 500 in flight",
			Claims: []table.Claim{
				claim("publish-1k", mq, "js-async", "QUIC over JetStream async", 1.5, bq),
				claim("publish-1k", mq, "js-always", "QUIC over JetStream always", 20, bq),
			},
		}, one1k...),
	}, p.oneInFlight(), p.derived())
}

func (p planner) oneInFlight() []row {
	many := systems.Load{Workload: "pub", Clients: 64, InFlight: 1, Size: 128}
	one := many
	one.Clients = 1
	durable := func(l systems.Load) []cell {
		return slices.Concat(p.margay(l), []cell{
			p.peer("js-always", "JetStream, always", "nats", "always", "sync", l),
			p.peer("redis-always", "Redis XADD, always", "redis", "always", "", l),
			p.peer("etcd", "etcd put", "etcd", "", "", l),
		}, p.bare(l))
	}
	unflushed := func(l systems.Load) []cell {
		l.Fsync = "never"
		return slices.Concat(p.margay(l), []cell{
			p.peer("js", "JetStream", "nats", "default", "sync", l),
			p.peer("redis", "Redis XADD, every second", "redis", "default", "", l),
		}, p.bare(l))
	}
	better := func(row string) table.Claim {
		c := claim(row, mq, "js", "the better of QUIC and TLS beside JetStream", table.Near, "")
		c.Of = append(c.Of, table.Operand{Cell: row + "/" + mt})
		return c
	}
	return []row{
		named(table.Row{
			ID: "publish-64", What: "Durable publish, 128 B, 64 clients, one in flight each",
			Claims: []table.Claim{
				claim("publish-64", mq, "js-always", "QUIC over JetStream always", 5, bq),
				claim("publish-64", mt, "redis-always", "TLS beside Redis always", table.Near, bt),
				also(claim("publish-64", mq, "etcd", "QUIC beside etcd", table.Near, bq)),
			},
		}, durable(many)...),
		named(table.Row{
			ID: "publish-1", What: "Durable publish, 128 B, one client, one in flight",
			Claims: []table.Claim{
				claim("publish-1", mq, "js-always", "QUIC beside JetStream always", table.Near, bq),
				claim("publish-1", mt, "js-always", "TLS over JetStream always", 1.2, bt),
			},
		}, durable(one)...),
		named(table.Row{
			ID: "unflushed-1", What: "Publish, not flushed, 128 B, one client, one in flight",
			Claims: []table.Claim{better("unflushed-1")},
		}, unflushed(one)...),
		named(table.Row{
			ID: "unflushed-64", What: "Publish, not flushed, 128 B, 64 clients, one in flight each",
			Claims: []table.Claim{better("unflushed-64")},
		}, unflushed(many)...),
	}
}

// derived rows compare cells of rows before.
func (p planner) derived() []row {
	number := func(what, cell, extra, unit string, n float64) table.Claim {
		return table.Claim{What: what, Of: []table.Operand{{Cell: cell, Extra: extra}}, Number: n, Unit: unit}
	}
	perFlush := number("records that one flush makes durable, 64 waiting, QUIC", "publish-64/"+mq, recordsPerFlush, "", waiting)
	perFlush.AtLeast = 0.25
	allocs := number("allocations per record at 500 in flight, transport included", "publish-128/"+mq, allocsPerRecord, "", 1)
	allocs.AtMost = 1
	show := func(system, cell, extra string) table.Shown {
		return table.Shown{System: system, Value: table.Operand{Cell: cell, Extra: extra}}
	}
	return []row{
		{Row: table.Row{
			ID: "bare", What: "Beside the bare prototype, 128 B, one client, 500 in flight",
			Claims: []table.Claim{
				claim("publish-128", mq, bq, "QUIC beside the bare prototype", 0.75, ""),
				also(claim("publish-128", mt, bt, "TLS beside the bare prototype", 0.75, "")),
			},
		}},
		{Row: table.Row{
			ID: "group-commit", What: "Group commit: 64 waiters, one shard",
			Note: "While one flush runs, those that the last one answered publish again and wait for the next: in a closed loop some half of " +
				"them wait for each.",
			Shown: []table.Shown{
				show("records per flush, 64 waiting, QUIC", "publish-64/"+mq, recordsPerFlush),
				show("records per flush, 64 waiting, TLS", "publish-64/"+mt, recordsPerFlush),
				show("records per flush, one waiting, QUIC", "publish-1/"+mq, recordsPerFlush),
			},
			Claims: []table.Claim{perFlush},
		}},
		{Row: table.Row{
			ID: "allocations", What: "Allocations of the broker in steady state",
			Note: "All allocations of the process since its start, by its own metrics, over the records and batches that it stored.",
			Shown: []table.Shown{
				show("for each record at 500 in flight, QUIC", "publish-128/"+mq, allocsPerRecord),
				show("for each record at 500 in flight, TLS", "publish-128/"+mt, allocsPerRecord),
				show("for each batch at 500 in flight, QUIC", "publish-128/"+mq, allocsPerBatch),
				show("for each batch at 500 in flight, TLS", "publish-128/"+mt, allocsPerBatch),
			},
			Claims: []table.Claim{allocs},
		}},
	}
}

// waiting is how many clients wait in the row publish-64.
const waiting = 64
