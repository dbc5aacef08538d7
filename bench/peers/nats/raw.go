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

// rawPublisher does what asyncPublisher does, with the connection alone: all answers come to one subject and are counted,
// not decoded. It shows how much of the price is the jetstream package's.
type rawPublisher struct {
	nc             *nats.Conn
	subject, reply string
	under          *peer.UnderWay
}

func (s *system) newRaw(done load.Done) (*rawPublisher, error) {
	p := &rawPublisher{subject: s.place, under: peer.NewUnderWay(s.spec.InFlight, done)}
	var err error
	if p.nc, err = s.dial(nats.ClosedHandler(func(*nats.Conn) { p.under.Fail(errClosed) })); err != nil {
		return nil, err
	}
	p.reply = p.nc.NewInbox()
	if _, err := p.nc.Subscribe(p.reply, p.answered); err != nil {
		p.nc.Close()
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	return p, nil
}

func (p *rawPublisher) Publish(_ context.Context, msg []byte, at int64) error {
	if err := p.under.Add(at); err != nil {
		return err
	}
	if err := p.nc.PublishRequest(p.subject, p.reply, msg); err != nil && p.under.Drop() {
		return err
	}
	return nil
}

// answered takes an answer with a stream and a sequence for a good one, and all else (an error, no stream) for a bad one.
func (p *rawPublisher) answered(m *nats.Msg) {
	if !bytes.HasPrefix(m.Data, []byte(`{"stream":`)) || bytes.Contains(m.Data, []byte(`"error":`)) {
		p.under.Tell(1, fmt.Errorf("answer %q %v", m.Data, m.Header))
		return
	}
	p.under.Tell(1, nil)
}

func (p *rawPublisher) Close() error {
	p.nc.Close()
	p.under.Fail(errClosed)
	return nil
}
