// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"time"

	"margay.dev/broker/host"
	"margay.dev/storage/keyindex"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// Getter answers Gets, one after the other, and reuses what it has allocated: an answer stands until the next.
type Getter struct {
	values reader
	got    wire.Got
}

// Get answers with the values of the first of the keys, as many as an answer holds. It does not wait for AtLeast: see Await.
func (g *Getter) Get(ctx context.Context, s Shard, f *wire.Get) (*wire.Got, error) {
	r, err := read(ctx, s)
	if err != nil {
		return nil, err
	}
	x := &g.values
	x.reset()
	for _, key := range f.Keys {
		if at, ok := r.lookup(key); ok {
			x.add(key, &at)
		} else {
			x.add(key, nil)
		}
	}
	complete, err := x.fill(&r, maxAnswer, true, func(key []byte) error {
		return code.New(code.CorruptBatch, "the value of %.100q cannot be unpacked: its producer compressed it wrongly", key)
	})
	if err != nil {
		return nil, err
	}
	g.got = wire.Got{Shard: f.Shard, Generation: r.gen, AsOf: r.asOf, Entries: x.entries[:complete]}
	return &g.got, nil
}

// Reached says whether everything below an offset is committed, so that a Get need not wait for it.
func Reached(s *host.Shard, atLeast uint64) bool { return s.View().Ceiling >= atLeast }

// Await waits until everything below the Get's AtLeast is committed, as long as the Get allows and not longer than MaxWait.
func Await(ctx context.Context, s *host.Shard, f *wire.Get) error {
	wait := MaxWait
	if f.TimeoutMs > 0 {
		wait = min(wait, time.Duration(f.TimeoutMs)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, code.New(code.Timeout, "the shard has not come to offset %d within %v", f.AtLeast, wait))
	defer cancel()
	return s.Hub().Await(ctx, f.AtLeast)
}

// List answers with the next keys that a filter lets through, as many as the request and an answer hold.
func List(ctx context.Context, s Shard, f *wire.List) (*wire.Listed, error) {
	r, err := read(ctx, s)
	if err != nil {
		return nil, err
	}
	out := &wire.Listed{Shard: f.Shard, Generation: r.gen, AsOf: r.asOf, More: true}
	w := walkOf(f.Filter)
	w.after, w.hasAfter = f.After, f.HasAfter
	l := lister{r: &r, walk: w, keysOnly: f.KeysOnly, left: maxAnswer}
	for full := false; out.More && !full && len(out.Entries) < int(f.Limit); {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var got []wire.Entry
		got, full, out.More, err = l.next(min(pageKeys, int(f.Limit)-len(out.Entries)), len(out.Entries) == 0)
		if err != nil {
			return nil, err
		}
		out.Entries = append(out.Entries, got...)
	}
	if out.More {
		out.Next = w.after
	}
	return out, nil
}

// lister takes pages of entries out of a reading.
type lister struct {
	r        *reading
	walk     *walk
	keysOnly bool
	left     int // bytes that the answer still has room for
	values   reader
	keys     []string
}

// next is the next page, of what so many keys came to; with first, one entry at least. Full says that it is the last that
// the answer has room for, more that there may be further keys. Its entries are not overwritten.
func (l *lister) next(looked int, first bool) (page []wire.Entry, full, more bool, err error) {
	x := &l.values
	*x = reader{buf: x.buf, want: x.want[:0]}
	l.keys = l.keys[:0]
	behind, had := l.walk.after, l.walk.hasAfter
	more = l.walk.page(l.r, looked, func(key string, e keyindex.Entry) {
		l.keys = append(l.keys, key)
		if !l.keysOnly {
			x.add([]byte(key), &e)
			return
		}
		x.entries = append(x.entries, wire.Entry{Kind: wire.EntryKey, Key: []byte(key), Offset: e.Offset, Expires: e.Until})
	})
	complete, err := x.fill(l.r, l.left, first, func([]byte) error { return nil }) // it must not stand in the way of the others
	if err != nil {
		return nil, false, false, err
	}
	if l.keysOnly {
		complete = x.fit(l.left, first)
	}
	if complete < len(x.entries) {
		if complete > 0 {
			behind = l.keys[complete-1]
		}
		l.walk.after, l.walk.hasAfter, full, more = behind, had || complete > 0, true, true
	}
	l.left -= x.bytes
	page = x.entries[:0]
	for i := range x.entries[:complete] {
		if x.entries[i].Kind != wire.EntryNone { // it is gone meanwhile, or cannot be read
			page = append(page, x.entries[i])
		}
	}
	return page, full, more, nil
}

// fit is how many of the first entries there is room for.
func (x *reader) fit(limit int, first bool) int {
	for i := range x.entries {
		n := x.entries[i].Size()
		if x.bytes+n > limit && (i > 0 || !first) {
			return i
		}
		x.bytes += n
	}
	return len(x.entries)
}
