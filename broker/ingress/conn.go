// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// expiryGrace is how long a connection may outlive its token: time to re-authenticate.
const expiryGrace = 5 * time.Second

// retryTooMany is when a client that is over a limit of its own should try again.
const retryTooMany = time.Second

// linger is how long a closing connection waits for its client to take the last answers.
const linger = 100 * time.Millisecond

// conn is one client connection. Its first lane is the control lane.
type conn struct {
	srv      *Server
	c        session.Conn
	addr     netip.Addr
	id       string                      // in the log
	log      atomic.Pointer[slog.Logger] // names the connection, and its subject once that is known
	inflight *semaphore.Weighted
	claims   atomic.Pointer[token.Claims]
	hello    atomic.Bool
	features atomic.Uint64 // that the hello agreed on
	subs     atomic.Int64
	beside   atomic.Int64 // requests that are answered beside their lanes
	watches  atomic.Int64 // of all its lanes

	mu      sync.Mutex
	expiry  *time.Timer
	control *session.Lane
	cancels map[*session.Lane]context.CancelCauseFunc   // of subscriptions
	granted map[*session.Lane]func(*token.Claims) error // whether other claims allow a subscription too
	open    map[*session.Lane]struct{}
	lasts   map[lastKey]struct{}
	closing *code.Error
	lanes   sync.WaitGroup
}

func newConn(s *Server, c session.Conn) *conn {
	cn := &conn{
		srv: s, c: c, addr: addressOf(c.RemoteAddr()), inflight: semaphore.NewWeighted(s.cfg.InFlightConnection), cancels: map[*session.Lane]context.CancelCauseFunc{},
		granted: map[*session.Lane]func(*token.Claims) error{}, open: map[*session.Lane]struct{}{},
	}
	cn.named()
	return cn
}

// addressOf is the peer's IP address, without its port: what one host can have many of.
func addressOf(a net.Addr) netip.Addr {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap()
}

// serve runs until the connection ends.
func (c *conn) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.expiry = time.AfterFunc(c.srv.cfg.AuthTimeout, func() {
		c.srv.metrics.ended[endSilent].Inc()
		c.close(code.Unauthenticated, "no valid token was shown in time")
	})
	c.mu.Unlock()
	var why error
	for first := true; ; first = false {
		l, err := c.c.AcceptLane(ctx)
		if err != nil {
			why = err
			break
		}
		if !first && c.claims.Load() == nil { // who has shown nothing gets one lane to show it on
			l.Reset(code.Unauthenticated)
			continue
		}
		c.mu.Lock()
		if first {
			c.control = l
		}
		c.open[l] = struct{}{}
		c.mu.Unlock()
		c.lanes.Go(func() {
			ln := &lane{conn: c, lane: l, control: first, lists: make(chan struct{}, laneLists)}
			ln.serve(ctx)
			c.mu.Lock()
			delete(c.open, l)
			c.mu.Unlock()
		})
	}
	c.mu.Lock()
	c.expiry.Stop()
	for _, stop := range c.cancels {
		stop(nil)
	}
	c.mu.Unlock()
	cancel()
	c.close(code.Closed, "")
	c.ended()
	c.lanes.Wait()
	c.endSessions(why)
}

func (c *conn) close(why code.Code, msg string) {
	_ = c.c.Close(why, msg) // already closed is as good
}

// goodbye tells the client that the node goes away and ends its subscriptions with where to resume; it
// returns when they have been told, or at the deadline.
func (c *conn) goodbye(why *code.Error, deadline time.Time) {
	c.mu.Lock()
	c.closing = why
	for _, stop := range c.cancels {
		stop(why)
	}
	if c.control != nil && c.hello.Load() {
		_ = c.control.SendFrame(0, &wire.Goodbye{Code: why.Code, Message: why.Message}) // a client that does not read it sees the close
	}
	c.mu.Unlock()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for c.subs.Load() > 0 && time.Now().Before(deadline) {
		select {
		case <-t.C:
		case <-c.c.Done():
			return
		}
	}
	c.mu.Lock()
	late := slices.Collect(maps.Keys(c.cancels))
	c.mu.Unlock()
	for _, l := range late { // who does not read cannot be told, and must not hold up the others
		l.Reset(why.Code)
	}
}

// finish sends what was still to be answered, lets the client take it, and closes the connection.
func (c *conn) finish(why *code.Error) {
	c.mu.Lock()
	lanes := make([]*session.Lane, 0, len(c.open))
	for l := range c.open {
		lanes = append(lanes, l)
	}
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wg sync.WaitGroup
		for _, l := range lanes {
			wg.Go(func() { _ = l.CloseWrite() }) // a lane that is broken has nobody to tell
		}
		wg.Wait()
	}()
	t := time.NewTimer(linger)
	defer t.Stop()
	select {
	case <-done: // all is sent
		select {
		case <-c.c.Done():
		case <-t.C:
		}
	case <-t.C:
	}
	c.close(why.Code, why.Message) // ends what still waits for its peer
	<-done
}

// subscription registers one, unless the connection is closing or has too many. Granted says whether other
// claims would allow it: it ends when the connection shows a token that does not.
func (c *conn) subscription(ctx context.Context, l *session.Lane, granted func(*token.Claims) error) (context.Context, func(), *code.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != nil {
		return nil, nil, c.closing
	}
	if err := granted(c.claims.Load()); err != nil { // another token may have been shown since it was asked for
		return nil, nil, code.From(err)
	}
	if limit := c.srv.cfg.MaxSubscriptions; len(c.cancels) >= limit {
		return nil, nil, code.New(code.TooMany, "the connection has %d subscriptions, as many as it may", limit).
			With(code.DetailLimit, uint64(limit)).Retry(retryTooMany)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c.cancels[l], c.granted[l] = cancel, granted
	c.subs.Add(1)
	c.srv.metrics.subscriptions.Inc()
	return ctx, func() {
		cancel(nil)
		c.mu.Lock()
		delete(c.cancels, l)
		delete(c.granted, l)
		c.mu.Unlock()
		c.subs.Add(-1)
		c.srv.metrics.subscriptions.Dec()
	}, nil
}

// cancelSubscription ends one; why is what its subscriber is told, nil for what it asked for.
func (c *conn) cancelSubscription(l *session.Lane, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.cancels[l]; cancel != nil {
		cancel(why)
	}
}

// authenticate verifies a token and arms its expiry. Showing another one later renews the connection.
func (c *conn) authenticate(tok string) (*wire.AuthOk, error) {
	claims, err := c.srv.cfg.Verifier.Verify(tok)
	if errors.Is(err, code.Opening) {
		c.srv.metrics.tokens[tokenEarly].Inc()
		return nil, err
	}
	if err != nil {
		c.srv.metrics.tokens[tokenInvalid].Inc()
		c.srv.sampled(c.log.Load(), slog.LevelInfo, "token refused", "error", err)
		return nil, code.New(code.Unauthenticated, "the token is not valid")
	}
	c.srv.metrics.tokens[tokenValid].Inc()
	left := claims.ExpiresAt.Sub(c.srv.cfg.Wall())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known(claims.Subject)
	c.claims.Store(claims)
	for l, granted := range c.granted {
		if err := granted(claims); err != nil {
			c.cancels[l](err)
		}
	}
	c.c.SetMaxFrame(uint32(c.srv.cfg.MaxFrame))
	c.expiry.Stop()
	c.expiry = time.AfterFunc(left+expiryGrace, func() {
		if now := c.claims.Load(); now == claims {
			c.srv.metrics.ended[endExpired].Inc()
			c.close(code.Unauthenticated, "the token has expired")
		}
	})
	return &wire.AuthOk{Expires: claims.ExpiresAt.UnixMicro(), Subject: claims.Subject}, nil
}
