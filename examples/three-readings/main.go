// SPDX-License-Identifier: Apache-2.0

// Command three-readings reads one log in three ways at once: it tails orders, looks up the newest state of each, and works
// them off with retries. It uses the node that `margay serve` runs and the stream `purchases` there, and touches nothing else.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"sync"
	"time"

	"margay.dev/client"
)

const (
	stream = "purchases"
	group  = "shipping"
	tries  = 3 // of an order, before it is a dead letter
)

func main() {
	if err := run(context.Background(), log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out *log.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := client.ConnectNamed(ctx, "local") // the context that `margay serve` wrote
	if err != nil {
		return err
	}
	defer c.Close()

	// The first reading: every record, forward, as it is published.
	tail, err := c.Subscribe(ctx, stream)
	if err != nil {
		return err
	}
	defer tail.Close()
	// The second: the newest record of each key.
	state := c.Cache(stream)
	// The third: through a place that all who ship share. Of one order they get one step after the other. (What a queue keeps
	// would do as well, but for the state: it gives up what is worked off.)
	orders := c.Queue(stream)
	if err := orders.Group(group).Ensure(ctx, client.GroupConfig{
		MaxAttempts: tries, Backoff: []time.Duration{100 * time.Millisecond}, OrderByKey: true,
	}); err != nil {
		return err
	}
	shipping, err := orders.Consume(ctx, group, client.Concurrency(4))
	if err != nil {
		return err
	}

	lost, giveUp := context.WithCancel(ctx)
	defer giveUp()
	s := &shop{out: out, giveUp: giveUp}
	var ended error
	var working sync.WaitGroup
	working.Go(func() { ended = shipping.Handle(ctx, 4, s.ship) })
	defer working.Wait()
	defer shipping.Close()

	for _, order := range []string{"order-1", "order-2", "order-3"} {
		if _, err := orders.Push(ctx, client.Record{Key: []byte(order), Value: []byte("placed")}); err != nil {
			return err
		}
	}
	// Three orders are placed, and two of them shipped: five records.
	seen := 0
	for rec, err := range tail.Records(ctx) {
		if err != nil {
			return err
		}
		out.Printf("tail: %s is %s", rec.Key, rec.Value)
		if seen++; seen == 5 {
			break
		}
	}
	<-lost.Done()                               // the third has failed for good, or ctx has ended
	if err := shipping.Drain(ctx); err != nil { // what was settled is durable when it returns
		return err
	}
	working.Wait()
	if !errors.Is(ended, client.ErrClosed) {
		return ended
	}
	return look(ctx, out, state, orders.Group(group))
}

// shop is who ships orders.
type shop struct {
	out    *log.Logger
	giveUp func() // the last try of an order has failed
}

// ship does what is to be done for a record: an error lets it come again, or makes it a dead letter when that was its last try.
func (s *shop) ship(ctx context.Context, m *client.Message) error {
	switch order := string(m.Key); {
	case string(m.Value) != "placed":
		return nil // the shop's own word: there is nothing left to be done
	case order == "order-2" && m.Attempt == 1:
		s.out.Printf("ship: %s, attempt %d: the carrier does not answer", order, m.Attempt)
		return errors.New("the carrier does not answer")
	case order == "order-3":
		s.out.Printf("ship: %s, attempt %d: no such address", order, m.Attempt)
		if m.Attempt == tries {
			s.giveUp()
		}
		return errors.New("no such address")
	}
	// That it is shipped, and that this message is done with: both, or neither.
	if _, err := m.AckAndPublish(ctx, client.Record{Key: m.Key, Value: []byte("shipped")}); err != nil {
		return err
	}
	s.out.Printf("ship: %s, attempt %d: done", m.Key, m.Attempt)
	return nil
}

// look tells how the orders stand, and which of them nobody will try again.
func look(ctx context.Context, out *log.Logger, state *client.Cache, g *client.Group) error {
	for _, order := range []string{"order-1", "order-2", "order-3"} {
		e, err := state.Get(ctx, order)
		if err != nil {
			return err
		}
		out.Printf("state: %s is %s", e.Key, e.Value)
	}
	for m, err := range g.DeadLetters(ctx) {
		if err != nil {
			return err
		}
		out.Printf("dead letter: %s, after %d attempts: %s", m.Key, m.Attempts, m.Error)
	}
	return nil
}
