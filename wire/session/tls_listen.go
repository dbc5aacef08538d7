// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"margay.dev/wire/code"
)

const (
	// maxGreeting is how many TCP connections may be unknown at a time, which have not said yet whose lane they are; and
	// half of that from one address.
	maxGreeting = 1024
	// waiting is how many sessions may wait to be accepted.
	waiting = 128
)

type tlsListener struct {
	cfg Config
	ln  net.Listener
	tls *tls.Config

	mu       sync.Mutex
	sessions map[sessionID]*tlsConn
	// sockets counts TCP connections, greeting those that have not said what they are; from and greets are the sessions
	// and those, by address.
	sockets, greeting int
	from, greets      map[netip.Addr]int
	unknown           map[*rawConn]struct{}
	closed            bool

	ready chan *tlsConn
	ctx   context.Context //nolint:containedctx // the life of the listener
	stop  context.CancelFunc
	wg    sync.WaitGroup
	once  sync.Once
	err   error
	ended chan struct{}
}

// ListenTLS accepts sessions over TLS from the TCP connections of ln, which it closes when it is closed.
func ListenTLS(ln net.Listener, t *tls.Config, cfg Config) Listener {
	cfg = cfg.WithDefaults()
	l := &tlsListener{
		cfg: cfg, ln: ln, tls: cfg.tls(t), ready: make(chan *tlsConn, waiting), ended: make(chan struct{}),
		sessions: map[sessionID]*tlsConn{}, from: map[netip.Addr]int{}, greets: map[netip.Addr]int{}, unknown: map[*rawConn]struct{}{},
	}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.wg.Go(l.listen)
	return l
}

func (l *tlsListener) Addr() net.Addr { return l.ln.Addr() }

func (l *tlsListener) Accept(ctx context.Context) (Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-ctx.Done():
		return nil, convert("accept", ctx.Err())
	case <-l.ctx.Done():
		return nil, code.New(code.Closed, "accept: the listener is closed")
	}
}

func (l *tlsListener) Close() error {
	l.once.Do(func() {
		l.mu.Lock()
		l.closed = true
		var sessions []*tlsConn
		for _, c := range l.sessions {
			sessions = append(sessions, c)
		}
		for raw := range l.unknown {
			defer raw.kill()
		}
		l.mu.Unlock()
		l.stop()
		l.err = l.ln.Close()
		var all sync.WaitGroup
		for _, c := range sessions {
			all.Go(func() { _ = c.Close(code.ShuttingDown, "shutting down") })
		}
		all.Wait()
		close(l.ended)
	})
	l.wg.Wait()
	<-l.ended
	return l.err
}

// listen takes TCP connections. When there are no descriptors left it waits for some: who is connected is served on.
func (l *tlsListener) listen() {
	pause := time.Duration(0)
	for {
		nc, err := l.ln.Accept()
		if err == nil {
			pause = 0
			l.greet(nc)
			continue
		}
		if l.ctx.Err() != nil {
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		l.cfg.Logger.Warn("cannot take a TCP connection", "cause", err, "again in", pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.ctx.Done():
			t.Stop()
			return
		}
	}
}

// greet finds out what a TCP connection is to be, or closes it when there are too many already.
func (l *tlsListener) greet(nc net.Conn) {
	raw, from := newRawConn(nc, l.cfg), address(nc.RemoteAddr())
	l.mu.Lock()
	if l.closed || l.sockets >= l.cfg.MaxSockets || l.greeting >= maxGreeting || l.greets[from] >= maxGreeting/2 {
		l.mu.Unlock()
		l.cfg.Stats.RefusedConns.Add(1)
		raw.kill()
		return
	}
	l.sockets++
	l.greeting++
	l.greets[from]++
	l.unknown[raw] = struct{}{}
	l.mu.Unlock()
	raw.closing = func() {
		l.mu.Lock()
		l.sockets--
		l.mu.Unlock()
	}
	l.wg.Go(func() {
		kept := l.admit(raw)
		l.mu.Lock()
		l.greeting--
		subtract(l.greets, from)
		delete(l.unknown, raw)
		l.mu.Unlock()
		if !kept {
			_ = raw.Close()
		}
	})
}

func subtract(m map[netip.Addr]int, a netip.Addr) {
	if m[a]--; m[a] <= 0 {
		delete(m, a)
	}
}

// admit agrees on TLS, reads the preface and answers it. It reports whether the connection is somebody's now.
func (l *tlsListener) admit(raw *rawConn) bool {
	late := time.Now().Add(l.cfg.HandshakeTimeout)
	raw.finishBy(late)
	_ = raw.SetReadDeadline(late) // the read tells
	t := tls.Server(raw, l.tls)
	if t.HandshakeContext(l.ctx) != nil || t.ConnectionState().NegotiatedProtocol != l.cfg.ALPN {
		return false // the handshake has told the peer, unless it named no protocol at all
	}
	var b [prefaceSize]byte
	if _, err := io.ReadFull(t, b[:]); err != nil {
		return false
	}
	p, err := parsePreface(b)
	if err == nil {
		raw.finishBy(time.Time{})
		_ = raw.SetReadDeadline(time.Time{})
		if p.kind == prefaceNew {
			err = l.begin(p.id, raw, t)
		} else {
			err = l.join(p, raw, t)
		}
	}
	if err == nil {
		return true
	}
	e := code.From(err)
	raw.finishBy(late)
	if reply(t, message{kind: msgRefused, code: e.Code, text: e.Message}) && t.CloseWrite() == nil {
		raw.shut()
	}
	return false
}

// reply answers a preface and reports whether the peer will read it.
func reply(t *tls.Conn, m message) bool {
	_, err := t.Write(m.append(nil))
	return err == nil
}

// begin makes a session.
func (l *tlsListener) begin(id sessionID, raw *rawConn, t *tls.Conn) error {
	from := address(raw.RemoteAddr())
	l.mu.Lock()
	if err := l.room(id, from); err != nil {
		l.mu.Unlock()
		return err
	}
	c := newTLSConn(l.cfg, id, raw, t)
	l.sessions[id] = c
	l.from[from]++
	l.mu.Unlock()
	c.release = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.sessions, id)
		subtract(l.from, from)
	}
	if !reply(t, message{kind: msgAccepted, lane: uint64(l.cfg.MaxLanes)}) {
		_ = c.Close(code.Unavailable, "") // there is nobody to refuse any more
		return nil
	}
	c.spawn(c.listen)
	select {
	case l.ready <- c:
	case <-l.ctx.Done(): // Close closes it
	case <-c.life.Done():
		_ = c.Close(0, "")
	}
	return nil
}

// room says why there can be no such session. Called with mu held.
func (l *tlsListener) room(id sessionID, from netip.Addr) error {
	switch {
	case l.closed:
		return code.New(code.ShuttingDown, "shutting down")
	case l.sessions[id] != nil:
		return code.New(code.Protocol, "the session is there already")
	case l.crowded():
		l.cfg.Stats.RefusedConns.Add(1)
		return l.tooManySockets()
	case len(l.sessions) >= l.cfg.MaxConns, l.cfg.MaxConnsPerAddress > 0 && l.from[from] >= l.cfg.MaxConnsPerAddress:
		l.cfg.Stats.RefusedConns.Add(1)
		return code.New(code.Unavailable, "too many connections")
	}
	return nil
}

// crowded says that no more TCP connections are kept. An eighth of them is left for those that are told so.
func (l *tlsListener) crowded() bool {
	return l.sockets-l.greeting >= l.cfg.MaxSockets-l.cfg.MaxSockets/8
}

func (l *tlsListener) tooManySockets() error {
	return code.New(code.TooMany, "the node has as many TCP connections as it may; each lane is one").With(code.DetailLimit, uint64(l.cfg.MaxSockets))
}

// join gives a session a lane.
func (l *tlsListener) join(p preface, raw *rawConn, t *tls.Conn) error {
	l.mu.Lock()
	c, crowded := l.sessions[p.id], l.crowded()
	l.mu.Unlock()
	switch {
	case c == nil:
		return code.New(code.Unavailable, "there is no such session")
	case crowded:
		l.cfg.Stats.RefusedConns.Add(1)
		return l.tooManySockets()
	}
	s := newTLSStream(c, p.lane, raw, t)
	if _, err := c.add(s); err != nil {
		return err
	}
	if !reply(t, message{kind: msgAccepted}) {
		s.gone()
		return nil
	}
	c.offer(s)
	return nil
}
