// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// put publishes one record under the condition that its key has this version.
func (l *log) put(key, val string, version uint64, edit ...func(*batch.Record)) {
	l.t.Helper()
	r := batch.Record{Key: []byte(key), Value: []byte(val), Timestamp: 1}
	for _, f := range edit {
		f(&r)
	}
	l.step(&shard.Publish{Batch: build(l.t, 0, 0, r), Conditions: []shard.Condition{{Version: version}}, To: val})
}

// set publishes one record without a condition.
func (l *log) set(key, val string, edit ...func(*batch.Record)) {
	l.t.Helper()
	r := batch.Record{Key: []byte(key), Value: []byte(val), Timestamp: 1}
	for _, f := range edit {
		f(&r)
	}
	l.step(&shard.Publish{Batch: build(l.t, 0, 0, r), To: val})
}

// learn hands over the table that was asked for.
func (l *log) learn() {
	l.t.Helper()
	b := l.build
	if b == nil {
		l.t.Fatal("no table was asked for")
	}
	l.build = nil
	for _, x := range l.batches[b.From:b.Until] {
		if err := b.Add(x); err != nil {
			l.t.Fatal(err)
		}
	}
	l.step(shard.KeysBuilt{Build: b})
}

// learned makes the core know its versions.
func (l *log) learned() {
	l.t.Helper()
	l.put("probe", "probe", 9999)
	l.flush()
	if wantOpening(l.lastAnswer().Err) {
		l.learn()
	}
	l.flush()
}

func wantOpening(err *code.Error) bool { return err != nil && err.Code == code.Opening }

// wantAnswer demands that the last answer is to val: stored when version is 0, else a conflict that names it.
func (l *log) wantStored(val string, offset uint64) {
	l.t.Helper()
	if a := l.lastAnswer(); a.To != val || a.Err != nil || a.Ack.BaseOffset != offset {
		l.t.Fatalf("answered %v %+v, %v; want %s stored at %d", a.To, a.Ack, a.Err, val, offset)
	}
}

func (l *log) wantConflict(val string, version uint64) {
	l.t.Helper()
	a := l.lastAnswer()
	if a.To != val || a.Err == nil || a.Err.Code != code.Conflict || a.Err.Class != code.ClassFatal {
		l.t.Fatalf("answered %v %+v, %v; want %s in conflict", a.To, a.Ack, a.Err, val)
	}
	if have, ok := a.Err.Details.Get(code.DetailLatest); !ok || have != version {
		l.t.Fatalf("%s is told version %d, want %d", val, have, version)
	}
}

// CA-07: of those that expect one version exactly one wins, also when all are asked before any is durable; who
// loses is told so when the winner is committed, and not before.
func TestExactlyOneWins(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.put("k", "first", 0)
	for i := range 5 {
		l.put("k", fmt.Sprintf("late%d", i), 0)
	}
	l.write()
	if len(l.answers) != 0 {
		t.Fatalf("answered from what is pending: %+v", l.answers)
	}
	l.flush()
	if len(l.answers) != 6 || l.answers[0].Err != nil {
		t.Fatalf("answers %+v", l.answers)
	}
	l.wantConflict("late4", 1)
	l.put("k", "second", 1)
	l.flush()
	l.wantStored("second", 1)
	l.put("k", "stale", 1)
	l.flush()
	l.wantConflict("stale", 2)
	if d, _ := l.lastAnswer().Err.Details.Get(code.DetailIndex); d != 0 {
		t.Errorf("index %d", d)
	}
}

// Who lost against a record that was then not stored is not told of it: the attempt is refused, and wins when it is
// made again.
func TestLosingAgainstWhatIsLost(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.put("k", "first", 0)
	l.put("k", "late", 0)
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	if len(l.answers) != 2 {
		t.Fatalf("answers %+v", l.answers)
	}
	for _, a := range l.answers {
		if a.Err == nil || a.Err.Code != code.StorageFull {
			t.Fatalf("%v is told %v", a.To, a.Err)
		}
	}
	l.put("k", "late", 0)
	l.flush()
	l.wantStored("late", 0)
}

// CA-06: a key is absent when it was never written, deleted, or has expired, at its deadline and not after it, by the
// shard's own clock, which does not go back; all of it also when the table was made from the log.
func TestAbsentKeys(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("made again %v", again), func(t *testing.T) {
			l := newLog(t, shard.Config{})
			l.put("gone", "a", 0)
			l.set("gone", "", func(r *batch.Record) { r.Value = nil })
			l.set("empty", "")
			l.set("ttl", "b", func(r *batch.Record) { r.TTL = time.Second })
			l.set("long", "c", func(r *batch.Record) { r.TTL = 1 << 62 })
			l.flush()
			until := l.batches[len(l.batches)-2].AppendTime() + time.Second.Microseconds()
			if again {
				l.reopen()
			}
			l.now = until - 10
			l.learned()
			l.put("empty", "x", 0)
			l.flush()
			l.wantConflict("x", 3)
			l.put("long", "y", 0)
			l.flush()
			l.wantConflict("y", 5)
			l.now = until - 2
			l.put("ttl", "early", 0)
			l.flush()
			l.wantConflict("early", 4)
			l.now = until - 1 // the step is at until
			l.set("other", "passes the deadline")
			l.now = until - 500_000
			l.put("ttl", "z", 0)
			l.flush()
			l.wantStored("z", 6)
			l.put("gone", "back", 0)
			l.flush()
			l.wantStored("back", 7)
		})
	}
}

// Several conditions of one batch all hold, or nothing is stored. What makes no sense is said to.
func TestConditionsOfOneBatch(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.put("a", "a1", 0)
	l.put("b", "b1", 0)
	l.flush()
	both := func(conds ...shard.Condition) shard.Answer {
		t.Helper()
		rec := func(k string) batch.Record { return batch.Record{Key: []byte(k), Value: []byte("2"), Timestamp: 1} }
		free := batch.Record{Value: []byte("no key"), Timestamp: 1}
		l.step(&shard.Publish{Batch: build(t, 0, 0, rec("a"), free, rec("b")), Conditions: conds, To: "both"})
		l.flush()
		return l.lastAnswer()
	}
	length := l.core.View().Length
	for name, conds := range map[string][]shard.Condition{
		"the second fails": {{Record: 0, Version: 1}, {Record: 2, Version: 1}},
		"beyond the batch": {{Record: 0, Version: 1}, {Record: 3, Version: 2}},
		"no key":           {{Record: 0, Version: 1}, {Record: 1, Version: 0}},
		"not rising":       {{Record: 2, Version: 2}, {Record: 0, Version: 1}},
		"twice":            {{Record: 0, Version: 1}, {Record: 0, Version: 1}},
	} {
		a := both(conds...)
		want := code.BadRequest
		if name == "the second fails" {
			want = code.Conflict
			if i, ok := a.Err.Details.Get(code.DetailIndex); !ok || i != 2 {
				t.Errorf("the record that failed is %d", i)
			}
		}
		if a.Err == nil || a.Err.Code != want || l.core.View().Length != length {
			t.Errorf("%s: %+v, %v, length %d", name, a.Ack, a.Err, l.core.View().Length)
		}
	}
	if a := both(shard.Condition{Record: 0, Version: 1}, shard.Condition{Record: 2, Version: 2}); a.Err != nil || a.Ack.BaseOffset != 2 {
		t.Fatalf("both hold: %+v", a)
	}
}

// S7: the retry of a conditional batch that was stored is a duplicate, though its condition no longer holds.
func TestRetryOfConditional(t *testing.T) {
	l := newLog(t, shard.Config{})
	try := func() {
		t.Helper()
		b := build(t, 7, 1, batch.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: 1})
		l.step(&shard.Publish{Batch: b, Conditions: []shard.Condition{{}}, To: "try"})
	}
	try()
	try()
	l.flush()
	l.reopen()
	try()
	l.flush()
	if len(l.answers) != 3 {
		t.Fatalf("answers %+v", l.answers)
	}
	for i, a := range l.answers {
		if a.Err != nil || a.Ack.BaseOffset != 0 || a.Ack.Duplicate != (i > 0) {
			t.Errorf("try %d: %+v, %v", i, a.Ack, a.Err)
		}
	}
}

// A shard with more keys than it may remember refuses conditions and nothing else, is never wrong, and compares again
// when there are fewer. Keys that are absent do not count for long.
func TestKeysAreBounded(t *testing.T) {
	l := newLog(t, shard.Config{MaxKeys: 80, SegmentBytes: 4 << 10, MaxBytes: 8 << 10})
	l.put("k", "first", 0)
	for i := range 400 { // far more than may be, few of them alive
		l.set(fmt.Sprintf("t%d", i), "x", func(r *batch.Record) { r.TTL = 5 * time.Microsecond })
		l.flush()
	}
	l.put("k", "second", 1)
	l.flush()
	l.wantStored("second", 401)
	for i := range 90 {
		l.set(fmt.Sprintf("k%d", i), "x")
	}
	l.flush()
	l.put("k", "third", 402)
	l.flush()
	if a := l.lastAnswer(); a.Err == nil || a.Err.Code != code.TooMany || a.Err.Class != code.ClassRefused {
		t.Fatalf("with too many keys: %+v", a)
	}
	l.set("k", "free")
	l.flush()
	l.wantStored("free", 492)
	l.now += time.Hour.Microseconds()
	for i := range 300 { // until retention has taken the many
		l.set("k", fmt.Sprintf("%0100d", i))
		l.flush()
	}
	l.retainByBytes()
	l.learned()
	l.put("k", "fourth", 793)
	l.flush()
	l.wantStored("fourth", 793)
	l.put("k0", "new", 0) // what retention removed is absent
	l.flush()
	l.wantStored("new", 794)
}

// A table that was being made and could not take every key is not used, even if there are fewer keys by then: one that
// was left out would seem absent.
func TestKeysAreWhole(t *testing.T) {
	l := newLog(t, shard.Config{MaxKeys: 80})
	for i := range 90 {
		l.set(fmt.Sprintf("k%d", i), "x", func(r *batch.Record) {
			if i < 70 {
				r.TTL = time.Second
			}
		})
	}
	l.flush()
	l.put("k89", "x", 0)
	l.flush()
	l.now += time.Minute.Microseconds()
	l.learn()
	l.put("k89", "x", 0)
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.TooMany)
	l.now += time.Hour.Microseconds()
	l.learned()
	l.put("k89", "x", 0)
	l.flush()
	l.wantConflict("x", 90)
}

// retainByBytes lets retention look at the log's segments.
func (l *log) retainByBytes() {
	var segs []shard.Segment
	for _, b := range l.batches {
		if b.IsCheckpointStart() {
			segs = append(segs, shard.Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
		}
		segs[len(segs)-1].Bytes += int64(b.Size())
	}
	l.step(shard.Tick{Segments: segs})
	l.flush()
}

// A log that cannot be read refuses conditions with the reason for a moment; then it is tried again. A table that
// nobody waits for any more is not taken.
func TestKeysCannotBeRead(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.set("k", "v")
	l.flush()
	l.put("k", "x", 1)
	l.flush()
	stale := l.build
	l.step(shard.KeysBuilt{Build: stale, Err: code.New(code.Unavailable, "no")})
	l.put("k", "x", 1)
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.Unavailable)
	l.now += 2 * time.Second.Microseconds()
	l.put("k", "x", 1)
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.Opening)
	l.step(shard.KeysBuilt{Build: stale}) // empty: it would call every key absent
	l.put("k", "x", 0)
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.Opening)
	l.learn()
	l.put("k", "x", 1)
	l.flush()
	l.wantStored("x", 1)
}

// A table that nobody asks for goes, and is made again for who asks.
func TestKeysAreForgotten(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.put("k", "v", 0)
	l.flush()
	idle := l.core.KeysIdleAt()
	if idle == 0 {
		t.Fatal("there is no table")
	}
	l.now = idle - 10
	l.step(shard.Tick{})
	if l.core.KeysIdleAt() == 0 {
		t.Fatal("the table went early")
	}
	l.now = idle
	l.step(shard.Tick{})
	if l.core.KeysIdleAt() != 0 {
		t.Fatal("the table is kept")
	}
	l.learned()
	l.put("k", "w", 1)
	l.flush()
	l.wantStored("w", 1)
}

// What a producer is told of itself is committed: from what is pending it would leave out what may be lost.
func TestProducerLast(t *testing.T) {
	l := newLog(t, shard.Config{})
	check := func(seq, offset uint64, known bool) {
		t.Helper()
		if s, o, k := l.core.ProducerLast(5); s != seq || o != offset || k != known {
			t.Fatalf("told %d at %d, %v; want %d at %d, %v", s, o, k, seq, offset, known)
		}
	}
	check(0, 0, false)
	l.publish(5, 3, 0, 2)
	l.write()
	check(0, 0, false)
	l.flush()
	check(3, 0, true)
	l.publish(5, 10, 3, 1)
	l.write()
	check(3, 0, true)
	l.flush()
	check(10, 2, true)
	l.reopen()
	check(10, 2, true)
}
