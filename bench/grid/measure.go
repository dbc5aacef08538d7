// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/bench/internal/grid"
	"margay.dev/bench/internal/node"
	"margay.dev/client"
)

const (
	recordSize = 128
	// window is how many publishes may be without an answer.
	window = 4000
	// behind is how many deliveries may be outstanding for each subscriber, and in all at least: a subscriber that falls back to
	// the log is not what the grid is about.
	behind, behindAll = 200, 20_000
	// perConnection is how many subscribers share a connection, as long as there are more than that.
	perConnection = 20
	// patience is how long what was published may take to arrive once nothing more is published.
	patience = 30 * time.Second
)

// measurer measures cells on one node, each with a stream of its own.
type measurer struct {
	node      *node.Node
	transport string
	duration  time.Duration
	count     int
}

// measure fills one cell.
func (m *measurer) measure(ctx context.Context, p grid.Point) (r grid.Rates, err error) {
	m.count++
	name := "grid-" + strconv.Itoa(m.count)
	stream, err := m.node.Stream(ctx, name, "memory")
	if err != nil {
		return r, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, m.node.Remove(ctx, name))
	}()
	c := &crowd{point: p, stream: stream, expect: expected(p)}
	c.moved.L = &c.mu
	defer c.leave()
	if err := c.join(ctx, m.node, m.transport); err != nil {
		return r, err
	}
	pub, err := m.node.Connect(ctx, m.transport)
	if err != nil {
		return r, err
	}
	defer pub.Close()
	if _, err := c.publish(ctx, pub, m.duration/4); err != nil { // tables fill, lanes open
		return r, err
	}
	return c.publish(ctx, pub, m.duration)
}

// crowd is the subscribers of a cell.
type crowd struct {
	point  grid.Point
	stream string
	expect []int // how many subscribers want a record, by its key

	clients []*client.Client
	subs    []*client.Subscription
	readers sync.WaitGroup

	delivered atomic.Int64

	wake atomic.Int64 // at how many deliveries somebody waits

	mu    sync.Mutex
	moved sync.Cond // delivered has come to wake, or something has failed
	err   error
}

func keyOf(i int) string { return "site/" + strconv.Itoa(i) + "/temperature" }

// filters are those of a subscriber.
func filters(p grid.Point, subscriber int) []client.SubscribeOption {
	site := "site/" + strconv.Itoa(subscriber%p.Keys)
	switch p.Filter.Kind {
	case grid.Exact:
		return []client.SubscribeOption{client.KeyExact(keyOf(subscriber % p.Keys))}
	case grid.Prefix:
		return []client.SubscribeOption{client.KeyPrefix(site + "/")}
	case grid.Patterns:
		var mine []string
		for _, n := range share(p, subscriber) {
			mine = append(mine, "site/"+strconv.Itoa(n)+"/+")
		}
		return []client.SubscribeOption{client.Keys(mine...)}
	}
	return nil
}

// share is which of the patterns a subscriber has: all of them are shared out, and when there are more subscribers, some share one.
func share(p grid.Point, subscriber int) []int {
	if subscriber >= p.Filter.Patterns {
		return []int{subscriber % p.Filter.Patterns}
	}
	var mine []int
	for n := subscriber; n < p.Filter.Patterns; n += p.Subscribers {
		mine = append(mine, n)
	}
	return mine
}

// expected is how many subscribers get a record, by its key.
func expected(p grid.Point) []int {
	n := make([]int, p.Keys)
	for s := range p.Subscribers {
		switch p.Filter.Kind {
		case grid.None:
			for k := range n {
				n[k]++
			}
		case grid.Patterns:
			for _, k := range share(p, s) {
				if k < p.Keys {
					n[k]++
				}
			}
		default:
			n[s%p.Keys]++
		}
	}
	return n
}

func (c *crowd) join(ctx context.Context, n *node.Node, transport string) error {
	for i := range c.point.Subscribers {
		if i%perConnection == 0 {
			cl, err := n.Connect(ctx, transport)
			if err != nil {
				return err
			}
			c.clients = append(c.clients, cl)
		}
		o := append(filters(c.point, i), client.FromLatest(), client.Overflow(client.PolicyCatchUp))
		s, err := c.clients[len(c.clients)-1].Subscribe(ctx, c.stream, o...)
		if err != nil {
			return fmt.Errorf("subscriber %d: %w", i, err)
		}
		c.subs = append(c.subs, s)
		c.readers.Go(func() { c.read(s) })
	}
	return nil
}

func (c *crowd) read(s *client.Subscription) {
	for rec, err := range s.Records(context.Background()) { // until it is closed
		if err == nil && rec.Gap != nil {
			err = fmt.Errorf("offsets %d to %d were lost on the way", rec.Gap.From, rec.Gap.To)
		}
		if err != nil {
			c.fail(err)
			return
		}
		if c.delivered.Add(1) == c.wake.Load() {
			c.mu.Lock()
			c.moved.Broadcast()
			c.mu.Unlock()
		}
	}
}

func (c *crowd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.moved.Broadcast()
}

// reach waits until so many deliveries were made in all.
func (c *crowd) reach(ctx context.Context, n int64) error {
	defer context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake.Store(n)
	for c.delivered.Load() < n && c.err == nil {
		c.moved.Wait()
	}
	return c.err
}

// publish publishes for d, never further ahead of the subscribers than the bounds allow, and returns the rates of what was
// acknowledged and delivered until the last of it was there.
func (c *crowd) publish(ctx context.Context, pub *client.Client, d time.Duration) (r grid.Rates, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d+patience, errors.New("not everything that was published has arrived"))
	defer cancel()
	p := pub.Publisher(c.stream)
	answers := make(chan client.Future, window)
	answered := make(chan error, 1)
	go func() { answered <- wait(answers) }()
	bound := int64(max(behindAll, behind*c.point.Subscribers))
	base := c.delivered.Load()
	due, published := base, 0
	value := make([]byte, recordSize)
	begin := time.Now()
	for time.Since(begin) < d && err == nil {
		for range 64 {
			key := published % c.point.Keys
			answers <- p.PublishAsync(ctx, client.Record{Key: []byte(keyOf(key)), Value: value})
			due += int64(c.expect[key])
			published++
		}
		if due-c.delivered.Load() > bound {
			err = c.reach(ctx, due-bound/2)
		}
	}
	close(answers)
	if err = errors.Join(err, <-answered); err == nil {
		err = c.reach(ctx, due)
	}
	took := time.Since(begin).Seconds()
	return grid.Rates{Publishes: float64(published) / took, Deliveries: float64(due-base) / took}, err
}

// wait waits for all answers. After the first failure the others are waited for and not looked at.
func wait(answers <-chan client.Future) (first error) {
	for f := range answers {
		if _, err := f.Wait(context.Background()); err != nil && first == nil {
			first = fmt.Errorf("publish: %w", err)
		}
	}
	return first
}

func (c *crowd) leave() {
	for _, s := range c.subs {
		s.Close()
	}
	for _, cl := range c.clients {
		cl.Close()
	}
	c.readers.Wait()
}
