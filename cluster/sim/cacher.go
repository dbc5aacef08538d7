// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"margay.dev/broker/cache"
	"margay.dev/broker/host"
	"margay.dev/cluster/history"
	historycache "margay.dev/cluster/history/cache"
	"margay.dev/storage/keyindex"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// cacher is a client of a cache: it writes through a publisher, as the client library does, and reads beside it.
type cacher struct {
	w      *world
	plan   *logPlan
	ledger *ledger
	name   string
	pub    *publisher
	knows  map[string]uint64 // versions, as last heard

	conn   *conn // for reading
	asking int   // the newest request, 0 for none
	asked  int
	ids    map[string]historycache.ID // of what is asked
}

func newCacher(w *world, l *logPlan, n int) *cacher {
	c := &cacher{w: w, plan: l, ledger: w.ledgerOf(host.Ref{Log: l.ID}), name: fmt.Sprintf("cacher of %s %d", l.Name, n), knows: map[string]uint64{}}
	c.pub = newPublisher(w, l, caching, n)
	return c
}

func (c *cacher) String() string { return c.name }

func (c *cacher) start() {
	c.later(c.w.between(0, 30*time.Millisecond), c.write)
	c.later(c.w.between(0, 30*time.Millisecond), c.read)
}

func (c *cacher) done() bool { return c.pub.done() && c.asking == 0 }

func (c *cacher) later(d time.Duration, run func()) { c.w.after(d, c.name, always, run) }

// Keys of values, of numbers, and of values that are touched: of those a value says nothing of who wrote it.
const (
	plainKeys = "abcde"
	sumKeys   = "xy"
	touchKeys = "t"
)

func allKeys() string { return plainKeys + sumKeys + touchKeys }

func (c *cacher) write() {
	if c.w.calm {
		return
	}
	c.later(c.w.between(time.Millisecond, 40*time.Millisecond), c.write)
	if c.pub.line.Len() > 8 {
		return
	}
	n := 1
	if c.w.chance(5) {
		n += 1 + c.w.rng.IntN(3)
	}
	o := &outgoing{level: wire.AckDefault}
	x := &change{c: c}
	used := map[string]bool{}
	for range n {
		key := string(allKeys()[c.w.rng.IntN(len(allKeys()))])
		if !used[key] {
			used[key] = true
			x.add(o, key)
		}
	}
	o.done = x.done
	c.pub.push(o)
}

// change is what one publish asks of some keys.
type change struct {
	c   *cacher
	ops []historycache.Attempt
	ids []historycache.ID
}

func (x *change) add(o *outgoing, key string) {
	c, w := x.c, x.c.w
	a := historycache.Attempt{Client: c.name, Op: historycache.Put, Key: key}
	r := batch.Record{Key: []byte(key), Timestamp: w.wall().UnixMicro()}
	index := uint32(len(o.records))
	switch {
	case key >= "x":
		if a.Op = historycache.Add; w.chance(6) {
			a.Op = historycache.Delete
			break
		}
		a.Delta, a.KeepTTL = int64(w.rng.IntN(7))-2, true
		r.Value = fmt.Append(nil, a.Delta)
		o.derives = append(o.derives, wire.Derive{Record: index, Op: wire.OpAdd})
	case key == touchKeys && w.chance(2):
		a.Op = historycache.Touch
		o.derives = append(o.derives, wire.Derive{Record: index, Op: wire.OpTouch})
	case w.chance(5):
		a.Op = historycache.Delete
	default:
		size := 8 + w.rng.IntN(300)
		if w.chance(12) {
			size = 1500
		}
		value := fmt.Appendf(nil, "%016x", w.unique())
		for len(value) < size {
			value = append(value, byte('a'+w.rng.IntN(26)))
		}
		a.Value, r.Value = string(value), value
	}
	if a.Op != historycache.Delete && w.chance(3) {
		a.TTL, a.KeepTTL = w.between(time.Millisecond, 900*time.Millisecond).Truncate(time.Microsecond), false
		r.TTL = a.TTL
	}
	if a.Op != historycache.Touch && a.Op != historycache.Add && w.chance(3) {
		v := c.knows[key]
		if w.chance(5) {
			v = 0
		}
		a.If = &v
		o.conditions = append(o.conditions, wire.Condition{Record: index, Version: v})
	}
	o.records = append(o.records, r)
	x.ops = append(x.ops, a)
	x.ids = append(x.ids, c.ledger.begin(a))
}

// done takes the answer.
func (x *change) done(f *wire.Published, err *code.Error) {
	sums := []int64(nil)
	if f != nil {
		sums = f.Sums
	}
	for i, id := range x.ids {
		a := historycache.Answer{Outcome: outcome(err), Shard: 0}
		op := &x.ops[i]
		switch {
		case err == nil && f == nil:
			a.Outcome = history.Unknown
		case err == nil:
			a.Version, a.AppendTime = f.BaseOffset+uint64(i)+1, f.AppendTime
			if op.Op == historycache.Add {
				if len(sums) == 0 {
					x.c.w.violate("%s: a sum without a sum", x.c.name)
					return
				}
				a.Sum, sums = sums[0], sums[1:]
			}
			x.c.w.acked++
		default:
			x.refused(&a, op, i, err)
		}
		if err == nil && f != nil {
			x.c.knows[op.Key] = a.Version
			if op.Op == historycache.Delete {
				x.c.knows[op.Key] = 0
			}
		}
		x.c.ledger.end(id, a)
	}
}

// refused says what a refusal tells of one of the keys.
func (x *change) refused(a *historycache.Answer, op *historycache.Attempt, i int, err *code.Error) {
	if at, ok := err.Details.Get(code.DetailIndex); !ok || at != uint64(i) || a.Outcome != history.Fatal {
		return
	}
	switch err.Code {
	case code.Conflict:
		if have, ok := err.Details.Get(code.DetailLatest); ok {
			a.Have = &have
			x.c.knows[op.Key] = have
		}
	case code.NotFound: // a touch of what is not there
		a.Outcome, a.Version = history.Acked, 0
	default:
	}
}

func (c *cacher) receive(*conn, []byte) {}

func (c *cacher) broken(of *conn) {
	if of == c.conn {
		c.conn = nil
		c.giveUp()
	}
}

// giveUp forgets what is asked: its answer does not come.
func (c *cacher) giveUp() { c.asking, c.ids = 0, nil }

func (c *cacher) read() {
	if c.w.calm {
		return
	}
	c.later(c.w.between(time.Millisecond, 30*time.Millisecond), c.read)
	keys := []string{string(allKeys()[c.w.rng.IntN(len(allKeys()))])}
	if c.w.chance(3) {
		keys = append(keys, string(allKeys()[c.w.rng.IntN(len(allKeys()))]))
	}
	c.ask(slices.Compact(keys), c.w.chance(5))
}

// ask reads some keys, if nothing else is asked.
func (c *cacher) ask(keys []string, stale bool) {
	if c.asking != 0 {
		return
	}
	if c.conn == nil {
		if c.conn = c.w.dial(c); c.conn == nil {
			return
		}
	}
	c.asked++
	n, conn := c.asked, c.conn
	c.asking, c.ids = n, map[string]historycache.ID{}
	f := &wire.Get{Log: c.plan.ID, Stale: stale}
	for _, key := range keys {
		a := historycache.Attempt{Client: c.name, Op: historycache.Get, Key: key, Stale: stale}
		if stale {
			a.AtLeast = c.knows[key]
			f.AtLeast = max(f.AtLeast, a.AtLeast)
		}
		f.Keys = append(f.Keys, []byte(key))
		c.ids[key] = c.ledger.begin(a)
	}
	conn.toBroker(64, func() { conn.get(f, func(got *wire.Got, err error) { c.got(n, keys, got, err) }) })
	c.later(answerWait, func() {
		if c.asking == n {
			c.giveUp()
		}
	})
}

// got takes the answer of a read.
func (c *cacher) got(n int, keys []string, got *wire.Got, err error) {
	if n != c.asking {
		return
	}
	ids := c.ids
	c.giveUp()
	if err != nil {
		return
	}
	for i := range got.Entries {
		e := &got.Entries[i]
		a := historycache.Answer{Outcome: history.Acked, AsOf: got.AsOf}
		if e.Kind == wire.EntryValue {
			a.Version, a.Got, a.Expires, a.AppendTime = e.Version(), string(e.Value), &e.Expires, e.AppendTime
		}
		c.ledger.end(ids[keys[i]], a)
		c.knows[keys[i]] = a.Version
	}
}

// keyed is a shard for who reads by key: nobody would take the turn that it waits for.
type keyed struct{ *host.Shard }

func (s keyed) Keys(context.Context) (*keyindex.Index, *code.Error) {
	if x := s.View().Keys; x != nil {
		return x, nil
	}
	return nil, code.New(code.Opening, "the shard reads its log to learn its keys").Retry(20 * time.Millisecond)
}

// get is what the broker does with a Get.
func (c *conn) get(f *wire.Get, answered func(*wire.Got, error)) {
	answer := func(got *wire.Got, err error) { c.toClientRun(64, func() { answered(got, err) }) }
	s, refused := c.proc.led(f.Log)
	switch {
	case refused != nil:
		answer(nil, refused)
		return
	case !cache.Reached(s, f.AtLeast):
		answer(nil, code.New(code.Timeout, "it has not come that far"))
		return
	}
	c.proc.read(func() { answer(new(cache.Getter).Get(context.Background(), keyed{s}, f)) })
}
