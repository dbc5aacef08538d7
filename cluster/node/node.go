// SPDX-License-Identifier: Apache-2.0

// Package node runs a broker and an embedded control plane as one process on one data directory: what
// `margay serve`, `margay demo` and margaytest run; it refuses a directory that is another's.
package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"margay.dev/broker"
	"margay.dev/controlplane"
	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// Config is what a node is told. Dir is required; empty addresses take free ports on the loopback.
type Config struct {
	Dir          string
	Listen, HTTP string // host:port; port 0 takes a free one
	NoTCP        bool   // clients over QUIC only; otherwise over TLS too, on the TCP port of the same number
	Logger       *slog.Logger
	Level        *slog.LevelVar // of Logger; nil: it cannot be changed while the node runs
	Version      string
	Grace        time.Duration // of an orderly shutdown; default 1 s
	Wall         func() time.Time
	FS           vfs.FS // default the operating system's; the catalog always lies on that
	Sockets      Sockets
	Session      session.Config
	Limits       broker.Limits
	Reserve      uint64 // bytes of the disk that records may not take; default 8 MiB
	FlushSlots   int    // flushes under way at once; default 16
	KeyBytes     int64  // memory for the key indexes of all shards; default 1 GiB
	Sealed       int    // descriptors for reading sealed segments; default by the limit of the process
	Ready        func(Info)
}

// Sockets opens what a node listens on. Default the operating system's; another one is a network that is simulated.
type Sockets interface {
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
	Listen(ctx context.Context, network, address string) (net.Listener, error)
}

// Info is what a node that is ready can say of itself.
type Info struct {
	Address string          // of the broker
	TCP     bool            // it takes clients over TLS on the TCP port of the same number too
	HTTP    string          // base URL of the control plane
	Context control.Context // how to reach it; holds the API key
	Fresh   bool            // the directory was new
	// Issue signs a token of the node's own, for what runs in its process.
	Issue func(subject, tenant string, grants []token.Grant, life time.Duration) (string, error)
	// ReloadCertificates reads the server's certificate again and reports whether it is another one. Connections that
	// are open stay; an error changes nothing.
	ReloadCertificates func() (bool, error)
}

// Run serves until ctx ends, then stops in order: not ready, subscribers told where to resume, what was
// taken written, flushed and answered, connections closed. It returns after the last goroutine.
func Run(ctx context.Context, cfg Config) error {
	n := &node{cfg: cfg}
	if err := n.open(ctx); err != nil {
		return errors.Join(err, n.close())
	}
	return errors.Join(n.serve(ctx), n.close())
}

type node struct {
	cfg      Config
	fresh    bool
	dir      *storage.Dir
	clients  clientSockets
	tcp      net.Listener
	control  *controlplane.Server
	serving  []session.Listener
	broker   *broker.Broker
	registry *prometheus.Registry
	health   *health
	id       storage.Identity
	started  time.Time
	context  control.Context
}

func (n *node) defaults() {
	c := &n.cfg
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	if c.Sockets == nil {
		c.Sockets = &net.ListenConfig{}
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.HTTP == "" {
		c.HTTP = "127.0.0.1:0"
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
}

// open looks at what it is given before it writes: a port that is taken or a catalog that is another's
// leaves the directory as it was.
func (n *node) open(ctx context.Context) error {
	n.defaults()
	id, err := storage.ReadIdentity(n.cfg.FS, n.cfg.Dir)
	switch {
	case errors.Is(err, storage.ErrNotExist):
		n.fresh = true
		id = storage.Identity{Node: "node-" + randomHex(4), Cluster: randomHex(8)}
	case err != nil:
		return err
	}
	if err := controlplane.Check(n.controlDir(), id.Cluster); err != nil {
		return err
	}
	if err := n.checkCatalog(); err != nil {
		return err
	}
	if n.clients, err = listenForClients(ctx, n.cfg.Sockets, n.cfg.Listen, !n.cfg.NoTCP); err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	if n.tcp, err = n.cfg.Sockets.Listen(ctx, "tcp", n.cfg.HTTP); err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	if n.dir, err = storage.OpenDir(n.cfg.FS, n.cfg.Dir, id); err != nil {
		return err
	}
	n.id, n.started = id, n.cfg.Wall()
	n.registry = newRegistry(n.cfg.Version)
	n.health = &health{}
	return n.openParts(ctx, id)
}

// checkCatalog refuses to begin an empty catalog beside shards that hold records: their logs would be gone under
// their names, in silence, and new ones would take those.
func (n *node) checkCatalog() error {
	if _, err := os.Stat(filepath.Join(n.controlDir(), controlplane.CatalogName)); !errors.Is(err, os.ErrNotExist) {
		return nil
	}
	shards, err := n.cfg.FS.List(filepath.Join(n.cfg.Dir, "shards"))
	if errors.Is(err, os.ErrNotExist) || len(shards) == 0 && err == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for shards: %w", err)
	}
	return fmt.Errorf("%w: there are %d logs below %s and no %s in %s; put the directory back from a copy, or move the shards away to start empty",
		storage.ErrIncomplete, len(shards), filepath.Join(n.cfg.Dir, "shards"), controlplane.CatalogName, n.controlDir())
}

func (n *node) openParts(ctx context.Context, id storage.Identity) error {
	var err error
	n.control, err = controlplane.New(ctx, controlplane.Config{
		Dir: n.controlDir(), Node: id.Node, Cluster: id.Cluster, Address: n.clients.address(),
		Hosts: hosts(n.cfg.Listen, n.cfg.HTTP), Wall: n.cfg.Wall, Logger: n.cfg.Logger, Level: n.cfg.Level, Status: n.status,
	})
	if err != nil {
		return err
	}
	if err := n.makeContext(ctx); err != nil {
		return err
	}
	d := divide(descriptorLimit(), n.cfg.Sealed, n.clients.tcp != nil)
	if d.limit > 0 && d.limit < 1024 {
		n.cfg.Logger.Warn("few descriptors: shards beyond the bound are refused; raise the limit on open files", "limit", d.limit, "logs", d.logs)
	}
	n.tcp = netutil.LimitListener(n.tcp, d.http)
	sc := n.cfg.Session
	sc.Logger = n.cfg.Logger
	sc.MaxConns = transportConnections(n.cfg.Limits.Connections)
	sc.MaxSockets = d.lanes
	if sc.ResetKey, err = resetKey(n.cfg.Dir); err != nil {
		return err
	}
	if err := n.listen(sc); err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	n.broker, err = broker.New(broker.Config{
		Node: id.Node, Cluster: id.Cluster, FS: n.cfg.FS, Dir: n.dir, Listeners: n.serving, ControlPlane: n.control,
		Wall: n.cfg.Wall, Logger: n.cfg.Logger, Registerer: n.registry, Grace: n.cfg.Grace,
		OpenLogs: d.logs, Sealed: d.sealed, Reserve: n.cfg.Reserve, FlushSlots: n.cfg.FlushSlots, KeyBytes: n.cfg.KeyBytes,
		Limits: n.cfg.Limits, KeepAlive: sc.KeepAlive, Idle: sc.Idle,
	})
	return err
}

// transportConnections is how many connections the transport takes: some more than the broker serves, so that those
// beyond its limit are told so. Beyond these, handshakes are refused, which costs a packet each.
func transportConnections(limit int) int {
	if limit <= 0 {
		limit = broker.DefaultConnections
	}
	return limit + max(32, limit/16)
}

func (n *node) controlDir() string { return filepath.Join(n.cfg.Dir, "control") }

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// hosts are the names that clients may dial: what is listened on, but for a wildcard.
func hosts(addrs ...string) []string {
	var out []string
	for _, a := range addrs {
		host, _, err := net.SplitHostPort(a)
		if ip := net.ParseIP(host); err == nil && host != "" && (ip == nil || !ip.IsUnspecified()) {
			out = append(out, host)
		}
	}
	return out
}

// resetKey is what a restarted node proves with that a connection of its predecessor is gone, so that
// clients notice at once and not at the idle timeout (WR-09). It is kept across restarts, and secret.
func resetKey(dir string) (*[32]byte, error) {
	var key [32]byte
	name := filepath.Join(dir, "reset.key")
	b, err := os.ReadFile(name)
	if err == nil && len(b) == len(key) {
		return (*[32]byte)(b), nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read reset key: %w", err)
	}
	_, _ = rand.Read(key[:]) // never fails
	if err := os.WriteFile(name, key[:], 0o600); err != nil {
		return nil, fmt.Errorf("write reset key: %w", err)
	}
	return &key, nil
}

// contextName is the file in the data directory that says how to reach the node.
const contextName = "context.yaml"

// makeContext keeps the API key that the directory's context holds while that is good, and makes one else.
func (n *node) makeContext(ctx context.Context) error {
	n.context = control.Context{
		Name: "local", Addresses: []string{n.clients.address()}, HTTP: n.url(), CA: string(n.control.CA()),
		Tenant: control.DefaultTenant, Namespace: control.DefaultNamespace,
	}
	if old, err := control.LoadContext(filepath.Join(n.cfg.Dir, contextName)); err == nil && n.control.ValidAPIKey(ctx, old.APIKey) {
		n.context.APIKey = old.APIKey
		return nil
	}
	key, err := n.control.RotateAPIKey(ctx, "local")
	if err != nil {
		return err
	}
	n.context.APIKey = key
	return nil
}

// plainHTTP says whether HTTP goes without TLS: on a loopback address only.
func (n *node) plainHTTP() bool {
	a, ok := n.tcp.Addr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

func (n *node) url() string {
	if n.plainHTTP() {
		return "http://" + n.tcp.Addr().String()
	}
	return "https://" + n.tcp.Addr().String()
}

// serve runs the parts. HTTP is up before recovery starts, so that probes can tell slow from dead.
func (n *node) serve(ctx context.Context) error {
	web := &http.Server{
		Handler: n.routes(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(n.cfg.Logger.Handler(), slog.LevelDebug),
	}
	g, ctx := errgroup.WithContext(ctx)
	brokerDone := make(chan struct{})
	g.Go(func() error {
		defer close(brokerDone)
		return n.broker.Run(ctx)
	})
	g.Go(func() error { return n.serveHTTP(web) })
	g.Go(func() error {
		select {
		case <-n.broker.Ready():
			if n.cfg.Ready != nil {
				n.cfg.Ready(Info{
					Address: n.clients.address(), TCP: n.clients.tcp != nil, HTTP: n.url(), Context: n.context, Fresh: n.fresh,
					Issue: n.control.IssueToken, ReloadCertificates: n.control.ReloadCertificates,
				})
			}
			n.health.ready.Store(true) // behind Ready: who waits for it finds the context written
			n.cfg.Logger.Info("ready", "version", n.cfg.Version, "node", n.dir.Node(), "start", n.dir.Starts(), "address", n.clients.address(), "tcp", n.clients.tcp != nil, "http", n.url())
		case <-ctx.Done():
		}
		<-ctx.Done()
		n.health.ready.Store(false)
		<-brokerDone // the catalog answers until the last shard is closed
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
		defer cancel()
		if err := web.Shutdown(stop); err != nil {
			_ = web.Close() // requests that do not end in time are cut off
		}
		return nil
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (n *node) serveHTTP(web *http.Server) error {
	var err error
	if n.plainHTTP() {
		err = web.Serve(n.tcp)
	} else {
		web.TLSConfig = n.control.TLSConfig()
		err = web.ServeTLS(n.tcp, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve HTTP: %w", err)
}

// close lets go of everything that open took, the directory last.
func (n *node) close() error {
	var errs []error
	for _, l := range n.serving {
		errs = append(errs, closed(l.Close()))
	}
	errs = append(errs, n.clients.close())
	if n.tcp != nil {
		errs = append(errs, closed(n.tcp.Close()))
	}
	if n.control != nil {
		errs = append(errs, n.control.Close())
	}
	if n.dir != nil {
		errs = append(errs, n.dir.Close())
	}
	return errors.Join(errs...)
}

// closed takes closing twice for no fault.
func closed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
