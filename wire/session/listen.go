// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"

	"github.com/quic-go/quic-go"

	"margay.dev/wire/code"
)

// manyHandshakes is how many unfinished handshakes a listener has before it asks newcomers to prove
// their address first: a flood from forged addresses then costs a packet each, not a handshake.
const manyHandshakes = 256

var errTooMany = errors.New("listener: too many connections")

type quicListener struct {
	cfg       Config
	transport *quic.Transport
	listener  *quic.Listener

	mu sync.Mutex
	// admitted counts connections from their first packet to their end, perAddr the same by address,
	// shaking those whose handshake has not been seen to end.
	admitted, shaking int
	perAddr           map[netip.Addr]int
	conns             map[*quicConn]struct{}
	closed            bool

	once     sync.Once
	closeErr error
	ended    chan struct{}
}

// ListenQUIC listens on pc, which it uses alone until the listener is closed and which stays the
// caller's to close.
func ListenQUIC(pc net.PacketConn, t *tls.Config, cfg Config) (Listener, error) {
	cfg = cfg.WithDefaults()
	l := &quicListener{
		cfg: cfg, transport: cfg.transport(pc), ended: make(chan struct{}),
		perAddr: map[netip.Addr]int{}, conns: map[*quicConn]struct{}{},
	}
	if err := tuneSocket(pc, cfg.SocketBuffer); err != nil {
		cfg.Logger.Warn("UDP socket buffers are small: bursts will be lost and sent again; raise net.core.rmem_max and net.core.wmem_max",
			"want", cfg.SocketBuffer, "cause", err)
	}
	l.transport.ConnContext = l.admit
	l.transport.VerifySourceAddress = l.suspicious
	ln, err := l.transport.Listen(cfg.tls(t), cfg.quic())
	if err != nil {
		_ = l.transport.Close()
		return nil, convert("listen "+pc.LocalAddr().String(), err)
	}
	l.listener = ln
	return l, nil
}

// admit counts a connection in, and out again when it ends, or refuses it.
func (l *quicListener) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	addr := address(info.RemoteAddr)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.admitted >= l.cfg.MaxConns ||
		l.cfg.MaxConnsPerAddress > 0 && l.perAddr[addr] >= l.cfg.MaxConnsPerAddress {
		l.cfg.Stats.RefusedConns.Add(1)
		return nil, errTooMany
	}
	l.admitted++
	l.shaking++
	l.perAddr[addr]++
	a := &admission{listener: l, addr: addr, shaking: true}
	ctx = context.WithValue(ctx, admissionKey{}, a)
	context.AfterFunc(ctx, a.end)
	return ctx, nil
}

// admission is the place of one connection in its listener's counts.
type admission struct {
	listener *quicListener
	addr     netip.Addr
	shaking  bool
}

type admissionKey struct{}

// settle: the handshake is over, one way or the other. Called with the listener's mu held.
func (a *admission) settle() {
	if a.shaking {
		a.shaking = false
		a.listener.shaking--
	}
}

func (a *admission) end() {
	l := a.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	a.settle()
	l.admitted--
	if l.perAddr[a.addr]--; l.perAddr[a.addr] == 0 {
		delete(l.perAddr, a.addr)
	}
}

func (l *quicListener) suspicious(net.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shaking >= manyHandshakes
}

func address(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap()
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

func (l *quicListener) Accept(ctx context.Context) (Conn, error) {
	qc, err := l.listener.Accept(ctx)
	if err != nil {
		return nil, convert("accept", err)
	}
	c := newQUICConn(qc, l.cfg, nil)
	c.release = func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
		return nil
	}
	l.mu.Lock()
	if a, ok := qc.Context().Value(admissionKey{}).(*admission); ok {
		a.settle()
	}
	closed := l.closed
	if !closed {
		l.conns[c] = struct{}{}
	}
	l.mu.Unlock()
	if closed { // Close has run in between and does not know of this one
		_ = c.Close(code.ShuttingDown, "shutting down")
		return nil, code.New(code.Closed, "accept: the listener is closed")
	}
	return c, nil
}

func (l *quicListener) Addr() net.Addr { return l.listener.Addr() }

func (l *quicListener) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		l.closed = true
		var conns []*quicConn
		for c := range l.conns {
			conns = append(conns, c)
		}
		l.mu.Unlock()
		l.closeErr = l.listener.Close()
		var all sync.WaitGroup
		for _, c := range conns {
			all.Go(func() { _ = c.Close(code.ShuttingDown, "shutting down") })
		}
		all.Wait()
		if err := l.transport.Close(); l.closeErr == nil {
			l.closeErr = err
		}
		close(l.ended)
	})
	<-l.ended
	return l.closeErr
}
