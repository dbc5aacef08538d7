// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"sync"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

const (
	// listPage is how many entries a list asks for at a time, over all shards; each shard's page has at least minPage.
	listPage = 4096
	minPage  = 64
)

// List iterates over the keys of the selector, in the order of their bytes over all shards, with their values. An error is
// the last element. It reads ahead by a page of each shard, so the keys are not of one moment: one that changes meanwhile
// comes once, as it was when its page was read, or not at all if it was absent then.
//
//	for e, err := range sessions.List(ctx, client.Prefix("user/")) {
//		if err != nil { return err }
//		fmt.Println(e.Key, e.Expires)
//	}
//
// Entries of a page share memory: copy the value of one that is kept for long.
func (k *Cache) List(ctx context.Context, opts ...ListOption) iter.Seq2[Entry, error] {
	var o listOptions
	for _, opt := range opts {
		opt.applyList(&o)
	}
	return func(yield func(Entry, error) bool) {
		if err := o.check("list " + k.name); err != nil {
			yield(Entry{}, err)
			return
		}
		r, err := k.resolve(ctx)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		l := newLister(k, r, &o, r.shardsOf(&o.filter))
		for {
			e, ok, err := l.next(ctx)
			if err != nil {
				k.gone(r, err)
				yield(Entry{}, err)
				return
			}
			if !ok || !yield(e, nil) {
				return
			}
		}
	}
}

// Count says how many keys the selector has, at the moment when each shard is asked.
func (k *Cache) Count(ctx context.Context, selectors ...Selector) (uint64, error) {
	var o selection
	for _, s := range selectors {
		o.set(s.filter())
	}
	if err := o.check("count " + k.name); err != nil {
		return 0, err
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	r, err := k.resolve(ctx)
	if err != nil {
		return 0, err
	}
	shards := r.shardsOf(&o.filter)
	counts := make([]wire.Counted, len(shards))
	err = together(len(shards), func(i int) *Error {
		return k.c.caller.call(ctx, &wire.Count{Log: r.info.Log, Shard: shards[i], Filter: o.filter}, &counts[i])
	})
	if err != nil {
		k.gone(r, err)
		return 0, err
	}
	var sum uint64
	for i := range counts {
		sum += counts[i].Count
	}
	return sum, nil
}

// shardsOf are the shards where keys of the filter can be.
func (r *route) shardsOf(f *wire.Filter) []uint32 {
	if f.Kind == wire.FilterExact {
		return []uint32{r.shardOf(f.Value)}
	}
	all := make([]uint32, len(r.lanes))
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// together calls f for each of n at once and returns the first error by number.
func together(n int, f func(i int) *Error) *Error {
	if n == 1 {
		return f(0)
	}
	errs := make([]*Error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lister merges the pages of several shards in the order of keys.
type lister struct {
	k      *Cache
	r      *route
	o      listOptions
	pages  []page
	limit  uint32
	begun  bool
	onPage func(l *lister, slot int, ok *wire.Listed) *Error // may refuse a page
}

// page is where a list stands in one shard.
type page struct {
	slot    int // its number among the list's shards
	shard   uint32
	entries []wire.Entry // not given yet
	more    bool
	after   string
	has     bool // after means something
}

func newLister(k *Cache, r *route, o *listOptions, shards []uint32) *lister {
	l := &lister{k: k, r: r, o: *o, pages: make([]page, len(shards))}
	l.limit = uint32(max(listPage/len(shards), minPage))
	for i, s := range shards {
		l.pages[i] = page{slot: i, shard: s, more: true, has: o.after, after: o.afterKey}
	}
	return l
}

// next returns the next entry; ok is false at the end. After an error it may be called again.
func (l *lister) next(ctx context.Context) (e Entry, ok bool, err *Error) {
	if !l.begun {
		if err := together(len(l.pages), func(i int) *Error { return l.fetch(ctx, &l.pages[i]) }); err != nil {
			return e, false, err
		}
		l.begun = true
	}
	var first *page
	for i := range l.pages {
		p := &l.pages[i]
		for len(p.entries) == 0 && p.more {
			if err := l.fetch(ctx, p); err != nil {
				return e, false, err
			}
		}
		if len(p.entries) > 0 && (first == nil || string(p.entries[0].Key) < string(first.entries[0].Key)) {
			first = p
		}
	}
	if first == nil {
		return e, false, nil
	}
	w := &first.entries[0]
	first.entries = first.entries[1:]
	return e, true, e.fill(string(w.Key), w)
}

// fetch asks for the next page of a shard, unless there is one.
func (l *lister) fetch(ctx context.Context, p *page) *Error {
	if len(p.entries) > 0 || !p.more {
		return nil
	}
	ctx, cancel := withDefaultTimeout(ctx, DefaultRequestTimeout)
	defer cancel()
	var ok wire.Listed
	ask := &wire.List{
		Log: l.r.info.Log, Shard: p.shard, Stale: l.o.stale, KeysOnly: l.o.keysOnly, Filter: l.o.filter,
		HasAfter: p.has, After: p.after, Limit: l.limit,
	}
	if err := l.k.c.caller.call(ctx, ask, &ok); err != nil {
		return err
	}
	last, has := p.after, p.has
	for i := range ok.Entries {
		if key := ok.Entries[i].Key; has && string(key) <= last {
			return code.New(code.Protocol, "list: key %.100q comes behind %.100q", key, last)
		}
		last, has = string(ok.Entries[i].Key), true
	}
	if ok.More && (p.has && ok.Next <= p.after || has && ok.Next < last) {
		return code.New(code.Protocol, "list: the page behind %.100q goes on behind %.100q", last, ok.Next)
	}
	if l.onPage != nil {
		if err := l.onPage(l, p.slot, &ok); err != nil {
			return err
		}
	}
	p.entries, p.more = ok.Entries, ok.More
	p.after, p.has = ok.Next, ok.More
	return nil
}
