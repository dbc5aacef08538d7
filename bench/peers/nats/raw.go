// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

// requests are made with the connection alone: all answers come to one subject and are counted, not decoded. It shows how much
// of the price is the jetstream package's. The server answers a connection in order.
type requests struct {
	nc    *nats.Conn
	reply string
	under *peer.UnderWay
	check func(answer *nats.Msg) error
}

func (s *system) newRequests(done load.Done, check func(*nats.Msg) error) (*requests, error) {
	r := &requests{under: peer.NewUnderWay(s.spec.InFlight, done), check: check}
	var err error
	if r.nc, err = s.dial(nats.ClosedHandler(func(*nats.Conn) { r.under.Fail(errClosed) })); err != nil {
		return nil, err
	}
	r.reply = r.nc.NewInbox()
	if _, err := r.nc.Subscribe(r.reply, func(m *nats.Msg) { r.under.Tell(1, r.check(m)) }); err != nil {
		r.nc.Close()
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	return r, nil
}

func (r *requests) request(subject string, msg []byte, at int64) error {
	if err := r.under.Add(at); err != nil {
		return err
	}
	if err := r.nc.PublishRequest(subject, r.reply, msg); err != nil && r.under.Drop() {
		return err
	}
	return nil
}

func (r *requests) Close() error { //nolint:unparam // load.Publisher
	r.nc.Close()
	r.under.Fail(errClosed)
	return nil
}

// stored takes an answer with a stream and a sequence for a good one, and all else (an error, no stream) for a bad one.
func stored(m *nats.Msg) error {
	if !bytes.HasPrefix(m.Data, []byte(`{"stream":`)) || bytes.Contains(m.Data, []byte(`"error":`)) {
		return fmt.Errorf("answer %q %v", m.Data, m.Header)
	}
	return nil
}

// rawPublisher does what asyncPublisher does, without the jetstream package.
type rawPublisher struct {
	*requests
	subject string
}

func (s *system) newRaw(done load.Done) (*rawPublisher, error) {
	r, err := s.newRequests(done, stored)
	if err != nil {
		return nil, err
	}
	return &rawPublisher{r, s.place}, nil
}

func (p *rawPublisher) Publish(_ context.Context, msg []byte, at int64) error {
	return p.request(p.subject, msg, at)
}
