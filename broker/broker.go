// SPDX-License-Identifier: Apache-2.0

// Package broker runs one broker: it leads the shards that the catalog gives to its node and serves clients
// over lanes; it never asks the control plane while it serves, and refuses what it does not lead.
package broker

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"margay.dev/broker/host"
	"margay.dev/broker/ingress"
	"margay.dev/broker/queue"
	"margay.dev/router"
	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// Config is what a broker is told. Node, Cluster, FS, Dir, Listeners and ControlPlane are required.
type Config struct {
	Node, Cluster string
	FS            vfs.FS
	Dir           *storage.Dir
	Listeners     []session.Listener
	ControlPlane  host.ControlPlane

	Wall       func() time.Time // default time.Now
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Grace      time.Duration // for subscribers to take their end at a shutdown; default 1 s
	OpenLogs   int           // logs on disk that may be open at once; 0 for no limit
	Sealed     int           // descriptors for reading sealed segments; default 256
	Reserve    uint64        // bytes of the disk that records may not take; default 8 MiB
	FlushSlots int           // flushes under way at once; default 16
	KeyBytes   int64         // memory for the key indexes of all shards; default 1 GiB
	Limits     Limits
	// KeepAlive and Idle are the listeners', for clients to know; default 3 s and 30 s.
	KeepAlive, Idle time.Duration
}

// Validate reports every fault of the configuration.
func (c *Config) Validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("broker configuration: %s is missing", what))
		}
	}
	need(c.Node != "", "Node")
	need(c.Cluster != "", "Cluster")
	need(c.FS != nil, "FS")
	need(c.Dir != nil, "Dir")
	need(len(c.Listeners) > 0 && !slices.Contains(c.Listeners, nil), "Listeners")
	need(c.ControlPlane != nil, "ControlPlane")
	errs = append(errs, c.Limits.Validate())
	return errors.Join(errs...)
}

// Broker is one broker. Run drives it.
type Broker struct {
	cfg     Config
	host    *host.Host
	ingress *ingress.Server
	ready   chan struct{}
	keys    keyring
}

const defaultGrace = time.Second

// New makes a broker.
func New(cfg Config) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Grace <= 0 {
		cfg.Grace = defaultGrace
	}
	b := &Broker{cfg: cfg, ready: make(chan struct{})}
	table := router.NewTable(cfg.Node)
	b.keys.wall = cfg.Wall
	b.host = host.New(host.Config{
		Node: cfg.Node, FS: cfg.FS, Dir: cfg.Dir, ControlPlane: cfg.ControlPlane, Table: table, Wall: cfg.Wall,
		Logger: cfg.Logger, Registerer: cfg.Registerer, Reserve: cfg.Reserve, OpenLogs: cfg.OpenLogs, SealedFiles: cfg.Sealed, FlushSlots: cfg.FlushSlots, KeyBytes: cfg.KeyBytes,
		OnSnapshot: b.keys.follow, OnReady: func() { close(b.ready) },
	})
	in := ingress.Config{
		Node: cfg.Node, Cluster: cfg.Cluster, Table: table, Verifier: &b.keys, Sessions: b.host.Sessions(), Wall: cfg.Wall,
		Logger: cfg.Logger, Registerer: cfg.Registerer, KeepAlive: cfg.KeepAlive, Idle: cfg.Idle,
	}
	cfg.Limits.apply(&in)
	b.ingress = ingress.New(in)
	if cfg.Registerer != nil {
		cfg.Registerer.MustRegister(queue.NewGroupMetrics(b.host.Shards, table, cfg.Wall))
	}
	return b, nil
}

// Ready is closed once every shard that can be opened is open.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// Verify checks a token with the keys of the newest catalog that the broker has seen.
func (b *Broker) Verify(tok string) (*token.Claims, error) { return b.keys.Verify(tok) }

// WaitApplied waits until the broker serves what the catalog said at this version.
func (b *Broker) WaitApplied(ctx context.Context, version uint64) error {
	return b.host.WaitApplied(ctx, version)
}

// Report returns the health of the broker's shards.
func (b *Broker) Report() host.Report { return b.host.Report() }

// Run serves until ctx ends; then nothing that was acknowledged is lost, subscribers know where to resume,
// and every goroutine has returned.
func (b *Broker) Run(ctx context.Context) error {
	hostCtx, stopHost := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHost()
	hostDone := make(chan error, 1)
	go func() { hostDone <- b.host.Run(hostCtx) }()

	g, gctx := errgroup.WithContext(ctx)
	settled := make(chan error, 1)
	g.Go(func() error {
		return b.ingress.Serve(gctx, b.cfg.Listeners, b.cfg.Grace, func() {
			stopHost()
			settled <- <-hostDone
		})
	})
	err := g.Wait()
	return errors.Join(err, <-settled)
}

// keyring verifies tokens with the keys of the newest snapshot, offline.
type keyring struct {
	wall    func() time.Time
	current atomic.Pointer[token.Verifier]
}

func (k *keyring) follow(s control.Snapshot) {
	keys := make(map[string]control.Key, len(s.SigningKeys))
	for _, key := range s.SigningKeys {
		keys[key.ID] = key
	}
	k.current.Store(newVerifier(s.Issuer, keys, k.wall))
}

// Verify checks a token. Before the first snapshot nobody can be known.
func (k *keyring) Verify(tok string) (*token.Claims, error) {
	v := k.current.Load()
	if v == nil {
		return nil, code.New(code.Opening, "the broker has not read the signing keys yet").Retry(50 * time.Millisecond)
	}
	return v.Verify(tok)
}

func newVerifier(issuer string, keys map[string]control.Key, wall func() time.Time) *token.Verifier {
	return &token.Verifier{
		Issuer: issuer, Wall: wall,
		Keys: func(kid string) ed25519.PublicKey { return keys[kid].Public },
	}
}
