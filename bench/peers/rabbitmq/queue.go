// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

const (
	dialWithin = 30 * time.Second
)

var errClosed = errors.New("connection closed")

func url(addr string) string { return "amqp://guest:guest@" + addr + "/" }

// queue is one quorum queue of one server.
type queue struct {
	addr     string
	spec     load.Spec
	name     string
	ackEvery int
	server   string // its version
	c        *amqp.Connection

	mu    sync.Mutex
	conns map[int]*amqp.Connection // of consumers, by connection
}

func drive(fs *flag.FlagSet) func(context.Context, string, load.Spec) (load.System, error) {
	ackEvery := fs.Int("ack-every", 1, "messages that one acknowledgement is for, where so many wait; 1 is one for each")
	return func(_ context.Context, addr string, spec load.Spec) (load.System, error) {
		switch {
		case !spec.Workload.HasQueue():
			return nil, fmt.Errorf("-workload %s: RabbitMQ is measured with work and handle", spec.Workload)
		case spec.Ordered:
			return nil, errors.New("-ordered: RabbitMQ has no order of keys among consumers")
		case *ackEvery < 1:
			return nil, fmt.Errorf("-ack-every %d: want 1 or more", *ackEvery)
		}
		q := &queue{
			addr: addr, spec: spec, name: fmt.Sprintf("load-%d", time.Now().UnixNano()), ackEvery: *ackEvery,
			conns: map[int]*amqp.Connection{},
		}
		if err := q.open(); err != nil {
			return nil, errors.Join(err, q.Close())
		}
		return load.Queued(q), nil
	}
}

func dial(addr string) (*amqp.Connection, error) {
	c, err := amqp.DialConfig(url(addr), amqp.Config{Dial: amqp.DefaultDial(dialWithin)})
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", addr, err)
	}
	return c, nil
}

func (q *queue) open() (err error) {
	if q.c, err = dial(q.addr); err != nil {
		return err
	}
	q.server, _ = q.c.Properties["version"].(string)
	ch, err := q.c.Channel()
	if err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	if _, err := ch.QueueDeclare(q.name, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		return fmt.Errorf("declare queue: %w", err)
	}
	return ch.Close()
}

func (q *queue) String() string {
	how := "an acknowledgement for each message"
	if q.ackEvery > 1 {
		how = fmt.Sprintf("an acknowledgement for up to %d messages", q.ackEvery)
	}
	return "RabbitMQ " + q.server + ", quorum queue, " + how
}

// pusher publishes with confirmations, which a channel brings in the order of its messages.
type pusher struct {
	c     *amqp.Connection
	ch    *amqp.Channel
	name  string
	under *peer.UnderWay
	ended sync.WaitGroup
}

// Pusher connects.
func (q *queue) Pusher(_ context.Context, _ int, done load.Done) (load.Putter, error) {
	p := &pusher{name: q.name, under: peer.NewUnderWay(q.spec.InFlight, done)}
	var err error
	if p.c, err = dial(q.addr); err != nil {
		return nil, err
	}
	if p.ch, err = p.c.Channel(); err == nil {
		err = p.ch.Confirm(false)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("channel: %w", err), p.c.Close())
	}
	confirmed := p.ch.NotifyPublish(make(chan amqp.Confirmation, 1024))
	p.ended.Go(func() {
		for c := range confirmed { // it is closed with the channel
			var err error
			if !c.Ack {
				err = errors.New("the server refused the message")
			}
			p.under.Tell(1, err)
		}
		p.under.Fail(errClosed)
	})
	return p, nil
}

func (p *pusher) Put(ctx context.Context, _ string, value []byte, at int64) error {
	if err := p.under.Add(at); err != nil {
		return err
	}
	err := p.ch.PublishWithContext(ctx, "", p.name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: value})
	if err != nil && p.under.Drop() {
		return err
	}
	return nil
}

func (p *pusher) Close() error {
	_ = p.c.Close() // it may have ended
	p.ended.Wait()
	return nil
}

// connection returns the one that consumers of this number share.
func (q *queue) connection(i int) (*amqp.Connection, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.conns[i]; c != nil {
		return c, nil
	}
	c, err := dial(q.addr)
	if err == nil {
		q.conns[i] = c
	}
	return c, err
}

// Consume reads a channel of its own, which holds as many messages as may be out.
func (q *queue) Consume(_ context.Context, c load.Consumer) (io.Closer, error) {
	conn, err := q.connection(c.Connection)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	if err := ch.Qos(c.MaxInFlight, 0, false); err != nil {
		return nil, fmt.Errorf("prefetch: %w", err)
	}
	messages, err := ch.Consume(q.name, "", false, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	r := &consumer{ch: ch, every: q.ackEvery, c: c}
	r.ended.Go(func() { r.work(messages) })
	return r, nil
}

type consumer struct {
	ch    *amqp.Channel
	every int
	c     load.Consumer
	ended sync.WaitGroup
	once  sync.Once
}

// work acknowledges the last of so many with all before it, or of those that are there. The server does not answer an
// acknowledgement: it counts when it is handed to the connection.
func (r *consumer) work(messages <-chan amqp.Delivery) {
	n := 0
	for m := range messages {
		if m.Redelivered {
			r.fail(errors.New("a message was handed out again"))
			return
		}
		r.c.Handle(m.Body)
		if n++; n < r.every && len(messages) > 0 {
			continue
		}
		if err := m.Ack(n > 1); err != nil {
			r.fail(err)
			return
		}
		r.c.Settled(n)
		n = 0
	}
	r.fail(errClosed)
}

func (r *consumer) fail(err error) { r.once.Do(func() { r.c.Fail(err) }) }

func (r *consumer) Close() error {
	r.once.Do(func() {})
	_ = r.ch.Close() // it may have ended; the deliveries end with it
	r.ended.Wait()
	return nil
}

// Left is what waits; the protocol does not tell of what is out.
func (q *queue) Left(context.Context) (int64, error) {
	ch, err := q.c.Channel()
	if err != nil {
		return 0, fmt.Errorf("channel: %w", err)
	}
	defer func() { _ = ch.Close() }() // it is only asked
	info, err := ch.QueueDeclarePassive(q.name, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	return int64(info.Messages), err
}

// Close deletes the queue.
func (q *queue) Close() error {
	var err error
	if q.c != nil {
		var ch *amqp.Channel
		if ch, err = q.c.Channel(); err == nil {
			_, err = ch.QueueDelete(q.name, false, false, false)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.conns {
		_ = c.Close()
	}
	clear(q.conns)
	if q.c != nil {
		_ = q.c.Close()
	}
	return err
}
