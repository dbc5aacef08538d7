// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"margay.dev/wire/code"
)

const (
	// lastWord is how long it may take to write that the session ends; heardWithin how long the peer is then waited for, who
	// hangs up when it has read it. A socket that was closed at once could take the word back.
	lastWord    = time.Second
	heardWithin = 500 * time.Millisecond
	// maxOutbox bounds what waits for a peer that does not read its link.
	maxOutbox = 1 << 20
)

// tlsConn is a Conn over TLS: a link, and a TCP connection for each lane.
type tlsConn struct {
	*shared
	id  sessionID
	raw *rawConn // the link
	tls *tls.Conn
	// join makes a lane's TCP connection, in the client only; slots are the lanes that the server counts.
	join  func(ctx context.Context, number uint64) (*rawConn, *tls.Conn, error)
	slots chan struct{}
	// release lets go of what a listener or a dialer holds for the session.
	release func()

	state sync.Mutex
	lanes map[uint64]*tlsStream
	last  uint64 // number of a lane, in the client
	// held are the lanes, in the client, for which the server has said neither no nor that they are done. Opening are those
	// that are on their way, with what the link has said of them already: it may be ahead of their own connections.
	held    map[uint64]struct{}
	opening map[uint64][]message
	// arrived are lanes, in the server, that nobody has accepted yet.
	arrived []*tlsStream
	arrival chan struct{}
	err     error
	// life ends with the session.
	life context.Context //nolint:containedctx // of the session, which no call outlives
	end  context.CancelFunc
	// outbox is what the link has still to carry; sending says that somebody sees to it.
	outbox  []byte
	sending bool
	heard   time.Time
	alive   *time.Timer

	once sync.Once
	gone chan struct{}
}

func newTLSConn(cfg Config, id sessionID, raw *rawConn, t *tls.Conn) *tlsConn {
	c := &tlsConn{
		id: id, raw: raw, tls: t, lanes: map[uint64]*tlsStream{}, held: map[uint64]struct{}{}, opening: map[uint64][]message{}, arrival: make(chan struct{}, 1),
		gone: make(chan struct{}), heard: time.Now(), release: func() {},
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.shared = newShared(cfg, c)
	c.state.Lock() // showLife may come before there is something to stop
	c.alive = time.AfterFunc(cfg.KeepAlive, c.showLife)
	c.state.Unlock()
	cfg.Stats.OpenConns.Add(1)
	return c
}

func (c *tlsConn) OpenLane(ctx context.Context) (*Lane, error) {
	if c.join == nil {
		return nil, code.New(code.Unsupported, "open lane: over TLS only the side that dialed opens lanes")
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.life.Done():
		return nil, c.Err()
	case <-ctx.Done():
		return nil, openError(ctx.Err())
	}
	c.state.Lock()
	c.last++
	number := c.last
	c.held[number] = struct{}{}
	c.opening[number] = nil
	c.state.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(c.life, cancel)
	defer stop()
	raw, t, err := c.join(ctx, number)
	if err != nil {
		return nil, c.notOpened(number, err)
	}
	s := newTLSStream(c, number, raw, t)
	early, err := c.add(s)
	if err != nil {
		raw.kill()
		return nil, err
	}
	for _, m := range early {
		s.hear(m)
	}
	return newLane(c.shared, s), nil
}

// notOpened gives the slot back, or has the server do it when that may know of the lane.
func (c *tlsConn) notOpened(number uint64, err error) error {
	c.state.Lock()
	delete(c.opening, number)
	c.state.Unlock()
	if unheard, ok := err.(*unheardError); ok { //nolint:errorlint // made by join, and wrapped by nobody
		c.state.Lock()
		c.done(number)
		c.state.Unlock()
		err = unheard.error
	} else {
		c.post(message{kind: msgReset, lane: number, code: code.Cancelled})
	}
	if e := c.Err(); e != nil {
		return e
	}
	return openError(err)
}

func openError(err error) error {
	e := code.From(convert("open lane", err))
	if e.Class == code.ClassUnknown {
		e.Class = code.ClassRefused // there is no lane, so nothing was applied on it
	}
	return e
}

func (c *tlsConn) AcceptLane(ctx context.Context) (*Lane, error) {
	for {
		c.state.Lock()
		if c.err != nil {
			defer c.state.Unlock()
			return nil, c.err
		}
		if len(c.arrived) > 0 {
			s := c.arrived[0]
			if c.arrived = c.arrived[1:]; len(c.arrived) > 0 {
				wake(c.arrival)
			}
			c.state.Unlock()
			return newLane(c.shared, s), nil
		}
		c.state.Unlock()
		select {
		case <-c.arrival:
		case <-c.life.Done():
		case <-ctx.Done():
			return nil, convert("accept lane", ctx.Err())
		}
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c *tlsConn) SetMaxFrame(n uint32) { c.maxFrame.Store(n) }

func (c *tlsConn) Close(why code.Code, msg string) error {
	c.once.Do(func() {
		c.finish(closeError("connection", why, false, msg), &message{kind: msgClose, code: why, text: msg})
		c.alive.Stop()
		c.wait()
		_ = c.raw.Close() // listen has closed it, if it ever ran
		c.release()
		c.cfg.Stats.OpenConns.Add(-1)
		close(c.gone)
	})
	<-c.gone
	return nil
}

// abort is Close without waiting; Close comes later.
func (c *tlsConn) abort(why code.Code, msg string) {
	c.finish(closeError("connection", why, false, msg), &message{kind: msgClose, code: why, text: msg})
}

func (c *tlsConn) Done() <-chan struct{} { return c.life.Done() }

func (c *tlsConn) Err() error {
	c.state.Lock()
	defer c.state.Unlock()
	return c.err
}

func (c *tlsConn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }
func (c *tlsConn) LocalAddr() net.Addr  { return c.raw.LocalAddr() }

// finish ends the session, the first time it is called. With word the peer is told; without, it knows or cannot
// be told.
func (c *tlsConn) finish(err error, word *message) {
	c.state.Lock()
	if c.err != nil {
		c.state.Unlock()
		return
	}
	c.err = err
	lanes := make([]*tlsStream, 0, len(c.lanes))
	for _, s := range c.lanes {
		lanes = append(lanes, s)
	}
	c.arrived = nil
	if word != nil {
		if c.sending { // a peer that reads nothing may hold it up
			c.raw.finishBy(time.Now().Add(lastWord))
		}
		_ = c.raw.SetReadDeadline(time.Now().Add(lastWord + heardWithin)) // listen waits for the peer to have heard
		c.put(*word)
	} else {
		c.raw.stopReads()
	}
	c.end()
	c.state.Unlock()
	for _, s := range lanes {
		s.abandon(err, err)
	}
}

// add makes a lane known to the link, and returns what that has said of it already.
func (c *tlsConn) add(s *tlsStream) ([]message, error) {
	c.state.Lock()
	defer c.state.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case c.lanes[s.number] != nil:
		return nil, code.New(code.Protocol, "lane %d is there already", s.number)
	case c.join == nil && len(c.lanes) >= int(c.cfg.MaxLanes):
		return nil, code.New(code.TooMany, "the connection has %d lanes, as many as it may", len(c.lanes))
	}
	c.lanes[s.number] = s
	early := c.opening[s.number]
	delete(c.opening, s.number)
	return early, nil
}

// offer hands a lane to AcceptLane.
func (c *tlsConn) offer(s *tlsStream) {
	c.state.Lock()
	defer c.state.Unlock()
	if c.err == nil {
		c.arrived = append(c.arrived, s)
		wake(c.arrival)
	}
}

// forget: the lane's TCP connection is closed and nobody uses it any more.
func (c *tlsConn) forget(s *tlsStream) {
	c.state.Lock()
	known := c.lanes[s.number] == s
	if known {
		delete(c.lanes, s.number)
	}
	c.state.Unlock()
	if known && c.join == nil {
		c.post(message{kind: msgDone, lane: s.number})
	}
}

// done: the server counts the lane no more. Called with state held.
func (c *tlsConn) done(number uint64) {
	if _, held := c.held[number]; held {
		delete(c.held, number)
		<-c.slots
	}
}
