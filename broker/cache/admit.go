// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"

	"margay.dev/broker/fanout"
	"margay.dev/broker/shard"
	"margay.dev/broker/stream"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// admit takes the requests that wait, all in one change of what the feed selects.
func (f *feed) admit(ctx context.Context) error {
	rs := f.take()
	if len(rs) == 0 && len(f.touched) == 0 {
		return nil
	}
	var (
		adds []*watch
		ends []request
	)
	for _, r := range rs {
		switch {
		case !r.end:
			f.count(r.watch.filter, 1)
			f.watches[r.watch] = struct{}{}
			adds = append(adds, r.watch)
		case !r.watch.over:
			f.over(r.watch)
			ends = append(ends, r)
		case r.why == nil:
			f.w.refuse(r.corr, noWatch(r.watch.id))
		}
	}
	f.checkOffsets(ctx, adds)
	// A watch is registered, then learns from where it gets what is live, and then is given what lies before that. In any
	// other order a change between the two is missed.
	pos, err := f.register()
	if err != nil {
		f.refuseAll(adds, err)
		for _, r := range ends { // of some of those
			f.w.refuse(r.corr, noWatch(r.watch.id))
		}
		return err
	}
	for _, x := range adds {
		f.begin(x, pos)
	}
	f.beginHistory(adds, pos)
	for _, r := range ends {
		f.end(r)
	}
	return nil
}

// count changes how many watches have a filter.
func (f *feed) count(x wire.Filter, by int) {
	if _, known := f.touched[x]; !known {
		f.touched[x] = f.counts[x]
	}
	f.counts[x] += by
}

// over takes a watch out of what the feed selects for, with the next change of that.
func (f *feed) over(x *watch) {
	x.over = true
	f.count(x.filter, -1)
	delete(f.watches, x)
}

// refuseAll answers watches that could not begin.
func (f *feed) refuseAll(adds []*watch, why error) {
	for _, x := range adds {
		delete(f.watches, x)
		x.over = true
		f.w.refuse(x.corr, why)
		f.w.forget(x)
	}
}

// checkOffsets finds out which watches cannot go on from the offset that they name: they get a snapshot.
func (f *feed) checkOffsets(ctx context.Context, adds []*watch) {
	var resumed []*watch
	for _, x := range adds {
		if x.start == wire.WatchOffset {
			resumed = append(resumed, x)
		}
	}
	if len(resumed) == 0 {
		return
	}
	how := make([]wire.WatchHow, len(resumed))
	err := f.shard.Ask(ctx, func(c *shard.Core) {
		for i, x := range resumed {
			if how[i] = wire.HowHistory; c.CheckResume(x.offset, x.gen) != nil {
				how[i] = wire.HowReset
			}
		}
	})
	for i, x := range resumed {
		if x.how = how[i]; err != nil {
			x.how = wire.HowReset // the shard is closing, and the feed is about to be told so
		}
	}
}

// register makes the feed select what the watches that are there let through, and returns the position from which it does.
func (f *feed) register() (pos fanout.Position, err error) {
	var more, fewer []wire.Filter
	changed := false
	for x, before := range f.touched {
		now := f.counts[x]
		if now == 0 {
			delete(f.counts, x)
		}
		if (before == 0) == (now == 0) {
			continue
		}
		changed = true
		switch {
		case x.Kind == wire.FilterAll:
		case now > 0:
			more = append(more, x)
		default:
			fewer = append(fewer, x)
		}
	}
	clear(f.touched)
	if f.selection == nil || len(more)+len(fewer) > 0 {
		f.selection = f.selection.Changed(more, fewer)
	}
	selected := f.selection
	if f.counts[wire.Filter{}] > 0 {
		selected = nil // which is everything
	}
	switch {
	case f.sub == nil:
		if f.sub, pos, err = stream.OpenFeed(f.w.lane, f.id, f.shard, selected); err == nil {
			f.served = f.w.cfg.Serving(f.sub)
		}
	case changed:
		pos = f.sub.Reselect(selected)
	default:
		pos = f.shard.Hub().Position() // what it selects, it has selected before
	}
	return pos, err
}

// begin answers a watch with where it begins.
func (f *feed) begin(x *watch, pos fanout.Position) {
	x.from = pos.Offset
	switch {
	case x.start == wire.WatchSnapshot:
		x.how = wire.HowSnapshot
	case x.how == wire.HowHistory && x.offset >= pos.Offset:
		x.how, x.from = wire.HowLive, x.offset
	}
	f.add(x.corr, &wire.Watched{Shard: f.id, ID: x.id, Generation: f.shard.View().Generation, From: x.from, How: x.how})
	switch {
	case x.how == wire.HowLive:
		f.add(0, &wire.WatchDone{Shard: f.id, ID: x.id, From: x.from})
	case x.how != wire.HowHistory && !x.over:
		f.beginSnapshot(x)
	}
}

// end tells of a watch that its client, or a token that does not allow it, has ended.
func (f *feed) end(r request) {
	e := &wire.WatchEnd{Shard: f.id, ID: r.watch.id}
	e.Resume, e.Generation = f.resume(r.watch)
	if r.why != nil {
		e.Code, e.Message = r.why.Code, r.why.Message
		f.w.told(r.why)
	}
	f.add(r.corr, e)
	f.w.forget(r.watch)
}

// drop ends a watch by itself.
func (f *feed) drop(x *watch, why *code.Error) {
	f.over(x)
	f.end(request{watch: x, why: why})
}
