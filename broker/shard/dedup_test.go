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

func (l *log) tell(id string) {
	l.t.Helper()
	r := batch.Record{Value: []byte("v"), Timestamp: 1, Headers: []batch.Header{{Key: batch.DedupHeader, Value: []byte(id)}}}
	l.step(&shard.Publish{Batch: build(l.t, 0, 0, r), To: id})
}

// ID-05: one rule gives the same answers after nothing, a restart, and retention: an id counts for the window from
// the append time of its first record on, and duplicates do not prolong it.
func TestDedupWindow(t *testing.T) {
	between := map[string]func(l *log){
		"nothing": func(*log) {},
		"restart": func(l *log) { l.reopen() },
		"retention": func(l *log) {
			for i := range 200 {
				l.set("k", fmt.Sprintf("%0100d", i))
				l.flush()
			}
			l.retainByBytes()
			if l.core.View().Start.Offset == 0 {
				l.t.Fatal("retention took nothing")
			}
		},
		"retention and restart": func(l *log) {
			for i := range 200 {
				l.set("k", fmt.Sprintf("%0100d", i))
				l.flush()
			}
			l.retainByBytes()
			l.reopen()
		},
	}
	for name, happens := range between {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, shard.Config{DedupWindow: 10 * time.Second, SegmentBytes: 4 << 10, MaxBytes: 8 << 10})
			began := l.now
			var firsts []uint64
			for _, at := range []time.Duration{0, 6 * time.Second, 12 * time.Second, 18 * time.Second} {
				l.now = began + at.Microseconds()
				l.tell("x")
				l.flush()
				a := l.lastAnswer()
				if a.Err != nil || a.Ack.Duplicate != (at == 6*time.Second || at == 18*time.Second) {
					t.Fatalf("at %v: %+v, %v", at, a.Ack, a.Err)
				}
				if !a.Ack.Duplicate {
					firsts = append(firsts, a.Ack.BaseOffset)
				} else if a.Ack.BaseOffset != firsts[len(firsts)-1] {
					t.Fatalf("at %v: the first is at %d, told %d", at, firsts[len(firsts)-1], a.Ack.BaseOffset)
				}
				happens(l)
			}
		})
	}
}

// The window ends to the microsecond, by append time.
func TestDedupWindowEnds(t *testing.T) {
	l := newLog(t, shard.Config{DedupWindow: time.Second})
	l.tell("x")
	l.flush()
	first := l.batches[len(l.batches)-1].AppendTime()
	l.now = first + 999_999 - 1
	l.tell("x")
	l.flush()
	if !l.lastAnswer().Ack.Duplicate {
		t.Fatal("within the window it is stored again")
	}
	l.now = first + 1_000_000 - 1
	l.tell("x")
	l.flush()
	if a := l.lastAnswer(); a.Ack.Duplicate || a.Ack.BaseOffset != 1 {
		t.Fatalf("after the window: %+v", a)
	}
}

// As many ids as may be: a new one is refused, with how long; known ones and records without one are not concerned.
func TestDedupIsBounded(t *testing.T) {
	l := newLog(t, shard.Config{DedupWindow: time.Second, MaxDedupIDs: 100})
	for i := range 101 {
		l.tell(fmt.Sprint(i))
		l.flush()
	}
	a := l.lastAnswer()
	wantCode(t, a.Err, code.TooMany)
	if a.Err.Class != code.ClassRefused || a.Err.RetryAfter <= 0 || a.Err.RetryAfter > time.Second {
		t.Errorf("refused with %+v", a.Err)
	}
	l.tell("7")
	l.flush()
	if a := l.lastAnswer(); !a.Ack.Duplicate {
		t.Errorf("a known id: %+v", a)
	}
	l.publish(0, 0, 0, 1)
	l.flush()
	if a := l.lastAnswer(); a.Err != nil {
		t.Errorf("no id: %v", a.Err)
	}
	l.reopen()
	l.now += a.Err.RetryAfter.Microseconds()
	l.tell("100")
	l.flush()
	if a := l.lastAnswer(); a.Err != nil || a.Ack.Duplicate {
		t.Errorf("when there is room: %+v", a)
	}
}

// ID-03: an id is remembered with its record and not without: what a failed write took back is stored when it comes
// again, and nobody is told of it before it is durable.
func TestDedupIsOfTheRecord(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.tell("x")
	l.tell("x")
	l.eff.Append = l.eff.Append[:0]
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	for _, a := range l.answers {
		wantCode(t, a.Err, code.StorageFull)
	}
	l.tell("x")
	l.tell("x")
	l.write()
	if len(l.answers) != 2 {
		t.Fatalf("answered before the flush: %+v", l.answers)
	}
	l.flush()
	if len(l.answers) != 4 || l.answers[2].Ack.Duplicate || !l.answers[3].Ack.Duplicate || l.answers[3].Ack.Generation != 1 {
		t.Fatalf("answers %+v", l.answers[2:])
	}
}
