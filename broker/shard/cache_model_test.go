// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const cacheKeys = 5

// cacheRun drives a core that keeps the newest of each key, and holds what its index says to what the log says, read whole
// from its beginning: whatever was carried and given up meanwhile.
type cacheRun struct {
	*log
	t       *rapid.T
	durable int
	carry   *shard.Carry // handed over and not answered
	at      uint64       // the next batch of the head to look at
	skip    int
	gave    bool // the carry was answered with an error
}

// whole is what every batch that is committed says of a key, also those that were given up.
func (w *cacheRun) whole(key string, at int64) (value string, ok bool) {
	for _, b := range w.batches[:w.core.View().Mark] {
		if !b.HasOffsets() {
			continue
		}
		records := b.Records()
		for {
			var r batch.Record
			more, err := records.Next(&r)
			if err != nil {
				w.t.Fatal(err)
			}
			if !more {
				break
			}
			if string(r.Key) != key {
				continue
			}
			value, ok = string(r.Value), r.Value != nil
			if r.TTL > 0 && b.AppendTime()+r.TTL.Microseconds() <= at {
				ok = false
			}
		}
	}
	return value, ok
}

func (w *cacheRun) check(*rapid.T) {
	w.collectAnswers()
	v := w.core.View()
	if v.Keys == nil {
		return
	}
	at := max(w.now, v.LastAppend)
	for i := range cacheKeys {
		key := fmt.Sprintf("k%d", i)
		want, ok := w.whole(key, at)
		have, has := "", false
		if e, known := v.Keys.Get([]byte(key)); known && v.Holds(e, at) {
			if e.Sequence < v.Start.Sequence {
				w.t.Fatalf("%s lies at %+v, below the start %+v", key, e, v.Start)
			}
			r, err := shard.FindRecord(w.batches[e.Sequence], e.Offset)
			if err != nil {
				w.t.Fatal(err)
			}
			have, has = string(r.Value), true
		}
		if has != ok || ok && have != want {
			w.t.Fatalf("%s holds %q (%v), and the log says %q (%v)", key, have, has, want, ok)
		}
	}
	if seq, offset := v.Keys.AsOf(); seq != v.Mark || offset != v.Ceiling {
		w.t.Fatalf("the index is as of %d, %d; the mark is %d, %d", seq, offset, v.Mark, v.Ceiling)
	}
}

func (w *cacheRun) key(t *rapid.T) string {
	return fmt.Sprintf("k%d", rapid.IntRange(0, cacheKeys-1).Draw(t, "key"))
}

func (w *cacheRun) record(t *rapid.T) {
	r := batch.Record{Key: []byte(w.key(t)), Value: fmt.Appendf(nil, "v%d-%0400d", w.now, 0), Timestamp: 1}
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		r.Value = nil
	case 1:
		r.TTL = time.Duration(rapid.IntRange(1, 200).Draw(t, "ttl")) * time.Microsecond
	}
	w.step(&shard.Publish{Batch: build(w.log.t, 0, 0, r), To: "set"})
}

func (w *cacheRun) flushAll(*rapid.T) {
	w.flush()
	w.durable = len(w.batches)
	w.answered()
}

func (w *cacheRun) writeOnly(*rapid.T) { w.write(); w.answered() }

func (w *cacheRun) writeFails(*rapid.T) {
	w.collectAnswers()
	w.eff.Append = w.eff.Append[:0]
	w.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	w.collect()
	w.answered()
}

// crash cuts off what is not flushed, as an opening finds it.
func (w *cacheRun) crash(t *rapid.T) {
	w.collectAnswers()
	w.eff.Reset()
	w.batches = w.batches[:rapid.IntRange(w.durable, len(w.batches)).Draw(t, "kept")]
	w.durable = len(w.batches)
	w.carry, w.head, w.build = nil, nil, nil
	w.reopen()
	w.step(shard.Time{})
	w.collect()
}

func (w *cacheRun) learnKeys(*rapid.T) {
	w.collectKeep()
	if w.build != nil {
		w.learn()
	}
}

// collectKeep takes what a step asks for and leaves what is to be written.
func (w *cacheRun) collectKeep() {
	unwritten := append([]batch.Batch(nil), w.eff.Append...)
	w.collect()
	w.eff.Append = append(w.eff.Append, unwritten...)
}

func (w *cacheRun) passTime(t *rapid.T) {
	w.now += int64(rapid.IntRange(1, 100).Draw(t, "time"))
	w.step(shard.Time{})
}

func (w *cacheRun) tick(*rapid.T) {
	if w.head != nil || len(w.batches) == 0 {
		return
	}
	var segs []shard.Segment
	start := w.core.View().Start
	for _, b := range w.batches {
		if b.Sequence() < start.Sequence {
			continue
		}
		if b.IsCheckpointStart() {
			segs = append(segs, shard.Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
		}
		segs[len(segs)-1].Bytes += int64(b.Size())
	}
	w.step(shard.Tick{Segments: segs})
	w.collectKeep()
	if w.head != nil {
		w.at, w.skip, w.gave = w.head.From.Sequence, 0, false
	}
}

// carryOn does what the shell does: looks at some of the head and has it carried, or ends it.
func (w *cacheRun) carryOn(t *rapid.T) {
	w.collectKeep()
	x := w.core.View().Keys
	if w.head == nil || w.carry != nil || x == nil {
		return
	}
	if w.gave {
		w.step(shard.Carried{Head: *w.head, Err: code.New(code.Unavailable, "given up")})
		w.head = nil
		return
	}
	ev := &shard.Carry{To: "carry"}
	most := rapid.IntRange(1, 4).Draw(t, "most")
	for ; w.at < w.head.To.Sequence && len(ev.Records) < most; w.at++ {
		b := w.batches[w.at]
		records := b.Records()
		for {
			var r batch.Record
			more, err := records.Next(&r)
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			if r.Value != nil && shard.Live(x, r.Key, records.Offset(), b.Sequence()) {
				ev.Records = append(ev.Records, batch.Carried{Record: r.Clone(), Offset: records.Offset(), Generation: records.Generation(), AppendTime: records.AppendTime()})
				ev.Sequence = append(ev.Sequence, b.Sequence())
			}
		}
	}
	if len(ev.Records) == 0 {
		w.step(shard.Carried{Head: *w.head})
		w.head = nil
		return
	}
	w.carry = ev
	w.step(ev)
}

// answered looks for the answer to what is being carried.
func (w *cacheRun) answered() {
	for _, a := range w.answers {
		if a.To == "carry" {
			w.carry = nil
			w.gave = w.gave || a.Err != nil
		}
	}
	w.answers = w.answers[:0]
}

// S2, S10, CA-05, CA-09: whatever is written, deleted, expired, carried, given up, lost and opened again, in whatever
// order: what the index says of each key is what the whole log says.
func TestCacheAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := cache(t, func(c *shard.Config) { c.SegmentBytes = 4 << 10 })
		w := &cacheRun{log: l, t: rt}
		for range rapid.IntRange(0, 5).Draw(rt, "before") { // so that there is a head to give up
			for range 8 {
				w.record(rt)
			}
			w.flushAll(rt)
		}
		w.tick(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"":        w.check,
			"record":  w.record,
			"record2": w.record,
			"record3": func(t *rapid.T) {
				for range 8 {
					w.record(t)
				}
				w.flushAll(t)
			},
			"add": func(t *rapid.T) {
				w.step(&shard.Publish{
					Batch:   build(l.t, 0, 0, batch.Record{Key: []byte(w.key(t)), Value: []byte("1"), Timestamp: 1}),
					Derives: []shard.Derive{{Op: shard.OpAdd}}, To: "add",
				})
			},
			"write":  w.writeOnly,
			"flush":  w.flushAll,
			"flush2": w.flushAll,
			"fails":  w.writeFails,
			"crash":  w.crash,
			"learn":  w.learnKeys,
			"time":   w.passTime,
			"tick":   w.tick,
			"tick2":  w.tick,
			"race": func(t *rapid.T) { // a write that is pending when its key is carried
				w.tick(t)
				w.record(t)
				w.carryOn(t)
			},
			"carry":  w.carryOn,
			"carry2": w.carryOn,
		})
	})
}
