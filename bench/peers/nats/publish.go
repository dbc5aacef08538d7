// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

func (s *system) Publisher(ctx context.Context, _ int, done load.Done) (load.Publisher, error) {
	switch s.via {
	case viaSync:
		return s.newSync(done)
	case viaAsync:
		return s.newAsync(done)
	case viaRaw:
		return s.newRaw(done)
	case viaFast:
		return s.newFast(ctx, done)
	default:
		return s.newCore(done)
	}
}

// syncPublisher waits for each answer.
type syncPublisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	subject string
	done    load.Done
}

func (s *system) newSync(done load.Done) (*syncPublisher, error) {
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return &syncPublisher{nc: nc, js: js, subject: s.place, done: done}, nil
}

func (p *syncPublisher) Publish(ctx context.Context, msg []byte, at int64) error {
	_, err := p.js.Publish(ctx, p.subject, msg)
	p.done(at, 1, err)
	return nil
}

func (p *syncPublisher) Close() error {
	p.nc.Close()
	return nil
}

// asyncPublisher has many messages under way. One stream answers one connection in the order of its messages, so what an
// answer belongs to is the oldest that has none.
type asyncPublisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	subject string
	under   *peer.UnderWay
}

func (s *system) newAsync(done load.Done) (*asyncPublisher, error) {
	p := &asyncPublisher{subject: s.place, under: peer.NewUnderWay(s.spec.InFlight, done)}
	var err error
	if p.nc, err = s.dial(nats.ClosedHandler(func(*nats.Conn) { p.under.Fail(errClosed) })); err != nil {
		return nil, err
	}
	p.js, err = jetstream.New(p.nc,
		jetstream.WithPublishAsyncMaxPending(s.spec.InFlight),
		jetstream.WithPublishAsyncAckHandler(func(jetstream.JetStream, *nats.Msg, *jetstream.PubAck) { p.under.Tell(1, nil) }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { p.under.Tell(1, err) }),
	)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	return p, nil
}

func (p *asyncPublisher) Publish(_ context.Context, msg []byte, at int64) error {
	return p.publish(p.subject, msg, at)
}

func (p *asyncPublisher) publish(subject string, msg []byte, at int64) error {
	if err := p.under.Add(at); err != nil {
		return err
	}
	// No second attempt: the bytes are the caller's again by then.
	_, err := p.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: msg}, jetstream.WithRetryAttempts(0))
	if err != nil && p.under.Drop() {
		return err
	}
	return nil
}

func (p *asyncPublisher) Close() error {
	p.nc.Close()
	p.under.Fail(errClosed)
	return nil
}

// corePublisher knows of no answer: handed over is done.
type corePublisher struct {
	nc      *nats.Conn
	subject string
	done    load.Done
}

func (s *system) newCore(done load.Done) (*corePublisher, error) {
	nc, err := s.dial()
	if err != nil {
		return nil, err
	}
	return &corePublisher{nc: nc, subject: s.place, done: done}, nil
}

func (p *corePublisher) Publish(_ context.Context, msg []byte, at int64) error {
	if err := p.nc.Publish(p.subject, msg); err != nil {
		return err
	}
	p.done(at, 1, nil)
	return nil
}

func (p *corePublisher) Close() error {
	p.nc.Close()
	return nil
}

var errClosed = errors.New("connection closed")
