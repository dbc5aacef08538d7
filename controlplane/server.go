// SPDX-License-Identifier: Apache-2.0

// Package controlplane is the control plane of one node: catalog, certificates, credentials and the REST API over them,
// in the directory that it is given. It is never asked while records move, and refuses a directory of another node,
// cluster or newer version.
package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"margay.dev/controlplane/api"
	"margay.dev/controlplane/catalog"
	"margay.dev/controlplane/catalog/embedded"
	"margay.dev/controlplane/identity"
	"margay.dev/controlplane/logs"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// CatalogName is the file in Config.Dir that holds the catalog.
const CatalogName = "catalog.db"

// renewEvery is how often the server's certificate is looked at; it is renewed weeks before its end.
const renewEvery = time.Hour

// Server is a control plane. Safe for concurrent use.
type Server struct {
	cfg     Config
	cluster string
	store   catalog.Store
	certs   *identity.Certificates
	issuer  *identity.Issuer
	logs    *logs.Service
	handler http.Handler

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Check says whether New would take what lies in a directory for this cluster, without writing to it.
func Check(dir, cluster string) error {
	return embedded.Check(filepath.Join(dir, CatalogName), cluster)
}

// New opens the control plane, making what a fresh directory lacks.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open control plane: %w", err)
	}
	store, err := embedded.Open(filepath.Join(cfg.Dir, CatalogName), embedded.Options{})
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, store: store}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open control plane: %w", err), store.Close())
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.running.Go(func() { s.renew(background) })
	return s, nil
}

func (s *Server) open(ctx context.Context) (err error) {
	if s.cluster, err = s.bind(ctx); err != nil {
		return err
	}
	snap, err := s.store.Snapshot(ctx)
	if err != nil {
		return err
	}
	for _, n := range snap.Nodes {
		if n.ID != s.cfg.Node {
			return fmt.Errorf("the catalog %w node: it is of %q, not %q", catalog.ErrForeign, n.ID, s.cfg.Node)
		}
	}
	if s.cfg.Address != "" || len(snap.Nodes) == 0 {
		if err := s.store.SetNode(ctx, control.Node{ID: s.cfg.Node, Address: s.cfg.Address}); err != nil {
			return err
		}
	}
	hosts := s.cfg.Hosts
	if host, _, err := net.SplitHostPort(s.cfg.Address); err == nil {
		hosts = append([]string{host}, hosts...)
	}
	s.certs, err = identity.OpenCertificates(identity.CertificateOptions{
		Dir: filepath.Join(s.cfg.Dir, "identity"), Cluster: s.cluster, Hosts: hosts, Wall: s.cfg.Wall, Logger: s.cfg.Logger,
	})
	if err != nil {
		return err
	}
	if s.issuer, err = identity.NewIssuer(ctx, s.store, catalog.Issuer(s.cluster), s.cfg.Wall); err != nil {
		return err
	}
	s.logs = &logs.Service{Store: s.store, Leader: s.cfg.Node, Wall: s.cfg.Wall}
	s.handler, err = api.New(api.Config{Logs: s.logs, Issuer: s.issuer, Wall: s.cfg.Wall, Logger: s.cfg.Logger, Level: s.cfg.Level, Status: s.cfg.Status})
	return err
}

func (s *Server) bind(ctx context.Context) (string, error) {
	name := s.cfg.Cluster
	if name == "" {
		var err error
		if name, err = s.store.Cluster(ctx); err != nil {
			return "", err
		}
	}
	if name == "" {
		b := make([]byte, 6)
		_, _ = rand.Read(b) // never fails
		name = "margay-" + hex.EncodeToString(b)
	}
	return name, s.store.Bind(ctx, name)
}

func (s *Server) renew(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if renewed, err := s.certs.Renew(); err != nil {
			s.cfg.Logger.Error("server certificate was not renewed", "error", err, "expires", s.certs.Expires())
		} else if renewed {
			s.cfg.Logger.Info("server certificate renewed", "expires", s.certs.Expires())
		}
	}
}

// Close ends the control plane: who waits in Watch gets an error. Requests under way should have ended before.
func (s *Server) Close() error {
	s.stop()
	s.running.Wait()
	return s.store.Close()
}

// Handler serves the REST API: everything under /v1 and /openapi.json.
func (s *Server) Handler() http.Handler { return s.handler }

// Cluster is the cluster's name.
func (s *Server) Cluster() string { return s.cluster }

// CA is the certificate that clients check brokers and API against, in PEM.
func (s *Server) CA() []byte { return s.certs.CA() }

// TLSConfig is a new configuration for a listener of broker or API, which adds its own protocols. It follows renewals.
func (s *Server) TLSConfig() *tls.Config { return s.certs.TLS() }

// ReloadCertificates reads the server's certificate again and reports whether it is another one. One that cannot be used is
// an error, and the one in use stays.
func (s *Server) ReloadCertificates() (bool, error) { return s.certs.Reload() }

// Watch returns the state of the catalog once its version is above after. With a version that the catalog has never
// reached it fails with code.Conflict: the catalog was put back from an older copy.
func (s *Server) Watch(ctx context.Context, after uint64) (control.Snapshot, error) {
	if _, err := s.store.Wait(ctx, after); err != nil {
		return control.Snapshot{}, logs.Coded(err)
	}
	snap, err := s.store.Snapshot(ctx)
	return snap, logs.Coded(err)
}

// Lead gives the node a new generation, durable on return, for each of the shards that are assigned to it, in order of
// refs. A shard that is not, or was deleted, is left out.
func (s *Server) Lead(ctx context.Context, node string, refs []control.ShardRef) ([]control.Assignment, error) {
	granted, err := s.store.Lead(ctx, node, refs)
	return granted, logs.Coded(err)
}

// Forget drops deleted logs from the catalog; the broker calls it when their data is gone from its disk.
func (s *Server) Forget(ctx context.Context, ids ...batch.LogID) error {
	return logs.Coded(s.store.Forget(ctx, ids...))
}

// SetAddress stores the address at which clients reach the broker, for one that learns its port by listening. The
// certificate does not change: name the host in Config.Hosts.
func (s *Server) SetAddress(ctx context.Context, address string) error {
	if err := checkAddress(address); err != nil {
		return fmt.Errorf("set address: %w", err)
	}
	return logs.Coded(s.store.SetNode(ctx, control.Node{ID: s.cfg.Node, Address: address}))
}

// EnsureStream creates a stream, or finds the same one there already; another log of that name is code.AlreadyExists.
func (s *Server) EnsureStream(ctx context.Context, tenant, namespace string, spec control.StreamSpec) (control.Log, bool, error) {
	return s.logs.Create(ctx, control.PresetStream, tenant, namespace, control.LogSpec(spec))
}

// EnsureCache creates a cache, or finds the same one there already; another log of that name is code.AlreadyExists.
func (s *Server) EnsureCache(ctx context.Context, tenant, namespace string, spec control.CacheSpec) (control.Log, bool, error) {
	return s.logs.Create(ctx, control.PresetCache, tenant, namespace, control.LogSpec(spec))
}

// EnsureQueue creates a queue, or finds the same one there already; another log of that name is code.AlreadyExists.
func (s *Server) EnsureQueue(ctx context.Context, tenant, namespace string, spec control.QueueSpec) (control.Log, bool, error) {
	return s.logs.Create(ctx, control.PresetQueue, tenant, namespace, control.LogSpec(spec))
}

// EnsureAPIKey makes an API key with all permissions under a name, unless there is one. The plain key is returned when it
// is made and at no other time: to get one again, use RotateAPIKey.
func (s *Server) EnsureAPIKey(ctx context.Context, name string) (plain string, created bool, err error) {
	plain, err = s.addAPIKey(ctx, name, false)
	if errors.Is(err, catalog.ErrExists) {
		return "", false, nil
	}
	return plain, err == nil, logs.Coded(err)
}

// RotateAPIKey makes a new API key under a name. The one that had the name is no longer good for new tokens.
func (s *Server) RotateAPIKey(ctx context.Context, name string) (plain string, err error) {
	plain, err = s.addAPIKey(ctx, name, true)
	return plain, logs.Coded(err)
}

func (s *Server) addAPIKey(ctx context.Context, name string, replace bool) (string, error) {
	if !control.ValidName(name) {
		return "", code.New(code.BadRequest, "API key name %.100q is not %s", name, control.NameRule)
	}
	plain, row := identity.NewAPIKey(name, control.DefaultTenant, []token.Grant{token.FullGrant()}, s.cfg.Wall().UTC())
	if err := s.store.AddAPIKey(ctx, row, replace); err != nil {
		return "", err
	}
	return plain, nil
}

// ValidAPIKey reports whether an API key would be given a token: `serve` looks at the one in its context file with it.
func (s *Server) ValidAPIKey(ctx context.Context, plain string) bool {
	_, _, err := s.issuer.Exchange(ctx, plain)
	return err == nil
}

// IssueToken signs a token for a subject with these grants, for what runs in the same process.
func (s *Server) IssueToken(subject, tenant string, grants []token.Grant, life time.Duration) (string, error) {
	tok, err := s.issuer.Issue(subject, tenant, grants, s.cfg.Wall().Add(life))
	return tok, logs.Coded(err)
}

// Token exchanges an API key, as POST /v1/token does, for what runs in the same process.
func (s *Server) Token(ctx context.Context, apiKey string) (control.TokenResponse, error) {
	tok, expires, err := s.issuer.Exchange(ctx, apiKey)
	if err != nil {
		return control.TokenResponse{}, logs.Coded(err)
	}
	return control.TokenResponse{Token: tok, ExpiresAt: expires}, nil
}
