// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"

	"github.com/quic-go/quic-go"
)

type quicListener struct {
	l *quic.Listener
	t *quic.Transport
}

func (q quicListener) Accept(ctx context.Context) (Conn, error) {
	c, err := q.l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return quicConn{c, func() error { return nil }}, nil
}

func (q quicListener) Addr() string { return q.l.Addr().String() }

func (q quicListener) Close() error { return errors.Join(q.l.Close(), q.t.Close(), q.t.Conn.Close()) }

type quicConn struct {
	c       *quic.Conn
	release func() error
}

func (q quicConn) OpenStream(ctx context.Context) (Stream, error) {
	s, err := q.c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return quicStream{s}, nil
}

func (q quicConn) AcceptStream(ctx context.Context) (Stream, error) {
	s, err := q.c.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return quicStream{s}, nil
}

func (q quicConn) Single() bool { return false }

func (q quicConn) Close() error { return errors.Join(q.c.CloseWithError(0, ""), q.release()) }

type quicStream struct{ *quic.Stream }

func (q quicStream) CloseWrite() error { return q.Close() }
