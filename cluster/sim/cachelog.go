// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"margay.dev/broker/host"
	"margay.dev/cluster/history/cache"
	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
)

// cacheLog is the history of a cache, and when its attempts were under way.
type cacheLog struct {
	cache.Recorder

	spans []span
}

type span struct{ from, to time.Duration }

func (l *ledger) begin(a cache.Attempt) cache.ID {
	l.cache.spans = append(l.cache.spans, span{l.w.now, -1})
	return l.cache.Begin(a)
}

func (l *ledger) end(id cache.ID, a cache.Answer) {
	l.cache.spans[id].to = l.w.now
	l.cache.End(id, a)
}

// judge says what the history of a cache comes to.
func (l *ledger) judge() {
	for id, s := range l.cache.spans {
		l.cache.Times(cache.ID(id), l.w.wallAtLeast(s), l.w.wallAtMost(s))
	}
	for _, v := range l.cache.Check() {
		l.w.violate("%s", v)
	}
}

// keepTime sees to it that the wall clock of who opens a cache is not behind what it was before: a key that a reader was told
// is gone, and whose end was not written yet, would be there again, and nothing could know better.
func (w *world) keepTime() {
	for i := range w.plan.logs {
		if w.plan.logs[i].cachers == 0 {
			continue
		}
		if w.proc != nil && w.proc.host != nil {
			if _, refused := w.proc.led(w.plan.logs[i].ID); refused == nil {
				continue // it is open
			}
		}
		if back := time.Duration(w.wallAtMost(span{to: w.now})-w.wall().UnixMicro()) * time.Microsecond; back > 0 {
			w.skew += back
			w.walls = append(w.walls, struct{ at, skew time.Duration }{w.now, w.skew})
		}
	}
}

// wallAtLeast is the least that the wall clock showed in a span; atMost the most that it had ever shown by its end, since
// no shard's time falls.
func (w *world) wallAtLeast(s span) int64 {
	if s.to < 0 {
		s.to = w.now
	}
	var skew time.Duration
	for _, x := range w.walls {
		if x.at <= s.from {
			skew = x.skew
		}
	}
	least := s.from + skew
	for _, x := range w.walls {
		if x.at > s.from && x.at <= s.to {
			least = min(least, x.at+x.skew)
		}
	}
	return epoch.Add(least).UnixMicro()
}

func (w *world) wallAtMost(s span) int64 {
	if s.to < 0 {
		return 0
	}
	var skew, most time.Duration
	for _, x := range w.walls {
		if x.at <= s.to {
			most = max(most, x.at+skew)
			skew = x.skew
		}
	}
	return epoch.Add(max(most, s.to+skew)).UnixMicro()
}

// lookAround reads every key of every cache, now that nothing is under way.
func (w *world) lookAround() bool {
	for _, l := range w.ledgers {
		if l.plan.cachers == 0 {
			continue
		}
		c := &cacher{w: w, plan: l.plan, ledger: l, name: "reader of all", knows: map[string]uint64{}}
		for _, key := range allKeys() {
			before := l.cache.Counts()[cache.Get]
			for try := 0; l.cache.Counts()[cache.Get] == before; try++ {
				if try == 20 {
					w.violate("R6 %s: key %c cannot be read", l.plan.Name, key)
					return false
				}
				c.ask([]string{string(key)}, false)
				if !w.runWhile(func() bool { return c.asking != 0 }) {
					return false
				}
			}
		}
		if c.conn != nil {
			c.conn.leave()
		}
	}
	return true
}

// checkKeys holds the key index of a shard against what its log says, replayed in the simplest way.
func (l *ledger) checkKeys(s *host.Shard) {
	v := s.View()
	if v.Keys == nil {
		return
	}
	says, err := replayKeys(s, v.Start.Sequence, v.Mark)
	if err != nil {
		return // the disk fails just now
	}
	if seq, offset := v.Keys.AsOf(); seq != v.Mark || offset != v.Ceiling {
		l.w.violate("C1 %s: the index is as of %d, offset %d; committed is %d, offset %d", l.plan.Name, seq, offset, v.Mark, v.Ceiling)
	}
	have := map[string]keyindex.Entry{}
	v.Keys.Ascend("", "", false, func(key string, e keyindex.Entry) bool {
		have[key] = e
		return true
	})
	for _, key := range slices.Sorted(maps.Keys(says)) {
		want, e := says[key], have[key]
		delete(have, key)
		switch {
		case !want.there || !v.Holds(want.Entry, 0):
			if e.Sequence != 0 && v.Holds(e, 0) {
				l.w.violate("C1 %s: key %q is gone since offset %d, and the index has offset %d", l.plan.Name, key, want.Offset, e.Offset)
			}
		case e.Offset != want.Offset, e.Sequence != want.Sequence, e.Until != want.Until:
			l.w.violate("C1 %s: key %q has offset %d in batch %d until %d, and the index says %d in %d until %d", l.plan.Name, key,
				want.Offset, want.Sequence, want.Until, e.Offset, e.Sequence, e.Until)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if v.Holds(have[key], 0) {
			l.w.violate("C1 %s: the index has key %q at offset %d, and the log does not", l.plan.Name, key, have[key].Offset)
		}
	}
}

// word is the last that a log says of a key.
type word struct {
	keyindex.Entry

	there bool
}

// replayKeys reads the log from a sequence on. The higher offset has the last word, wherever it lies.
func replayKeys(s *host.Shard, from, to uint64) (map[string]word, error) {
	says := map[string]word{}
	for seq := from; seq < to; {
		chunk, err := s.Read(nil, seq, 1)
		if err != nil || len(chunk) == 0 {
			return nil, fmt.Errorf("nothing at %d: %w", seq, err)
		}
		b := batch.Batch(chunk)
		b = b[:b.Size()]
		seq = b.Sequence() + 1
		if b.IsControl() {
			continue
		}
		var m batch.Meta
		for metas := b.Metas(); ; {
			ok, err := metas.Next(&m)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			if was, ok := says[string(m.Key)]; m.Key == nil || ok && was.Offset > metas.Offset() {
				continue
			}
			x := word{there: !m.Null}
			x.Offset, x.Sequence, x.Carried = metas.Offset(), b.Sequence(), b.IsCarried()
			if m.TTL > 0 {
				x.Until = metas.AppendTime() + m.TTL.Microseconds()
			}
			says[string(m.Key)] = x
		}
	}
	return says, nil
}
