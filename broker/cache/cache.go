// SPDX-License-Identifier: Apache-2.0

// Package cache serves the newest records of a shard's keys: it looks them up in the shard's key index, reads their values
// from the log, and feeds watches what changes; it keeps nothing of its own and refuses to answer what has expired.
package cache

import (
	"context"
	"time"

	"margay.dev/broker/host"
	"margay.dev/storage/keyindex"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// Bounds of one answer and of what making it holds up.
const (
	maxAnswer = 4032 << 10 // bytes of the entries of a frame, which stays below 4 MiB; one entry may be larger
	pageKeys  = 512        // keys looked at under the index's lock, at most
	maxMoved  = 8          // times that a record which reclaim moved is looked up again

	// MaxWait bounds how long a Get waits for an offset.
	MaxWait = 30 * time.Second
)

// Shard is what is read of a shard. *host.Shard is one.
type Shard interface {
	values
	Keys(ctx context.Context) (*keyindex.Index, *code.Error)
	KeepsNewest() bool
}

var _ Shard = (*host.Shard)(nil)

// absent says whether what the index has of a key is to be taken for nothing: it has expired, whatever the sweep has
// reached, or retention took it.
type absent struct {
	now      int64
	sequence uint64
	offset   uint64
}

func absentOf(s values) absent {
	v := s.View()
	return absent{now: s.Now(), sequence: v.Start.Sequence, offset: v.Start.Offset}
}

func (a *absent) is(e *keyindex.Entry) bool {
	return e.Until != 0 && e.Until <= a.now || e.Sequence < a.sequence || !e.Carried && e.Offset < a.offset
}

// reading is a view of a shard's keys at one moment. What it says is true of AsOf or of later.
type reading struct {
	shard  Shard
	keys   *keyindex.Index
	absent absent
	asOf   uint64
	gen    uint64
}

// read begins a reading. The position is asked for before anything is looked up: the index moves on meanwhile.
func read(ctx context.Context, s Shard) (reading, error) {
	keys, refused := s.Keys(ctx)
	if refused != nil {
		return reading{}, refused
	}
	_, asOf := keys.AsOf()
	return reading{shard: s, keys: keys, absent: absentOf(s), asOf: asOf, gen: s.View().Generation}, nil
}

// lookup is the entry of a key that has a value.
func (r *reading) lookup(key []byte) (keyindex.Entry, bool) {
	e, ok := r.keys.Get(key)
	return e, ok && !r.absent.is(&e)
}

// Count counts the keys that a filter lets through.
func Count(ctx context.Context, s Shard, f *wire.Count) (*wire.Counted, error) {
	r, err := read(ctx, s)
	if err != nil {
		return nil, err
	}
	out := &wire.Counted{Shard: f.Shard, Generation: r.gen, AsOf: r.asOf}
	if f.Filter.Kind == wire.FilterAll && (s.KeepsNewest() || r.absent.sequence == 0) { // retention has taken none
		if due := r.keys.NextDue(); due == 0 || due > r.absent.now {
			out.Count = uint64(r.keys.Len())
			return out, nil
		}
	}
	w := walkOf(f.Filter)
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		more = w.page(&r, pageKeys, func(string, keyindex.Entry) { out.Count++ })
	}
	return out, nil
}
