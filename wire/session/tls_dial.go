// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"margay.dev/wire/code"
)

const (
	// maxDials is how many lanes of one session come up at a time; others wait their turn.
	maxDials = 16
	// mostSlots bounds what a server may say of the lanes it takes.
	mostSlots = 1 << 20
)

// NetDial makes a TCP connection, or whatever stands for one.
type NetDial func(ctx context.Context, addr string) (net.Conn, error)

// DialTLS connects to addr ("host:port"; of several addresses IPv4 first, one after the other) over TLS on TCP, with a
// connection for each lane. Dial makes them; nil for the system's. An error says that nothing was applied anywhere.
func DialTLS(ctx context.Context, dial NetDial, addr string, t *tls.Config, cfg Config) (Conn, error) {
	cfg = cfg.WithDefaults()
	d := &tlsDialer{cfg: cfg, dial: dial, tls: cfg.tls(t), dials: make(chan struct{}, maxDials)}
	if d.tls.ClientSessionCache == nil {
		// Lanes resume what the link has agreed on: no certificate is shown and verified for each of them.
		d.tls.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	_, _ = rand.Read(d.id[:]) // never fails
	host, targets, err := d.resolve(ctx, addr)
	if err != nil {
		return nil, dialError(addr, err)
	}
	if d.tls.ServerName == "" {
		d.tls.ServerName = host
	}
	for _, target := range targets {
		var c Conn
		if c, err = d.open(ctx, target); err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = code.New(code.Unavailable, "dial %s: nothing takes TLS connections there, or no longer: %w", addr, err)
	}
	return nil, dialError(addr, err)
}

// tlsDialer makes the TCP connections of one session.
type tlsDialer struct {
	cfg   Config
	dial  NetDial
	tls   *tls.Config
	id    sessionID
	dials chan struct{}
}

// resolve leaves names to a dialer that is not the system's: a proxy knows others.
func (d *tlsDialer) resolve(ctx context.Context, addr string) (host string, targets []string, err error) {
	if d.dial != nil {
		host, _, err = net.SplitHostPort(addr)
		if err != nil {
			err = code.New(code.BadRequest, "%w", err)
		}
		return host, []string{addr}, err
	}
	d.dial = func(ctx context.Context, addr string) (net.Conn, error) {
		var nd net.Dialer
		return nd.DialContext(ctx, "tcp", addr)
	}
	host, all, err := resolve(ctx, addr)
	for _, a := range all {
		targets = append(targets, a.String())
	}
	return host, targets, err
}

func (d *tlsDialer) open(ctx context.Context, target string) (Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.HandshakeTimeout)
	defer cancel()
	raw, t, answer, err := d.connect(ctx, target, preface{kind: prefaceNew, id: d.id})
	if err != nil {
		return nil, err
	}
	if answer.lane == 0 || answer.lane > mostSlots {
		raw.kill()
		return nil, code.New(code.Protocol, "the server takes %d lanes", answer.lane)
	}
	c := newTLSConn(d.cfg, d.id, raw, t)
	c.slots = make(chan struct{}, answer.lane)
	c.join = func(ctx context.Context, number uint64) (*rawConn, *tls.Conn, error) {
		select {
		case d.dials <- struct{}{}:
			defer func() { <-d.dials }()
		case <-ctx.Done():
			return nil, nil, &unheardError{ctx.Err()}
		}
		raw, t, _, err := d.connect(ctx, target, preface{kind: prefaceJoin, id: d.id, lane: number})
		return raw, t, err
	}
	c.spawn(c.listen)
	return c, nil
}

// unheardError is one behind which the server does not have the lane.
type unheardError struct{ error }

func (e *unheardError) Unwrap() error { return e.error }

// connect makes a TCP connection, agrees on TLS, and waits for the answer to the preface.
func (d *tlsDialer) connect(ctx context.Context, target string, p preface) (_ *rawConn, _ *tls.Conn, answer message, err error) {
	nc, err := d.dial(ctx, target)
	if err != nil {
		return nil, nil, answer, &unheardError{err}
	}
	raw := newRawConn(nc, d.cfg)
	stop := context.AfterFunc(ctx, raw.kill)
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			raw.kill()
			if ctx.Err() != nil {
				err = rewrap(err, ctx.Err())
			}
		}
	}()
	t := tls.Client(raw, d.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, nil, answer, &unheardError{err}
	}
	if _, err := t.Write(p.append(make([]byte, 0, prefaceSize))); err != nil {
		return nil, nil, answer, err
	}
	if answer, err = readMessage(t); err != nil {
		return nil, nil, answer, err
	}
	switch answer.kind {
	case msgAccepted:
		return raw, t, answer, nil
	case msgRefused:
		e := code.New(answer.code, "refused: %s", answer.text)
		if e.Code == code.TooMany {
			e = e.Retry(retryTooMany)
		}
		return nil, nil, answer, &unheardError{e}
	default:
	}
	return nil, nil, answer, code.New(code.Protocol, "message %d answers no preface", answer.kind)
}

// rewrap says that the context ended, and keeps whether the server has heard.
func rewrap(err, cause error) error {
	if _, ok := errors.AsType[*unheardError](err); ok {
		return &unheardError{cause}
	}
	return cause
}

// newRawConn tunes a TCP connection: small frames leave at once, and one over which nothing goes is looked after.
func newRawConn(nc net.Conn, cfg Config) *rawConn {
	if c, ok := nc.(*net.TCPConn); ok {
		_ = c.SetNoDelay(true) // none of these fails on an open connection
		_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4})
		tuneTCP(c, max(2*cfg.WriteTimeout, cfg.Idle))
	}
	return &rawConn{Conn: nc, standstill: cfg.WriteTimeout}
}
