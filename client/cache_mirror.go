// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"margay.dev/wire/code"
)

// Mirror is a copy of a cache, or of a part of it, in this process's memory: it is as it was at the beginning and follows
// every change. Reads cost no way to a broker and work while there is none, with what was known then.
type Mirror struct {
	w      *Watch
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.RWMutex
	tree *btree.Map[string, Entry]
	// next is the copy that a snapshot fills; nil when none is under way.
	next *btree.Map[string, Entry]
	// applied says of each of the watch's shards which changes the copy has: all below.
	applied []uint64
	// moved is closed when applied moves; nil when nobody waits.
	moved chan struct{}
	err   *Error
}

// Mirror makes a copy of the keys of a selector, of all without one, and returns once it is complete. ctx bounds that only;
// the copy follows until Close, or until an error ends it. It takes the options of a Watch that do not say where to start.
//
//	flags, err := c.Cache("flags").Mirror(ctx, client.Prefix("checkout/"))
//	defer flags.Close()
//	if e, ok := flags.Get("checkout/new"); ok && string(e.Value) == "on" { ... }
func (k *Cache) Mirror(ctx context.Context, opts ...WatchOption) (*Mirror, error) {
	var cfg watchConfig
	for _, o := range opts {
		o.applyWatch(&cfg)
	}
	if cfg.starts > 0 {
		return nil, code.New(code.BadRequest, "mirror %s: it begins with what there is: give no option that says where to start", k.name)
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	w, err := k.Watch(ctx, append([]WatchOption{WithSnapshot(), Conflate()}, opts...)...)
	if err != nil {
		return nil, err
	}
	m := &Mirror{
		w: w, done: make(chan struct{}), tree: &btree.Map[string, Entry]{}, next: &btree.Map[string, Entry]{},
		applied: make([]uint64, len(w.shards)),
	}
	if err := m.fill(ctx); err != nil {
		w.Close()
		return nil, err
	}
	run, stop := context.WithCancel(k.c.ctx)
	m.cancel = stop
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if k.c.closed {
		stop()
		close(m.done) // and the client has closed the watch's lane
		return nil, errClosed("the client")
	}
	k.c.mirrors.Go(func() { m.run(run) })
	return m, nil
}

// fill follows the watch to the end of the first snapshot.
func (m *Mirror) fill(ctx context.Context) *Error {
	for {
		var ch Change
		if err := m.w.next(ctx, &ch, nil); err != nil {
			return err
		}
		if m.apply(&ch); ch.Kind == SnapshotComplete {
			return nil
		}
	}
}

func (m *Mirror) run(ctx context.Context) {
	defer close(m.done)
	for {
		var ch Change
		err := m.w.next(ctx, &ch, m.caughtUp)
		if err == nil {
			m.apply(&ch)
			continue
		}
		if ctx.Err() != nil {
			err = errClosed("the mirror")
		}
		m.mu.Lock()
		m.err = err
		m.wake()
		m.mu.Unlock()
		return
	}
}

func (m *Mirror) apply(ch *Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tree := m.tree
	if m.next != nil {
		tree = m.next
	}
	e := &ch.Entry
	switch ch.Kind {
	case Put:
		if m.next != nil { // it is of a page, which it must not keep in memory
			e.own()
		}
		tree.Set(e.Key, *e)
	case Deleted, Expired:
		tree.Delete(e.Key)
	case SnapshotComplete:
		m.tree, m.next = m.next, nil
	case Reset: // until the snapshot is complete, what was known is better than a part
		m.next = &btree.Map[string, Entry]{}
		clear(m.applied)
	}
}

// caughtUp takes note, when there is nothing to apply, of what was.
func (m *Mirror) caughtUp() {
	applied := make([]uint64, len(m.applied))
	m.w.passed(applied)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.next == nil {
		m.applied = applied
		m.wake()
	}
}

// wake is called with mu held.
func (m *Mirror) wake() {
	if m.moved != nil {
		close(m.moved)
		m.moved = nil
	}
}

// Get returns the value of a key. One whose time to live has ended by this process's clock is not there.
func (m *Mirror) Get(key string) (Entry, bool) {
	m.mu.RLock()
	e, ok := m.tree.Get(key)
	m.mu.RUnlock()
	if !ok || e.over(time.Now()) {
		return Entry{}, false
	}
	return e, true
}

// Range iterates over the keys that begin with prefix, in the order of their bytes, as they are when it begins.
func (m *Mirror) Range(prefix string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		m.mu.Lock()
		now := m.tree.Copy() // shares its nodes until they change
		m.mu.Unlock()
		at := time.Now()
		now.Ascend(prefix, func(key string, e Entry) bool {
			if !strings.HasPrefix(key, prefix) {
				return false
			}
			return e.over(at) || yield(e)
		})
	}
}

// Len is how many keys the copy has. One whose time has ended counts until the cache says so.
func (m *Mirror) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.tree.Len()
}

// WaitFor waits until the copy has a version of a key, as Put, Delete and Add return it, or a newer one: then one reads here
// what one has written.
//
//	version, err := k.Put(ctx, "checkout/new", []byte("on"))
//	err = flags.WaitFor(ctx, "checkout/new", version)
func (m *Mirror) WaitFor(ctx context.Context, key string, version uint64) error {
	if !m.w.cfg.filter.Matches([]byte(key)) {
		return code.New(code.BadRequest, "mirror %s: key %.200q is none of its keys", m.w.k.name, key)
	}
	slot, _ := m.w.slot(m.w.r.shardOf(key))
	for {
		m.mu.Lock()
		e, _ := m.tree.Get(key)
		if e.Version >= version || m.applied[slot] >= version {
			m.mu.Unlock()
			return nil
		}
		if m.err != nil {
			m.mu.Unlock()
			return m.err
		}
		if m.moved == nil {
			m.moved = make(chan struct{})
		}
		moved := m.moved
		m.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ended(ctx, Refused, "mirror %s: it has not come to version %d of key %.200q", m.w.k.name, version, key)
		}
	}
}

// Err is nil while the mirror follows its cache, and then what ended that; what it has can still be read. A lost connection
// ends nothing: OnStatus hears of it.
func (m *Mirror) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return orNil(m.err)
}

// Close ends the following, and waits for the mirror's goroutine.
func (m *Mirror) Close() {
	m.cancel()
	<-m.done
	m.w.Close()
}

// own gives the entry bytes that nobody else has.
func (e *Entry) own() {
	e.Value = append([]byte{}, e.Value...)
	for i := range e.Headers {
		e.Headers[i].Value = bytes.Clone(e.Headers[i].Value)
	}
}

func (e *Entry) over(now time.Time) bool { return !e.Expires.IsZero() && !now.Before(e.Expires) }
