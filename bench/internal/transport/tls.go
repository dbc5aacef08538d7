// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"net"
)

type tlsListener struct{ l net.Listener }

func (t tlsListener) Accept(context.Context) (Conn, error) {
	c, err := t.l.Accept()
	if err != nil {
		return nil, err
	}
	return tlsConn{c.(*tls.Conn)}, nil
}

func (t tlsListener) Addr() string { return t.l.Addr().String() }

func (t tlsListener) Close() error { return t.l.Close() }

type tlsConn struct{ *tls.Conn }

func (t tlsConn) OpenStream(context.Context) (Stream, error) { return t.Conn, nil }

func (t tlsConn) AcceptStream(ctx context.Context) (Stream, error) {
	return t.Conn, t.HandshakeContext(ctx)
}

func (t tlsConn) Single() bool { return true }
