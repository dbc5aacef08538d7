// SPDX-License-Identifier: Apache-2.0

package fanout_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/broker/fanout"
	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// watched is a filter of a watcher, for the offsets from from until until.
type watched struct {
	filter      wire.Filter
	from, until uint64
}

// watcher reads a hub, and the log where it has fallen behind, by filters that come and go. It is what a feed does, with
// nothing else around it.
type watcher struct {
	q     *fanout.Queue
	sel   *fanout.Selection
	live  bool
	next  uint64   // sequence to read from the log
	taken uint64   // the offset there
	got   []uint64 // offsets
	has   []watched
	had   []watched
}

func newWatcher(h *fanout.Hub, records int) *watcher {
	var none *fanout.Selection
	w := &watcher{sel: none.Changed(nil, nil)}
	w.q = fanout.NewQueue(fanout.Limits{Records: records}, fanout.CatchUp, w.sel)
	pos, err := h.JoinLatest(w.q)
	if err != nil {
		panic(err)
	}
	w.live, w.next, w.taken = true, pos.Sequence, pos.Offset
	return w
}

// reselect adds filters and gives up some that it has.
func (w *watcher) reselect(h *fanout.Hub, more []wire.Filter, fewer int) {
	var gone []wire.Filter
	for range min(fewer, len(w.has)) {
		gone = append(gone, w.has[0].filter)
		w.had, w.has = append(w.had, w.has[0]), w.has[1:]
	}
	for _, x := range w.has { // of two watches of one filter the other still stands
		gone = slices.DeleteFunc(gone, func(f wire.Filter) bool { return f == x.filter })
	}
	w.sel = w.sel.Changed(more, gone)
	pos := h.Reselect(w.q, w.sel)
	for i := range w.had { // what it has not come to yet is read without the filter
		w.had[i].until = min(w.had[i].until, w.taken)
	}
	for _, f := range more {
		w.has = append(w.has, watched{f, pos.Offset, forever})
	}
}

const forever = ^uint64(0)

// step takes one thing: from the queue, from the log, or its place at the live end.
func (w *watcher) step(h *fanout.Hub, log []batch.Batch) (more bool) {
	var taken fanout.Taken
	w.q.Take(&taken, 1)
	for i := range taken.Deliveries {
		d := &taken.Deliveries[i]
		w.got = append(w.got, delivered(d.Frame)...)
		w.next, w.taken = d.Sequence+1, d.NextOffset
	}
	if len(taken.Left) > 0 {
		w.live = false
	}
	if w.live {
		return len(taken.Deliveries) > 0
	}
	if w.next < h.Sequence() {
		b := log[w.next]
		keep, _ := w.sel.Select(b, 0, nil)
		for _, i := range keep {
			w.got = append(w.got, b.BaseOffset()+uint64(i))
		}
		w.next, w.taken = w.next+1, b.NextOffset()
		return true
	}
	_, w.live = h.Join(w.q, w.next)
	return true
}

// delivered are the offsets of the records of a frame.
func delivered(frame []byte) (out []uint64) {
	h, err := wire.ParseHeader([wire.HeaderSize]byte(frame))
	if err != nil {
		panic(err)
	}
	body := frame[wire.HeaderSize:]
	if h.Type == wire.TypeDeliver {
		var d wire.Deliver
		if err := d.Parse(body); err != nil {
			panic(err)
		}
		for n := d.Batch.BaseOffset(); n < d.Batch.NextOffset(); n++ {
			out = append(out, n)
		}
		return out
	}
	var d wire.DeliverSlice
	if err := d.Parse(body); err != nil {
		panic(err)
	}
	s, err := batch.CheckSlice(d.Slices)
	if err != nil {
		panic(err)
	}
	for it := s.Records(); ; {
		var rec batch.Record
		ok, err := it.Next(&rec)
		if err != nil {
			panic(err)
		}
		if !ok {
			return out
		}
		out = append(out, it.Offset())
	}
}

// settled checks a watcher that has taken all: what one of its filters selected while it stood came exactly once and in
// order, and nothing came that none of them ever selected.
func (w *watcher) settled(t interface{ Fatalf(string, ...any) }, keys [][]byte) {
	for i := 1; i < len(w.got); i++ {
		if w.got[i] <= w.got[i-1] {
			t.Fatalf("offset %d came behind %d", w.got[i], w.got[i-1])
		}
	}
	all := append(slices.Clone(w.had), w.has...)
	for n, key := range keys {
		offset := uint64(n)
		_, came := slices.BinarySearch(w.got, offset)
		due := slices.ContainsFunc(all, func(x watched) bool { return x.from <= offset && offset < x.until && x.filter.Matches(key) })
		may := slices.ContainsFunc(all, func(x watched) bool { return x.filter.Matches(key) })
		if due && !came || came && !may {
			t.Fatalf("record %d with key %q: came %v; a filter that stood selects it: %v, one that did at some time: %v; watches %+v", offset, key, came, due, may, all)
		}
	}
}

// Whatever is published, joined and reselected in whatever order, and however far a watcher lags: every record that one of
// its filters selects, from the position that adding it returned, comes exactly once.
func TestReselect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := fanout.NewHub(0, fanout.Position{})
		var watchers []*watcher
		var log []batch.Batch
		var keys [][]byte
		publish := func() {
			var envs []*fanout.Envelope
			for range rapid.IntRange(1, 3).Draw(t, "batches") {
				recs := make([]batch.Record, rapid.IntRange(1, 4).Draw(t, "records"))
				base := uint64(len(keys))
				for i := range recs {
					recs[i] = batch.Record{Key: drawKey(t), Value: []byte("v"), Timestamp: 1}
					keys = append(keys, recs[i].Key)
				}
				e := envelope(base, recs...)
				e.Batch.Assign(batch.Assigned{Sequence: uint64(len(log)), BaseOffset: base, Generation: 1, AppendTime: 1_000_000})
				log, envs = append(log, e.Batch), append(envs, e)
			}
			h.Publish(envs, fanout.Position{Sequence: uint64(len(log)), Offset: uint64(len(keys))}, 0)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			what := rapid.IntRange(0, 9).Draw(t, "what")
			if len(watchers) == 0 || what == 0 && len(watchers) < 4 {
				watchers = append(watchers, newWatcher(h, rapid.IntRange(1, 20).Draw(t, "queue")))
				continue
			}
			w := rapid.SampledFrom(watchers).Draw(t, "watcher")
			switch {
			case what < 4:
				publish()
			case what < 7:
				w.reselect(h, rapid.SliceOfN(rapid.Custom(drawFilter), 0, 3).Draw(t, "more"), rapid.IntRange(0, 2).Draw(t, "fewer"))
			default:
				w.step(h, log)
			}
		}
		for _, w := range watchers {
			for w.step(h, log) {
			}
			w.settled(t, keys)
			h.Leave(w.q)
		}
		if n := h.Subscribers(); n != 0 {
			t.Fatalf("%d queues are left", n)
		}
	})
}

// The same while the publisher does not wait. Keys come round, and so do the filters.
func TestReselectWhilePublishing(t *testing.T) {
	const batches, watchers, names = 3000, 8, 16
	filter := func(i int) wire.Filter {
		return wire.Filter{Kind: wire.FilterExact, Value: fmt.Sprintf("k/%d", i%names)}
	}
	h := fanout.NewHub(0, fanout.Position{})
	var log []batch.Batch
	var keys [][]byte
	var envs []*fanout.Envelope
	for n := range uint64(batches) {
		key := []byte(filter(int(n)).Value)
		e := envelope(n, batch.Record{Key: key, Timestamp: 1})
		keys, log, envs = append(keys, key), append(log, e.Batch), append(envs, e)
	}
	var wg sync.WaitGroup
	for i := range watchers {
		wg.Go(func() {
			w := newWatcher(h, 50)
			for n := i; h.Sequence() < batches; n++ {
				w.step(h, log)
				if len(w.had) < 300 {
					w.reselect(h, []wire.Filter{filter(n)}, n%3)
				}
			}
			for w.step(h, log) {
			}
			w.settled(t, keys)
		})
	}
	for n := range envs {
		h.Publish(envs[n:n+1], fanout.Position{Sequence: uint64(n + 1), Offset: uint64(n + 1)}, 0)
	}
	wg.Wait()
}

// Selections that have become equal share what is cut, and whoever goes on to select something else leaves the others as
// they are.
func TestReselectedSelectionsShareACut(t *testing.T) {
	h := fanout.NewHub(0, fanout.Position{})
	a, b := newWatcher(h, 100), newWatcher(h, 100)
	exact := func(v string) []wire.Filter { return []wire.Filter{{Kind: wire.FilterExact, Value: v}} }
	a.reselect(h, exact("x"), 0)
	a.reselect(h, exact("y"), 0)
	b.reselect(h, append(exact("y"), exact("x")...), 0)
	var offset uint64
	frames := func() (fa, fb []byte) {
		e := envelope(offset, batch.Record{Key: []byte("x"), Timestamp: 1}, batch.Record{Key: []byte("z"), Timestamp: 1})
		offset += 2
		h.Publish([]*fanout.Envelope{e}, fanout.Position{Sequence: offset, Offset: offset}, 0)
		one := func(w *watcher) []byte {
			var taken fanout.Taken
			w.q.Take(&taken, 1)
			if len(taken.Deliveries) == 0 {
				return nil
			}
			return taken.Deliveries[0].Frame
		}
		return one(a), one(b)
	}
	if fa, fb := frames(); fa == nil || &fa[0] != &fb[0] {
		t.Error("equal selections do not share the bytes of a cut")
	}
	a.reselect(h, exact("z"), 1) // gives up x
	if fa, fb := frames(); fmt.Sprint(delivered(fa)) != "[3]" || fmt.Sprint(delivered(fb)) != "[2]" {
		t.Errorf("offsets %v and %v were delivered to who selects y and z, and to who selects x and y", delivered(fa), delivered(fb))
	}
}

// BenchmarkReselect adds and takes back one filter among many.
func BenchmarkReselect(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := fanout.NewHub(0, fanout.Position{})
			w := newWatcher(h, 100)
			var fs []wire.Filter
			for i := range n {
				fs = append(fs, wire.Filter{Kind: wire.FilterExact, Value: fmt.Sprintf("device/%06d/state", i)})
			}
			w.sel = w.sel.Changed(fs, nil)
			h.Reselect(w.q, w.sel)
			one := []wire.Filter{{Kind: wire.FilterExact, Value: "device/1"}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					w.sel = w.sel.Changed(one, nil)
				} else {
					w.sel = w.sel.Changed(nil, one)
				}
				h.Reselect(w.q, w.sel)
			}
		})
	}
}
