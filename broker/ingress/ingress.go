// SPDX-License-Identifier: Apache-2.0

// Package ingress serves the connections of clients: it authenticates them, checks every request against
// their grants, resolves its shard from the routing map and hands it on; it refuses to decide where data
// lives.
package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"margay.dev/broker/host"
	"margay.dev/broker/stream"
	"margay.dev/router"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// Verifier checks a token offline.
type Verifier interface {
	Verify(token string) (*token.Claims, error)
}

// Defaults of Config.
const (
	DefaultConnections        = 10_000
	DefaultSubscriptions      = 4096
	DefaultInFlight           = 128 << 20
	DefaultInFlightConnection = 64 << 20
	DefaultAuthTimeout        = 10 * time.Second
)

// Config is what an ingress is told. Zero bounds take defaults.
type Config struct {
	Node, Cluster string
	Table         *router.Table
	Verifier      Verifier
	Sessions      *host.Sessions
	Wall          func() time.Time
	Logger        *slog.Logger
	Registerer    prometheus.Registerer

	KeepAlive, Idle    time.Duration // as the listener has them; told in the hello; default 3 s and 30 s
	AuthTimeout        time.Duration // from connect to a valid token; default 10 s
	MaxConnections     int           // default 10,000
	MaxPerAddress      int           // connections from one address; default none of its own
	MaxFrame           int           // bytes of a frame's body; default and at most wire.MaxFrame
	Batch              batch.Limits  // of what producers send
	InFlightConnection int64         // bytes of unanswered publishes per connection; default 64 MiB
	InFlightBroker     int64         // bytes of unanswered publishes in all; default 128 MiB
	MaxSubscriptions   int           // per connection; default 4,096
}

// Server serves listeners.
type Server struct {
	cfg      Config
	log      *slog.Logger
	inflight *semaphore.Weighted
	held     atomic.Int64 // of inflight
	metrics  *metrics
	holders  stream.Holders
	lists    chan struct{} // held by who makes a large answer
	draining chan struct{} // closed when the node goes away

	ids       *connIDs
	strangers sampler

	mu    sync.Mutex
	conns map[*conn]struct{}
	from  map[netip.Addr]int // connections by address
	wg    sync.WaitGroup
}

// New makes a server.
func New(cfg Config) *Server {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	if cfg.AuthTimeout <= 0 {
		cfg.AuthTimeout = DefaultAuthTimeout
	}
	if cfg.KeepAlive <= 0 {
		cfg.KeepAlive = 3 * time.Second
	}
	if cfg.Idle <= 0 {
		cfg.Idle = 30 * time.Second
	}
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = DefaultConnections
	}
	if cfg.MaxSubscriptions <= 0 {
		cfg.MaxSubscriptions = DefaultSubscriptions
	}
	def(&cfg.InFlightConnection, DefaultInFlightConnection)
	def(&cfg.InFlightBroker, DefaultInFlight)
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Sessions == nil {
		cfg.Sessions = &host.Sessions{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxFrame <= 0 {
		cfg.MaxFrame = wire.MaxFrame
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, inflight: semaphore.NewWeighted(cfg.InFlightBroker),
		conns: map[*conn]struct{}{}, from: map[netip.Addr]int{}, draining: make(chan struct{}),
		ids: newConnIDs(), lists: make(chan struct{}, allLists),
	}
	s.metrics = newMetrics(s)
	return s
}

// Serve accepts connections until ctx ends or a listener breaks. Then it ends the subscriptions with
// where to resume, calls settle, which answers what was taken, sends those answers, closes what is left
// when grace is over, and returns after the last goroutine.
func (s *Server) Serve(ctx context.Context, ls []session.Listener, grace time.Duration, settle func()) error {
	err := s.acceptAll(ctx, ls)
	s.drain(grace, settle)
	if ctx.Err() == nil {
		return err
	}
	return nil // it was told to end, and has
}

// acceptAll accepts from all listeners until one of them breaks: a node that is reached by half of its clients only
// would look well from one side.
func (s *Server) acceptAll(ctx context.Context, ls []session.Listener) error {
	g, gctx := errgroup.WithContext(ctx)
	for _, l := range ls {
		g.Go(func() error {
			for {
				c, err := l.Accept(gctx)
				if err != nil {
					return err
				}
				s.accept(ctx, c)
			}
		})
	}
	return g.Wait()
}

func (s *Server) accept(ctx context.Context, c session.Conn) {
	cn := newConn(s, c)
	if limit, refusal := s.admit(cn); refusal != "" {
		s.metrics.refused[limit].Inc()
		s.sampled(cn.log.Load(), slog.LevelWarn, "connection refused", "reason", refusal)
		s.wg.Go(func() {
			_ = c.Close(code.TooMany, refusal) // the peer is told; nothing else can be done
		})
		return
	}
	s.metrics.connections.Inc()
	cn.log.Load().Debug("connected")
	s.wg.Go(func() {
		cn.serve(context.WithoutCancel(ctx))
		s.forget(cn)
		s.metrics.connections.Dec()
	})
}

// admit counts a connection in, or says which limit it is over.
func (s *Server) admit(cn *conn) (limit int, refusal string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := s.from[cn.addr]; {
	case len(s.conns) >= s.cfg.MaxConnections:
		return overTotal, fmt.Sprintf("the broker has %d connections, as many as it may", len(s.conns))
	case s.cfg.MaxPerAddress > 0 && n >= s.cfg.MaxPerAddress:
		return overAddress, fmt.Sprintf("there are %d connections from this address, as many as there may be", n)
	}
	s.conns[cn] = struct{}{}
	s.from[cn.addr]++
	return 0, ""
}

func (s *Server) forget(cn *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, cn)
	if s.from[cn.addr]--; s.from[cn.addr] <= 0 {
		delete(s.from, cn.addr)
	}
}

func (s *Server) drain(grace time.Duration, settle func()) {
	why := code.New(code.ShuttingDown, "the node is shutting down")
	deadline := time.Now().Add(grace)
	close(s.draining)
	s.each(func(c *conn) { c.goodbye(why, deadline) })
	settle()
	s.each(func(c *conn) { c.finish(why) })
	s.wg.Wait()
}

// each runs f for every connection at once and waits.
func (s *Server) each(f func(*conn)) {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() { f(c) })
	}
	wg.Wait()
}

// Connections counts the connections being served.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// frameError makes a frame of any error, and counts it.
func (l *lane) frameError(corr uint64, err error) []byte {
	var typed *code.Error
	if !errors.As(err, &typed) {
		typed = code.From(err)
	}
	l.conn.srv.metrics.error(typed.Code)
	return wire.AppendFrame(nil, corr, wire.NewError(typed))
}
