// SPDX-License-Identifier: Apache-2.0

// Package host drives the cores of the shards that this broker leads: it follows the catalog, opens and
// closes their logs, performs what the cores decide on disks and lanes, and keeps the routing map; it
// refuses to delete anything that the catalog does not call deleted.
package host

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"margay.dev/router"
	"margay.dev/storage"
	"margay.dev/storage/commit"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/control"
)

// Ref names a shard.
type Ref = control.ShardRef

// ControlPlane is what a broker needs of the control plane. It is never called for a request.
type ControlPlane interface {
	// Watch returns the catalog once its version is above after.
	Watch(ctx context.Context, after uint64) (control.Snapshot, error)
	// Lead takes a fresh generation for each shard, durable before it returns.
	Lead(ctx context.Context, node string, refs []control.ShardRef) ([]control.Assignment, error)
	// Forget says that the data of deleted logs is gone from this broker.
	Forget(ctx context.Context, ids ...batch.LogID) error
}

// Config is what a host is told. Zero fields take defaults.
type Config struct {
	Node         string
	FS           vfs.FS
	Dir          *storage.Dir
	ControlPlane ControlPlane
	Table        *router.Table
	Wall         func() time.Time
	Clock        func() time.Time // what intervals are measured by; default time.Now
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
	Reserve      uint64 // bytes of the disk kept for what is not records; default 8 MiB
	FlushSlots   int    // flushes under way at once; default 16
	KeyBytes     int64  // memory for the key indexes of all shards; default 1 GiB
	SaveKeys     int64  // bytes of a log between two snapshots of its keys, at the least; default 64 MiB
	OpenLogs     int    // logs on disk that may be open at once; 0 for no limit
	SealedFiles  int    // descriptors for reading sealed segments, over all shards; default 256
	OnSnapshot   func(control.Snapshot)
	OnReady      func() // once every shard that can be opened is open
}

// Host runs the shards of one broker.
type Host struct {
	cfg       Config
	log       *slog.Logger
	metrics   *metrics
	committer *commit.Committer
	files     *storage.Files
	budget    budget
	space     *space
	sessions  Sessions
	hot       hotBatches
	shared    shared
	openings  atomic.Uint64 // of shards, since the start

	stepped *Stepped        // who takes its steps, when Run does not
	ended   chan *Shard     // shards whose goroutine has returned
	results chan openResult // of openings

	building chan struct{} // slots for reading logs to learn their keys
	keyBytes atomic.Int64  // that these indexes take

	// Owned by Run.
	snapshot  control.Snapshot
	shards    map[Ref]*Shard
	configs   map[Ref]*control.Log
	damaged   map[Ref]error
	retry     map[Ref]retryOpen
	closing   map[Ref]bool        // told to close, not ended yet
	opening   map[Ref]bool        // being recovered
	kept      map[Ref]storage.Log // logs in memory between two openings
	slots     chan struct{}       // openings under way at once
	ready     bool
	strangers int // shards that the catalog does not know, as last told

	mu      sync.Mutex
	report  Report
	led     []*Shard      // that were open at the last report
	applied uint64        // catalog version that the routing map is of
	moved   chan struct{} // closed when applied rises
	running sync.WaitGroup
}

type retryOpen struct {
	noRoom  string // why, when it is descriptors that are missing
	why     string
	at      time.Time
	backoff time.Duration
	cut     *uint64
}

const (
	defaultReserve    = 8 << 20
	defaultFlushSlots = 16
	openParallel      = 4

	defaultSealedFiles = 256
	firstBackoff       = 500 * time.Millisecond
	maxBackoff         = 30 * time.Second
)

// New makes a host. Run drives it.
func New(cfg Config) *Host {
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = defaultReserve
	}
	if cfg.SealedFiles <= 0 {
		cfg.SealedFiles = defaultSealedFiles
	}
	if cfg.SaveKeys <= 0 {
		cfg.SaveKeys = defaultSaveKeys
	}
	if cfg.KeyBytes <= 0 {
		cfg.KeyBytes = defaultKeyBytes
	}
	if cfg.FlushSlots <= 0 {
		cfg.FlushSlots = defaultFlushSlots
	}
	h := &Host{
		cfg: cfg, log: cfg.Logger, committer: commit.New(cfg.FlushSlots), files: storage.NewFiles(cfg.SealedFiles), budget: budget{limit: int64(cfg.OpenLogs)},
		space: &space{fs: cfg.FS, dir: cfg.Dir.Path(), reserve: cfg.Reserve, log: cfg.Logger, clock: cfg.Clock},
		ended: make(chan *Shard), results: make(chan openResult), slots: make(chan struct{}, openParallel),
		closing: map[Ref]bool{}, opening: map[Ref]bool{}, kept: map[Ref]storage.Log{},
		building: make(chan struct{}, keysParallel), moved: make(chan struct{}), shards: map[Ref]*Shard{}, configs: map[Ref]*control.Log{}, damaged: map[Ref]error{}, retry: map[Ref]retryOpen{},
	}
	h.metrics = newMetrics(h)
	return h
}

// Sessions knows who is connected of those with a last record.
func (h *Host) Sessions() *Sessions { return &h.sessions }

func (h *Host) now() int64 { return h.cfg.Wall().UnixMicro() }

// Run follows the catalog until ctx ends, then closes every shard: what was taken is written, flushed and
// answered first.
func (h *Host) Run(ctx context.Context) error {
	h.space.look()
	snaps := make(chan control.Snapshot)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.follow(gctx, snaps) })
	g.Go(func() error {
		defer h.closeAll()
		for {
			if err := h.turn(gctx, snaps); err != nil {
				return err
			}
		}
	})
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil // it was told to end, and has
}

// follow asks for the next snapshot for ever. The catalog may be away for long: what is known holds.
func (h *Host) follow(ctx context.Context, to chan<- control.Snapshot) error {
	var version uint64
	backoff := firstBackoff
	for {
		s, err := h.cfg.ControlPlane.Watch(ctx, version)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			h.log.Warn("the catalog does not answer; what is known holds", "error", err)
			if !sleep(ctx, backoff) {
				return ctx.Err()
			}
			backoff = min(backoff*2, maxBackoff)
			continue
		}
		backoff = firstBackoff
		version = s.Version
		select {
		case to <- s:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
