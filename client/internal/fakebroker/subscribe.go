// SPDX-License-Identifier: Apache-2.0

package fakebroker

import (
	"sort"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// sub is one subscription's place in one shard.
type sub struct {
	id   uint32
	s    *Shard
	next uint64
	end  uint64
	done bool
}

func (b *Broker) subscribe(r *running, c session.Conn, lane *session.Lane, corr uint64, body []byte) {
	var f wire.Subscribe
	err := f.Parse(body)
	b.mu.Lock()
	b.starts = append(b.starts, f)
	hook := b.script.Subscribe
	b.mu.Unlock()
	if err == nil && hook != nil {
		err = hook(&f)
	}
	var subs []*sub
	var ok *wire.Subscribed
	if err == nil {
		subs, ok, err = b.begin(&f)
	}
	if err != nil {
		_ = lane.SendFrame(corr, wire.NewError(err))
		return
	}
	if lane.Write(wire.AppendFrame(nil, corr, ok)) != nil {
		return
	}
	gone := make(chan struct{})
	r.wg.Go(func() { // notices that the client has gone
		defer b.wake()
		defer close(gone)
		for {
			if _, _, err := read(lane); err != nil {
				return
			}
		}
	})
	alive := func() bool {
		select {
		case <-gone:
			return false
		case <-c.Done():
			return false
		case <-r.ctx.Done():
			return false
		default:
			return true
		}
	}
	b.feed(alive, lane, &f, subs)
}

func (b *Broker) begin(f *wire.Subscribe) ([]*sub, *wire.Subscribed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.byID[f.Log]
	if l == nil {
		return nil, nil, code.New(code.NotFound, "log %s", f.Log)
	}
	ok := &wire.Subscribed{}
	var subs []*sub
	for _, st := range f.Shards {
		s := l.Shards[st.Shard]
		at, err := s.place(st)
		if err != nil {
			return nil, nil, err
		}
		subs = append(subs, &sub{id: st.Shard, s: s, next: at, end: s.next, done: f.UntilMark && at >= s.next})
		ok.Shards = append(ok.Shards, wire.Started{Shard: st.Shard, Generation: s.Generation, Offset: at, Latest: s.next})
	}
	return subs, ok, nil
}

func (s *Shard) place(st wire.Start) (uint64, error) {
	switch st.Kind {
	case wire.StartEarliest:
		return s.Earliest, nil
	case wire.StartOffset:
		if cut, ok := s.cuts[st.Generation]; ok && st.At > cut {
			return 0, code.New(code.Cut, "at %d", cut).At("", s.Generation).
				With(code.DetailResumeAt, cut).With(code.DetailShard, uint64(st.Shard))
		}
		if st.At < s.Earliest || st.At > s.next {
			return 0, code.New(code.OutOfRange, "offset %d", st.At).With(code.DetailEarliest, s.Earliest).
				With(code.DetailLatest, s.next).With(code.DetailShard, uint64(st.Shard))
		}
		return st.At, nil
	case wire.StartTime:
		i := sort.Search(len(s.Batches), func(i int) bool { return s.Batches[i].AppendTime() >= int64(st.At) })
		if i < len(s.Batches) {
			return s.Batches[i].BaseOffset(), nil
		}
	case wire.StartLatest:
	}
	return s.next, nil
}

// feed sends what there is and what comes, until the client or the broker goes away or the end is reached.
func (b *Broker) feed(alive func() bool, lane *session.Lane, f *wire.Subscribe, subs []*sub) {
	for {
		out, finished, stop := b.wait(alive, f, subs)
		if stop {
			return
		}
		if len(out) > 0 && lane.Write(out) != nil {
			return
		}
		if finished {
			_ = lane.Write(wire.AppendFrame(nil, 1, &wire.End{Shard: wire.AllShards}))
			_ = lane.CloseWrite()
			b.mu.Lock()
			for alive() {
				b.changed.Wait()
			}
			b.mu.Unlock()
			return
		}
	}
}

func (b *Broker) wait(alive func() bool, f *wire.Subscribe, subs []*sub) (out []byte, finished, stop bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if !alive() {
			return nil, false, true
		}
		finished = f.UntilMark
		for _, x := range subs {
			out = b.collect(out, f, x)
			finished = finished && x.done
		}
		if len(out) > 0 || finished {
			return out, finished, false
		}
		b.changed.Wait()
	}
}

// collect appends the next deliveries of one shard, at most some 256 KiB at a time.
func (b *Broker) collect(out []byte, f *wire.Subscribe, x *sub) []byte {
	i := sort.Search(len(x.s.Batches), func(i int) bool { return x.s.Batches[i].NextOffset() > x.next })
	for ; i < len(x.s.Batches) && len(out) < 256<<10 && !x.done; i++ {
		bt := x.s.Batches[i]
		frame := wire.AppendFrame(nil, 0, &wire.Deliver{Shard: x.id, Mark: x.s.next, Batch: bt})
		if b.script.Corrupt != nil {
			b.script.Corrupt(frame)
		}
		out = append(append(out, b.script.Noise...), frame...)
		x.next = bt.NextOffset()
		x.done = f.UntilMark && x.next >= x.end
	}
	return out
}

// Feed appends records to a shard as another producer would, in one batch.
func (b *Broker) Feed(l *Log, shard int, vals ...string) {
	b.tb.Helper()
	bld := batch.NewBuilder(batch.Limits{})
	for _, v := range vals {
		if err := bld.Add(batch.Record{Value: []byte(v), Timestamp: time.Now().UnixMicro()}); err != nil {
			b.tb.Fatal(err)
		}
	}
	bt, err := bld.Build(0, 0, batch.None)
	if err != nil {
		b.tb.Fatal(err)
	}
	if _, err := b.apply(&wire.Publish{Log: l.ID, Shard: uint32(shard)}, bt); err != nil {
		b.tb.Fatal(err)
	}
}
