// SPDX-License-Identifier: Apache-2.0

// Command driver measures what `margay bench` does not: what a node that does nothing, a connection, and a subscription and a
// watch that wait cost it in memory, and what a look-up of a shard takes; it prints JSON, and publishes nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"margay.dev/bench/internal/node"
	"margay.dev/bench/internal/proc"
	"margay.dev/client"
	"margay.dev/router"
)

// settled is how long a node is left alone before its resident memory is read: what its start needed is given back.
const settled = 2 * time.Second

// Memory is what is printed of it. Bytes are live heap and stacks after a collection, RSS is resident memory.
type Memory struct {
	System string `json:"system"`
	N      int    `json:"n,omitempty"`
	Bytes  int64  `json:"bytes_per_connection,omitempty"` // also of a lane
	RSS    int64  `json:"rss_bytes"`
}

// Routing is what is printed of look-ups.
type Routing struct {
	System string  `json:"system"`
	Rate   float64 `json:"rate"` // a second
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("driver", flag.ContinueOnError)
	measure := fs.String("measure", "process", "process, connections, lanes, watches or routing")
	file := fs.String("context", "", "context file of the node")
	pid := fs.Int("pid", 0, "process of the node")
	n := fs.Int("n", 100, "connections, lanes or watches")
	transport := fs.String("transport", "quic", "quic or tls")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *measure == "routing" {
		return json.NewEncoder(out).Encode(Routing{System: "margay", Rate: lookups()})
	}
	nd, err := node.Open(*file)
	if err != nil {
		return err
	}
	defer nd.Close()
	m := Memory{System: "margay", N: *n}
	if *measure == "process" {
		m.N = 0
		late := time.NewTimer(settled)
		defer late.Stop()
		select {
		case <-late.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	} else if m.Bytes, err = each(ctx, nd, *measure, *transport, *n); err != nil {
		return err
	}
	m.RSS = proc.RSS(*pid)
	return json.NewEncoder(out).Encode(m)
}

// each opens so many, and returns by how much the node's memory grew for each.
func each(ctx context.Context, nd *node.Node, what, transport string, n int) (int64, error) {
	// One of everything first: what the first of a kind makes is no part of what the next one costs.
	all := &opened{node: nd, transport: transport}
	defer all.close()
	first := 1
	open := map[string]func(context.Context, int) error{"connections": all.connections, "lanes": all.lanes, "watches": all.watches}[what]
	if open == nil {
		return 0, fmt.Errorf("-measure %q: want process, connections, lanes, watches or routing", what)
	}
	if what == "watches" { // and each connection has the lane that its watches share
		first = (n + watchesEach - 1) / watchesEach
		if err := all.connections(ctx, first); err != nil {
			return 0, err
		}
	}
	if err := open(ctx, first); err != nil {
		return 0, err
	}
	before, err := nd.Held(ctx)
	if err != nil {
		return 0, err
	}
	if err := open(ctx, n); err != nil {
		return 0, err
	}
	after, err := nd.Held(ctx)
	if err != nil {
		return 0, err
	}
	return (after - before) / int64(n), nil
}

// lanesEach is how many subscriptions share a connection.
const lanesEach = 1000

type opened struct {
	node      *node.Node
	transport string
	clients   []*client.Client
}

func (o *opened) connections(ctx context.Context, n int) error {
	for range n {
		c, err := o.node.Connect(ctx, o.transport)
		if err != nil {
			return err
		}
		o.clients = append(o.clients, c)
	}
	return nil
}

func (o *opened) lanes(ctx context.Context, n int) error {
	name, err := o.node.Stream(ctx, "lanes", "memory")
	if err != nil {
		return err
	}
	for i := range n {
		if i%lanesEach == 0 {
			if err := o.connections(ctx, 1); err != nil {
				return err
			}
		}
		if _, err := o.clients[len(o.clients)-1].Subscribe(ctx, name, client.FromLatest()); err != nil {
			return fmt.Errorf("subscription %d: %w", i, err)
		}
	}
	return nil
}

// watchesEach is how many watches share a connection.
const watchesEach = 100

// watches opens watches of one key, over the connections that there are, in turns.
func (o *opened) watches(ctx context.Context, n int) error {
	const name = "watches"
	if err := o.node.Cache(ctx, name, 1); err != nil {
		return err
	}
	for i := range n {
		if _, err := o.clients[i%len(o.clients)].Cache(name).Watch(ctx, client.Key("watched")); err != nil {
			return fmt.Errorf("watch %d: %w", i, err)
		}
	}
	return nil
}

func (o *opened) close() {
	for _, c := range o.clients {
		c.Close() // and its subscriptions
	}
}

var errRoute = errors.New("routing: a shard that is led here is not found")

// lookups times what a broker does to find the shard of a publish, in a map of a hundred logs. Of many short stretches the
// fastest counts: the others show who else was on the processor.
func lookups() float64 {
	const logs, turns, stretches = 100, 10_000, 200
	var all []*router.Log
	var ids []router.LogID
	for i := range logs {
		ids = append(ids, router.LogID{byte(i), 1})
		shards := []router.Shard{{Leader: "n", Address: "a", Generation: 1, Handle: i}}
		all = append(all, &router.Log{ID: ids[i], Name: fmt.Sprintf("t/n/%d", i), Shards: shards})
	}
	t := router.NewTable("n")
	t.Swap(router.New(1, "n", all))
	best := time.Duration(1<<63 - 1)
	for range stretches {
		begin, at := time.Now(), 0
		for range turns {
			if t.Load().Resolve(ids[at], 0).Outcome != router.Local {
				panic(errRoute) // the map above holds it
			}
			if at++; at == logs {
				at = 0
			}
		}
		best = min(best, time.Since(begin))
	}
	return turns / best.Seconds()
}
