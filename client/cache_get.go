// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// Get returns the value of a key, or ErrNotFound.
func (k *Cache) Get(ctx context.Context, key string, opts ...GetOption) (Entry, error) {
	var o getOptions
	for _, opt := range opts {
		opt.applyGet(&o)
	}
	if err := checkKey(k.name, key); err != nil {
		return Entry{}, err
	}
	wait := backoff.Backoff{Rand: k.c.rng, Base: retryBase, Cap: retryCap}
	for try := 0; ; try++ {
		e, err := k.get(ctx, key, &o)
		if err == nil {
			return e, nil
		}
		if err.Code == code.Deleted && try == 0 {
			continue // the name may stand for another log now
		}
		if !mayAsk(err) {
			return Entry{}, err
		}
		if !backoff.Pause(ctx, max(wait.Next(), err.RetryAfter)) {
			return Entry{}, err.WithClass(Refused) // a question changes nothing
		}
	}
}

// mayAsk reports whether a question is to be asked again after an error.
func mayAsk(err *Error) bool {
	return err.Class != Fatal && err.Code != code.Timeout && err.Code != code.Cancelled
}

func (k *Cache) get(ctx context.Context, key string, o *getOptions) (Entry, *Error) {
	r, err := k.resolve(ctx)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	var found bool
	if o.atLeast > 0 {
		e, found, err = k.getAlone(ctx, r, key, o)
	} else {
		e, found, err = k.reads.of(k, r).getter(r.shardOf(key), o.stale).get(ctx, key)
	}
	switch {
	case err != nil:
		k.gone(r, err)
		return Entry{}, err
	case !found:
		return Entry{}, code.New(code.NotFound, "cache %s has no key %.200q", k.name, key)
	}
	return e, nil
}

// gone forgets a route whose log is gone: the next operation asks what the name stands for now.
func (k *Cache) gone(r *route, err *Error) {
	if err.Code == code.Deleted || err.Code == code.NotFound {
		k.pub.drop(r)
	}
}

// getAlone asks in a frame of its own: one that may have to wait must not hold up others.
func (k *Cache) getAlone(ctx context.Context, r *route, key string, o *getOptions) (e Entry, found bool, err *Error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	var got wire.Got
	ask := &wire.Get{
		Log: r.info.Log, Shard: r.shardOf(key), Stale: o.stale, AtLeast: o.atLeast, TimeoutMs: answerWait(time.Until(deadline)),
		Keys: [][]byte{[]byte(key)},
	}
	if err := k.c.caller.call(ctx, ask, &got); err != nil {
		return e, false, err
	}
	return e, got.Entries[0].Kind == wire.EntryValue, e.fill(key, &got.Entries[0])
}

// GetMany returns the values of those of the keys that are there. Keys of one shard are read together, but keys may change
// between them.
func (k *Cache) GetMany(ctx context.Context, keys ...string) (map[string]Entry, error) {
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	r, err := k.resolve(ctx)
	if err != nil {
		return nil, err
	}
	byShard := map[uint32][]string{}
	for _, key := range keys {
		if err := checkKey(k.name, key); err != nil {
			return nil, err
		}
		s := r.shardOf(key)
		byShard[s] = append(byShard[s], key)
	}
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		found = make(map[string]Entry, len(keys))
		first *Error
	)
	for s, keys := range byShard {
		wg.Go(func() {
			err := k.getFrom(ctx, r, s, keys, func(key string, w *wire.Entry) *Error {
				var e Entry
				err := e.fill(key, w)
				mu.Lock()
				defer mu.Unlock()
				found[key] = e
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			if first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	if first != nil {
		k.gone(r, first)
		return nil, first
	}
	return found, nil
}

// getFrom asks a shard for keys, in as many frames as it takes.
func (k *Cache) getFrom(ctx context.Context, r *route, shard uint32, keys []string, each func(key string, w *wire.Entry) *Error) *Error {
	for len(keys) > 0 {
		ask := &wire.Get{Log: r.info.Log, Shard: shard}
		for i, size := 0, 0; i < min(len(keys), wire.MaxGetKeys) && size < getBytes; i++ {
			ask.Keys = append(ask.Keys, []byte(keys[i]))
			size += len(keys[i])
		}
		var got wire.Got
		if err := k.c.caller.call(ctx, ask, &got); err != nil {
			return err
		}
		if err := checkGot(ask.Keys, &got); err != nil {
			return err
		}
		for i := range got.Entries {
			if w := &got.Entries[i]; w.Kind == wire.EntryValue {
				if err := each(keys[i], w); err != nil {
					return err
				}
			}
		}
		keys = keys[len(got.Entries):]
	}
	return nil
}

// checkGot: the answer is about what was asked.
func checkGot(keys [][]byte, got *wire.Got) *Error {
	if len(got.Entries) > len(keys) {
		return code.New(code.Protocol, "get of %d keys is answered with %d", len(keys), len(got.Entries))
	}
	for i := range got.Entries {
		if e := &got.Entries[i]; e.Kind == wire.EntryValue && !bytes.Equal(e.Key, keys[i]) {
			return code.New(code.Protocol, "get of key %.100q is answered with %.100q", keys[i], e.Key)
		}
	}
	return nil
}

// readsOf makes getters for a route, once.
type readsOf struct {
	current atomic.Pointer[reads]
	mu      sync.Mutex
}

// reads has a getter for each shard, and another for stale reads.
type reads struct {
	r       *route
	getters []getter
}

func (ro *readsOf) of(k *Cache, r *route) *reads {
	if have := ro.current.Load(); have != nil && have.r == r {
		return have
	}
	ro.mu.Lock()
	defer ro.mu.Unlock()
	if have := ro.current.Load(); have != nil && have.r == r {
		return have
	}
	rs := &reads{r: r, getters: make([]getter, 2*len(r.lanes))}
	for i := range rs.getters {
		rs.getters[i] = getter{c: k.c, r: r, shard: uint32(i / 2), stale: i%2 == 1}
	}
	ro.current.Store(rs)
	return rs
}

func (rs *reads) getter(shard uint32, stale bool) *getter {
	i := 2 * shard
	if stale {
		i++
	}
	return &rs.getters[i]
}
