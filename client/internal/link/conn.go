// SPDX-License-Identifier: Apache-2.0

package link

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/frames"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// Correlation ids of the control lane.
const (
	corrHello uint64 = 1 + iota
	corrAuth
	corrPing
	corrReauth // and everything above
)

// minRefresh keeps a clock that is ahead, or a token that hardly lives, from turning renewal into a busy loop.
const minRefresh = time.Second

// Conn is an authenticated connection.
type Conn struct {
	session.Conn
	// Address is the seed it was made to, Hello what the broker said about itself.
	Address string
	Hello   wire.HelloOk

	link     *Link
	control  *session.Lane
	draining atomic.Bool

	mu      sync.Mutex
	token   string
	expires time.Time
	renewed chan error // the answer to a re-authentication under way
	reauth  chan struct{}
}

// usable reports whether new lanes belong on the connection.
func (c *Conn) usable() bool {
	select {
	case <-c.Done():
		return false
	default:
		return !c.Draining()
	}
}

// Draining reports whether the broker said goodbye: what is under way is finished, all else belongs on a new connection.
func (c *Conn) Draining() bool { return c.draining.Load() }

// Reauthenticate asks for a fresh token now: the broker said that it knows none.
func (c *Conn) Reauthenticate() {
	select {
	case c.reauth <- struct{}{}:
	default:
	}
}

func (l *Link) handshake(ctx context.Context, address, token string, expires time.Time) (*Conn, error) {
	sc, err := l.cfg.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		Conn: sc, Address: address, link: l, token: token, expires: expires,
		reauth: make(chan struct{}, 1),
	}
	// Reads of a lane know no context: ending the connection ends them.
	stop := context.AfterFunc(ctx, func() { _ = sc.Close(code.Cancelled, "the client gave up") })
	err = c.greet(ctx)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = sc.Close(code.Cancelled, "no agreement")
		if ctx.Err() != nil {
			return nil, code.New(code.Timeout, "no agreement in time: %w", ctx.Err()).WithClass(code.ClassRefused)
		}
		return nil, err
	}
	return c, nil
}

// greet says hello and shows the token in one flight: the answers come in order, so nothing is gained by waiting.
func (c *Conn) greet(ctx context.Context) error {
	lane, err := c.OpenLane(ctx)
	if err != nil {
		return err
	}
	c.control = lane
	hello := &wire.Hello{
		VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.AllFeatures, Client: c.link.cfg.Client,
	}
	if err := lane.SendFrame(corrHello, hello); err != nil {
		return err
	}
	if err := lane.SendFrame(corrAuth, &wire.Auth{Token: c.token}); err != nil {
		return err
	}
	if err := c.expect(&c.Hello); err != nil {
		return err
	}
	if !c.Hello.Features.Has(wire.FeatureStreams) {
		return code.New(code.Unsupported, "the broker does not serve streams")
	}
	var ok wire.AuthOk
	if err := c.expect(&ok); err != nil {
		return err
	}
	c.SetMaxFrame(wire.MaxFrame)
	if c.expires.IsZero() && ok.Expires > 0 {
		c.expires = time.UnixMicro(ok.Expires)
	}
	return nil
}

func (c *Conn) expect(want wire.Frame) error {
	for {
		h, body, err := frames.Read(c.control, nil)
		switch {
		case err != nil:
			return err
		case h.Type == want.Type():
			return want.Parse(body)
		case h.Type == wire.TypeError:
			return frames.Error(body)
		case h.Type == wire.TypeGoodbye:
			var g wire.Goodbye
			if err := g.Parse(body); err != nil {
				return err
			}
			return code.New(code.ShuttingDown, "the broker says goodbye: %s", g.Message)
		case h.Type == wire.TypePing:
			c.reply(h.Corr, &wire.Pong{})
		default:
			return frames.Unexpected(h, "control")
		}
	}
}

func (c *Conn) reply(corr uint64, f wire.Frame) { _ = c.control.SendFrame(corr, f) }

// serve reads the control lane and keeps the token fresh until the connection or the link ends.
func (c *Conn) serve(done context.Context) {
	ctx, cancel := context.WithCancel(done)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		err := c.listen()
		if errors.Is(err, io.EOF) {
			c.linger(ctx)
		}
		if ctx.Err() == nil {
			c.link.cfg.Logger.Debug("connection to a broker ended", "address", c.Address, "error", err)
		}
	})
	wg.Go(func() { c.keepFresh(ctx) })
	wg.Go(func() { c.ping(ctx) })
	<-ctx.Done()
	why := code.Unavailable
	if done.Err() != nil {
		why = code.Closed // in order: what was to happen when the client is lost does not
	}
	_ = c.Close(why, "the client is done with the connection")
	wg.Wait()
}

// lingerFor bounds how long a connection outlives its control lane.
const lingerFor = time.Second

// linger leaves the connection to the broker, which has finished the control lane in order and closes the rest
// behind it: to close first would throw away what other lanes have not read yet.
func (c *Conn) linger(ctx context.Context) {
	t := time.NewTimer(lingerFor)
	defer t.Stop()
	select {
	case <-c.Done():
	case <-ctx.Done():
	case <-t.C:
	}
}

func (c *Conn) listen() error {
	var buf []byte
	for {
		h, body, err := frames.Read(c.control, buf)
		if err != nil {
			return err
		}
		buf = body
		switch h.Type {
		case wire.TypeAuthOk:
			var ok wire.AuthOk
			err = ok.Parse(body)
			c.answered(err)
		case wire.TypeError:
			// The broker ends the connection by itself when the old token ends; until then it works.
			c.answered(frames.Error(body))
		case wire.TypeGoodbye:
			c.draining.Store(true)
		case wire.TypePing:
			c.reply(h.Corr, &wire.Pong{})
		case wire.TypePong:
		default:
			err = frames.Unexpected(h, "control")
		}
		if err != nil {
			return err
		}
	}
}

// answered passes the answer on to keepFresh.
func (c *Conn) answered(err error) {
	c.mu.Lock()
	ch := c.renewed
	c.renewed = nil
	c.mu.Unlock()
	if ch != nil {
		ch <- err
	}
}

// keepFresh shows a new token when four fifths of the old one's life are over.
func (c *Conn) keepFresh(ctx context.Context) {
	cred := c.link.cfg.Credential
	if cred == nil {
		return
	}
	wait := backoff.Backoff{Rand: c.link.cfg.Rand, Base: minRefresh, Cap: 30 * time.Second}
	corr := corrReauth
	for {
		timer := time.NewTimer(c.refreshIn())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.reauth:
		case <-timer.C:
		}
		timer.Stop()
		err := c.refresh(ctx, cred, corr)
		corr++
		if err == nil {
			wait.Reset()
			continue
		}
		c.link.cfg.Logger.Warn("cannot renew the credential of a connection", "address", c.Address, "error", err)
		if !backoff.Pause(ctx, wait.Next()) {
			return
		}
	}
}

func (c *Conn) refreshIn() time.Duration {
	if c.expires.IsZero() {
		return 24 * time.Hour // no expiry known: only when asked
	}
	return max(time.Until(c.expires)*4/5, minRefresh)
}

func (c *Conn) refresh(ctx context.Context, cred Credential, corr uint64) error {
	token, expires, err := cred.Renew(ctx, c.token)
	if err != nil {
		return err
	}
	if token == c.token {
		// A fixed token: it cannot be renewed, and the broker says so when it ends.
		c.expires = time.Time{}
		return nil
	}
	answer := make(chan error, 1)
	c.mu.Lock()
	c.renewed = answer
	c.mu.Unlock()
	if err := c.control.SendFrame(corr, &wire.Auth{Token: token}); err != nil {
		return err
	}
	select {
	case err = <-answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err == nil {
		c.token, c.expires = token, expires
	}
	return err
}
