// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"margay.dev/cluster/load"
)

// queue is one stream with one durable consumer, from which all who work it off pull.
type queue struct {
	*system
	consumer jetstream.Consumer
}

// ackWait is longer than any run: nothing is to be handed out again.
const ackWait = 30 * time.Minute

func (s *system) openQueue(ctx context.Context, retention string) (load.System, error) {
	policy, ok := map[string]jetstream.RetentionPolicy{"limits": jetstream.LimitsPolicy, "workqueue": jetstream.WorkQueuePolicy}[retention]
	switch {
	case !ok:
		return nil, fmt.Errorf("-retention %q: want limits or workqueue", retention)
	case s.spec.Ordered:
		return nil, errors.New("-ordered: JetStream has no order of keys among consumers")
	case s.via != viaSync && s.via != viaAsync:
		return nil, fmt.Errorf("-via %q: want sync or async to push", s.via)
	}
	s.retention = policy
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	q := &queue{system: s}
	var err error
	q.consumer, err = s.js.CreateOrUpdateConsumer(ctx, s.place, jetstream.ConsumerConfig{
		Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: s.spec.Consumers * s.spec.MaxInFlight,
	})
	if err != nil {
		return nil, fmt.Errorf("create consumer: %w", err)
	}
	return load.Queued(q), nil
}

func (q *queue) String() string {
	return fmt.Sprintf("nats-server %s, JetStream consume with explicit acks, %d pulled at a time", q.server, q.pulled())
}

// pulled is how many messages a consumer asks for at a time.
func (q *queue) pulled() int { return min(q.pull, q.spec.MaxInFlight) }

// pusher publishes in the way that is asked for; keys mean nothing here.
type pusher struct {
	load.Publisher
}

func (p pusher) Put(ctx context.Context, _ string, value []byte, at int64) error {
	return p.Publish(ctx, value, at)
}

// Pusher publishes.
func (q *queue) Pusher(ctx context.Context, i int, done load.Done) (load.Putter, error) {
	p, err := q.Publisher(ctx, i, done)
	return pusher{p}, err
}

// Consume pulls by the Consume method of the jetstream package, and acknowledges each message by itself. The server does not
// answer that: an acknowledgement counts when it is handed to the connection.
func (q *queue) Consume(ctx context.Context, c load.Consumer) (io.Closer, error) {
	nc, err := q.connection(c.Connection)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	consumer, err := js.Consumer(ctx, q.place, "workers")
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	end := &once{fail: c.Fail}
	cc, err := consumer.Consume(func(m jetstream.Msg) {
		c.Handle(m.Data())
		if err := m.Ack(); err != nil {
			end.failed(err)
			return
		}
		c.Settled(1)
	}, jetstream.PullMaxMessages(q.pulled()))
	if err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	closed := nc.StatusChanged(nats.CLOSED)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-closed:
			end.failed(errClosed)
		case <-cc.Closed():
		}
	})
	return closer(func() error {
		end.closed()
		cc.Stop()
		watching.Wait()
		return nil
	}), nil
}

// Left asks the server.
func (q *queue) Left(ctx context.Context) (int64, error) {
	info, err := q.consumer.Info(ctx)
	if err == nil && info.NumRedelivered > 0 {
		err = fmt.Errorf("%d messages were handed out again", info.NumRedelivered)
	}
	if err != nil {
		return 0, err
	}
	return int64(info.NumPending) + int64(info.NumAckPending), nil
}
