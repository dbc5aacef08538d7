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

const (
	modelWindow = 50 * time.Millisecond
	modelIDs    = 6
)

// attempt is one publish as its publisher remembers it. Its batches tell it by their timestamp.
type attempt struct {
	id    int64
	named bool               // it has a producer id, so that a retry is recognized
	batch func() batch.Batch // the same bytes each time
	conds []shard.Condition
	dedup string
}

// told is what an answer rests on: the batch that must be committed when it is given, and for ever after.
type told struct {
	id      int64 // of the attempt whose batch it is; 0 for none
	version uint64
}

// register drives a core with conditional publishes, and decides each by itself from the log alone.
type register struct {
	*log
	t        *rapid.T
	durable  int
	attempts []attempt
	waiting  map[string]told // by whom to answer
	rests    []int64         // attempts whose batches answers rested on
	builds   []*shard.BuildKeys
	tries    int
}

// newestRecord is the model's word on a key: what the log says, read from its beginning.
type newestRecord struct {
	id         int64
	offset     uint64
	until      int64
	gone, some bool
}

func (w *register) all() []batch.Batch {
	return append(append([]batch.Batch(nil), w.batches...), w.eff.Append...)
}

func (w *register) newest(key []byte) (n newestRecord) {
	for _, b := range w.all() {
		metas := b.Metas()
		var m batch.Meta
		for {
			ok, err := metas.Next(&m)
			if err != nil {
				w.t.Fatal(err)
			}
			if !ok {
				break
			}
			if string(m.Key) != string(key) {
				continue
			}
			n = newestRecord{id: b.FirstTimestamp(), offset: metas.Offset(), gone: m.Null, some: true}
			if m.TTL > 0 {
				n.until = b.AppendTime() + m.TTL.Microseconds()
			}
		}
	}
	return n
}

func (w *register) version(key []byte, at int64) (uint64, newestRecord) {
	n := w.newest(key)
	if !n.some || n.gone || n.offset < w.core.View().Start.Offset || n.until != 0 && n.until <= at {
		return 0, n
	}
	return n.offset + 1, n
}

// firstOf is the batch that an id counts as stored by, and how many ids count.
func (w *register) firstOf(id string, at int64) (first batch.Batch, alive int) {
	firsts := map[string]batch.Batch{}
	for _, b := range w.all() {
		if d := string(b.DedupID()); d != "" {
			if f, ok := firsts[d]; !ok || b.AppendTime()-f.AppendTime() >= modelWindow.Microseconds() {
				firsts[d] = b
			}
		}
	}
	for d, b := range firsts {
		if at-b.AppendTime() >= modelWindow.Microseconds() {
			continue
		}
		alive++
		if d == id {
			first = b
		}
	}
	return first, alive
}

func (w *register) stored(id int64) batch.Batch {
	for _, b := range w.all() {
		if b.FirstTimestamp() == id {
			return b
		}
	}
	return nil
}

// modelKeys has some that are written often and some that are not: those may be left to retention.
var modelKeys = [][]byte{[]byte("a"), {}, []byte("b"), []byte("c"), []byte("d"), []byte("e")}

func (w *register) draw(keys int) attempt {
	t := w.t
	a := attempt{id: int64(len(w.attempts) + 1), named: rapid.IntRange(0, 4).Draw(t, "named") == 0}
	if rapid.IntRange(0, 3).Draw(t, "dedup") == 0 {
		a.dedup = fmt.Sprintf("id%d", rapid.IntRange(1, 8).Draw(t, "id"))
	}
	n := 1
	if a.dedup == "" {
		n = rapid.IntRange(1, 3).Draw(t, "records")
	}
	recs := make([]batch.Record, n)
	at := max(w.now+1, w.core.View().LastAppend)
	for i := range recs {
		r := &recs[i]
		r.Key = rapid.SampledFrom(modelKeys[:keys]).Draw(t, "key")
		r.Timestamp = a.id
		if rapid.IntRange(0, 3).Draw(t, "tombstone") != 0 {
			r.Value = fmt.Appendf(nil, "%d/%d", a.id, i)
		}
		if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
			r.TTL = time.Duration(rapid.IntRange(1, 40).Draw(t, "ttl")) * time.Millisecond
		}
		if a.dedup != "" {
			r.Headers = []batch.Header{{Key: batch.DedupHeader, Value: []byte(a.dedup)}}
		}
		if rapid.IntRange(0, 2).Draw(t, "conditional") == 0 {
			continue
		}
		v, _ := w.version(r.Key, at)
		switch rapid.IntRange(0, 5).Draw(t, "expects") {
		case 0:
			v = 0
		case 1:
			v = uint64(rapid.IntRange(0, 12).Draw(t, "version"))
		}
		a.conds = append(a.conds, shard.Condition{Record: i, Version: v})
	}
	a.batch = func() batch.Batch {
		if !a.named {
			return build(w.log.t, 0, 0, recs...)
		}
		return build(w.log.t, uint64(a.id), 1, recs...)
	}
	return a
}

func build(t *testing.T, producer, seq uint64, recs ...batch.Record) batch.Batch {
	t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	for _, r := range recs {
		if err := bl.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Build(producer, seq, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (w *register) publishNew(keys int) {
	a := w.draw(keys)
	w.attempts = append(w.attempts, a)
	w.try(a)
}

func (w *register) publishAgain() {
	if len(w.attempts) == 0 {
		return
	}
	if a := rapid.SampledFrom(w.attempts).Draw(w.t, "which"); a.named {
		w.try(a)
	}
}

// try publishes, and compares what became of it with what the log says it must.
func (w *register) try(a attempt) {
	w.tries++
	w.step(shard.Space{}) // whatever is due
	at := max(w.now+1, w.core.View().LastAppend)
	want, rest := w.decide(a, at)
	to := fmt.Sprintf("%d#%d", a.id, w.tries)
	before, answered := len(w.eff.Append), len(w.eff.Answers)
	b := a.batch()
	w.step(&shard.Publish{Batch: b, Conditions: a.conds, To: to})
	appended := len(w.eff.Append) > before
	w.waiting[to] = rest
	var err *code.Error
	if len(w.eff.Answers) > answered {
		err = w.eff.Answers[len(w.eff.Answers)-1].Err
	}
	if err != nil && err.Code == code.Opening && len(a.conds) > 0 {
		if appended || want == "duplicate" || want == "full" {
			w.t.Fatalf("%s: refused as %v, want %s", to, err, want)
		}
		delete(w.waiting, to)
		return
	}
	switch {
	case (want == "stored") != appended:
		w.t.Fatalf("%s (conditions %v): appended %v, want %s", to, a.conds, appended, want)
	case (want == "full") != (err != nil && err.Code == code.TooMany):
		w.t.Fatalf("%s: %v, want %s", to, err, want)
	case want == "stored":
		w.waiting[to] = told{id: a.id}
	}
}

// decide is the rule, by the log alone: what happens to the attempt, and what its answer rests on.
func (w *register) decide(a attempt, at int64) (string, told) {
	if a.named && w.stored(a.id) != nil {
		return "duplicate", told{id: a.id}
	}
	if a.dedup != "" {
		first, alive := w.firstOf(a.dedup, at)
		if first != nil {
			return "duplicate", told{id: first.FirstTimestamp()}
		}
		if alive >= modelIDs {
			return "full", told{}
		}
	}
	if len(a.conds) == 0 {
		return "stored", told{}
	}
	metas := a.batch().Metas()
	var m batch.Meta
	next := 0
	for i := 0; ; i++ {
		if ok, err := metas.Next(&m); err != nil || !ok {
			return "stored", told{}
		}
		if next == len(a.conds) || a.conds[next].Record != i {
			continue
		}
		if have, n := w.version(m.Key, at); have != a.conds[next].Version {
			return "conflict", told{id: n.id, version: have}
		}
		next++
	}
}

// gather takes what was answered and leaves what is still to be written.
func (w *register) gather() {
	unwritten := append([]batch.Batch(nil), w.eff.Append...)
	w.collect()
	w.eff.Append = append(w.eff.Append, unwritten...)
}

// build hands over a table that was asked for, perhaps by a core that is no more.
func (w *register) build() {
	if b := w.asked(); b != nil {
		start := w.core.View().Start.Sequence
		for _, x := range w.batches[:min(int(b.Until), len(w.batches))] {
			if x.Sequence() < b.From || x.Sequence() < start && rapid.Bool().Draw(w.t, "dropped") {
				continue
			}
			if err := b.Add(x); err != nil {
				w.t.Fatal(err)
			}
		}
		w.step(shard.KeysBuilt{Build: b})
	}
}

func (w *register) buildFails() {
	if b := w.asked(); b != nil {
		w.step(shard.KeysBuilt{Build: b, Err: code.New(code.Opening, "unreadable")})
	}
}

func (w *register) asked() *shard.BuildKeys {
	w.gather()
	if w.log.build != nil {
		w.builds = append(w.builds, w.log.build)
		w.log.build = nil
	}
	if len(w.builds) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(w.builds)-1).Draw(w.t, "which build")
	b := w.builds[i]
	w.builds = append(w.builds[:i], w.builds[i+1:]...)
	return b
}

func (w *register) flushOut() {
	w.flush()
	w.durable = len(w.batches)
}

// flushPart flushes some of what is written.
func (w *register) flushPart() {
	w.write()
	w.durable = rapid.IntRange(w.durable, len(w.batches)).Draw(w.t, "flushed")
	w.step(shard.Flushed{Length: uint64(w.durable)})
	w.collect()
}

func (w *register) failWrite() {
	if len(w.eff.Append) == 0 {
		return
	}
	w.eff.Append = w.eff.Append[:0]
	w.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	w.collect()
}

// loseFlush ends the core: nobody can say what of the pending part is on the disk.
func (w *register) loseFlush() {
	w.write()
	w.step(shard.Lost{Err: code.New(code.OutcomeUnknown, "lost")})
	w.collect()
	w.restart(rapid.IntRange(w.durable, len(w.batches)).Draw(w.t, "kept"))
}

func (w *register) cutPower() {
	w.check()
	w.waiting = map[string]told{} // nobody answers any more
	w.eff.Reset()
	w.restart(rapid.IntRange(w.durable, len(w.batches)).Draw(w.t, "batches that reached the disk"))
}

func (w *register) restart(keep int) {
	for keep < len(w.batches) && keep > 0 && w.batches[keep-1].IsCheckpoint() {
		if part, ok := w.batches[keep-1].CheckpointPart(); ok && part.Last() {
			break
		}
		keep-- // storage drops a checkpoint that is not whole
	}
	w.batches = w.batches[:keep]
	w.durable = keep
	w.reopen()
}

func (w *register) expire() {
	w.now += int64(rapid.IntRange(-60_000, 80_000).Draw(w.t, "us")) // a clock may be set back
}

// retain drops segments as retention by bytes does.
func (w *register) retain() {
	w.flushOut()
	var segs []shard.Segment
	for _, b := range w.batches {
		if b.IsCheckpointStart() {
			segs = append(segs, shard.Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
		}
		if n := len(segs); n > 0 {
			segs[n-1].Bytes += int64(b.Size())
		}
	}
	for len(segs) > 0 && segs[0].BaseSequence < w.core.View().Start.Sequence {
		segs = segs[1:]
	}
	w.step(shard.Tick{Segments: segs})
}

func (w *register) check() {
	w.gather()
	committed := map[int64]uint64{}
	for _, b := range w.batches[:w.core.View().Mark] {
		committed[b.FirstTimestamp()] = b.BaseOffset()
	}
	for _, a := range w.answers {
		to := a.To.(string)
		rest, asked := w.waiting[to]
		if !asked {
			continue
		}
		delete(w.waiting, to)
		if a.Err != nil && a.Err.Code != code.Conflict {
			continue
		}
		if at, ok := committed[rest.id]; rest.id != 0 {
			if !ok {
				w.t.Fatalf("%s is told %+v, %v before what that rests on, the batch of %d, is committed", to, a.Ack, a.Err, rest.id)
			}
			if a.Err == nil && a.Ack.BaseOffset != at {
				w.t.Fatalf("%s is told offset %d, it is %d", to, a.Ack.BaseOffset, at)
			}
			if a.Err == nil && a.Ack.Generation != w.batches[w.indexOf(at)].Generation() {
				w.t.Fatalf("%s is told generation %d", to, a.Ack.Generation)
			}
			w.rests = append(w.rests, rest.id)
		}
		if a.Err != nil && a.Err.Details.Latest != rest.version {
			w.t.Fatalf("%s is told version %d, it is %d", to, a.Err.Details.Latest, rest.version)
		}
	}
	w.answers = nil
	for _, id := range w.rests {
		if _, ok := committed[id]; !ok {
			w.t.Fatalf("an answer rested on the batch of %d, which is lost", id)
		}
	}
}

func (w *register) indexOf(offset uint64) int {
	for i, b := range w.batches {
		if !b.IsControl() && b.BaseOffset() == offset {
			return i
		}
	}
	return 0
}

// Conditions and dedup ids, whatever happens in whatever order: each publish is decided by what the log in front of
// it says and by nothing else, and no answer is given before what it rests on can no longer be lost (CA-07, ID-05).
func TestConditionsAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &register{
			log: newLog(t, shard.Config{
				SegmentBytes: 4 << 10, MaxBytes: 8 << 10, DedupWindow: modelWindow, MaxDedupIDs: modelIDs,
			}),
			t: rt, waiting: map[string]told{},
		}
		burst := func(*rapid.T) {
			for range 30 {
				w.publishNew(2)
				w.write()
			}
			w.flushOut()
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish":     func(*rapid.T) { w.publishNew(len(modelKeys)) },
			"more":        func(*rapid.T) { w.publishNew(len(modelKeys)) },
			"again":       func(*rapid.T) { w.publishAgain() },
			"burst":       burst,
			"build":       func(*rapid.T) { w.build() },
			"build fails": func(*rapid.T) { w.buildFails() },
			"write":       func(*rapid.T) { w.write() },
			"flush part":  func(*rapid.T) { w.flushPart() },
			"flush":       func(*rapid.T) { w.flushOut() },
			"write fails": func(*rapid.T) { w.failWrite() },
			"lost flush":  func(*rapid.T) { w.loseFlush() },
			"power cut":   func(*rapid.T) { w.cutPower() },
			"time":        func(*rapid.T) { w.expire() },
			"retention":   func(*rapid.T) { w.retain() },
			"":            func(*rapid.T) { w.check() },
		})
	})
}
