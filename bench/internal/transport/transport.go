// SPDX-License-Identifier: Apache-2.0

// Package transport opens bare streams over QUIC and over TLS on TCP, tuned as Margay's lanes are; it knows no frame and
// no request, and is no good for anything but measuring on the loopback: certificates are made on the spot and not checked.
package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"margay.dev/wire/session"
)

// Kind is a transport.
type Kind string

// The transports.
const (
	QUIC Kind = "quic"
	TLS  Kind = "tls"
)

// Parse reads a kind.
func Parse(s string) (Kind, error) {
	switch k := Kind(s); k {
	case QUIC, TLS:
		return k, nil
	}
	return "", fmt.Errorf("transport %q: want quic or tls", s)
}

// Stream carries bytes both ways.
type Stream interface {
	io.ReadWriter
	// CloseWrite ends our direction.
	CloseWrite() error
}

// Conn is one connection. Over TLS it has one stream only, which is the connection.
type Conn interface {
	OpenStream(ctx context.Context) (Stream, error)
	AcceptStream(ctx context.Context) (Stream, error)
	// Single: there is one stream only.
	Single() bool
	Close() error
}

// Listener accepts connections.
type Listener interface {
	Accept(ctx context.Context) (Conn, error)
	Addr() string
	Close() error
}

const alpn = "margay-bench/1"

// quicConfig is what a lane of Margay has: what is measured here is the limit of that very configuration.
func quicConfig() *quic.Config {
	c := session.Config{}.WithDefaults()
	return &quic.Config{
		HandshakeIdleTimeout:           c.HandshakeTimeout / 2,
		MaxIdleTimeout:                 c.Idle,
		KeepAlivePeriod:                c.KeepAlive,
		InitialPacketSize:              c.InitialPacketSize,
		InitialStreamReceiveWindow:     c.LaneWindow,
		MaxStreamReceiveWindow:         c.MaxLaneWindow,
		InitialConnectionReceiveWindow: c.ConnWindow,
		MaxConnectionReceiveWindow:     c.MaxConnWindow,
		MaxIncomingStreams:             c.MaxLanes,
	}
}

// Listen listens on a port of its own choosing when addr ends in ":0".
func Listen(ctx context.Context, k Kind, addr string) (Listener, error) {
	conf, err := serverTLS()
	if err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	if k == TLS {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("listen %s: %w", addr, err)
		}
		return tlsListener{tls.NewListener(l, conf)}, nil
	}
	pc, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen %s: %w", addr, err)
	}
	tune(pc)
	t := &quic.Transport{Conn: pc, ConnectionIDLength: 8}
	l, err := t.Listen(conf, quicConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen %s: %w", addr, err), pc.Close())
	}
	return quicListener{l, t}, nil
}

// Dial connects to a Listener.
func Dial(ctx context.Context, k Kind, addr string) (Conn, error) {
	conf := &tls.Config{
		NextProtos: []string{alpn}, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // the other end made its certificate a moment ago; what is measured is not its signature
	}
	if k == TLS {
		c, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", addr, err)
		}
		return tlsConn{c.(*tls.Conn)}, nil
	}
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4zero})
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	tune(pc)
	t := &quic.Transport{Conn: pc, ConnectionIDLength: 8}
	c, err := t.Dial(ctx, to, conf, quicConfig())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dial %s: %w", addr, err), t.Close(), pc.Close())
	}
	return quicConn{c, func() error { return errors.Join(t.Close(), pc.Close()) }}, nil
}

func serverTLS() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{alpn}, MinVersion: tls.VersionTLS13,
	}, nil
}

// String is how people write it.
func (k Kind) String() string {
	if k == QUIC {
		return "QUIC"
	}
	return "TLS"
}
