// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"margay.dev/storage"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// errNotGranted means that the control plane has given the shard to nobody, or to another.
var errNotGranted = errors.New("the control plane has not granted the shard to this node")

// openResult is how an opening went.
type openResult struct {
	ref   Ref
	log   *control.Log // the settings it was opened with
	shard *Shard
	err   error
}

// turn takes what happened: all of it that is there, so that a thousand openings are not a thousand maps.
// Nothing here waits for a disk: one shard that hangs in a flush must not hold up the catalog of the others.
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
	case s := <-h.ended:
		h.reap(s)
	case r := <-h.results:
		h.opened(r)
	case <-timer.C:
	}
	for {
		select {
		case s := <-h.ended:
			h.reap(s)
			continue
		case r := <-h.results:
			h.opened(r)
			continue
		default:
		}
		return h.apply(ctx)
	}
}

func (h *Host) untilRetry() time.Duration {
	d := time.Hour
	for ref, r := range h.retry {
		if !h.opening[ref] {
			d = min(d, max(r.at.Sub(h.cfg.Clock()), 0))
		}
	}
	return d
}

// apply makes what is open what the catalog says, and swaps the routing map.
func (h *Host) apply(ctx context.Context) error {
	want, gone := h.wanted()
	for ref, s := range h.shards {
		l, keep := want[ref]
		if h.closing[ref] || (keep && sameSettings(l, h.configs[ref])) {
			continue
		}
		why := code.New(code.Opening, "the log's settings changed: shard %d is being opened again", ref.Shard).Retry(50 * time.Millisecond)
		if !keep {
			why = code.New(code.Deleted, "the log was deleted")
		}
		h.closing[ref] = true
		s.close(why)
	}
	for ref := range h.retry {
		if want[ref] == nil {
			delete(h.retry, ref)
		}
	}
	h.remove(ctx, gone)
	if err := h.open(ctx, want); err != nil {
		return err
	}
	h.swap()
	h.setReport(want)
	if !h.ready && h.snapshot.Version > 0 && len(h.opening) == 0 {
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

// open takes generations for what is wanted and not open, and begins to open it.
func (h *Host) open(ctx context.Context, want map[Ref]*control.Log) error {
	var refs []control.ShardRef
	for ref := range want {
		if h.shards[ref] != nil || h.damaged[ref] != nil || h.opening[ref] {
			continue
		}
		if r, waits := h.retry[ref]; waits && h.cfg.Clock().Before(r.at) {
			continue
		}
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return nil
	}
	slices.SortFunc(refs, compareRefs) // so that the same shards get the same generations
	led, err := h.cfg.ControlPlane.Lead(ctx, h.cfg.Node, refs)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		h.log.Warn("no generation could be taken: shards stay closed", "shards", len(refs), "error", err)
		led = nil
	}
	granted := make(map[Ref]bool, len(led))
	for _, a := range led {
		ref := Ref{Log: a.Log, Shard: a.Shard}
		granted[ref], h.opening[ref] = true, true
		l, cut, kept := *want[ref], h.retry[ref].cut, h.kept[ref]
		delete(h.kept, ref)
		h.beside(&h.running, func() {
			h.slots <- struct{}{}
			began := h.cfg.Clock()
			s, err := h.openShard(ref, &l, a.Generation, cut, kept)
			h.metrics.openSeconds.Observe(h.cfg.Clock().Sub(began).Seconds())
			<-h.slots
			h.handResult(openResult{ref, &l, s, err})
		})
	}
	for _, ref := range refs {
		if !granted[ref] {
			h.later(ref, cmp.Or(err, errNotGranted))
		}
	}
	return nil
}

// later plans another opening.
func (h *Host) later(ref Ref, why error) {
	r := h.retry[ref]
	r.backoff = min(max(r.backoff*2, firstBackoff), maxBackoff)
	r.at, r.why, r.noRoom = h.cfg.Clock().Add(r.backoff), why.Error(), ""
	h.retry[ref] = r
}

// opened takes the result of an opening.
func (h *Host) opened(o openResult) {
	delete(h.opening, o.ref)
	var corrupt *storage.CorruptError
	switch {
	case o.err == nil:
		delete(h.retry, o.ref)
		h.shards[o.ref], h.configs[o.ref] = o.shard, o.log
		if h.stepped == nil {
			h.running.Go(func() {
				o.shard.run()
				h.ended <- o.shard
			})
		}
	case errors.As(o.err, &corrupt), errors.Is(o.err, storage.ErrNewerFormat), errors.Is(o.err, storage.ErrForeign), errors.Is(o.err, batch.ErrUnknownEntry):
		delete(h.retry, o.ref)
		h.damaged[o.ref] = o.err
		h.log.Error("the shard's data is damaged: it stays closed and untouched", "log", o.log.FullName(), "shard", o.ref.Shard, "error", o.err)
	default:
		h.log.Error("open shard", "log", o.log.FullName(), "shard", o.ref.Shard, "error", o.err)
		h.later(o.ref, o.err)
		if errors.Is(o.err, errNoRoom) {
			r := h.retry[o.ref]
			r.noRoom = o.err.Error()
			h.retry[o.ref] = r
		}
	}
}

// reap takes a shard whose goroutine has returned out of the map. One whose flush failed is opened again after
// a pause, cut to what is known flushed.
func (h *Host) reap(s *Shard) {
	delete(h.shards, s.Ref)
	delete(h.configs, s.Ref)
	delete(h.closing, s.Ref)
	l := s.log.Load()
	if l != nil && s.cfg.Memory {
		h.kept[s.Ref] = l.Log
	}
	if s.failure == nil {
		return
	}
	h.later(s.Ref, s.failure)
	if l != nil {
		r := h.retry[s.Ref]
		flushed := l.State().Flushed
		r.cut = &flushed
		h.retry[s.Ref] = r
	}
}

// closeAll closes every shard and waits for them.
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
		case <-h.ended:
		case o := <-h.results: // it was being opened: its log is closed in order too
			if o.shard != nil {
				o.shard.close(why)
				o.shard.run()
			}
		}
	}
}

// remove deletes what is on disk of the logs that the catalog calls deleted (S11: never on inference), once no
// shard of theirs holds it open.
func (h *Host) remove(ctx context.Context, ids []batch.LogID) {
	held := map[batch.LogID]bool{}
	for ref := range h.shards {
		held[ref.Log] = true
	}
	for ref := range h.opening {
		held[ref.Log] = true
	}
	var removed []batch.LogID
	for _, id := range ids {
		if held[id] {
			continue
		}
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
		for ref := range h.kept {
			if ref.Log == id {
				delete(h.kept, ref)
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
