// SPDX-License-Identifier: Apache-2.0

// Package hosttest gives the broker's own tests a host of shards over any file system, without a transport and without a
// control plane; it belongs to one test, and refuses to outlive it.
package hosttest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/host"
	"margay.dev/router"
	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// patience is how long a condition is waited for. No test passes by it: a machine may be slow.
const patience = time.Minute

const node = "n1"

// Rig is a host over a file system.
type Rig struct {
	T        testing.TB
	Plane    *Plane
	Table    *router.Table
	Host     *host.Host
	Registry *prometheus.Registry
	Stop     func() // in order, and waits; twice is once
	Cancel   func() // begins the stop and does not wait
	Dir      *storage.Dir
	FS       vfs.FS
}

// Start runs a host until the test ends, or until Stop.
func Start(t testing.TB, fs vfs.FS, p *Plane, edits ...func(*host.Config)) *Rig {
	t.Helper()
	return StartIn(t, fs, "/data", p, edits...)
}

// StartIn is Start in a directory of a file system that has others.
func StartIn(t testing.TB, fs vfs.FS, path string, p *Plane, edits ...func(*host.Config)) *Rig {
	t.Helper()
	dir, err := storage.OpenDir(fs, path, storage.Identity{Node: node, Cluster: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	r := &Rig{T: t, Plane: p, Table: router.NewTable(node), Registry: prometheus.NewRegistry(), Dir: dir, FS: fs}
	ready := make(chan struct{})
	cfg := host.Config{
		Node: node, FS: fs, Dir: dir, ControlPlane: p, Table: r.Table, Registerer: r.Registry, Reserve: 64 << 10,
		Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)), OnReady: func() { close(ready) },
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	r.Host = host.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Host.Run(ctx) }()
	r.Cancel = cancel
	var once sync.Once
	r.Stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("host: %v", err)
			}
			if err := dir.Close(); err != nil {
				t.Errorf("close directory: %v", err)
			}
		})
	}
	t.Cleanup(r.Stop)
	select {
	case <-ready:
	case <-time.After(patience):
		t.Fatal("the host was not ready in time")
	}
	return r
}

// Shard returns an open shard, and waits until it is that.
func (r *Rig) Shard(id batch.LogID, n uint32) *host.Shard {
	r.T.Helper()
	var s *host.Shard
	Eventually(r.T, "the shard to be open", func() bool {
		s = r.Open(id, n)
		return s != nil
	})
	return s
}

// Open returns a shard if it is open now.
func (r *Rig) Open(id batch.LogID, n uint32) *host.Shard {
	s, _ := r.Table.Load().Resolve(router.LogID(id), n).Shard.(*host.Shard)
	return s
}

type testLog struct{ t testing.TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// Eventually waits for a condition.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !cond() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

// Within is a context for what must come.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
