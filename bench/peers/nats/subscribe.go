// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"margay.dev/cluster/load"
)

func (s *system) Subscribe(ctx context.Context, sub load.Subscription) (io.Closer, error) {
	nc, err := s.connection(sub.Connection)
	if err != nil {
		return nil, err
	}
	if sub.Replay {
		if s.consume == consumePush {
			return s.push(ctx, nc, sub)
		}
		return s.replay(ctx, nc, sub)
	}
	return s.receive(nc, s.place, sub)
}

// connection returns the one that subscribers of this number share.
func (s *system) connection(i int) (*nats.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if nc := s.conns[i]; nc != nil {
		return nc, nil
	}
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	s.conns[i] = nc
	return nc, nil
}

// once calls fail the first time, unless closed before.
type once struct {
	sync.Once
	fail func(error)
}

func (o *once) failed(err error) { o.Do(func() { o.fail(err) }) }

func (o *once) closed() { o.Do(func() {}) }

// receive subscribes to a subject, without limits.
func (s *system) receive(nc *nats.Conn, subject string, sub load.Subscription) (io.Closer, error) {
	end := &once{fail: sub.Fail}
	ns, err := nc.Subscribe(subject, func(m *nats.Msg) { sub.Each(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	ns.SetClosedHandler(func(string) { end.failed(errClosed) })
	// No limit of messages or bytes: the client would drop what is above it.
	if err := ns.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	if err := nc.Flush(); err != nil { // the server knows of it
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return closer(func() error {
		dropped, err := ns.Dropped()
		end.closed()
		if err == nil && dropped > 0 {
			err = fmt.Errorf("subscriber %d lost %d messages", sub.Index, dropped)
		}
		_ = ns.Unsubscribe()
		return err
	}), nil
}

// replay reads the stream from its first message, in order and without acknowledgments.
func (s *system) replay(ctx context.Context, nc *nats.Conn, sub load.Subscription) (io.Closer, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	c, err := js.OrderedConsumer(ctx, s.place, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, fmt.Errorf("ordered consumer: %w", err)
	}
	end := &once{fail: sub.Fail}
	cc, err := c.Consume(func(m jetstream.Msg) { sub.Each(m.Data()) }, jetstream.PullMaxMessages(s.pull))
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

// push has the server send the whole stream to a subject, as fast as the connection takes it: what does not fit waits in
// the server, whose limit is raised.
func (s *system) push(ctx context.Context, nc *nats.Conn, sub load.Subscription) (io.Closer, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	subject := nc.NewInbox()
	c, err := s.receive(nc, subject, sub)
	if err != nil {
		return nil, err
	}
	_, err = js.CreatePushConsumer(ctx, s.place, jetstream.ConsumerConfig{
		DeliverSubject: subject,
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckNonePolicy,
		MaxDeliver:     1,
		MemoryStorage:  true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("push consumer: %w", err), c.Close())
	}
	return c, nil
}
