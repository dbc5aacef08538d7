// SPDX-License-Identifier: Apache-2.0

// Package host drives the cores of the shards that this broker leads: it follows the catalog, opens and
// closes their logs, performs what the cores decide on disks and lanes, and keeps the routing map; it
// refuses to delete anything that the catalog does not call deleted.
package host

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"margay.dev/router"
	"margay.dev/storage"
	"margay.dev/storage/commit"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
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
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
	Reserve      uint64 // bytes of the disk kept for what is not records; default 8 MiB
	FlushSlots   int    // flushes under way at once; default 16
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

	failed   chan *Shard
	building chan struct{} // slots for tables of versions

	// Owned by Run.
	snapshot control.Snapshot
	shards   map[Ref]*Shard
	configs  map[Ref]*control.Log
	damaged  map[Ref]error
	retry    map[Ref]retryOpen
	ready    bool

	mu      sync.Mutex
	report  Report
	applied uint64        // catalog version that the routing map is of
	moved   chan struct{} // closed when applied rises
	running sync.WaitGroup
}

type retryOpen struct {
	noRoom  string // why, when it is descriptors that are missing
	at      time.Time
	backoff time.Duration
	cut     *uint64
}

// Report is the host's health, for readiness and status.
type Report struct {
	Ready       bool
	Shards      int
	Quarantined map[Ref]string
	DiskFull    bool
	Unknown     int // shard directories that the catalog does not know; kept
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
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = defaultReserve
	}
	if cfg.SealedFiles <= 0 {
		cfg.SealedFiles = defaultSealedFiles
	}
	if cfg.FlushSlots <= 0 {
		cfg.FlushSlots = defaultFlushSlots
	}
	return &Host{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer), committer: commit.New(cfg.FlushSlots), files: storage.NewFiles(cfg.SealedFiles), budget: budget{limit: int64(cfg.OpenLogs)},
		space:  &space{fs: cfg.FS, dir: cfg.Dir.Path(), reserve: cfg.Reserve},
		failed: make(chan *Shard), building: make(chan struct{}, versionsParallel), moved: make(chan struct{}), shards: map[Ref]*Shard{}, configs: map[Ref]*control.Log{}, damaged: map[Ref]error{}, retry: map[Ref]retryOpen{},
	}
}

func (h *Host) now() int64 { return h.cfg.Wall().UnixMicro() }

// Report returns the host's health.
func (h *Host) Report() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.report
	r.Quarantined = maps.Clone(r.Quarantined)
	r.DiskFull = h.space.isFull.Load()
	return r
}

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

// turn takes one thing that happened.
func (h *Host) turn(ctx context.Context, snaps <-chan control.Snapshot) error {
	timer := time.NewTimer(h.untilRetry())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case s := <-snaps:
		h.snapshot = s
		if h.cfg.OnSnapshot != nil {
			h.cfg.OnSnapshot(s)
		}
	case s := <-h.failed:
		h.reap(s)
	case <-timer.C:
	}
	return h.apply(ctx)
}

func (h *Host) untilRetry() time.Duration {
	d := time.Hour
	for _, r := range h.retry {
		d = min(d, max(time.Until(r.at), 0))
	}
	return d
}

// reap takes a shard that has closed itself out of the map and plans its next opening.
func (h *Host) reap(s *Shard) {
	if h.shards[s.Ref] != s {
		return
	}
	<-s.stopped
	delete(h.shards, s.Ref)
	delete(h.configs, s.Ref)
	next := h.retry[s.Ref]
	next.backoff = min(max(next.backoff*2, firstBackoff), maxBackoff)
	next.at = time.Now().Add(next.backoff)
	if l := s.log.Load(); l != nil {
		flushed := l.State().Flushed
		next.cut = &flushed
	}
	h.retry[s.Ref] = next
}

// apply makes what is open what the catalog says, and swaps the routing map.
func (h *Host) apply(ctx context.Context) error {
	want, gone := h.wanted()
	for ref, s := range h.shards {
		l, keep := want[ref]
		if keep && sameSettings(l, h.configs[ref]) {
			continue
		}
		why := code.New(code.Opening, "the log's settings changed: shard %d is being opened again", ref.Shard).Retry(50 * time.Millisecond)
		if !keep {
			why = code.New(code.Deleted, "the log was deleted")
		}
		h.closeShard(s, why)
	}
	h.swap() // nobody is led to a shard that is closed
	h.remove(ctx, gone)
	if err := h.open(ctx, want); err != nil {
		return err
	}
	h.swap()
	h.setReport(want)
	if !h.ready && h.snapshot.Version > 0 {
		h.ready = true
		if h.cfg.OnReady != nil {
			h.cfg.OnReady()
		}
	}
	return nil
}

// wanted is what this node is to lead, and the logs that the catalog calls deleted.
func (h *Host) wanted() (map[Ref]*control.Log, []batch.LogID) {
	logs := make(map[batch.LogID]*control.Log, len(h.snapshot.Logs))
	var gone []batch.LogID
	for i := range h.snapshot.Logs {
		l := &h.snapshot.Logs[i]
		if l.Deleted {
			gone = append(gone, l.ID)
			continue
		}
		logs[l.ID] = l
	}
	want := map[Ref]*control.Log{}
	for _, a := range h.snapshot.Assignments {
		if l := logs[a.Log]; l != nil && a.Leader == h.cfg.Node {
			want[Ref{Log: a.Log, Shard: a.Shard}] = l
		}
	}
	return want, gone
}

// sameSettings compares what a shard is opened with.
func sameSettings(a, b *control.Log) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Version, y.Version = 0, 0
	return x == y
}

// open takes generations for what is wanted and not open, and opens it.
func (h *Host) open(ctx context.Context, want map[Ref]*control.Log) error {
	var refs []control.ShardRef
	for ref := range want {
		if h.shards[ref] != nil || h.damaged[ref] != nil {
			continue
		}
		if r, waits := h.retry[ref]; waits && time.Now().Before(r.at) {
			continue
		}
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return nil
	}
	led, err := h.cfg.ControlPlane.Lead(ctx, h.cfg.Node, refs)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h.log.Warn("no generation could be taken: shards stay closed", "shards", len(refs), "error", err)
		for _, ref := range refs {
			h.later(ref, nil)
		}
		return nil
	}
	type opened struct {
		ref   Ref
		shard *Shard
		err   error
	}
	results := make(chan opened, len(led))
	var g errgroup.Group
	g.SetLimit(openParallel)
	for _, a := range led {
		ref := Ref{Log: a.Log, Shard: a.Shard}
		g.Go(func() error {
			s, err := h.openShard(ref, want[ref], a.Generation, h.retry[ref].cut)
			results <- opened{ref, s, err}
			return nil
		})
	}
	_ = g.Wait() // openings report through results
	close(results)
	for o := range results {
		h.opened(o.ref, want[o.ref], o.shard, o.err)
	}
	return nil
}

// later plans another opening.
func (h *Host) later(ref Ref, cut *uint64) {
	r := h.retry[ref]
	r.backoff = min(max(r.backoff*2, firstBackoff), maxBackoff)
	r.at = time.Now().Add(r.backoff)
	if cut != nil {
		r.cut = cut
	}
	h.retry[ref] = r
}

func (h *Host) opened(ref Ref, l *control.Log, s *Shard, err error) {
	var corrupt *storage.CorruptError
	switch {
	case err == nil:
		delete(h.retry, ref)
		h.shards[ref] = s
		c := *l
		h.configs[ref] = &c
		h.running.Go(func() { h.drive(s) })
	case errors.As(err, &corrupt), errors.Is(err, storage.ErrNewerFormat), errors.Is(err, storage.ErrForeign), errors.Is(err, batch.ErrUnknownEntry):
		h.damaged[ref] = err
		h.metrics.quarantined.Inc()
		h.log.Error("the shard's data is damaged: it stays closed and untouched", "log", l.FullName(), "shard", ref.Shard, "error", err)
	default:
		h.log.Error("open shard", "log", l.FullName(), "shard", ref.Shard, "error", err)
		h.later(ref, nil)
		if errors.Is(err, errNoRoom) {
			r := h.retry[ref]
			r.noRoom = err.Error()
			h.retry[ref] = r
		}
	}
}

// drive runs a shard and reports one that has closed itself.
func (h *Host) drive(s *Shard) {
	s.run()
	if s.failure == nil {
		return
	}
	h.failed <- s
}

func (h *Host) closeShard(s *Shard, why *code.Error) {
	s.close(why)
	for {
		select {
		case <-s.stopped:
			if h.shards[s.Ref] == s {
				delete(h.shards, s.Ref)
				delete(h.configs, s.Ref)
			}
			return
		case f := <-h.failed: // it may be this very one, which waits for us
			h.reap(f)
		}
	}
}

func (h *Host) closeAll() {
	why := code.New(code.ShuttingDown, "the node is shutting down").Retry(time.Second)
	for _, s := range h.shards {
		s.close(why)
	}
	// The map stays: what it names is closing and says so. Without it every request would be told that
	// there is no such log, which a client must take for final.
	done := make(chan struct{})
	go func() { h.running.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		case <-h.failed:
		}
	}
}

// remove deletes what is on disk of the logs that the catalog calls deleted (S11: never on inference).
func (h *Host) remove(ctx context.Context, ids []batch.LogID) {
	var removed []batch.LogID
	for _, id := range ids {
		if err := h.cfg.Dir.RemoveLog(id); err != nil {
			h.log.Error("remove the data of a deleted log", "log", id, "error", err)
			continue
		}
		removed = append(removed, id)
		for ref := range h.damaged {
			if ref.Log == id {
				delete(h.damaged, ref)
			}
		}
	}
	if len(removed) == 0 {
		return
	}
	if err := h.cfg.ControlPlane.Forget(ctx, removed...); err != nil && ctx.Err() == nil {
		h.log.Warn("the catalog was not told that deleted logs are gone; it will be", "error", err)
	}
}
