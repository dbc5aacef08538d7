// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"

	"margay.dev/bench/internal/systems"
	"margay.dev/bench/internal/table"
)

// queueing: messages that are worked off, handed to handlers, delayed, and settled out of order.
func (p planner) queueing() []row {
	return []row{p.working(), p.workingLarge(), p.inOrder(), p.handling(), p.manyMessages()}
}

// backlog is how many messages wait when the first consumer comes.
func (p planner) backlog(n int64) int64 {
	if p.quick {
		return n / 20
	}
	return n
}

func (p planner) working() row {
	l := systems.Load{Workload: "work", Size: 128, Messages: p.backlog(500_000), Consumers: 4, MaxInFlight: 2000}
	const id = "queue-work-128"
	return named(table.Row{
		ID: id, What: "Work off a backlog, 128 B, 4 consumers",
		Note: "The messages are there before the first consumer is. Margay counts settlements that are confirmed, which means flushed. JetStream answers no " +
			"acknowledgement: each counts when the client has sent it, the server must know of all at the end, and nothing is flushed.",
		Claims: []table.Claim{
			claim(id, mq, "js", "QUIC, settlements flushed, beside JetStream, not flushed", table.Near, ""),
			also(claim(id, mt, "js", "TLS, settlements flushed, beside JetStream, not flushed", table.Near, "")),
		},
	}, append(p.margay(l), p.peer("js", "JetStream, consume with explicit acks, not flushed", "nats", "default", "async", l))...)
}

func (p planner) workingLarge() row {
	l := systems.Load{Workload: "work", Size: 1024, Messages: p.backlog(200_000), Consumers: 4, MaxInFlight: 2000}
	each, many := l, l
	many.AckEvery = 500
	const id = "queue-work-1k"
	return named(table.Row{
		ID: id, What: "Work off a backlog, 1 KiB, 4 consumers",
		Note: "RabbitMQ flushes what consumers settle, and does not answer them: an acknowledgement counts when the client has sent it.",
		Claims: []table.Claim{
			claim(id, mq, "rabbitmq", "QUIC over a RabbitMQ quorum queue, acks of up to 500", 1.5, ""),
			also(claim(id, mt, "rabbitmq", "TLS over a RabbitMQ quorum queue, acks of up to 500", 1.5, "")),
			also(claim(id, mq, "rabbitmq-each", "QUIC over a RabbitMQ quorum queue, an ack each", 1.5, "")),
		},
	}, append(
		p.margay(l),
		p.peer("rabbitmq", "RabbitMQ quorum queue, acks of up to 500 messages", "rabbitmq", "", "", many),
		p.peer("rabbitmq-each", "RabbitMQ quorum queue, an ack for each message", "rabbitmq", "", "", each),
	)...)
}

// inOrder compares work with itself.
func (p planner) inOrder() row {
	const id, ordered = "queue-order", "-ordered"
	l := systems.Load{
		Workload: "work", Size: 128, Messages: p.backlog(200_000), Keys: 100_000, Consumers: 200, Connections: 10, MaxInFlight: 50,
	}
	cells := p.margay(l)
	l.Ordered = true
	for _, c := range p.margay(l) {
		c.ID, c.System = c.ID+ordered, c.System+", in order of keys"
		cells = append(cells, c)
	}
	return named(table.Row{
		ID: id, What: "Work off a backlog, 128 B of 100,000 keys, 200 consumers on 10 connections, 50 messages out with each",
		Note: "In order of keys, a message waits until the one before it of its key is settled, and that is flushed. Keys are drawn at random.",
		Claims: []table.Claim{
			claim(id, mq+ordered, mq, "QUIC, in order of keys beside no order", 0.5, ""),
			also(claim(id, mt+ordered, mt, "TLS, in order of keys beside no order", 0.5, "")),
		},
	}, cells...)
}

// handling: one message in the system at a time.
func (p planner) handling() row {
	const id = "queue-handle"
	r := table.Row{
		ID: id, What: "Push to handler, 128 B, one message under way; durable",
		Note: "From before the push until the handler has the message. The next push follows when the settlement is confirmed. Beside it, of the same rounds: " +
			"a durable publish, and 256 B there and back over the transport alone.",
	}
	var cells []cell
	for _, of := range []struct{ id, what, workload string }{{"", "push to handler", "handle"}, {"-publish", "publish", "pub"}} {
		for _, c := range p.margay(systems.Load{Workload: of.workload, Clients: 1, InFlight: 1, Size: 128}) {
			c.ID, c.System = c.ID+of.id, c.System+", "+of.what
			cells = append(cells, c)
		}
	}
	for _, t := range []string{mq, mt} {
		kind, _ := strings.CutPrefix(t, "margay-")
		ping := t + "-ping"
		cells = append(cells, p.raw(ping, "raw, "+strings.ToUpper(kind)+", there and back", kind, "-workload", "pingpong", "-size", "256", "-in-flight", "1"))
		p50 := func(cell string) table.Operand { return table.Operand{Cell: id + "/" + cell, Extra: table.P50} }
		r.Claims = append(r.Claims, table.Claim{
			What: strings.ToUpper(kind) + ", p50 beside that of a publish and a round trip", Of: []table.Operand{p50(t)},
			Against: p50(t + "-publish"), Plus: p50(ping), AtMost: 1, Also: t == mt,
		})
	}
	return named(r, cells...)
}

// manyMessages is what bench/queues measures.
func (p planner) manyMessages() row {
	args := []string{"-json"}
	if p.quick {
		args = append(args, "-quick")
	}
	const id, node = "queue-many", "margay"
	numbers := []struct {
		name, what, unit string
		at               float64
	}{
		{"delayed_cpu_percent", "processor while 1,000,000 messages wait for their time, of a core", "%", 1},
		{"delayed_bytes_per_message", "memory of a message that waits for its time", "B", 64},
		{"open_seconds", "opening with them, after kill -9, until a new message is handed out", "s", 3},
		{"late_p99_ms", "1,000 due a second: p99 from due to handed out", "ms", 20},
		{"group_bytes", "memory of an idle group, of 10,000", "B", 2048},
		{"groups_cpu_percent", "processor of 10,000 idle groups, of a core", "%", 1},
	}
	var names []string
	r := table.Row{
		ID: id, What: "Many messages that wait, many groups, many settled ranges", Rounds: 3,
		Note: "`go run ./bench/queues`. A run in which a message was handed out before its time, or a settled one a second time, or one that was not settled never again, is no result.",
	}
	for _, n := range numbers {
		names = append(names, n.name)
		of := table.Operand{Cell: id + "/" + node, Extra: n.name}
		r.Claims = append(r.Claims, table.Claim{What: n.what, Of: []table.Operand{of}, Number: n.at, Unit: n.unit, AtMost: 1})
		r.Shown = append(r.Shown, table.Shown{System: n.what, Unit: n.unit, Value: of})
	}
	const ranges = "ranges_ratio"
	names = append(names, ranges)
	of := table.Operand{Cell: id + "/" + node, Extra: ranges}
	r.Claims = append(r.Claims, table.Claim{What: "messages a second behind 100,000 settled ranges, to those before", Of: []table.Operand{of}, Number: 1, AtLeast: 0.5})
	r.Shown = append(r.Shown, table.Shown{System: "messages a second behind 100,000 settled ranges, to those before", Value: of})
	return named(r, cell{
		Cell: table.Cell{ID: node, System: "messages worked off before, QUIC", Unit: "/s"}, job: p.Queues(args...),
		value: func(o output) float64 { return o.Numbers["work_rate"] },
		extra: func(o output) map[string]float64 {
			e := map[string]float64{}
			for _, name := range slices.Sorted(slices.Values(names)) {
				if v, ok := o.Numbers[name]; ok {
					e[name] = v
				}
			}
			return e
		},
	})
}
