// SPDX-License-Identifier: Apache-2.0

// Package link keeps one authenticated connection to a broker and makes a new one when it is lost; it touches the
// network through the dial function it is given, and refuses to give up while somebody waits and time may help.
package link

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

const (
	// dialTimeout bounds one attempt, the handshake and the authentication included. It is short because a lost first
	// packet is repeated at ever longer intervals: a broker that comes back is found sooner by a new attempt.
	dialTimeout = 2 * time.Second
	// patientTimeout bounds every fourth attempt, for paths so slow that dialTimeout never is enough.
	patientTimeout = 8 * time.Second
	backoffBase    = 20 * time.Millisecond
	backoffCap     = time.Second
)

// Credential gives tokens. Implementations cache.
type Credential interface {
	// Token returns a token and when it expires (zero: not known).
	Token(ctx context.Context) (token string, expires time.Time, err error)
	// Renew returns a token other than the one given, or an error that says why there is none.
	Renew(ctx context.Context, old string) (token string, expires time.Time, err error)
}

// Config sets up a Link.
type Config struct {
	Addresses []string
	Dial      func(ctx context.Context, address string) (session.Conn, error)
	// Credential may be nil: then an empty token is shown.
	Credential Credential
	// Client names the library to the broker.
	Client string
	Rand   *backoff.Rand
	Logger *slog.Logger
}

// Link is safe for concurrent use.
type Link struct {
	cfg    Config
	ctx    context.Context //nolint:containedctx // the lifetime of the link, ended by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	current *Conn
	attempt *attempt
	closed  bool
}

// attempt is one search for a connection, shared by all who wait for it.
type attempt struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiters int
	conn    *Conn
	err     *code.Error // of the last try; final once done is closed
}

// New returns a link that has no connection yet.
func New(cfg Config) *Link {
	ctx, cancel := context.WithCancel(context.Background())
	return &Link{cfg: cfg, ctx: ctx, cancel: cancel}
}

// Conn returns the live connection, or makes one. It tries until ctx ends or an error is fatal.
func (l *Link) Conn(ctx context.Context) (*Conn, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, code.New(code.Closed, "the client is closed")
	}
	if c := l.current; c != nil && c.usable() {
		l.mu.Unlock()
		return c, nil
	}
	a := l.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		var actx context.Context
		actx, a.cancel = context.WithCancel(l.ctx)
		l.attempt = a
		l.wg.Go(func() { l.search(actx, a) })
	}
	a.waiters++
	l.mu.Unlock()

	select {
	case <-a.done:
		if a.err != nil {
			return nil, a.err
		}
		return a.conn, nil
	case <-ctx.Done():
		return nil, l.leave(ctx, a)
	}
}

// leave stops waiting. The search ends with its last waiter: nobody needs the connection any more.
func (l *Link) leave(ctx context.Context, a *attempt) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.waiters--; a.waiters == 0 {
		a.cancel()
		if l.attempt == a {
			l.attempt = nil // whoever asks next must not join a search that was called off
		}
	}
	select {
	case <-a.done: // both at once; the connection is there for the next who asks
	default:
	}
	if a.err != nil && a.conn == nil {
		return code.New(code.Unavailable, "%s (gave up: %w)", a.err.Message, &gaveUpError{ctx.Err(), a.err})
	}
	return code.New(code.Unavailable, "no answer from %v (gave up: %w)", l.cfg.Addresses, ctx.Err())
}

// gaveUpError is the end of the wait, and what the last try failed with: who explains it to a person wants that.
type gaveUpError struct{ ended, last error }

func (g *gaveUpError) Error() string   { return g.ended.Error() }
func (g *gaveUpError) Unwrap() []error { return []error{g.ended, g.last} }

// Current returns the live connection, nil when there is none at the moment.
func (l *Link) Current() *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil && l.current.usable() {
		return l.current
	}
	return nil
}

// Close closes the connection and waits for every goroutine of the link.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
}

func (l *Link) search(ctx context.Context, a *attempt) {
	defer a.cancel()
	wait := backoff.Backoff{Rand: l.cfg.Rand, Base: backoffBase, Cap: backoffCap}
	start := l.cfg.Rand.IntN(len(l.cfg.Addresses))
	for try := 0; ; try++ {
		conn, err := l.round(ctx, start, try)
		if err == nil || err.Class == code.ClassFatal || ctx.Err() != nil {
			if !l.finish(a, conn, err) && conn != nil {
				_ = conn.Close(code.Cancelled, "not needed any more")
			}
			return
		}
		l.mu.Lock()
		a.err = err
		l.mu.Unlock()
		l.cfg.Logger.Debug("no connection to a broker", "try", try+1, "error", err)
		if !backoff.Pause(ctx, max(wait.Next(), err.RetryAfter)) {
			l.finish(a, nil, err)
			return
		}
	}
}

// round tries every address once. Its error is fatal only if all are.
func (l *Link) round(ctx context.Context, start, try int) (*Conn, *code.Error) {
	timeout := dialTimeout
	if try%4 == 3 {
		timeout = patientTimeout
	}
	var soft, hard *code.Error
	for i := range l.cfg.Addresses {
		conn, err := l.connect(ctx, l.cfg.Addresses[(start+i)%len(l.cfg.Addresses)], timeout)
		switch {
		case err == nil:
			return conn, nil
		case err.Class == code.ClassFatal:
			hard = err
		default:
			soft = err
		}
	}
	if soft != nil {
		return nil, soft
	}
	return nil, hard
}

// finish tells those who wait. It reports whether the connection is the link's now.
func (l *Link) finish(a *attempt, conn *Conn, err *code.Error) (adopted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.conn, a.err = conn, err
	if l.attempt == a {
		l.attempt = nil
	}
	switch {
	case conn != nil && (l.current == nil || !l.current.usable()):
		l.current, adopted = conn, true
	case conn != nil: // called off, and another search was faster
		a.conn = l.current
	case l.closed:
		a.err = code.New(code.Closed, "the client is closed")
	}
	close(a.done)
	return adopted
}

// connect makes one connection and authenticates it.
func (l *Link) connect(ctx context.Context, address string, timeout time.Duration) (*Conn, *code.Error) {
	token, expires, err := l.token(ctx)
	if err != nil {
		return nil, connectError(address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := l.handshake(ctx, address, token, expires)
	if errors.Is(err, code.Unauthenticated) && l.cfg.Credential != nil {
		// The cached token may have ended early: keys were rotated, or the clocks differ.
		fresh, until, renewErr := l.cfg.Credential.Renew(ctx, token)
		if renewErr == nil && fresh != token {
			c, err = l.handshake(ctx, address, fresh, until)
		}
	}
	if err != nil {
		return nil, connectError(address, err)
	}
	l.wg.Go(func() { c.serve(l.ctx) })
	return c, nil
}

func (l *Link) token(ctx context.Context) (string, time.Time, error) {
	if l.cfg.Credential == nil {
		return "", time.Time{}, nil
	}
	return l.cfg.Credential.Token(ctx)
}

// connectError keeps fatal errors what they are; everything else may pass, and nothing was asked of the broker yet.
func connectError(address string, err error) *code.Error {
	e := code.From(err)
	if e.Class == code.ClassFatal && e.Code != code.Closed && e.Code != code.Protocol {
		out := *e
		out.Message = "connect " + address + ": " + e.Message
		return &out
	}
	return code.New(code.Unavailable, "connect %s: %w", address, err).Retry(e.RetryAfter)
}
