// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// patience is the named deadline of every wait in these tests: far beyond what a healthy run needs.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// identity makes a certificate for b1 and 127.0.0.1, valid around the current time, which in a bubble
// is the bubble's.
func identity(tb testing.TB) (server, client *tls.Config) {
	tb.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"b1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, priv)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: priv}}},
		&tls.Config{RootCAs: roots, ServerName: "b1"}
}

// transport is how a test's broker is reached.
type transport struct {
	name string
	bind func(tb testing.TB, server *tls.Config, cfg Config) Listener
	dial func(ctx context.Context, addr string, client *tls.Config, cfg Config) (Conn, error)
}

var (
	overQUIC = transport{
		name: "quic",
		bind: func(tb testing.TB, server *tls.Config, cfg Config) Listener {
			pc := udp(tb)
			tb.Cleanup(func() { _ = pc.Close() })
			ln, err := ListenQUIC(pc, server, cfg)
			if err != nil {
				tb.Fatal(err)
			}
			return ln
		},
		dial: func(ctx context.Context, addr string, client *tls.Config, cfg Config) (Conn, error) {
			return DialQUIC(ctx, nil, addr, client, cfg)
		},
	}
	overTLS = transport{
		name: "tls",
		bind: func(tb testing.TB, server *tls.Config, cfg Config) Listener {
			return ListenTLS(tcp(tb), server, cfg)
		},
		dial: func(ctx context.Context, addr string, client *tls.Config, cfg Config) (Conn, error) {
			return DialTLS(ctx, nil, addr, client, cfg)
		},
	}
)

// both runs a test over every transport: what a lane promises hangs on none of them.
func both(t *testing.T, test func(*testing.T, transport)) {
	for _, tr := range []transport{overQUIC, overTLS} {
		t.Run(tr.name, func(t *testing.T) { test(t, tr) })
	}
}

// broker is a listener that serves every lane of every connection with one function.
type broker struct {
	tb        testing.TB
	transport transport
	Listener  Listener
	Client    *tls.Config
	stop      context.CancelFunc
	all       sync.WaitGroup
}

func udp(tb testing.TB) *net.UDPConn {
	tb.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	return pc
}

func tcp(tb testing.TB) net.Listener {
	tb.Helper()
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	return ln
}

// listen serves on a loopback socket until the test ends.
func (tr transport) listen(tb testing.TB, cfg Config, serve func(Conn, *Lane)) *broker {
	tb.Helper()
	server, client := identity(tb)
	b := &broker{tb: tb, transport: tr, Client: client, Listener: tr.bind(tb, server, cfg)}
	b.run(serve)
	return b
}

func listenOn(tb testing.TB, pc net.PacketConn, cfg Config, serve func(Conn, *Lane)) *broker {
	tb.Helper()
	tr := overQUIC
	tr.bind = func(tb testing.TB, server *tls.Config, cfg Config) Listener {
		ln, err := ListenQUIC(pc, server, cfg)
		if err != nil {
			tb.Fatal(err)
		}
		return ln
	}
	return tr.listen(tb, cfg, serve)
}

func (b *broker) run(serve func(Conn, *Lane)) {
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	b.all.Go(func() {
		for {
			c, err := b.Listener.Accept(ctx)
			if err != nil {
				return
			}
			b.all.Go(func() { b.serve(ctx, c, serve) })
		}
	})
	b.tb.Cleanup(b.Close)
}

func (b *broker) serve(ctx context.Context, c Conn, serve func(Conn, *Lane)) {
	var lanes sync.WaitGroup
	for {
		l, err := c.AcceptLane(ctx)
		if err != nil {
			break
		}
		lanes.Go(func() { serve(c, l) })
	}
	_ = c.Close(0, "")
	lanes.Wait()
}

// Close is idempotent: a test may stop its broker early.
func (b *broker) Close() {
	_ = b.Listener.Close()
	b.stop()
	b.all.Wait()
}

func (b *broker) dial(ctx context.Context, cfg Config) (Conn, error) {
	return b.transport.dial(ctx, b.Listener.Addr().String(), b.Client, cfg)
}

// connect dials and closes with the test.
func (b *broker) connect(cfg Config) Conn {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := b.dial(ctx, cfg)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() { _ = c.Close(0, "") })
	return c
}

func open(tb testing.TB, c Conn) *Lane {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := c.OpenLane(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// echo answers every frame with itself until the client finishes, and lets bodies be as large as any.
func echo(c Conn, l *Lane) {
	c.SetMaxFrame(wire.MaxFrame)
	defer func() { _ = l.Close() }()
	var body []byte
	for {
		h, err := l.ReadHeader()
		if err != nil {
			return
		}
		if body, err = l.AppendBody(body[:0]); err != nil {
			return
		}
		if err := l.Write(wire.AppendHeader(nil, h), body); err != nil {
			return
		}
	}
}

// ask sends one frame and reads the whole answer.
func ask(l *Lane, corr uint64, body []byte) (wire.Header, []byte, error) {
	frame := wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: uint32(len(body)), Corr: corr})
	if err := l.Send(append(frame, body...)); err != nil {
		return wire.Header{}, nil, err
	}
	h, err := l.ReadHeader()
	if err != nil {
		return h, nil, err
	}
	answer, err := l.AppendBody(nil)
	return h, answer, err
}

// eventually waits for a condition that no event announces.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("still not after %v: %s", patience, what)
		}
	}
}

func wantCode(tb testing.TB, what string, err error, want code.Code) {
	tb.Helper()
	if _, ok := errors.AsType[*code.Error](err); !ok || !errors.Is(err, want) {
		tb.Errorf("%s: got %v (%T), want a *code.Error %v", what, err, err, want)
	}
}

// wantEOF: the peer has finished in order.
func wantEOF(tb testing.TB, l *Lane) {
	tb.Helper()
	if h, err := l.ReadHeader(); !errors.Is(err, io.EOF) {
		tb.Errorf("got %+v, %v, want the end", h, err)
	}
}
