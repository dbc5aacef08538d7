// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"sync"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/fold"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// ChangeKind says what a Change tells.
type ChangeKind uint8

// The kinds of change.
const (
	// Put: the key has a new value.
	Put = ChangeKind(fold.Put)
	// Deleted: the key was deleted.
	Deleted = ChangeKind(fold.Deleted)
	// Expired: the time to live of the key's value ended.
	Expired = ChangeKind(fold.Expired)
	// SnapshotComplete: all values there were have been told; what follows are changes. It is about no key.
	SnapshotComplete ChangeKind = 4
	// Reset: the place where the watch stood is gone, as after a long absence, so changes are missing. Forget all keys: a
	// snapshot follows, and SnapshotComplete. It is about no key.
	Reset ChangeKind = 5
)

// String returns the word for the kind.
func (k ChangeKind) String() string {
	switch k {
	case Put:
		return "put"
	case Deleted:
		return "deleted"
	case Expired:
		return "expired"
	case SnapshotComplete:
		return "snapshot complete"
	case Reset:
		return "reset"
	}
	return "unknown"
}

// Change is what a watch tells.
type Change struct {
	Kind ChangeKind
	// Entry is the value of a Put. Of Deleted and Expired it has the key, and the version and time of the change.
	Entry Entry
	// Skipped counts the changes of the key before this one that were left out; 0 without Conflate.
	Skipped int
}

// Watch tells what becomes of keys: for each key every change in its order, none twice, over lost connections and restarts of
// brokers.
type Watch struct {
	k      *Cache
	r      *route
	lane   *watchLane
	cfg    watchConfig
	shards []uint32 // by slot
	// ready says that there may be something for the reader, turn that nobody else reads.
	ready, turn chan struct{}

	// The lane's, under its mu.
	ids     []uint64 // by slot: of the watch at the broker; 0 for none
	touched bool
	asking  bool

	// lane.mu comes first.
	mu      sync.Mutex
	fold    *fold.Watch
	reset   bool // Reset is to be told
	listing bool // a snapshot is to be told, by list once that is there
	list    *lister
	closed  bool
	err     *Error // the end
	trouble *Error // why it has no answer yet
	// crowded: the lane waits a moment for the reader. slow: it did so in vain, and does not again before he has caught up.
	crowded, slow bool
}

// Watch watches the keys of a selector, all without one, by default from now on: what is written once it has returned is told.
// ctx bounds the set-up only; the watch lives until Close, or until an error ends it.
//
//	w, err := flags.Watch(ctx, client.Prefix("user/"), client.WithSnapshot())
//	defer w.Close()
//	for ch, err := range w.Changes(ctx) {
//		if err != nil { return err }
//		switch ch.Kind {
//		case client.Put:
//			cache[ch.Entry.Key] = ch.Entry.Value
//		case client.Deleted, client.Expired:
//			delete(cache, ch.Entry.Key)
//		case client.Reset:
//			clear(cache)
//		}
//	}
//
// All watches of a cache come over one connection, on which each change comes once. A Mirror keeps such a copy by itself.
func (k *Cache) Watch(ctx context.Context, opts ...WatchOption) (*Watch, error) {
	cfg := watchConfig{buffer: DefaultWatchBuffer}
	for _, o := range opts {
		o.applyWatch(&cfg)
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	r, err := k.resolve(ctx)
	if err != nil {
		return nil, err
	}
	w := &Watch{
		k: k, r: r, cfg: cfg, shards: r.shardsOf(&cfg.filter), ready: make(chan struct{}, 1), turn: make(chan struct{}, 1), listing: cfg.snapshot,
	}
	starts, err := cfg.check("watch "+k.name, r, w.shards)
	if err != nil {
		return nil, err
	}
	w.fold = fold.New(cfg.buffer, cfg.conflate, len(w.shards), starts)
	w.ids = make([]uint64, len(w.shards))
	if err := k.c.joinWatchLane(w); err != nil {
		return nil, err
	}
	if err := w.begun(ctx); err != nil {
		w.Close()
		k.gone(r, err)
		return nil, err
	}
	return w, nil
}

// begun waits until every shard is watched.
func (w *Watch) begun(ctx context.Context) *Error {
	for {
		w.mu.Lock()
		err, trouble, waits := w.err, w.trouble, false
		for i := range w.shards {
			s := w.fold.State(i)
			waits = waits || s == fold.Idle || s == fold.Asked
		}
		w.mu.Unlock()
		switch {
		case err != nil || !waits:
			return err
		case ctx.Err() != nil && trouble != nil:
			return code.New(trouble.Code, "watch %s: %s (gave up: %w)", w.k.name, trouble.Message, ctx.Err()).WithClass(Refused)
		case ctx.Err() != nil:
			return ended(ctx, Refused, "watch %s", w.k.name)
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
	}
}

// Changes iterates over what the watch tells. An error is the last element: ctx's end, or what ended the watch. After ctx's
// end, or a break, iterate again to go on with the very next change.
func (w *Watch) Changes(ctx context.Context) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for {
			var ch Change
			if err := w.next(ctx, &ch, nil); err != nil {
				yield(Change{}, err)
				return
			}
			if !yield(ch, nil) {
				return
			}
		}
	}
}

// next waits for the next change. Before it waits it calls idle, if that is not nil: all that there was is taken.
func (w *Watch) next(ctx context.Context, ch *Change, idle func()) *Error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
	}
	wait := backoff.Backoff{Rand: w.k.c.rng, Base: retryBase, Cap: retryCap}
	for {
		if ctx.Err() != nil {
			return ended(ctx, Refused, "watch %s", w.k.name)
		}
		told, list, err := w.pull(ch)
		if told || err != nil {
			return err
		}
		if list != nil {
			told, err := w.tellEntry(ctx, list, ch)
			switch {
			case err != nil && mayAsk(err):
				backoff.Pause(ctx, max(wait.Next(), err.RetryAfter))
			case told || err != nil:
				return err
			}
			continue
		}
		if idle != nil {
			idle()
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
	}
}

// pull takes what is there, or says what is to be listed.
func (w *Watch) pull(ch *Change) (told bool, list *lister, err *Error) {
	w.mu.Lock()
	switch {
	case w.closed:
		w.mu.Unlock()
		return false, nil, errClosed("the watch")
	case w.reset:
		w.reset = false
		w.mu.Unlock()
		*ch = Change{Kind: Reset}
		return true, nil, nil
	case w.listing:
		defer w.mu.Unlock()
		if w.err != nil {
			return false, nil, w.err
		}
		if w.list == nil && w.fold.Placed() {
			w.list = newLister(w.k, w.r, &listOptions{selection: w.cfg.selection}, w.shards)
			w.list.onPage = w.page
		}
		return false, w.list, nil
	}
	c, _, skipped, ok := w.fold.Take()
	err = w.err
	w.ease(false)
	behind := w.fold.CanCatchUp()
	w.mu.Unlock()
	if behind {
		w.lane.catchUp(w)
	}
	if !ok {
		return false, nil, err
	}
	*ch = Change{Kind: ChangeKind(c.Kind), Skipped: skipped}
	return true, nil, ch.Entry.fill(c.Key, &wire.Entry{
		Kind: wire.EntryKind(c.Kind), Offset: c.Offset, Generation: c.Generation, AppendTime: c.AppendTime, Expires: c.Expires,
		Value: c.Value, Headers: c.Headers,
	})
}

// tellEntry tells the next entry of the snapshot, or its end.
func (w *Watch) tellEntry(ctx context.Context, list *lister, ch *Change) (told bool, err *Error) {
	e, ok, err := list.next(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.list != list: // there was a reset
		return false, nil
	case err != nil:
		return false, err
	case ok:
		*ch = Change{Kind: Put, Entry: e}
	default:
		w.listing, w.list = false, nil
		*ch = Change{Kind: SnapshotComplete}
	}
	return true, nil
}

// page lets the watch take note of a page before its entries are told. One that is older than the watch is of somebody who
// does not know better, and is asked for again.
func (w *Watch) page(list *lister, slot int, ok *wire.Listed) *Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list != list { // there was a reset
		return nil
	}
	if !w.fold.Listed(slot, ok.Next, !ok.More, ok.AsOf) {
		return code.New(code.Unavailable, "watch %s: the snapshot is older than the watch", w.k.name)
	}
	for i := range ok.Entries {
		if e := &ok.Entries[i]; e.Offset >= ok.AsOf {
			w.fold.Newer(slot, string(e.Key), e.Offset)
		}
	}
	return nil
}

// Position returns a token of where the reader stands, for FromPosition, in this process or another. It is empty before
// SnapshotComplete: what was told so far is no state to go on from. With Conflate a change may come again behind it.
func (w *Watch) Position() string {
	w.lane.mu.Lock()
	defer w.lane.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reset || w.listing || !w.fold.Placed() {
		return ""
	}
	p := position{log: w.r.info.Log, shards: make([]shardPosition, len(w.shards))}
	for i, s := range w.shards {
		at := w.fold.Position(i, w.lane.at[s])
		p.shards[i] = shardPosition{shard: s, next: at.Offset, generation: at.Generation}
	}
	return p.String()
}

// passed says up to which offset, exclusive, the reader has had all changes of each shard.
func (w *Watch) passed(into []uint64) {
	w.lane.mu.Lock()
	defer w.lane.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range w.shards {
		if !w.reset && !w.listing {
			into[i] = w.fold.Position(i, w.lane.at[s]).Offset
		}
	}
}

// Close ends the watch. What was not read is not lost: Position says where to go on.
func (w *Watch) Close() {
	w.mu.Lock()
	again := w.closed
	w.closed = true
	w.ease(true)
	w.mu.Unlock()
	if !again {
		poke(w.ready)
		w.k.c.leaveWatchLane(w)
	}
}

// slot is that of a shard; ok is false when the watch is not of it.
func (w *Watch) slot(shard uint32) (int, bool) {
	if w.cfg.filter.Kind == wire.FilterExact {
		return 0, w.shards[0] == shard
	}
	return int(shard), int(shard) < len(w.shards)
}

// fail ends the watch.
func (w *Watch) fail(err *Error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	poke(w.ready)
}
