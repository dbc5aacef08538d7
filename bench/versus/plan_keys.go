// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"margay.dev/bench/internal/systems"
	"margay.dev/bench/internal/table"
)

// Names of values that only the row of many keys has.
const (
	openStopped = "open_stopped_seconds"
	openKilled  = "open_killed_seconds"
	indexBytes  = "index_bytes_per_key"
	diskRatio   = "disk_ratio"
	reclaimP99  = "reclaim_p99_ratio"
	expiryP99   = "expiry_p99_ratio"
)

// caching: puts, gets, and caches of many keys.
func (p planner) caching() []row {
	return slices.Concat(p.putting(), p.getting(), []row{p.slowWatchers(), p.manyKeys()})
}

func (p planner) putting() []row {
	puts := func(clients, inFlight int) systems.Load {
		return systems.Load{Workload: "put", Clients: clients, InFlight: inFlight, Size: 128}
	}
	peers := func(l, calls systems.Load) []cell {
		via := "async"
		if l.InFlight == 1 {
			via = "calls"
		}
		return []cell{
			p.peer("js-always", "JetStream KV, always, "+via, "nats", "always", via, l),
			p.peer("etcd", "etcd put", "etcd", "", "", calls),
			p.peer("redis-always", "Redis SET, always", "redis", "always", "", l),
		}
	}
	one, single, many := puts(1, 64), puts(1, 1), puts(50, 1)
	together := sharing(puts(64, 1))
	const id = "cache-put-64"
	return []row{
		named(table.Row{
			ID: id, What: "Durable put, 128 B, one connection, 64 in flight",
			Note: "JetStream KV puts by publishing to the keys' subjects, as many under way (async), which is the fastest that its package offers; calls are 64 " +
				"goroutines that call Put and wait, as those of etcd do. At its default nothing is flushed before the answer.",
			Claims: []table.Claim{
				claim(id, mq, "js-always", "QUIC over JetStream KV, always", 15, bq),
				claim(id, mq, "etcd", "QUIC over etcd", 4, ""),
				claim(id, mq, "redis-always", "QUIC beside Redis SET, always, pipelined", table.Near, ""),
				also(claim(id, mt, "redis-always", "TLS beside Redis SET, always, pipelined", table.Near, "")),
				also(claim(id, mq, "js", "QUIC, flushed, over JetStream KV, not flushed", 1, "")),
			},
		}, slices.Concat(p.margay(one), peers(one, together), []cell{
			p.peer("js-always-calls", "JetStream KV, always, calls", "nats", "always", "calls", together),
			p.peer("js", "JetStream KV, not flushed, async", "nats", "default", "async", one),
		}, p.bare(systems.Load{Workload: "pub", Clients: 1, InFlight: 64, Size: 128}))...),
		few(named(table.Row{ID: "cache-put-1", What: "Durable put, 128 B, one connection, one in flight"}, slices.Concat(p.margay(single), peers(single, single))...)),
		few(named(table.Row{ID: "cache-put-50", What: "Durable put, 128 B, 50 connections, one in flight each"}, slices.Concat(p.margay(many), peers(many, many))...)),
	}
}

// sharing has all clients call over one connection: a client that has no other way to have many calls under way is faster with a
// goroutine for each that goes on by itself than with one that hands calls to others.
func sharing(l systems.Load) systems.Load {
	l.Share = 1
	return l
}

// few rounds are enough for what no claim hangs on.
func few(r row) row {
	r.Rounds = 3
	return r
}

func (p planner) getting() []row {
	gets := func(clients, inFlight int) systems.Load {
		return systems.Load{Workload: "get", Clients: clients, InFlight: inFlight, Size: 128, Keys: 10_000}
	}
	one, single, many := gets(1, 64), gets(1, 1), gets(50, 1)
	together := sharing(gets(64, 1))
	js := func(l systems.Load) cell { return p.peer("js", "JetStream KV Get", "nats", "default", "calls", l) }
	etcd := func(l systems.Load) cell { return p.peer("etcd", "etcd get", "etcd", "", "", l) }
	redis := func(id, how string, l systems.Load) cell {
		return p.peer(id, "Redis GET"+how, "redis", "always", "", l)
	}
	const id = "cache-get-64"
	return []row{
		named(table.Row{
			ID: id, What: "Get, 128 B of 10,000 keys, one connection, 64 in flight",
			Note: "Margay, JetStream KV and etcd are asked by 64 goroutines, each of which waits for its answer. The raw gets of JetStream KV go without its package, " +
				"pipelined on the connection: programs that use it do not get them.",
			Claims: []table.Claim{
				claim(id, mq, "js", "QUIC over JetStream KV", 4, ""),
				claim(id, mq, "redis-50", "QUIC over Redis GET of 50 clients, not pipelined", 1.5, ""),
				also(claim(id, mt, "js", "TLS over JetStream KV", 4, "")),
				also(claim(id, mt, "redis-50", "TLS over Redis GET of 50 clients, not pipelined", 1.5, "")),
				also(claim(id, mq, "js-raw", "QUIC over JetStream KV, raw", 1, "")),
				also(claim(id, mq, "redis-pipeline", "QUIC beside Redis GET, pipelined", table.Near, "")),
			},
		}, slices.Concat(p.margay(together), []cell{
			js(together), p.peer("js-raw", "JetStream KV, raw", "nats", "default", "raw", one), etcd(together),
			redis("redis-50", ", 50 clients, one in flight each", many), redis("redis-pipeline", ", pipeline of 64", one),
		})...),
		few(named(
			table.Row{ID: "cache-get-1", What: "Get, 128 B of 10,000 keys, one connection, one in flight"},
			append(p.margay(single), js(single), etcd(single), redis("redis", "", single))...,
		)),
		few(named(
			table.Row{ID: "cache-get-50", What: "Get, 128 B of 10,000 keys, 50 connections, one in flight each"},
			append(p.margay(many), js(many), etcd(many), redis("redis", "", many))...,
		)),
	}
}

// fallBehind is how long slow watchers are left to fall behind before puts are counted: what each client holds for a watcher has
// to be full.
const fallBehind = "3s"

// slowWatchers compares puts with themselves.
func (p planner) slowWatchers() row {
	const id, slow = "cache-slow", "-slow"
	l := systems.Load{Workload: "put", Clients: 1, InFlight: 64, Size: 128}
	p.warmup = fallBehind
	cells := p.margay(l)
	l.Watchers, l.Connections = 500, 10
	for _, c := range p.margay(l) {
		c.ID, c.System = c.ID+slow, c.System+", 500 slow watchers"
		cells = append(cells, c)
	}
	return named(table.Row{
		ID: id, What: "Durable put, 64 in flight, beside 500 watchers on 10 connections that take 10 ms for each change",
		Note: "The watchers have fallen behind when the count begins. They are in the process that puts, and share its cores with the server's.",
		Claims: []table.Claim{
			claim(id, mq+slow, mq, "QUIC with slow watchers beside none", table.Near, ""),
			also(claim(id, mt+slow, mt, "TLS with slow watchers beside none", table.Near, "")),
		},
	}, cells...)
}

// manyKeys is what bench/keys measures.
func (p planner) manyKeys() row {
	args := []string{"-json"}
	if p.quick {
		args = append(args, "-quick")
	}
	const id, node = "cache-keys", "margay"
	names := []string{openStopped, openKilled, indexBytes, diskRatio, reclaimP99, expiryP99}
	c := cell{
		Cell: table.Cell{ID: node, System: "all keys put once, flushed, QUIC", Unit: "/s"}, job: p.Keys(args...),
		value: func(o output) float64 { return o.Numbers["fill_rate"] },
		extra: func(o output) map[string]float64 {
			e := map[string]float64{}
			for _, name := range names {
				if v, ok := o.Numbers[name]; ok { // a ratio is not there when nothing was to be seen
					e[name] = v
				}
			}
			return e
		},
	}
	r := table.Row{
		ID: id, What: "1,000,000 keys of 32 B with values of 128 B, one shard", Rounds: 3,
		Note: "`go run ./bench/keys`. Openings count from the start of the process until a get is answered. Puts are timed at 20,000 a second, from when the schedule had them.",
	}
	for i, n := range []struct {
		what, unit string
		at         float64
	}{
		{"opening after a clean stop", "s", 2},
		{"opening after kill -9", "s", 5},
		{"index per key, beside the key", "B", 120},
		{"disk under endless overwrites, to the bytes of keys and values", "", 3},
		{"put p99 during reclaim, to calm", "", 3},
		{"put p99 during the expiry of 200,000 keys, to calm", "", 3},
	} {
		of := table.Operand{Cell: id + "/" + node, Extra: names[i]}
		r.Claims = append(r.Claims, table.Claim{What: n.what, Of: []table.Operand{of}, Number: n.at, Unit: n.unit, AtMost: 1})
		r.Shown = append(r.Shown, table.Shown{System: n.what, Unit: n.unit, Value: of})
	}
	return named(r, c)
}

// watching: deliveries of every put to every watcher.
func (p planner) watching() []row {
	var rows []row
	for _, n := range []int{100, 500} {
		for _, what := range []string{"key", "prefix"} {
			rows = append(rows, p.watched(what, n))
		}
	}
	for _, n := range []int{100, 500} {
		for _, what := range []string{"key", "prefix"} {
			rows = append(rows, p.watchedInTime(what, n))
		}
	}
	return append(rows, p.manyWatchers()...)
}

// wide is how many puts are under way where deliveries are counted: so many that no system waits for the putter. JetStream KV
// keeps 64 values of a key at most, and has its watchers miss what is more than that.
const wide, wideJetStream = 1024, 64

func watchLoad(what string, watchers, inFlight int) systems.Load {
	return systems.Load{
		Workload: "watch", Clients: 1, InFlight: inFlight, Size: 128, Watch: what, Watchers: watchers, Connections: 10,
	}
}

// etcd has two ways to be fast. With few puts under way, each goes to the watchers at once. With more than a watch stream's
// queue of 128 takes, watchers fall behind and catch up ten times a second, in large pieces; the more, the larger.
var etcdFew, etcdMany = map[int]int{100: 8, 500: 2}, map[int]int{100: 1024, 500: 256}

func (p planner) watched(what string, n int) row {
	id := fmt.Sprintf("watch-%s-%d", what, n)
	few, many := etcdFew[n], etcdMany[n]
	return named(table.Row{
		ID: id, What: fmt.Sprintf("Watch, one %s, %d watchers on 10 connections, 128 B; deliveries", what, n),
		Note: fmt.Sprintf("Every put is delivered to every watcher, or there is no result. Margay has %d puts under way. So that each peer is at its best: etcd "+
			"has %d, with which its watchers fall behind and catch up ten times a second, in large pieces, or %d, with which they do not fall behind; "+
			"JetStream KV has %d, the most values that it keeps of a key.", wide, many, few, wideJetStream),
		Claims: []table.Claim{
			claim(id, mq, "etcd", "QUIC over etcd that catches up", 1.5, ""),
			claim(id, mq, "etcd-few", "QUIC over etcd, few puts under way", 1.5, ""),
			claim(id, mq, "js", "QUIC over JetStream KV", 5, ""),
			also(claim(id, mt, "etcd", "TLS over etcd that catches up", 1.5, "")),
			also(claim(id, mt, "etcd-few", "TLS over etcd, few puts under way", 1.5, "")),
			also(claim(id, mt, "js", "TLS over JetStream KV", 5, "")),
		},
	}, append(
		p.margay(watchLoad(what, n, wide)),
		p.etcdWatch("etcd", fmt.Sprintf("etcd watch, %d puts under way", many), watchLoad(what, n, many)),
		p.etcdWatch("etcd-few", fmt.Sprintf("etcd watch, %d puts under way", few), watchLoad(what, n, few)),
		p.peer("js", "JetStream KV watch, not flushed", "nats", "default", "", watchLoad(what, n, wideJetStream)),
	)...)
}

func (p planner) etcdWatch(id, system string, l systems.Load) cell {
	return p.peer(id, system, "etcd", "", "", l)
}

// timedFor is how many times as long as others a cell takes whose 99th percentile is asked for: a rate gives few samples.
const timedFor = 3

// puts a second of the rows that time: about a tenth of what etcd can do.
var moderate = map[int]float64{100: 500, 500: 200}

func (p planner) watchedInTime(what string, n int) row {
	id, l := fmt.Sprintf("watch-time-%s-%d", what, n), watchLoad(what, n, 64)
	l.Rate = moderate[n]
	if d, err := time.ParseDuration(p.duration); err == nil {
		p.duration = (timedFor * d).String()
	}
	r := table.Row{
		ID:   id,
		What: fmt.Sprintf("Watch, one %s, %d watchers on 10 connections, %.0f puts a second; until the last has it", what, n, l.Rate),
	}
	for _, t := range []string{mq, mt} {
		for _, percentile := range []string{table.P50, table.P99} {
			transport, _ := strings.CutPrefix(t, "margay-")
			name, _, _ := strings.Cut(percentile, "_")
			c := claim(id, t, "etcd", strings.ToUpper(transport)+", "+name+" beside etcd", 0, "")
			c.Of[0].Extra, c.Against.Extra, c.AtMost, c.Also = percentile, percentile, 1/table.Near, t == mt
			r.Claims = append(r.Claims, c)
		}
	}
	return named(r, append(p.margay(l), p.etcdWatch("etcd", "etcd watch", l))...)
}

func (p planner) manyWatchers() []row {
	const twice, id = 2, "watch-5000"
	few, l := watchLoad("key", 500, 64), watchLoad("key", 5000, 64)
	l.Connections = 50
	cells := p.margay(l)
	for _, c := range p.margay(few) {
		c.ID, c.System = c.ID+"-500", c.System+", 500 watchers on 10 connections"
		cells = append(cells, c)
	}
	cells = append(cells, p.etcdWatch("etcd", "etcd watch", l))
	n := "5000"
	if p.quick {
		n = "500"
	}
	memory := func(name, system, transport string) cell {
		return cell{
			Cell:  table.Cell{ID: name, System: system, Unit: "B"},
			job:   p.Idle("-measure", "watches", "-n", n, "-transport", transport),
			value: func(o output) float64 { return float64(o.Idle.Bytes) },
		}
	}
	bound := table.Claim{
		What: "a watch, of 5,000 on 50 connections", Of: []table.Operand{{Cell: "watch-memory/" + mq}}, Number: 1024, Unit: "B", AtMost: 1,
	}
	return []row{
		named(table.Row{
			ID: id, What: "Watch, one key, 5,000 watchers on 50 connections, 64 puts of 128 B under way; deliveries", Claims: []table.Claim{
				claim(id, mq, mq+"-500", "QUIC, 5,000 watchers beside 500", table.Near, ""),
				also(claim(id, mt, mt+"-500", "TLS, 5,000 watchers beside 500", table.Near, "")),
			},
		}, cells...),
		named(table.Row{
			ID: "watch-memory", What: "A watch that waits: memory of the server", Rounds: twice, Claims: []table.Claim{bound},
		}, memory(mq, "Margay, QUIC", "quic"), memory(mt, "Margay, TLS", "tls")),
	}
}
