// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"time"

	"margay.dev/router/hash"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// Cache reads and writes a log by key: each key has its newest value. What is acknowledged is as durable as the log says,
// and every read that is not Stale sees it. Use one for all goroutines; it needs no closing.
//
//	sessions := c.Cache("sessions")
//	version, err := sessions.Put(ctx, "user/1", token, client.TTL(30*time.Minute))
//	e, err := sessions.Get(ctx, "user/1")
//	if errors.Is(err, client.ErrNotFound) { ... }
//
// A version tells one value of a key from all others. It rises with every write, also over a deletion, and within a shard
// it tells which of two keys was written later: it is one above the offset of the record.
type Cache struct {
	c    *Client
	name string
	// pub carries the writes: in order for each key, each once, many on their way.
	pub   *Publisher
	reads readsOf
}

// Cache returns the cache of a name, the same each time. It does not connect: the first operation does.
func (c *Client) Cache(name string) *Cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.caches[name]
	if k == nil {
		k = &Cache{c: c, name: name, pub: c.newPublisher(name, cacheWrites{})}
		c.caches[name] = k
	}
	return k
}

// cacheWrites is how a cache publishes, whatever the client's defaults are: an answer below the mark would be undone by a
// failover that nobody tells of, and an increment that is sent again must count once.
type cacheWrites struct{}

func (cacheWrites) applyPublisher(p *publisherConfig) {
	p.ack, p.anonymous, p.batchBytes = AckDefault, false, cacheBatchBytes
}

// cacheBatchBytes is what a batch of a cache grows to. Whoever gets a key reads its batch: a large one would be read whole, and
// checked, for one value.
const cacheBatchBytes = 16 << 10

// Name is the cache's, as it was given.
func (k *Cache) Name() string { return k.name }

// Put gives a key a value and returns its version. nil is the empty value: only Delete deletes. Without TTL or NoTTL the
// value lives as long as the cache's setting says. When ctx ends while the write is under way, it returns at once with an
// error of class unknown, and the write goes on without its caller.
//
//	version, err := k.Put(ctx, "lock", me, client.IfAbsent(), client.TTL(10*time.Second))
//	if errors.Is(err, client.ErrConflict) { ... } // somebody else has it
func (k *Cache) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (version uint64, err error) {
	return k.versionOf(ctx, k.PutAsync(ctx, key, value, opts...))
}

// PutAsync is Put that returns at once, so that one goroutine has many writes on their way; they keep their order for each
// key. The future's Ack.Version is the value's. It waits only for room in the client's buffer, and the first time for the
// cache's lookup; ctx bounds that wait and nothing else. The bytes may be used again after it.
func (k *Cache) PutAsync(ctx context.Context, key string, value []byte, opts ...PutOption) Future {
	var o putOptions
	for _, opt := range opts {
		opt.applyPut(&o)
	}
	if value == nil {
		value = []byte{}
	}
	rec := Record{Key: []byte(key), Value: value, Headers: o.headers, options: o.recordOptions}
	return k.write(ctx, &rec, &o)
}

// Delete removes a key and returns the version of its deletion. A key that is not there is deleted all the same; to be
// told, use IfVersion.
func (k *Cache) Delete(ctx context.Context, key string, opts ...DeleteOption) (version uint64, err error) {
	return k.versionOf(ctx, k.deleteAsync(ctx, key, opts...))
}

func (k *Cache) deleteAsync(ctx context.Context, key string, opts ...DeleteOption) Future {
	o := putOptions{lives: livesForEver}
	for _, opt := range opts {
		opt.applyDelete(&o.recordOptions)
	}
	return k.write(ctx, &Record{Key: []byte(key), options: o.recordOptions}, &o)
}

// deleting bounds the deletions of DeletePrefix that are on their way.
const deleting = 4096

// DeletePrefix deletes every key that begins with prefix, all of them with an empty one, and returns how many it deleted.
// It is not one step: keys that are put meanwhile may stay or go. When it fails, what it counted is deleted.
func (k *Cache) DeletePrefix(ctx context.Context, prefix string) (count int, err error) {
	var underWay []Future
	wait := func(leave int) {
		for ; len(underWay) > leave; underWay = underWay[1:] {
			if _, e := underWay[0].Wait(ctx); e == nil {
				count++
			} else if err == nil {
				err = e
			}
		}
	}
	for e, listErr := range k.List(ctx, Prefix(prefix), KeysOnly()) {
		if listErr != nil {
			err = listErr
			break
		}
		underWay = append(underWay, k.deleteAsync(ctx, e.Key))
		if wait(deleting); err != nil {
			break
		}
	}
	wait(0)
	return count, err
}

// Flush waits until every write that was given to the cache has come to its end. It returns the first error among those
// that nobody has heard of.
func (k *Cache) Flush(ctx context.Context) error { return k.pub.Flush(ctx) }

// write checks what only caches ask of a record, and publishes it.
func (k *Cache) write(ctx context.Context, rec *Record, o *putOptions) Future {
	f, err := k.publish(ctx, rec, o)
	if err != nil {
		return Future{err: err}
	}
	return f
}

func (k *Cache) publish(ctx context.Context, rec *Record, o *putOptions) (Future, *Error) {
	if err := checkKey(k.name, string(rec.Key)); err != nil {
		return Future{}, err
	}
	r, err := k.pub.resolve(ctx)
	if err != nil {
		return Future{}, code.From(err)
	}
	if rec.TTL, err = o.timeToLive(r.info); err != nil {
		return Future{}, code.From(err)
	}
	f, err := k.pub.add(ctx, rec)
	if err != nil {
		return Future{}, code.From(err)
	}
	return f, nil
}

func (k *Cache) versionOf(ctx context.Context, f Future) (uint64, error) {
	ack, err := f.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return ack.Version(), nil
}

// checkKey: an empty key is more often a mistake than a key, and what it would be in a pattern is a riddle.
func checkKey(cache, key string) *Error {
	switch {
	case key == "":
		return code.New(code.BadRequest, "cache %s: the key is empty", cache)
	case len(key) > batch.MaxKey:
		return code.New(code.TooLarge, "cache %s: key of %d bytes, at most %d", cache, len(key), batch.MaxKey).
			With(code.DetailLimit, batch.MaxKey)
	}
	return nil
}

// resolve returns what the name stands for, if the broker knows caches.
func (k *Cache) resolve(ctx context.Context) (*route, *Error) {
	r, err := k.pub.resolve(ctx)
	if err == nil {
		err = k.c.lacks(wire.FeatureCaches, "cache "+k.name)
	}
	if err != nil {
		return nil, code.From(err)
	}
	return r, nil
}

// shardOf is the shard of a key, the same in every client.
func (r *route) shardOf(key string) uint32 { return hash.Shard([]byte(key), len(r.lanes)) }

// timeToLive is what the record is stored with.
func (o *putOptions) timeToLive(info *wire.LogInfo) (time.Duration, error) {
	switch {
	case o.lives == livesGiven:
		return o.ttl, orNil(checkTTL(o.ttl))
	case o.lives == livesDefault && info.DefaultTTL > 0:
		return time.Duration(min(info.DefaultTTL, uint64(batch.MaxSchedule/time.Microsecond))) * time.Microsecond, nil
	}
	return 0, nil
}

// checkTTL refuses what would not mean what it says. A part of a microsecond is rounded up by the batch, so that no time to
// live becomes none.
func checkTTL(d time.Duration) *Error {
	switch {
	case d == 0:
		return code.New(code.BadRequest, "a time to live of 0: NoTTL keeps a value for ever, Delete removes it")
	case d < 0:
		return code.New(code.BadRequest, "a time to live of %v is negative", d)
	case d > batch.MaxSchedule:
		return code.New(code.BadRequest, "a time to live of %v, at most %v: NoTTL keeps a value for ever", d, batch.MaxSchedule)
	}
	return nil
}
