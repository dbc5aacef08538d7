// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"testing"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/code"
)

// openCursor opens one for good.
func (l *log) openCursor(name string, start uint64) shard.Cursor {
	l.t.Helper()
	l.step(&shard.OpenCursor{Name: name, Start: start, Create: true, To: name})
	l.flush()
	a := l.lastAnswer()
	if a.Err != nil || a.Cursor == nil {
		l.t.Fatalf("open %s: %+v", name, a)
	}
	return *a.Cursor
}

// commitCursors commits in one round and returns the answers in their order.
func (l *log) commitCursors(list ...shard.CursorCommit) []*code.Error {
	l.t.Helper()
	at := len(l.answers)
	for i := range list {
		list[i].To = i
	}
	l.step(&shard.CommitCursors{List: list})
	l.flush()
	out := make([]*code.Error, len(list))
	answers := l.answers[at:]
	if len(answers) != len(list) {
		l.t.Fatalf("%d of %d commits were answered", len(answers), len(list))
	}
	for _, a := range answers {
		out[a.To.(int)] = a.Err
	}
	return out
}

// A cursor begins where its first opening says, and where it stands from then on; a restart remembers it, also behind a
// checkpoint.
func TestCursorIsNewOrResumed(t *testing.T) {
	l := newLog(t, shard.Config{SegmentBytes: 4 << 10})
	l.publish(1, 1, 0, 10)
	first := l.openCursor("ears", 4)
	if first.Resumed || first.Offset != 4 || first.Generation != 1 {
		t.Fatalf("a new cursor: %+v", first)
	}
	if errs := l.commitCursors(shard.CursorCommit{Name: "ears", Epoch: first.Epoch, Offset: 7}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	for seq := uint64(2); seq < 40; seq++ { // behind a new checkpoint
		l.publish(1, seq, seq-1, 10)
		l.flush()
	}
	for range 2 {
		l.reopen()
		again := l.openCursor("ears", 99)
		if !again.Resumed || again.Offset != 7 || again.Epoch <= first.Epoch {
			t.Fatalf("opened again: %+v after %+v", again, first)
		}
		first = again
	}
	if l.step(&shard.OpenCursor{Name: "eyes", To: 1}); l.eff.Answers[0].Err == nil {
		t.Fatal("a cursor that nobody made was opened")
	}
	wantCode(t, l.eff.Answers[0].Err, code.NotFound)
	l.collect()
	l.step(&shard.OpenCursor{Name: "eyes", Create: true, Start: 10_000, To: 1})
	wantCode(t, l.eff.Answers[0].Err, code.OutOfRange)
}

// Nobody is told of a cursor, and no list shows it, before it is durable; what is lost with a write was never there.
func TestCursorIsDurableBeforeItIsAnswered(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 3)
	l.flush()
	n := len(l.answers)
	l.step(&shard.OpenCursor{Name: "ears", Create: true, To: 1})
	l.write()
	if len(l.answers) != n || len(l.core.Cursors()) != 0 {
		t.Fatalf("before the flush: %d answers, cursors %+v", len(l.answers)-n, l.core.Cursors())
	}
	l.flush()
	epoch := l.lastAnswer().Cursor.Epoch
	// A refusal that rests on an opening which is then lost is lost with it.
	l.step(&shard.OpenCursor{Name: "ears", To: 2})
	l.step(&shard.CommitCursors{List: []shard.CursorCommit{{Name: "ears", Epoch: epoch, Offset: 2, To: 3}}})
	l.collect()
	if len(l.answers) != n+1 {
		t.Fatalf("a commit was answered from what may yet be lost: %+v", l.lastAnswer())
	}
	l.eff.Append = nil
	l.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	l.collect()
	for _, a := range l.answers[n+1:] {
		wantCode(t, a.Err, code.StorageFull)
	}
	if errs := l.commitCursors(shard.CursorCommit{Name: "ears", Epoch: epoch, Offset: 2}); errs[0] != nil {
		t.Fatalf("the first holder holds it still: %v", errs[0])
	}
}

// ID-07: a commit that comes late moves nothing back, neither that of the same holder nor that of an earlier one.
func TestLateCommits(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 20)
	first := l.openCursor("ears", 0)
	errs := l.commitCursors(
		shard.CursorCommit{Name: "ears", Epoch: first.Epoch, Offset: 10},
		shard.CursorCommit{Name: "ears", Epoch: first.Epoch, Offset: 5},
	)
	if errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	if errs = l.commitCursors(shard.CursorCommit{Name: "ears", Epoch: first.Epoch, Offset: 5}); errs[0] != nil {
		t.Fatal(errs[0])
	}
	if at := l.core.Cursors()[0].Offset; at != 10 {
		t.Fatalf("the cursor went back to %d", at)
	}
	second := l.openCursor("ears", 0)
	errs = l.commitCursors(
		shard.CursorCommit{Name: "ears", Epoch: first.Epoch, Offset: 15},
		shard.CursorCommit{Name: "ears", Epoch: second.Epoch, Offset: 12},
		shard.CursorCommit{Name: "ears", Epoch: second.Epoch, Offset: 21},
		shard.CursorCommit{Name: "nose", Epoch: 1, Offset: 1},
	)
	wantCode(t, errs[0], code.TakenOver)
	if errs[1] != nil {
		t.Fatal(errs[1])
	}
	wantCode(t, errs[2], code.OutOfRange)
	wantCode(t, errs[3], code.NotFound)
	if at := l.core.Cursors()[0].Offset; at != 12 {
		t.Fatalf("the cursor stands at %d", at)
	}

	// Deleted and made anew it shares nothing with what it was.
	l.step(&shard.DeleteCursor{Name: "ears", To: 1})
	l.flush()
	third := l.openCursor("ears", 3)
	if third.Resumed || third.Offset != 3 || third.Epoch <= second.Epoch {
		t.Fatalf("made anew: %+v after %+v", third, second)
	}
	errs = l.commitCursors(shard.CursorCommit{Name: "ears", Epoch: second.Epoch, Offset: 15})
	wantCode(t, errs[0], code.TakenOver)
	l.step(&shard.DeleteCursor{Name: "nose", To: 1})
	l.flush()
	wantCode(t, l.lastAnswer().Err, code.NotFound)
}

// The commits of a round are one batch, and those that move nothing are none.
func TestCommitsOfARoundAreOneBatch(t *testing.T) {
	l := newLog(t, shard.Config{})
	l.publish(1, 1, 0, 20)
	var list []shard.CursorCommit
	for i := range 50 {
		c := l.openCursor(fmt.Sprintf("c%d", i), 0)
		list = append(list, shard.CursorCommit{Name: c.Name, Epoch: c.Epoch, Offset: 5}, shard.CursorCommit{Name: c.Name, Epoch: c.Epoch, Offset: 9})
	}
	before := len(l.batches)
	for range 3 {
		for _, err := range l.commitCursors(list...) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(l.batches) - before; n != 1 || l.batches[before].Count() != 50 {
		t.Fatalf("%d batches, the first of %d entries: want one of 50", n, l.batches[before].Count())
	}
	l.now += shard.CursorTouch.Microseconds()
	if l.commitCursors(list[1]); len(l.batches)-before != 2 {
		t.Fatal("the commit of a day later is not written, so the cursor counts as unused")
	}
}

func (l *log) passTime() {
	if at := l.core.Next(); at > 0 && at <= l.now {
		l.step(shard.Time{})
		l.flush()
	}
}

// A cursor that nobody has used for 30 days of the log's time goes, and is counted; the clock alone takes none.
func TestUnusedCursorsExpire(t *testing.T) {
	for _, restart := range []bool{false, true} {
		l := newLog(t, shard.Config{})
		l.publish(1, 1, 0, 20)
		l.openCursor("unused", 0)
		used := l.openCursor("used", 0)
		l.now += (shard.CursorIdle - time.Hour).Microseconds()
		if err := l.commitCursors(shard.CursorCommit{Name: "used", Epoch: used.Epoch, Offset: 1})[0]; err != nil {
			t.Fatal(err)
		}
		if restart {
			l.reopen()
		}
		l.now += (2 * time.Hour).Microseconds()
		l.passTime()
		if n := len(l.core.Cursors()); n != 2 {
			t.Fatalf("%d cursors are left by the clock alone", n)
		}
		l.publish(2, 1, 0, 1)
		l.flush()
		if at := l.core.Next(); at == 0 || at > l.now {
			t.Fatalf("nothing is to be done until %d", at)
		}
		l.step(shard.Time{})
		if l.eff.CursorsExpired != 1 {
			t.Errorf("%d cursors are counted as expired", l.eff.CursorsExpired)
		}
		l.flush()
		l.reopen()
		if c := l.core.Cursors(); len(c) != 1 || c[0].Name != "used" {
			t.Fatalf("left are %+v", c)
		}
	}
}

func TestCursorsAreBounded(t *testing.T) {
	l := newLog(t, shard.Config{MaxCursors: 3})
	l.publish(1, 1, 0, 20)
	for i := range 3 {
		l.openCursor(fmt.Sprintf("c%d", i), 0)
	}
	l.step(&shard.OpenCursor{Name: "c3", Create: true, To: 1})
	wantCode(t, l.eff.Answers[0].Err, code.TooMany)
	l.collect()
	l.openCursor("c2", 0) // one that is there may be opened
	l.step(&shard.DeleteCursor{Name: "c1", To: 1})
	l.openCursor("c3", 0) // in the place of one that goes
	l.now += 2 * shard.CursorIdle.Microseconds()
	l.openCursor("c4", 0) // in the place of those that nobody uses
	if c := l.core.Cursors(); len(c) != 1 || c[0].Name != "c4" {
		t.Fatalf("left are %+v", c)
	}
}
