// SPDX-License-Identifier: Apache-2.0

package fakebroker

import (
	"slices"
	"sort"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/session"
)

// watcher is what a watch lane watches.
type watcher struct {
	l       *Log
	watches map[uint64]wire.Watch
	feeds   map[uint32]uint64 // where each shard's live changes go on
	out     []byte
	gone    bool
}

// watch serves a watch lane, whose first frame has come.
func (b *Broker) watch(r *running, lane *session.Lane, h wire.Header, body []byte) {
	w := &watcher{watches: map[uint64]wire.Watch{}, feeds: map[uint32]uint64{}}
	w.ask(b, h, body)
	r.wg.Go(func() {
		for {
			h, body, err := read(lane)
			if err != nil {
				b.Change(func() { w.gone = true })
				return
			}
			w.ask(b, h, body)
		}
	})
	for {
		b.mu.Lock()
		for w.collect(b); len(w.out) == 0 && !w.gone && r.ctx.Err() == nil; w.collect(b) {
			b.changed.Wait()
		}
		out, gone := w.out, w.gone || r.ctx.Err() != nil
		w.out = nil
		b.mu.Unlock()
		if gone || lane.Write(out) != nil {
			return
		}
	}
}

func (w *watcher) ask(b *Broker, h wire.Header, body []byte) {
	var f wire.Watch
	var u wire.Unwatch
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.changed.Broadcast()
	switch {
	case h.Type == wire.TypeWatch && f.Parse(body) == nil:
		b.watches = append(b.watches, f)
		if hook := b.script.Watch; hook != nil {
			if err := hook(&f); err != nil {
				w.out = wire.AppendFrame(w.out, h.Corr, wire.NewError(err))
				return
			}
		}
		w.l = b.byID[f.Log]
		w.begin(&f)
	case h.Type == wire.TypeUnwatch && u.Parse(body) == nil:
		delete(w.watches, u.ID)
		w.out = wire.AppendFrame(w.out, h.Corr, &wire.WatchEnd{ID: u.ID})
	}
}

func (w *watcher) begin(f *wire.Watch) {
	s := w.l.Shards[f.Shard]
	w.watches[f.ID] = *f
	if _, on := w.feeds[f.Shard]; !on {
		w.feeds[f.Shard] = s.next
	}
	ok := &wire.Watched{Shard: f.Shard, ID: f.ID, Generation: s.Generation, From: s.next}
	if f.Start == wire.WatchOffset && f.Offset != s.next {
		ok.How = wire.HowHistory
		if _, err := s.place(wire.Start{Shard: f.Shard, Kind: wire.StartOffset, At: f.Offset, Generation: f.Generation}); err != nil {
			ok.How = wire.HowReset
		}
	}
	w.out = wire.AppendFrame(w.out, f.ID, ok)
	if ok.How != wire.HowHistory {
		return
	}
	for _, bt := range s.Batches {
		r := bt.Records()
		var rec batch.Record
		for {
			if more, err := r.Next(&rec); err != nil || !more {
				break
			}
			if r.Offset() >= f.Offset && f.Filter.Matches(rec.Key) {
				w.out = wire.AppendFrame(w.out, 0, &wire.WatchEntries{Shard: f.Shard, ID: f.ID, Entries: []wire.Entry{entryOf(bt, r.Offset(), &rec)}})
			}
		}
	}
	w.out = wire.AppendFrame(w.out, 0, &wire.WatchDone{Shard: f.Shard, ID: f.ID, From: s.next})
}

// collect appends the live changes that are due, once for all watches.
func (w *watcher) collect(b *Broker) {
	for shard := range w.feeds {
		s := w.l.Shards[shard]
		i := sort.Search(len(s.Batches), func(i int) bool { return s.Batches[i].NextOffset() > w.feeds[shard] })
		for _, bt := range s.Batches[min(i, len(s.Batches)):] {
			w.feeds[shard] = bt.NextOffset()
			if w.wants(shard, bt) {
				w.out = append(w.out, b.script.Noise...)
				w.out = wire.AppendFrame(w.out, 0, &wire.Deliver{Shard: shard, Mark: s.next, Batch: bt})
			} else {
				w.out = wire.AppendFrame(w.out, 0, &wire.Progress{Shard: shard, Next: bt.NextOffset(), Mark: s.next, Generation: bt.Generation()})
			}
		}
	}
}

func (w *watcher) wants(shard uint32, bt batch.Batch) bool {
	r := bt.Records()
	var rec batch.Record
	for {
		if more, err := r.Next(&rec); err != nil || !more {
			return false
		}
		for _, f := range w.watches {
			if f.Shard == shard && f.Filter.Matches(rec.Key) {
				return true
			}
		}
	}
}

// Watches returns every watch that was asked for.
func (b *Broker) Watches() []wire.Watch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.watches)
}

// Expire appends tombstones of keys whose time is over.
func (b *Broker) Expire(l *Log, shard int, keys ...string) {
	b.tb.Helper()
	var raw [][]byte
	for _, k := range keys {
		raw = append(raw, []byte(k))
	}
	b.Change(func() {
		s := l.Shards[shard]
		bt := batch.BuildExpired(raw, time.Now().UnixMicro())
		bt.Assign(batch.Assigned{
			Sequence: uint64(len(s.Batches)), BaseOffset: s.next, Generation: s.Generation, AppendTime: time.Now().UnixMicro(),
		})
		s.Batches = append(s.Batches, bt)
		s.next = bt.NextOffset()
	})
}

// Reclaim lets the records of a shard below an offset be gone, as far as resuming is concerned.
func (s *Shard) Reclaim(below uint64) { s.Earliest = below }
