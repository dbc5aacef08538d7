// SPDX-License-Identifier: Apache-2.0

package order

import (
	"testing"
	"time"

	"margay.dev/wire/code"
)

// mute takes what is on the wire and answers nothing, though the connection lives: of that, the shard processes some now
// and perhaps the rest later.
func (r *rig) mute(processed int) {
	for range min(processed, len(r.wire)) {
		r.process()
	}
	r.late = append(r.late, r.wire...)
	r.wire, r.back = nil, nil
}

// straggle lets the shard process what it had got long ago; there is nobody left to answer.
func (r *rig) straggle() {
	if len(r.late) > 0 {
		_, _ = r.shard.publish(r.late[0])
		r.late = r.late[1:]
	}
}

// pass lets time go by, and gives a connection up that owes too much.
func (r *rig) pass(d time.Duration, processed int) {
	r.now = r.now.Add(d)
	r.line.Expire(r.now, "")
	r.collect()
	if r.line.Overdue(r.now) {
		r.lose(processed)
		r.line.Up()
	}
}

// Whatever answers never come, the window opens again: for what was given up, for what was refused beside it, and for
// what is still worth sending.
func TestUnansweredWindowOpensAgain(t *testing.T) {
	for name, lives := range map[string]time.Duration{"given up": 50 * time.Millisecond, "worth another try": time.Hour} {
		for _, processed := range []int{0, 2, 4} {
			r := newRig(true)
			r.line.Up()
			for range 4 {
				r.push(lives)
				r.write()
			}
			r.mute(processed)
			r.push(time.Hour)
			if r.write() {
				t.Fatalf("%s: a fifth batch is unanswered", name)
			}
			end := r.now.Add(answerWait + margin)
			for !r.write() {
				at, ok := r.line.Wake(r.now)
				if !ok || at.After(end) || !at.After(r.now) {
					t.Fatalf("%s: the window is shut at %v, and the line wakes at %v (%v)", name, r.now, at, ok)
				}
				r.pass(at.Sub(r.now), 0)
			}
			r.settle(t.Fatalf)
			for len(r.late) > 0 {
				r.straggle()
			}
			r.check(t.Fatalf, true)
			for v := range 5 {
				switch err := r.fate[v]; {
				case (lives == time.Hour || v == 4) && err != nil:
					t.Errorf("%s, %d processed: batch %d ended with %v", name, processed, v, err)
				case lives < time.Hour && v < 4 && (err == nil || err.Class != code.ClassUnknown):
					t.Errorf("%s, %d processed: batch %d was sent, and ended with %v", name, processed, v, err)
				}
			}
		}
	}
}

// What takes long to write is not late for that.
func TestAnswerIsDueFromTheEndOfTheWriting(t *testing.T) {
	r := newRig(true)
	r.line.Up()
	r.push(time.Hour)
	it, _ := r.line.Take(r.now)
	r.now = r.now.Add(10 * answerWait)
	if r.line.Overdue(r.now) {
		t.Fatal("late while it is being written")
	}
	r.line.Written(r.now)
	r.line.Written(r.now.Add(time.Minute))
	if r.now = r.now.Add(answerWait + margin - 1); r.line.Overdue(r.now) {
		t.Fatal("late before its time")
	}
	if r.now = r.now.Add(1); !r.line.Overdue(r.now) {
		t.Fatal("not late at its time")
	}
	r.line.Stored(it.Ticket, false)
	if r.line.Overdue(r.now.Add(time.Hour)) || r.line.Owed(it.Ticket) {
		t.Fatal("late though it was answered")
	}
}

// A refused batch that its owner has changed goes again under its name, before its successors, which were refused with it;
// one that an earlier writing may have stored does not.
func TestAmendedBatchKeepsItsPlace(t *testing.T) {
	now := time.Now()
	line := New[string](Config{
		Window: 4, NewID: func() uint64 { return 7 }, Wait: func(int) time.Duration { return time.Hour }, AnswerWait: answerWait, Margin: margin,
	})
	line.Up()
	take := func() *Item[string] {
		it, _ := line.Take(now)
		return it
	}
	for _, v := range []string{"a", "b"} {
		line.Push(&Item[string]{Value: v, Deadline: now.Add(time.Minute)})
	}
	a, b := take(), take()
	fix := func(v string) bool { return v == "a" }
	if line.Amend(b.Ticket, fix) || !line.Amend(a.Ticket, fix) {
		t.Fatal("what may be amended is not")
	}
	if line.Ready(now) {
		t.Fatal("it is written again while an answer is owed")
	}
	line.Failed(b.Ticket, code.New(code.OutOfOrder, "").With(code.DetailLastSequence, 0), now)
	if again := take(); again != a || a.Sequence != 1 || a.Previous != 0 {
		t.Fatalf("behind the refusal goes %+v", again)
	}
	if again := take(); again != b || b.Sequence != 2 || b.Previous != 1 {
		t.Fatalf("then goes %+v", again)
	}
	line.Lost()
	line.Up()
	if a = take(); line.Amend(a.Ticket, fix) {
		t.Fatal("a batch that may be stored under its name is another now")
	}
}
