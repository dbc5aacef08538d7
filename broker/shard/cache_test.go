// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// cache is a log that keeps the newest record of each key.
func cache(t *testing.T, edit ...func(*shard.Config)) *log {
	t.Helper()
	cfg := shard.Config{KeepNewest: true}
	for _, f := range edit {
		f(&cfg)
	}
	var l *log
	cfg.Read = func(sequence, offset uint64) (batch.Record, error) {
		return shard.FindRecord(l.batches[sequence], offset)
	}
	l = newLog(t, cfg)
	l.know()
	return l
}

// know lets the core learn its keys.
func (l *log) know() {
	l.t.Helper()
	l.step(shard.Time{})
	l.collect()
	if l.build != nil {
		l.learn()
	}
	if l.core.View().Keys == nil {
		l.t.Fatal("the keys are not known")
	}
}

func ttl(d time.Duration) func(*batch.Record) { return func(r *batch.Record) { r.TTL = d } }

// pass lets time go on to a moment, and what is due then be done.
func (l *log) pass(to int64) {
	l.now = to - 1
	l.step(shard.Time{})
	l.flush()
}

// derive publishes one record that is made from what its key holds.
func (l *log) derive(op shard.Op, key, val string, producer, seq, previous uint64, edit ...func(*batch.Record)) {
	l.t.Helper()
	r := batch.Record{Key: []byte(key), Timestamp: 1}
	if op == shard.OpAdd {
		r.Value = []byte(val)
	}
	for _, f := range edit {
		f(&r)
	}
	l.step(&shard.Publish{Batch: build(l.t, producer, seq, r), Previous: previous, Derives: []shard.Derive{{Op: op}}, To: val})
}

func (l *log) add(key string, delta int64, edit ...func(*batch.Record)) {
	l.t.Helper()
	l.derive(shard.OpAdd, key, strconv.FormatInt(delta, 10), 0, 0, 0, edit...)
}

func (l *log) wantSum(want int64) {
	l.t.Helper()
	if a := l.lastAnswer(); a.Err != nil || len(a.Ack.Sums) != 1 || a.Ack.Sums[0] != want {
		l.t.Fatalf("answered %+v, %v; want the sum %d", a.Ack, a.Err, want)
	}
}

// value is what the log holds of a key, by the index.
func (l *log) value(key string) (string, bool) {
	l.t.Helper()
	v := l.core.View()
	e, ok := v.Keys.Get([]byte(key))
	if !ok || !v.Holds(e, max(l.now, v.LastAppend)) {
		return "", false
	}
	r, err := shard.FindRecord(l.batches[e.Sequence], e.Offset)
	if err != nil {
		l.t.Fatalf("%s at %+v: %v", key, e, err)
	}
	return string(r.Value), true
}

func (l *log) wantValue(key, want string) {
	l.t.Helper()
	if have, ok := l.value(key); !ok || have != want {
		l.t.Fatalf("%s holds %q, %v; want %q", key, have, ok, want)
	}
}

func (l *log) wantAbsent(key string) {
	l.t.Helper()
	if have, ok := l.value(key); ok {
		l.t.Fatalf("%s holds %q, want nothing", key, have)
	}
}

// expired are the keys of the tombstones that say that their time has ended.
func (l *log) expired() (keys []string) {
	for _, b := range l.batches {
		if !b.IsExpired() {
			continue
		}
		var m batch.Meta
		for metas := b.Metas(); ; {
			ok, err := metas.Next(&m)
			if err != nil {
				l.t.Fatal(err)
			}
			if !ok {
				break
			}
			keys = append(keys, string(m.Key))
		}
	}
	return keys
}

// CA-01, CA-05: a key that ends gets exactly one tombstone which says so, also when its time came while nobody led the
// shard; one that was written again or deleted meanwhile gets none.
func TestKeysExpireOnce(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("down %v", down), func(t *testing.T) {
			l := cache(t)
			l.set("ends", "1", ttl(time.Second))
			l.set("again", "1", ttl(time.Second))
			l.set("kept", "1", ttl(time.Second))
			l.set("deleted", "1", ttl(time.Second))
			l.set("long", "1", ttl(time.Hour))
			l.flush()
			end := l.now + time.Second.Microseconds()
			l.set("again", "2", ttl(2*time.Second))
			l.set("kept", "2") // without a time to live: it has none any more
			l.set("deleted", "", func(r *batch.Record) { r.Value = nil })
			l.flush()
			if down {
				l.reopen()
				l.now = end + 10
				l.know()
			}
			l.wantValueUntil("ends", end, down)
			l.pass(end + 10)
			l.wantAbsent("ends")
			l.wantValue("again", "2")
			l.wantValue("kept", "2")
			l.pass(end + 20)
			if got := fmt.Sprint(l.expired()); got != "[ends]" {
				t.Fatalf("expired %s", got)
			}
			l.pass(end + time.Minute.Microseconds())
			l.reopen()
			l.know()
			l.pass(end + 2*time.Minute.Microseconds())
			if got := fmt.Sprint(l.expired()); got != "[ends again]" {
				t.Fatalf("expired %s", got)
			}
			l.wantValue("long", "1")
		})
	}
}

// wantValueUntil demands the value just before its end, where that has not passed.
func (l *log) wantValueUntil(key string, end int64, passed bool) {
	l.t.Helper()
	if passed {
		l.wantAbsent(key)
		return
	}
	l.now = end - 10
	l.wantValue(key, "1")
}

// A key that is written again between its end and its tombstone keeps what was written, also when that is not committed.
func TestExpiryIsDecidedAmongTheAppends(t *testing.T) {
	l := cache(t)
	l.set("k", "1", ttl(time.Second))
	l.flush()
	l.now += 2 * time.Second.Microseconds()
	l.set("k", "2")
	l.step(shard.Time{})
	l.flush()
	l.pass(l.now + 10)
	if got := l.expired(); len(got) > 0 {
		t.Fatalf("expired %v", got)
	}
	l.wantValue("k", "2")
}

// CA-14: however many keys end at one moment, one turn expires no more than some, and goes on in the next.
func TestManyKeysExpire(t *testing.T) {
	l := cache(t)
	const n = 350
	for i := range n {
		l.set(fmt.Sprintf("k%d", i), "1", ttl(time.Second))
	}
	l.flush()
	l.now += 2 * time.Second.Microseconds()
	for range 4 {
		l.step(shard.Time{})
		if len(l.eff.Append) > 1 {
			t.Fatalf("one turn appends %d batches", len(l.eff.Append))
		}
		l.flush()
	}
	if got := len(l.expired()); got != n {
		t.Fatalf("%d keys expired, want %d", got, n)
	}
	if at := l.core.Next(); at != 0 {
		t.Fatalf("wants to be stepped at %d", at)
	}
}

// A counter says what it stands at, itself included, in the order of the appends; a retry counts once, and what cannot be
// added to is left as it is.
func TestCounters(t *testing.T) {
	l := cache(t)
	l.add("n", 5)
	l.add("n", -7)
	l.flush()
	l.wantSum(-2)
	l.wantValue("n", "-2")
	l.reopen()
	l.know()
	l.add("n", 10)
	l.flush()
	l.wantSum(8)
	l.set("n", "100")
	l.add("n", 1)
	l.flush()
	l.wantSum(101)
	l.set("n", "", func(r *batch.Record) { r.Value = nil })
	l.add("n", 1)
	l.flush()
	l.wantSum(1)

	l.derive(shard.OpAdd, "n", "4", 9, 1, 0)
	l.flush()
	l.wantSum(5)
	l.derive(shard.OpAdd, "n", "4", 9, 1, 0)
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || !a.Ack.Duplicate {
		t.Fatalf("the retry: %+v, %v", a.Ack, a.Err)
	}
	l.wantValue("n", "5")

	l.set("text", "one")
	l.set("high", "9223372036854775807")
	l.flush()
	length := l.core.View().Length
	for _, key := range []string{"text", "high"} {
		l.add(key, 1)
		l.flush()
		wantCode(t, l.lastAnswer().Err, code.NotANumber)
	}
	l.derive(shard.OpAdd, "n", "1.5", 0, 0, 0)
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.BadRequest)
	if l.core.View().Length != length {
		t.Fatal("a refused addition was stored")
	}
}

// A refusal that rests on what is pending waits until that is committed, and is lost with it.
func TestRefusedAdditionRestsOnWhatIsPending(t *testing.T) {
	l := cache(t)
	l.set("n", "text")
	l.add("n", 1)
	l.collectAnswers()
	if len(l.answers) > 0 {
		t.Fatalf("answered from what is pending: %+v", l.answers)
	}
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.StorageFull)
	l.add("n", 1)
	l.flush()
	l.wantSum(1)
}

// collectAnswers takes the answers and leaves what is to be written.
func (l *log) collectAnswers() {
	l.answers = append(l.answers, l.eff.Answers...)
	l.eff.Answers = l.eff.Answers[:0]
}

// What is added to keeps its deadline, unless it is given another; what is touched keeps its value and gets another
// deadline, or none.
func TestDeadlinesOfWhatIsMade(t *testing.T) {
	l := cache(t)
	l.add("n", 1, ttl(time.Second))
	l.set("v", "value", ttl(time.Second), func(r *batch.Record) { r.Headers = []batch.Header{{Key: "h", Value: []byte("x")}} })
	l.flush()
	end := l.now + time.Second.Microseconds()
	l.now += 500_000
	l.add("n", 1)
	l.derive(shard.OpTouch, "v", "", 0, 0, 0, ttl(10*time.Second))
	l.flush()
	l.pass(end + 10)
	l.wantAbsent("n")
	l.wantValue("v", "value")
	l.derive(shard.OpTouch, "v", "", 0, 0, 0)
	l.flush()
	l.pass(end + time.Hour.Microseconds())
	l.wantValue("v", "value")
	e, _ := l.core.View().Keys.Get([]byte("v"))
	if r, err := shard.FindRecord(l.batches[e.Sequence], e.Offset); err != nil || len(r.Headers) != 1 || r.Headers[0].Key != "h" {
		t.Fatalf("headers %+v, %v", r.Headers, err)
	}
	l.derive(shard.OpTouch, "n", "", 0, 0, 0, ttl(time.Second))
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.NotFound)
}

// What a counter came to in a batch that is not in the log is forgotten: the offset that it was to have is another record's.
func TestSumOfWhatWasNotStored(t *testing.T) {
	for name, lose := range map[string]func(l *log){
		"refused": func(l *log) {
			l.step(&shard.Publish{
				Batch:   build(t, 0, 0, batch.Record{Key: []byte("n"), Value: []byte("5"), Timestamp: 1}, batch.Record{Key: []byte("one too many"), Timestamp: 1, Value: []byte("v")}),
				Derives: []shard.Derive{{Op: shard.OpAdd}}, To: "refused",
			})
			l.flush()
			wantCode(t, l.lastAnswer().Err, code.TooMany)
		},
		"not written": func(l *log) {
			l.add("n", 5)
			l.eff.Append = l.eff.Append[:0]
			l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
			l.collect()
			wantCode(t, l.lastAnswer().Err, code.StorageFull)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := cache(t, func(cfg *shard.Config) { cfg.MaxKeys = 1 })
			l.set("n", "1")
			l.flush()
			lose(l)
			l.set("n", "100")
			l.add("n", 1)
			l.flush()
			l.wantSum(101)
		})
	}
}

// A counter that is touched keeps its headers, also while what it came to is remembered.
func TestTouchedCounterKeepsItsHeaders(t *testing.T) {
	l := cache(t)
	l.add("n", 1, func(r *batch.Record) { r.Headers = []batch.Header{{Key: "h", Value: []byte("x")}} })
	l.derive(shard.OpTouch, "n", "", 0, 0, 0, ttl(time.Second))
	l.flush()
	e, _ := l.core.View().Keys.Get([]byte("n"))
	if r, err := shard.FindRecord(l.batches[e.Sequence], e.Offset); err != nil || string(r.Value) != "1" || len(r.Headers) != 1 || r.Headers[0].Key != "h" {
		t.Fatalf("%q with headers %+v, %v", r.Value, r.Headers, err)
	}
}

// Several additions of one batch to one key follow each other.
func TestAdditionsOfOneBatch(t *testing.T) {
	l := cache(t)
	rec := func(key, val string) batch.Record {
		return batch.Record{Key: []byte(key), Value: []byte(val), Timestamp: 1}
	}
	l.step(&shard.Publish{
		Batch:   build(t, 0, 0, rec("n", "1"), rec("other", "text"), rec("n", "2"), rec("m", "3")),
		Derives: []shard.Derive{{Record: 0, Op: shard.OpAdd}, {Record: 2, Op: shard.OpAdd}, {Record: 3, Op: shard.OpAdd}}, To: "all",
	})
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || fmt.Sprint(a.Ack.Sums) != "[1 3 3]" {
		t.Fatalf("answered %+v, %v", a.Ack, a.Err)
	}
	l.wantValue("n", "3")
	l.wantValue("other", "text")
	for _, ds := range [][]shard.Derive{{{Record: 4, Op: shard.OpAdd}}, {{Record: 0, Op: shard.OpAdd}, {Record: 0, Op: shard.OpAdd}}, {{Record: 0, Op: 9}}} {
		l.step(&shard.Publish{Batch: build(t, 0, 0, rec("n", "1"), rec("n", "1")), Derives: ds, To: "bad"})
		l.flush()
		wantCode(t, l.lastAnswer().Err, code.BadRequest)
	}
}

// A log that knows all of its keys refuses new ones beyond its bound, and nothing else.
func TestNewKeysAreBounded(t *testing.T) {
	l := cache(t, func(c *shard.Config) { c.MaxKeys = 3 })
	for i := range 3 {
		l.set(fmt.Sprintf("k%d", i), "1")
	}
	l.flush()
	l.set("k3", "1")
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.TooMany)
	l.set("k1", "2")
	l.flush()
	l.wantValue("k1", "2")
	l.set("k0", "", func(r *batch.Record) { r.Value = nil })
	l.flush()
	l.set("k3", "1")
	l.flush()
	l.wantValue("k3", "1")
	l.step(shard.KeyRoom{Err: code.New(code.TooMany, "no memory")})
	l.set("k1", "", func(r *batch.Record) { r.Value = nil })
	l.flush()
	l.set("k4", "1")
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.TooMany)
	l.step(shard.KeyRoom{})
	l.set("k4", "1")
	l.flush()
	l.wantValue("k4", "1")
}

// Values that are touched together and fit no batch are refused as the last of them, which may go in another.
func TestTouchedValuesThatDoNotFitOneBatch(t *testing.T) {
	l := cache(t)
	val := strings.Repeat("x", 3<<20)
	var touches []batch.Record
	var derives []shard.Derive
	for i, key := range []string{"a", "b", "c"} {
		l.set(key, val)
		l.flush()
		touches = append(touches, batch.Record{Key: []byte(key), Timestamp: 1, TTL: time.Hour})
		derives = append(derives, shard.Derive{Record: i, Op: shard.OpTouch})
	}
	touches = append(touches, batch.Record{Key: []byte("d"), Value: []byte("v"), Timestamp: 1})
	l.step(&shard.Publish{Batch: build(t, 0, 0, touches...), Derives: derives, To: "all"})
	l.flush()
	a := l.lastAnswer()
	wantCode(t, a.Err, code.TooLarge)
	if i, ok := a.Err.Details.Get(code.DetailIndex); !ok || i != 2 || a.Err.Class != code.ClassFatal {
		t.Fatalf("refused %v, about record %d, %v", a.Err, i, ok)
	}
	l.step(&shard.Publish{Batch: build(t, 0, 0, touches[0], touches[1], touches[3]), Derives: derives[:2], To: "two"})
	l.flush()
	if a := l.lastAnswer(); a.Err != nil {
		t.Fatal(a.Err)
	}
}

// A refusal for want of room that rests on keys which are pending waits for them, and is lost with them.
func TestRefusalForWantOfRoomRestsOnWhatIsPending(t *testing.T) {
	l := cache(t, func(c *shard.Config) { c.MaxKeys = 1 })
	l.set("a", "1")
	l.set("b", "1")
	l.collectAnswers()
	if len(l.answers) > 0 {
		t.Fatalf("answered from what is pending: %+v", l.answers)
	}
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	wantCode(t, l.lastAnswer().Err, code.StorageFull)
	l.set("b", "1")
	l.flush()
	l.wantValue("b", "1")
	l.set("c", "1")
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.TooMany)
}
