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

// fill writes one key over and over, until the log takes much more than is live in it, and has the core ask for the head.
func (l *log) fill() {
	l.t.Helper()
	for i := range 60 {
		l.set("busy", fmt.Sprintf("%d-%0400d", i, 0))
		l.flush()
	}
	l.look()
	if l.head == nil {
		l.t.Fatal("nothing is to be reclaimed")
	}
}

// look lets the core look at its segments.
func (l *log) look() {
	var segs []shard.Segment
	start := l.core.View().Start
	for _, b := range l.batches[start.Sequence:] {
		if b.IsCheckpointStart() {
			segs = append(segs, shard.Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
		}
		segs[len(segs)-1].Bytes += int64(b.Size())
	}
	l.step(shard.Tick{Segments: segs})
	l.collect()
}

// liveOf is what is live in the head now, as far as is committed.
func (l *log) liveOf() *shard.Carry {
	l.t.Helper()
	ev := &shard.Carry{To: "carry"}
	for _, b := range l.batches[l.head.From.Sequence:l.head.To.Sequence] {
		records := b.Records()
		for {
			var r batch.Record
			more, err := records.Next(&r)
			if err != nil {
				l.t.Fatal(err)
			}
			if !more {
				break
			}
			if r.Value != nil && shard.Live(l.core.View().Keys, r.Key, records.Offset(), b.Sequence()) {
				ev.Records = append(ev.Records, batch.Carried{Record: r.Clone(), Offset: records.Offset(), Generation: records.Generation(), AppendTime: records.AppendTime()})
				ev.Sequence = append(ev.Sequence, b.Sequence())
			}
		}
	}
	return ev
}

// carryAll carries what is live in the head and gives it up.
func (l *log) carryAll() {
	l.t.Helper()
	l.step(l.liveOf())
	l.flush()
	if a := l.lastAnswer(); a.To != "carry" || a.Err != nil {
		l.t.Fatalf("answered %v, %v", a.To, a.Err)
	}
	l.step(shard.Carried{Head: *l.head})
	l.flush()
	l.head = nil
}

func small(c *shard.Config) { c.SegmentBytes = 4 << 10 }

// What is carried keeps its value, its version and its deadline, also when the log is opened again; the start moves only
// when that is committed.
func TestCarriedRecordsStay(t *testing.T) {
	l := cache(t, small)
	l.set("kept", "value")
	l.set("ends", "1", ttl(time.Hour))
	l.flush()
	end := l.now + time.Hour.Microseconds() - 1
	l.fill()
	l.now += time.Minute.Microseconds()
	ev := l.liveOf()
	l.step(ev)
	l.write()
	if len(l.answers) > 0 && l.lastAnswer().To == "carry" {
		t.Fatal("answered before it is committed")
	}
	l.flush()
	if a := l.lastAnswer(); a.To != "carry" || a.Err != nil || a.Ack.Count != 2 {
		t.Fatalf("answered %+v", a)
	}
	head := *l.head
	l.step(shard.Carried{Head: head})
	l.write()
	if len(l.drops) > 0 || l.core.View().Start == head.To {
		t.Fatal("the head goes before the start is committed")
	}
	l.flush()
	if len(l.drops) != 1 || l.drops[0] != head.To.Sequence || l.core.View().Start != head.To {
		t.Fatalf("dropped %v, starts at %+v; want %+v", l.drops, l.core.View().Start, head.To)
	}
	for range 2 {
		l.wantValue("kept", "value")
		l.put("kept", "other", 7)
		l.flush()
		l.wantConflict("other", 1)
		l.put("kept", "absent", 0)
		l.flush()
		l.wantConflict("absent", 1)
		l.wantValue("ends", "1")
		l.reopen()
		l.know()
	}
	l.pass(end + 10)
	l.wantAbsent("ends")
	if got := fmt.Sprint(l.expired()); got != "[ends]" {
		t.Fatalf("expired %s", got)
	}
}

// Who looks up a key reads the batch that holds it: what is carried lies in small ones, however much goes at once, and one
// record that is larger goes by itself. The answer waits for all of them.
func TestCarriedBatchesAreSmall(t *testing.T) {
	l := cache(t, func(c *shard.Config) { c.SegmentBytes = 64 << 10 })
	const keys = 100
	for i := range keys {
		l.set(fmt.Sprint("kept", i), fmt.Sprintf("%d-%01000d", i, 0))
	}
	l.set("large", fmt.Sprintf("%040000d", 0))
	for i := range 400 {
		l.set("busy", fmt.Sprintf("%d-%01000d", i, 0))
		l.flush()
	}
	l.look()
	if l.head == nil {
		t.Fatal("nothing is to be reclaimed")
	}
	before := len(l.batches)
	ev := l.liveOf()
	l.step(ev)
	l.flush()
	if a := l.lastAnswer(); a.To != "carry" || a.Err != nil || int(a.Ack.Count) != len(ev.Records) || len(ev.Records) < 50 {
		t.Fatalf("answered %+v for %d records", a, len(ev.Records))
	}
	records := 0
	for _, b := range l.batches[before:] {
		if b.IsCarried() {
			records += b.Count()
			if b.Count() > 1 && b.Size() > 20<<10 {
				t.Errorf("a batch of %d records and %d bytes", b.Count(), b.Size())
			}
		}
	}
	if records != len(ev.Records) {
		t.Errorf("%d of %d records are carried", records, len(ev.Records))
	}
	l.wantValue("kept1", fmt.Sprintf("%d-%01000d", 1, 0))
}

// Whether a record is live is decided among the appends: one that is deleted, or written anew, while it is on its way is
// not carried, and does not come back.
func TestCarryIsDecidedAmongTheAppends(t *testing.T) {
	l := cache(t, small)
	l.set("deleted", "1")
	l.set("again", "1")
	l.flush()
	l.fill()
	ev := l.liveOf()
	if len(ev.Records) != 2 {
		t.Fatalf("%d records are live", len(ev.Records))
	}
	l.set("deleted", "", func(r *batch.Record) { r.Value = nil })
	l.set("again", "2")
	l.step(ev)
	l.flush()
	if a := l.lastAnswer(); a.To != "carry" || a.Ack.Count != 0 {
		t.Fatalf("answered %+v", a)
	}
	l.step(shard.Carried{Head: *l.head})
	l.flush()
	for range 2 {
		l.wantAbsent("deleted")
		l.wantValue("again", "2")
		l.reopen()
		l.know()
	}
}

// What was left out because of a write that was pending is live again when that is lost: the head is not given up.
func TestCarryRestsOnWhatIsPending(t *testing.T) {
	l := cache(t, small)
	l.set("k", "1")
	l.flush()
	l.fill()
	ev := l.liveOf()
	l.set("k", "2")
	l.step(ev)
	l.collectAnswers()
	if len(l.answers) > 0 && l.lastAnswer().To == "carry" {
		t.Fatal("answered from what is pending")
	}
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	failed := 0
	for _, a := range l.answers {
		if a.To == "carry" && a.Err != nil {
			failed++
		}
	}
	if failed != 1 {
		t.Fatalf("whoever carries is told %+v", l.answers)
	}
	l.step(shard.Carried{Head: *l.head, Err: code.New(code.StorageFull, "full")})
	l.flush()
	l.wantValue("k", "1")
	l.head = nil
	l.now += time.Minute.Microseconds()
	l.look()
	l.carryAll()
	l.wantValue("k", "1")
}

// A log is reclaimed from its head, one segment at a time, until it takes less than three times what is live; a log in
// which everything is live is left alone.
func TestReclaimStops(t *testing.T) {
	l := cache(t, small)
	for i := range 40 {
		l.set(fmt.Sprintf("k%d", i), fmt.Sprintf("%0400d", i))
		l.flush()
	}
	l.look()
	if l.head != nil {
		t.Fatal("a log without garbage is reclaimed")
	}
	for i := range 400 {
		l.set(fmt.Sprintf("k%d", i%40), fmt.Sprintf("%0400d", i))
		l.flush()
	}
	for rounds := 0; ; rounds++ {
		l.look()
		if l.head == nil {
			break
		}
		if rounds > 100 {
			t.Fatal("it does not end")
		}
		l.carryAll()
		l.now += time.Minute.Microseconds()
	}
	var size int64
	for _, b := range l.batches[l.core.View().Start.Sequence:] {
		size += int64(b.Size())
	}
	if live := l.core.View().Keys.LiveBytes(); size > 3*live {
		t.Fatalf("takes %d bytes for %d that are live", size, live)
	}
	for i := range 40 {
		l.wantValue(fmt.Sprintf("k%d", i), fmt.Sprintf("%0400d", 360+i))
	}
}
