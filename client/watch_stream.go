// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"sync"
	"time"

	"margay.dev/client/internal/backoff"
	"margay.dev/client/internal/fold"
	"margay.dev/client/internal/frames"
	"margay.dev/client/internal/link"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/session"
)

// keepWatchBuffer is the largest buffer that a watch lane reads into again.
const keepWatchBuffer = 4 << 20

// run keeps the lane up until its last watch leaves, or an error is final.
func (l *watchLane) run() {
	wait := backoff.Backoff{Rand: l.c.rng, Base: retryBase, Cap: retryCap}
	strikes := 0
	for attempt := 1; ; attempt++ {
		useful, err := l.serve()
		if l.ctx.Err() != nil {
			l.end(errClosed("the client"))
			return
		}
		if useful {
			strikes, attempt = 0, 0
			wait.Reset()
		}
		statuses := l.lost(err)
		for _, f := range statuses {
			f(Status{Err: err, Attempt: attempt})
		}
		fresh := err.Code == code.Unauthenticated && l.c.renews() // a fresh token is shown with the next connection
		if err.Class == Fatal && !fresh {
			// It should not pass by itself, but may come from a connection or a broker on its way out.
			if strikes++; strikes >= maxStrikes || !passes(err) && err.Code != code.Unauthenticated {
				l.end(err)
			}
		}
		backoff.Pause(l.ctx, max(wait.Next(), err.RetryAfter))
	}
}

// serve opens the lane and reads it until it fails. Useful says that something came.
func (l *watchLane) serve() (useful bool, _ *Error) {
	conn, lane, err := l.open()
	if err != nil {
		return false, code.From(err)
	}
	ctx, cancel := context.WithCancel(l.ctx)
	stop := context.AfterFunc(ctx, func() { lane.Reset(code.Cancelled) })
	var sender sync.WaitGroup
	sender.Go(func() {
		defer cancel() // a sender that fails ends the reader
		l.send(ctx, lane)
	})
	useful, err = l.read(lane)
	cancel()
	stop()
	lane.Reset(code.Cancelled)
	sender.Wait()
	e := code.From(err)
	if e.Code == code.Unauthenticated {
		conn.Reauthenticate()
	}
	return useful, e
}

func (l *watchLane) open() (*link.Conn, *session.Lane, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.c.cfg.subscribeTimeout)
	defer cancel()
	conn, err := l.c.watching.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	if !conn.Hello.Features.Has(wire.FeatureCaches) {
		return nil, nil, code.New(code.Unsupported, "the broker cannot watch")
	}
	lane, err := conn.OpenLane(ctx)
	if err != nil {
		return nil, nil, unavailable("open lane", err)
	}
	return conn, lane, nil
}

// send writes what is to be asked, until the lane ends.
func (l *watchLane) send(ctx context.Context, lane *session.Lane) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var buf []byte
	for {
		var at time.Time
		if buf, at = l.next(buf[:0]); len(buf) > 0 {
			if lane.Write(buf) != nil {
				return
			}
			continue
		}
		resetTimer(timer, at)
		select {
		case <-l.kick:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *watchLane) read(lane *session.Lane) (useful bool, _ error) {
	var buf []byte
	for {
		h, err := lane.ReadSupported()
		if err != nil {
			return useful, err
		}
		switch h.Type {
		case wire.TypeDeliver, wire.TypeDeliverSlice:
		case wire.TypeWatchEntries:
			if h.Size > frames.MaxEntries {
				return useful, code.New(code.Protocol, "frame %s: body of %d bytes", h.Type, h.Size)
			}
		default:
			if h.Size > frames.MaxSmall {
				return useful, code.New(code.Protocol, "frame %s: body of %d bytes", h.Type, h.Size)
			}
		}
		if buf, err = lane.AppendBody(buf[:0]); err != nil {
			return useful, err
		}
		if err := l.take(h, buf); err != nil {
			return useful, err
		}
		useful = true
		if cap(buf) > keepWatchBuffer {
			buf = nil
		}
	}
}

// take takes one frame. Nothing of it is kept: what a watch holds has bytes of its own.
func (l *watchLane) take(h wire.Header, body []byte) error {
	var statuses []func(Status)
	defer func() {
		for _, f := range statuses {
			f(Status{Connected: true})
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wake()
	switch h.Type {
	case wire.TypeDeliver:
		var f wire.Deliver
		if err := f.Parse(body); err != nil {
			return err
		}
		return l.takeBatches(f.Shard, f.Batch)
	case wire.TypeDeliverSlice:
		var f wire.DeliverSlice
		if err := f.Parse(body); err != nil {
			return err
		}
		return l.takeSlices(f.Shard, f.Slices)
	case wire.TypeWatched:
		var f wire.Watched
		if err := f.Parse(body); err != nil {
			return err
		}
		statuses = l.takeWatched(&f)
	case wire.TypeWatchEntries:
		var f wire.WatchEntries
		if err := f.Parse(body); err != nil {
			return err
		}
		l.takeEntries(&f)
	case wire.TypeWatchDone:
		var f wire.WatchDone
		if err := f.Parse(body); err != nil {
			return err
		}
		l.step(f.ID, func(w *Watch, slot int) fold.Outcome { return w.fold.Done(slot) })
	default:
		return l.takeNote(h, body)
	}
	return nil
}

// takeNote takes the frames that are about the lane or the end of a watch. Called with mu held.
func (l *watchLane) takeNote(h wire.Header, body []byte) error {
	switch h.Type {
	case wire.TypeGap:
		var f wire.Gap
		if err := f.Parse(body); err != nil {
			return err
		}
		l.takeGap(&f)
	case wire.TypeProgress:
		var f wire.Progress
		if err := f.Parse(body); err != nil {
			return err
		}
		if f.Next > l.at[f.Shard].Offset {
			l.at[f.Shard] = fold.Start{Offset: f.Next, Generation: f.Generation}
		}
	case wire.TypeWatchEnd:
		var f wire.WatchEnd
		if err := f.Parse(body); err != nil {
			return err
		}
		l.takeEnd(&f)
	case wire.TypeError:
		err := code.From(frames.Error(body))
		if h.Corr == 0 {
			return err
		}
		l.ended(h.Corr, err)
	default:
		return frames.Unexpected(h, "watch")
	}
	return nil
}

// step does something with the watch of an id, if it still is. Called with mu held.
func (l *watchLane) step(id uint64, f func(w *Watch, slot int) fold.Outcome) {
	ref, ok := l.ids[id]
	if !ok {
		return
	}
	ref.w.mu.Lock()
	o := f(ref.w, ref.slot)
	ref.w.mu.Unlock()
	l.touch(ref.w)
	l.does(ref.w, ref.slot, o)
}

func (l *watchLane) takeWatched(f *wire.Watched) (statuses []func(Status)) {
	l.wait.Reset()
	l.step(f.ID, func(w *Watch, slot int) fold.Outcome {
		w.trouble = nil
		return w.fold.Watched(slot, f.From, f.Generation, f.How)
	})
	if l.up {
		return nil
	}
	l.up = true
	for w := range l.watches {
		if w.cfg.onStatus != nil {
			statuses = append(statuses, w.cfg.onStatus)
		}
	}
	return statuses
}

func (l *watchLane) takeEntries(f *wire.WatchEntries) {
	for i := range f.Entries {
		e := &f.Entries[i]
		l.step(f.ID, func(w *Watch, slot int) fold.Outcome {
			c := newChange(e.Key, e.Value, e.Headers)
			c.Kind, c.Offset, c.Generation, c.AppendTime, c.Expires = fold.Kind(e.Kind), e.Offset, e.Generation, e.AppendTime, e.Expires
			o := w.fold.History(slot, c)
			l.crowd(w)
			return o
		})
		l.relieve()
	}
}

func (l *watchLane) takeGap(f *wire.Gap) {
	for w := range l.watches {
		slot, ok := w.slot(f.Shard)
		if !ok {
			continue
		}
		w.mu.Lock()
		o := w.fold.Gap(slot, f.To)
		w.mu.Unlock()
		if o != fold.GoOn {
			l.touch(w)
			l.does(w, slot, o)
		}
	}
	if f.To > l.at[f.Shard].Offset {
		l.at[f.Shard] = fold.Start{Offset: f.To, Generation: l.at[f.Shard].Generation}
	}
}

func (l *watchLane) takeEnd(f *wire.WatchEnd) {
	err := code.New(code.Unavailable, "the broker ended the watch of shard %d", f.Shard)
	if f.Code != 0 {
		err = code.New(f.Code, "watch of shard %d: %s", f.Shard, f.Message)
	}
	if f.ID != 0 {
		l.ended(f.ID, err)
		return
	}
	for id, ref := range l.ids {
		if ref.w.shards[ref.slot] == f.Shard {
			l.ended(id, err)
		}
	}
}

// takeBatches walks what a delivery holds. Called with mu held.
func (l *watchLane) takeBatches(shard uint32, rest []byte) error {
	for len(rest) > 0 {
		b, err := batch.CheckStored(rest)
		if err != nil {
			return code.New(code.CorruptBatch, "changes of shard %d behind offset %d: %w", shard, l.at[shard].Offset, err)
		}
		rest = rest[len(b):]
		if !b.HasOffsets() {
			continue
		}
		l.records.Reset(b)
		src := source{appendTime: b.AppendTime(), expired: b.IsExpired(), end: fold.Start{Offset: b.NextOffset(), Generation: b.Generation()}}
		if err := l.takeRecords(shard, &l.records, &src); err != nil {
			return err
		}
	}
	return nil
}

func (l *watchLane) takeSlices(shard uint32, rest []byte) error {
	for len(rest) > 0 {
		s, err := batch.CheckSlice(rest)
		if err != nil {
			return code.New(code.CorruptBatch, "changes of shard %d behind offset %d: %w", shard, l.at[shard].Offset, err)
		}
		rest = rest[len(s):]
		l.sliced.Reset(s)
		src := source{appendTime: s.AppendTime(), expired: s.IsExpired(), end: fold.Start{Offset: s.NextOffset(), Generation: s.Generation()}}
		if err := l.takeRecords(shard, &l.sliced, &src); err != nil {
			return err
		}
	}
	return nil
}

// source is what the changes of a batch have in common; end is where its shard stands behind it.
type source struct {
	appendTime int64
	expired    bool
	end        fold.Start
}

// takeRecords gives each record to the watches whose filter its key matches. They share one change. Called with mu held.
func (l *watchLane) takeRecords(shard uint32, records interface {
	Next(rec *batch.Record) (bool, error)
	Offset() uint64
}, src *source,
) error {
	before := l.at[shard].Generation
	if before == 0 {
		before = src.end.Generation
	}
	var rec batch.Record
	for {
		ok, err := records.Next(&rec)
		if err != nil {
			return code.New(code.CorruptBatch, "changes of shard %d behind offset %d: %w", shard, l.at[shard].Offset, err)
		}
		if !ok {
			break
		}
		if rec.Key == nil {
			continue
		}
		var c *fold.Change
		l.index.Each(rec.Key, func(w *Watch) {
			slot, of := w.slot(shard)
			if !of {
				return
			}
			if c == nil {
				c = src.change(&rec, records.Offset(), before)
			}
			w.mu.Lock()
			o := w.fold.Live(slot, c)
			l.crowd(w)
			w.mu.Unlock()
			l.touch(w)
			l.does(w, slot, o)
		})
		l.relieve()
		before = src.end.Generation
	}
	l.at[shard] = src.end
	return nil
}

func (src *source) change(rec *batch.Record, offset, before uint64) *fold.Change {
	c := newChange(rec.Key, rec.Value, batch.AppendHeaders(nil, rec.Headers))
	c.Offset, c.Generation, c.Before, c.AppendTime = offset, src.end.Generation, before, src.appendTime
	switch {
	case rec.Value != nil:
		c.Kind = fold.Put
		if rec.TTL > 0 {
			c.Expires = src.appendTime + rec.TTL.Microseconds()
		}
	case src.expired:
		c.Kind = fold.Expired
	default:
		c.Kind = fold.Deleted
	}
	return c
}

// newChange copies what it is given out of the frame, in one piece of memory.
func newChange(key, value, headers []byte) *fold.Change {
	c := &fold.Change{Key: string(key)}
	own := make([]byte, 0, len(value)+len(headers))
	if own = append(own, value...); value != nil {
		c.Value = own[:len(value):len(value)]
	}
	if len(headers) > 0 {
		own = append(own, headers...)
		c.Headers = own[len(value):]
	}
	return c
}
