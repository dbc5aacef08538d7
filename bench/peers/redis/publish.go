// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"margay.dev/bench/peers/peer"
	"margay.dev/cluster/load"
)

func (s *system) Publisher(ctx context.Context, _ int, done load.Done) (load.Publisher, error) {
	c, err := connect(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	add := adder{prefix: s.prefix()}
	if s.spec.InFlight == 1 {
		return &syncPublisher{conn: c, adder: add, done: done}, nil
	}
	p := &pipe{conn: c, adder: add, under: peer.NewUnderWay(s.spec.InFlight, done)}
	p.ended.Go(p.readAnswers)
	return p, nil
}

// adder encodes XADD: what is in front of the message is the same each time.
type adder struct{ prefix, buf []byte }

func (s *system) prefix() []byte {
	head := appendCommand(nil, "XADD", s.key, "*", field, "")
	head = head[:len(head)-len("$0\r\n\r\n")]
	return fmt.Appendf(head, "$%d\r\n", s.spec.Size)
}

func (a *adder) add(msg []byte) {
	a.buf = append(a.buf, a.prefix...)
	a.buf = append(a.buf, msg...)
	a.buf = append(a.buf, '\r', '\n')
}

// syncPublisher waits for each answer, in the goroutine that publishes: nobody else has to wake up.
type syncPublisher struct {
	*conn
	adder
	done load.Done
}

func (p *syncPublisher) Publish(_ context.Context, msg []byte, at int64) error {
	p.buf = p.buf[:0]
	p.add(msg)
	p.done(at, 1, p.roundTrip())
	return nil
}

func (p *syncPublisher) roundTrip() error {
	if _, err := p.nc.Write(p.buf); err != nil {
		return err
	}
	kind, n, _, err := p.head()
	if err != nil {
		return err
	}
	if kind != '$' || n < 0 {
		return errProtocol
	}
	_, err = p.r.Discard(n + len("\r\n"))
	return err
}

// pipe has many commands under way on one connection. Redis answers in order.
type pipe struct {
	*conn
	adder
	under *peer.UnderWay
	ended sync.WaitGroup
}

// full is how much is gathered at most before it is written: about what one write hands to the kernel at once.
const full = 64 << 10

func (p *pipe) Publish(_ context.Context, msg []byte, at int64) error {
	if err := p.under.Add(at); err != nil {
		return err
	}
	p.add(msg)
	if len(p.buf) >= full {
		p.write()
	}
	return nil
}

// Flush sends what has gathered.
func (p *pipe) Flush(context.Context) error { //nolint:unparam // load.Flusher; what fails is told of message by message
	p.write()
	return nil
}

func (p *pipe) write() {
	if len(p.buf) == 0 {
		return
	}
	if _, err := p.nc.Write(p.buf); err != nil {
		p.under.Fail(err)
	}
	p.buf = p.buf[:0]
}

// readAnswers tells of all that one read brought at once.
func (p *pipe) readAnswers() {
	b := make([]byte, 0, 64<<10)
	for {
		n, err := p.nc.Read(b[len(b):cap(b)])
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				err = errClosed
			}
			p.under.Fail(err)
			return
		}
		b = b[:len(b)+n]
		used, err := p.tell(b)
		if err != nil {
			p.under.Fail(err)
			return
		}
		b = b[:copy(b, b[used:])]
	}
}

// tell reads the whole answers in b and says how long they are.
func (p *pipe) tell(b []byte) (used int, err error) {
	good := 0
	for {
		n, failed, err := answer(b[used:])
		if err != nil {
			return used, err
		}
		if n == 0 || failed != nil {
			p.under.Tell(good, nil)
			good = 0
		}
		if n == 0 {
			return used, nil
		}
		used += n
		if failed != nil {
			p.under.Tell(1, failed)
			continue
		}
		good++
	}
}

func (p *pipe) Close() error {
	err := p.conn.Close()
	p.ended.Wait()
	return err
}

var errClosed = errors.New("connection closed")
