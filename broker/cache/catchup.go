// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"errors"
	"sync"
	"time"

	"margay.dev/broker/fanout"
	"margay.dev/broker/host"
	"margay.dev/storage"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	turnBytes = 64 << 10  // of what watches begin with that one turn takes, about
	turnUnits = 256       // watches that one turn serves, at most
	readChunk = 256 << 10 // of the log that history reads at once
	heldBytes = 256 << 10 // of entries that history holds before it sends them, about
	// maxEntries is how large a frame of entries becomes; one entry may be larger.
	maxEntries = 1 << 20
)

// catchUp is something that watches begin with. A turn does some of it: what is live comes in between.
type catchUp interface {
	turn(ctx context.Context, f *feed) (bytes int, done bool, err error)
}

// catchUp takes turns, and says whether there is more to do at once. An error means that the lane is broken.
func (f *feed) catchUp(ctx context.Context) (more bool, err error) {
	if len(f.catching) == 0 || time.Now().Before(f.idleUntil) {
		return false, nil
	}
	for sent, units := 0, 0; sent < turnBytes && units < turnUnits && len(f.catching) > 0; units++ {
		c := f.catching[0]
		n, done, err := c.turn(ctx, f)
		if notYet, ok := errors.AsType[*notYetError](err); ok {
			f.idleUntil = time.Now().Add(max(notYet.why.RetryAfter, time.Millisecond))
			return false, nil
		}
		if err != nil {
			return false, err
		}
		sent += n
		f.catching[0] = nil
		f.catching = f.catching[1:]
		if !done {
			f.catching = append(f.catching, c)
		}
	}
	return true, nil
}

// notYetError puts off what a watch begins with.
type notYetError struct{ why *code.Error }

func (e *notYetError) Error() string { return "not yet: " + e.why.Error() }

// snapshot gives one watch what there is.
type snapshot struct {
	watch *watch
	walk  *walk
}

func (f *feed) beginSnapshot(x *watch) {
	x.catching = true
	f.catching = append(f.catching, &snapshot{x, walkOf(x.filter)})
	f.w.stats.Snapshots.Add(1)
	if x.how == wire.HowReset {
		f.w.stats.Resets.Add(1)
	}
}

func (s *snapshot) turn(ctx context.Context, f *feed) (n int, done bool, err error) {
	if s.watch.over {
		return 0, true, nil
	}
	r, err := read(ctx, f.shard)
	if why := code.From(err); why != nil {
		if ctx.Err() != nil || why.Code == code.Opening || why.Code == code.Overloaded {
			return 0, false, &notYetError{why} // or not at all: the next Step says so
		}
		f.drop(s.watch, why)
		return 0, true, nil
	}
	f.lister.r, f.lister.walk, f.lister.left = &r, s.walk, turnBytes
	page, _, more, err := f.lister.next(pageKeys, true)
	if why := code.From(err); why != nil {
		f.drop(s.watch, why)
		return 0, true, nil
	}
	if len(page) > 0 {
		n = f.lister.values.bytes
		if err := f.entries(s.watch, page); err != nil {
			return n, false, err
		}
	}
	if more {
		return n, false, nil
	}
	return n, true, f.done(s.watch)
}

// entries sends entries of a watch, in frames that are not too large.
func (f *feed) entries(x *watch, list []wire.Entry) error {
	f.w.stats.Entries.Add(uint64(len(list)))
	for len(list) > 0 {
		n, size := 0, 0
		for n < len(list) && n < wire.MaxEntries && (n == 0 || size+list[n].Size() <= maxEntries) {
			size += list[n].Size()
			n++
		}
		if err := f.sub.Add(0, &wire.WatchEntries{Shard: f.id, ID: x.id, Entries: list[:n]}); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// done tells a watch that it has what it begins with.
func (f *feed) done(x *watch) error {
	x.catching = false
	return f.sub.Add(0, &wire.WatchDone{Shard: f.id, ID: x.id, From: x.from})
}

// history gives watches that have begun together the changes from the offset that each of them named. They share one reading
// of the log: those of a client that comes back are many, and begin at about the same place.
type history struct {
	watches []*watch
	index   *fanout.Index[*watch]
	seq     uint64 // next batch to read
	until   uint64 // the batch from which on everything comes live
	next    uint64 // next offset

	held    map[*watch][]wire.Entry // read and not sent; they lie in what was read of the log
	order   []*watch                // of held
	bytes   int                     // of held
	records batch.Reader
}

// hit is a record of a batch that a watch gets.
type hit struct {
	watch *watch
	index int
	null  bool
}

func (f *feed) beginHistory(adds []*watch, pos fanout.Position) {
	h := &history{index: fanout.NewIndex[*watch](), held: map[*watch][]wire.Entry{}, until: pos.Sequence, next: pos.Offset}
	for _, x := range adds {
		if x.how != wire.HowHistory || x.over {
			continue
		}
		x.catching = true
		h.next = min(h.next, x.offset)
		h.watches = append(h.watches, x)
		h.index.Add(x, []wire.Filter{x.filter})
	}
	if len(h.watches) == 0 {
		return
	}
	f.w.stats.Histories.Add(1)
	seq, err := f.shard.Find(h.next)
	if err != nil {
		h.drop(f, host.ReadError(err))
		return
	}
	h.seq = seq
	f.catching = append(f.catching, h)
}

// drop ends the watches. They go on where they are, or begin anew when that is no more.
func (h *history) drop(f *feed, why *code.Error) {
	for _, x := range h.watches {
		if !x.over {
			f.drop(x, why)
		}
	}
}

var chunks = sync.Pool{New: func() any { return new([readChunk]byte) }}

func (h *history) turn(_ context.Context, f *feed) (n int, done bool, err error) {
	if h.seq >= h.until || !h.stands() {
		return 0, true, h.done(f)
	}
	buf := chunks.Get().(*[readChunk]byte)
	defer chunks.Put(buf) // what was read of it has been encoded
	chunk, err := f.shard.Read(buf[:], h.seq, readChunk)
	if gap, ok := errors.AsType[*storage.GapError](err); ok {
		h.seq = gap.ToSequence
		return 0, false, f.sub.Add(0, &wire.Gap{Shard: f.id, From: h.next, To: gap.ToOffset, Reason: wire.GapAcceptedLoss})
	}
	if errors.Is(err, storage.ErrDropped) || f.shard.View().Start.Offset > h.next {
		h.drop(f, f.shard.View().OutOfRange(h.next))
		return 0, true, nil
	}
	if err == nil && len(chunk) == 0 {
		err = storage.ErrDropped // a log in memory was opened anew
	}
	if err != nil {
		h.drop(f, host.ReadError(err))
		return 0, true, nil
	}
	for len(chunk) > 0 && h.seq < h.until && err == nil {
		b := batch.Batch(chunk)
		b = b[:b.Size()]
		chunk = chunk[len(b):]
		h.seq = b.Sequence() + 1
		if !b.HasOffsets() {
			continue
		}
		h.next = b.NextOffset()
		if !h.batch(b) {
			n += h.bytes
			if err = h.send(f); err == nil {
				// Its producer compressed it beyond repair, which is stated as it is to who follows live.
				err = f.sub.Add(0, &wire.Gap{Shard: f.id, From: b.BaseOffset(), To: b.NextOffset(), Reason: wire.GapUnreadable})
			}
		} else if h.bytes > heldBytes {
			n += h.bytes
			err = h.send(f)
		}
	}
	n += h.bytes
	if err == nil {
		err = h.send(f)
	}
	for _, x := range h.watches {
		x.offset = max(x.offset, h.next)
	}
	return n, false, err
}

// send sends each watch what is held for it.
func (h *history) send(f *feed) error {
	for _, x := range h.order {
		if err := f.entries(x, h.held[x]); err != nil {
			return err
		}
	}
	clear(h.held)
	h.order, h.bytes = h.order[:0], 0
	return nil
}

// stands says whether anybody still wants it.
func (h *history) stands() bool {
	for _, x := range h.watches {
		if !x.over {
			return true
		}
	}
	return false
}

func (h *history) done(f *feed) error {
	for _, x := range h.watches {
		if x.over {
			continue
		}
		if err := f.done(x); err != nil {
			return err
		}
	}
	return nil
}

// batch holds what each watch gets of a batch, and says whether it can be read.
func (h *history) batch(b batch.Batch) bool {
	hits := h.match(b)
	if len(hits) == 0 {
		return true
	}
	h.records.Reset(b)
	defer h.records.Reset(nil)
	var rec batch.Record
	for i := 0; len(hits) > 0; i++ {
		if ok, err := h.records.Next(&rec); err != nil || !ok {
			return false
		}
		for ; len(hits) > 0 && hits[0].index == i; hits = hits[1:] {
			x, e := hits[0].watch, entryOf(b, &rec, i, hits[0].null)
			e.Headers = h.records.HeaderSection()
			if len(h.held[x]) == 0 {
				h.order = append(h.order, x)
			}
			h.held[x] = append(h.held[x], e)
			h.bytes += e.Size()
		}
	}
	return true
}

// match finds who gets which records of a batch, in the order of the records.
func (h *history) match(b batch.Batch) (hits []hit) {
	var m batch.Meta
	for metas, i := b.Metas(), 0; ; i++ {
		ok, err := metas.Next(&m)
		if !ok || err != nil {
			return hits // the batch was checked when it came
		}
		if m.Key == nil {
			continue
		}
		offset := b.BaseOffset() + uint64(i)
		h.index.Match(m.Key, func(x *watch) {
			if !x.over && offset >= x.offset {
				hits = append(hits, hit{x, i, m.Null})
			}
		})
	}
}

// entryOf is a change of a key. A value whose time has ended since is told all the same: that it ended is another change.
func entryOf(b batch.Batch, r *batch.Record, index int, null bool) wire.Entry {
	e := wire.Entry{Kind: wire.EntryValue, Key: r.Key, Offset: b.BaseOffset() + uint64(index), Generation: b.Generation(), AppendTime: b.AppendTime()}
	switch {
	case null && b.IsExpired():
		e.Kind = wire.EntryExpired
	case null:
		e.Kind = wire.EntryDeleted
	default:
		e.Value = r.Value
		if r.TTL > 0 {
			e.Expires = b.AppendTime() + r.TTL.Microseconds()
		}
	}
	return e
}
