// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/contexts"
	"margay.dev/client/internal/link"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
)

// clientName names the library to brokers and to the control plane.
const clientName = "margay-go/0.2.0"

const (
	// keepAlive is how often an idle connection shows life: what bounds how late a broker's restart is noticed.
	keepAlive = 3 * time.Second
	// idleTimeout is after how long a silence a connection is given up and made anew.
	idleTimeout = 10 * time.Second
)

// Client is a connection to a cluster.
type Client struct {
	cfg  config
	rng  *backoff.Rand
	http *control.Client

	// Publish, subscribe, watch, consume and request traffic use connections of their own, so that an unread subscription cannot
	// eat the window that a publish needs.
	requests, publishing, subscribing, watching, consuming *link.Link

	caller, gets *caller
	budget       *semaphore.Weighted

	ctx    context.Context //nolint:containedctx // the lifetime of the client, ended by Close
	cancel context.CancelFunc

	mu            sync.Mutex
	closed        bool
	publishers    map[*Publisher]struct{}
	subscriptions map[*Subscription]struct{}
	caches        map[string]*Cache
	queues        map[string]*Queue
	consumers     map[*Consumer]struct{}
	watchLanes    map[batch.LogID]*watchLane

	lasts   sync.WaitGroup // of last records
	mirrors sync.WaitGroup
}

// Connect connects to a cluster at "margay://host:port[,host:port...]" (scheme and port may be left out; empty with
// WithContext), or at "margay+tls://..." where UDP does not get through: over TLS on TCP, on the port of the same number. It returns once one broker has accepted the credential, and fails when none does before ctx ends (or
// DefaultConnectTimeout, when ctx has no deadline).
func Connect(ctx context.Context, address string, opts ...Option) (*Client, error) {
	cfg, err := newConfig(address, opts)
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: *cfg, rng: backoff.NewRand(cfg.rng), budget: semaphore.NewWeighted(cfg.bufferBytes),
		publishers: map[*Publisher]struct{}{}, subscriptions: map[*Subscription]struct{}{},
		caches: map[string]*Cache{}, queues: map[string]*Queue{}, consumers: map[*Consumer]struct{}{},
		watchLanes: map[batch.LogID]*watchLane{},
	}
	if cfg.apiKey != "" {
		if c.http, err = control.NewClient(control.ClientConfig{
			Address: cfg.httpURL, APIKey: cfg.apiKey, CA: cfg.ca, UserAgent: clientName,
		}); err != nil {
			return nil, err
		}
		c.cfg.credential = newCachedCredential(apiKeySource(c.http))
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.requests, c.publishing, c.subscribing, c.watching = c.newLink(), c.newLink(), c.newLink(), c.newLink()
	c.consuming = c.newLink()
	c.caller, c.gets = newCaller(c.requests, c.rng), newCaller(c.requests, c.rng)
	c.gets.lends = true

	ctx, cancel := withDefaultTimeout(ctx, DefaultConnectTimeout)
	defer cancel()
	if _, err := c.requests.Conn(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// ConnectNamed connects as a context file says: NAME.yaml in margay/contexts of the user's configuration directory.
// Options come on top of it.
func ConnectNamed(ctx context.Context, name string, opts ...Option) (*Client, error) {
	k, err := contexts.Load(name)
	if err != nil {
		return nil, err
	}
	return Connect(ctx, "", append([]Option{WithContext(*k)}, opts...)...)
}

func newConfig(address string, opts []Option) (*config, error) {
	cfg := &config{
		bufferBytes: DefaultBufferBytes, logger: slog.New(slog.DiscardHandler),
		tenant: control.DefaultTenant, namespace: control.DefaultNamespace,
		publisher: publisherConfig{deliveryTimeout: DefaultDeliveryTimeout}, subscribeTimeout: DefaultRequestTimeout,
	}
	if address != "" {
		addresses, err := parseAddress(address)
		if err != nil {
			return nil, err
		}
		cfg.addresses = addresses
	}
	for _, o := range opts {
		o.apply(cfg)
	}
	if len(cfg.addresses) == 0 {
		cfg.fail("no address of a broker")
	}
	if err := cfg.publisher.check(); err != nil {
		cfg.problems = append(cfg.problems, errors.New(err.Message))
	}
	if len(cfg.problems) > 0 {
		return nil, code.New(code.BadRequest, "connect: %w", errors.Join(cfg.problems...))
	}
	if cfg.rng == nil {
		var seed [32]byte
		_, _ = crand.Read(seed[:]) // never fails: the runtime ends the process when the system has no randomness
		cfg.rng = rand.New(rand.NewChaCha8(seed))
	}
	if cfg.tls == nil {
		cfg.tls = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	return cfg, nil
}

func (c *Client) newLink() *link.Link {
	return link.New(link.Config{
		Addresses: c.cfg.addresses, Dial: c.dial, Credential: c.cfg.credential,
		Client: clientName, Rand: c.rng, Logger: c.cfg.logger,
	})
}

// dial takes the transport of the address.
func (c *Client) dial(ctx context.Context, address string) (session.Conn, error) {
	hostPort, overTLS := strings.CutPrefix(address, schemeTLS)
	tc := c.cfg.tls.Clone()
	if tc.ServerName == "" {
		host, _, err := net.SplitHostPort(hostPort)
		if err != nil {
			return nil, code.New(code.BadRequest, "address %q: %w", address, err)
		}
		tc.ServerName = host
	}
	cfg := session.Config{KeepAlive: keepAlive, Idle: idleTimeout, Logger: c.cfg.logger}
	if overTLS {
		return session.DialTLS(ctx, c.cfg.tcpConn, hostPort, tc, cfg)
	}
	var pc net.PacketConn
	if c.cfg.packetConn != nil {
		var err error
		if pc, err = c.cfg.packetConn(ctx, address); err != nil {
			return nil, code.New(code.Unavailable, "socket for %s: %w", address, err)
		}
	}
	conn, err := session.DialQUIC(ctx, pc, hostPort, tc, cfg)
	if pc == nil {
		return conn, err
	}
	if err != nil {
		return nil, errors.Join(err, pc.Close())
	}
	return ownedConn{conn, pc}, nil
}

// ownedConn closes the socket that the application made for it.
type ownedConn struct {
	session.Conn
	pc net.PacketConn
}

func (o ownedConn) Close(c code.Code, msg string) error {
	return errors.Join(o.Conn.Close(c, msg), o.pc.Close())
}

// renews reports whether a token that ended can be followed by another.
func (c *Client) renews() bool {
	_, fixed := c.cfg.credential.(fixedToken)
	return c.cfg.credential != nil && !fixed
}

// Drain lets every consumer finish what its application works on and every record that was accepted come to its end, then closes
// the client. What is not done when ctx ends fails as in Close.
func (c *Client) Drain(ctx context.Context) error {
	errs := c.drainConsumers(ctx)
	for _, p := range c.livePublishers() {
		if err := p.Close(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	c.Close()
	return errors.Join(errs...)
}

// Close ends everything at once: records not acknowledged fail (unknown if they may be stored), subscriptions and consumers end
// with ErrClosed. It waits for every goroutine of the client. Closing again does nothing.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.closeDurable()
	c.closeConsumers()
	c.cancel()
	for _, p := range c.livePublishers() {
		p.stop()
	}
	for _, s := range c.liveSubscriptions() {
		s.Close()
	}
	for _, l := range c.liveWatchLanes() {
		l.wg.Wait()
	}
	c.lasts.Wait()
	c.mirrors.Wait()
	c.requests.Close()
	c.publishing.Close()
	c.subscribing.Close()
	c.watching.Close()
	c.consuming.Close()
	c.caller.wait()
	c.gets.wait()
	if c.http != nil {
		c.http.Close()
	}
}

func (c *Client) livePublishers() []*Publisher {
	c.mu.Lock()
	defer c.mu.Unlock()
	ps := make([]*Publisher, 0, len(c.publishers))
	for p := range c.publishers {
		ps = append(ps, p)
	}
	return ps
}

func (c *Client) liveSubscriptions() []*Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	ss := make([]*Subscription, 0, len(c.subscriptions))
	for s := range c.subscriptions {
		ss = append(ss, s)
	}
	return ss
}

func (c *Client) liveWatchLanes() []*watchLane {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.watchLanes))
}

func withDefaultTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func errClosed(what string) *Error { return code.New(code.Closed, "%s is closed", what) }
