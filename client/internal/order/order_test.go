// SPDX-License-Identifier: Apache-2.0

package order

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"margay.dev/wire/code"
)

// shard is the rule of the leader (what a frame names against what is stored), small enough to be obviously right.
type shard struct {
	log    []int
	last   map[uint64]uint64
	stored map[[2]uint64]bool
	refuse bool         // refuse everything at admission
	groups map[int]bool // of batches that are one to the shard: those with one dedup id
}

func newShard() *shard {
	return &shard{last: map[uint64]uint64{}, stored: map[[2]uint64]bool{}, groups: map[int]bool{}}
}

type frame struct {
	ticket       uint64
	id, seq, pre uint64
	value        int
	fatal        bool
	group        int // 0 for none
}

// publish answers duplicate when it has the batch, or one of its group.
func (s *shard) publish(f frame) (duplicate bool, err *code.Error) {
	switch last, known := s.last[f.id]; {
	case s.refuse:
		return false, code.New(code.Overloaded, "busy")
	case f.fatal:
		return false, code.New(code.TooLarge, "no")
	case f.id == 0:
	case s.stored[[2]uint64{f.id, f.seq}]:
		return true, nil
	case !known && f.pre != 0:
		return false, code.New(code.ProducerUnknown, "who")
	case known && (f.pre != last || f.seq <= last):
		return false, code.New(code.OutOfOrder, "gap").With(code.DetailLastSequence, last)
	}
	if s.groups[f.group] {
		return true, nil
	}
	s.groups[f.group] = f.group != 0
	if f.id != 0 {
		s.last[f.id] = f.seq
		s.stored[[2]uint64{f.id, f.seq}] = true
	}
	s.log = append(s.log, f.value)
	return false, nil
}

// forget evicts every producer, as a leader does with one that was silent for long.
func (s *shard) forget() { clear(s.last); clear(s.stored) }

type rig struct {
	now   time.Time
	line  *Line[int]
	shard *shard
	wire  []frame  // written, not processed
	late  []frame  // written on a connection that was given up, and perhaps still processed
	back  []answer // processed, answer under way
	fate  map[int]*code.Error
	ended map[int]bool
	order []int
	fatal map[int]bool
	group map[int]int
	named bool
	seq   map[int]uint64 // of a named producer's batches
	next  uint64
}

type answer struct {
	ticket    uint64
	duplicate bool
	err       *code.Error
}

const (
	answerWait = 100 * time.Millisecond
	margin     = 20 * time.Millisecond
)

func newRig(idempotent bool) *rig {
	id := uint64(100)
	cfg := Config{Window: 4, Wait: func(int) time.Duration { return time.Millisecond }}
	if idempotent {
		cfg.NewID = func() uint64 { id++; return id }
	}
	return newRigOf(cfg)
}

func newRigOf(cfg Config) *rig {
	cfg.AnswerWait, cfg.Margin = answerWait, margin
	return &rig{
		now: time.Unix(1000, 0), line: New[int](cfg), shard: newShard(), named: cfg.Named != 0,
		fate: map[int]*code.Error{}, ended: map[int]bool{}, fatal: map[int]bool{}, group: map[int]int{}, seq: map[int]uint64{},
	}
}

// newNamed is a process that goes on as a producer with a name.
func newNamed(s *shard) *rig {
	r := newRigOf(Config{Window: 4, Named: 7, Wait: func(int) time.Duration { return time.Millisecond }})
	if s != nil {
		r.shard = s
	}
	return r
}

func (r *rig) push(timeout time.Duration) int { return r.pushOf(0, timeout) }

func (r *rig) pushOf(group int, timeout time.Duration) int {
	v := len(r.order)
	r.group[v] = group
	r.order = append(r.order, v)
	deadline := r.now.Add(timeout)
	if items := r.line.Items(); len(items) > 0 && items[len(items)-1].Deadline.After(deadline) {
		deadline = items[len(items)-1].Deadline
	}
	it := &Item[int]{Value: v, Deadline: deadline, Elsewhere: group != 0}
	if r.named {
		r.next++
		it.Sequence, r.seq[v] = r.next, r.next
	}
	r.line.Push(it)
	r.collect()
	return v
}

func (r *rig) write() bool {
	it, ok := r.line.Take(r.now)
	if ok {
		if r.named && it.Sequence != r.seq[it.Value] {
			panic("a named producer's batch goes under another sequence than its own")
		}
		r.line.Written(r.now)
		r.wire = append(r.wire, frame{it.Ticket, it.ID, it.Sequence, it.Previous, it.Value, r.fatal[it.Value], r.group[it.Value]})
	}
	return ok
}

func (r *rig) process() bool {
	if len(r.wire) == 0 {
		return false
	}
	f := r.wire[0]
	r.wire = r.wire[1:]
	duplicate, err := r.shard.publish(f)
	r.back = append(r.back, answer{f.ticket, duplicate, err})
	return true
}

func (r *rig) answer() bool {
	if len(r.back) == 0 {
		return false
	}
	a := r.back[0]
	r.back = r.back[1:]
	if a.err == nil {
		r.line.Stored(a.ticket, a.duplicate)
	} else {
		r.line.Failed(a.ticket, a.err, r.now)
	}
	r.collect()
	return true
}

func (r *rig) lose(processed int) {
	for range min(processed, len(r.wire)) {
		r.process()
	}
	r.late = append(r.late, r.wire...)
	r.wire, r.back = nil, nil
	r.line.Lost()
	r.collect()
}

func (r *rig) collect() {
	for _, d := range r.line.Finished() {
		if r.ended[d.Item.Value] {
			panic("a batch ended twice")
		}
		r.ended[d.Item.Value] = true
		r.fate[d.Item.Value] = d.Err
	}
}

// settle lets everything go through on a healthy path.
func (r *rig) settle(fatalf func(string, ...any)) {
	r.shard.refuse = false
	r.line.Up()
	for n := 0; r.line.Len() > 0; n++ {
		if n > 10_000 {
			fatalf("the line never comes to rest: %d batches left", r.line.Len())
		}
		moved := r.write()
		moved = r.process() || moved
		moved = r.answer() || moved
		if !moved {
			r.now = r.now.Add(10 * time.Millisecond)
			if r.line.Overdue(r.now) {
				r.lose(0)
				r.line.Up()
			}
		}
	}
}

func (r *rig) check(fatalf func(string, ...any), ordered bool) {
	count := map[int]int{}
	grouped := map[int]int{}
	for _, v := range r.shard.log {
		count[v]++
		grouped[r.group[v]]++
	}
	for _, v := range r.order {
		err, n := r.fate[v], count[v]
		if g := r.group[v]; g != 0 {
			if grouped[g] > 1 {
				fatalf("dedup id %d is stored %d times", g, grouped[g])
			}
			if err == nil {
				n = grouped[g]
			}
		}
		switch {
		case !r.ended[v]:
			fatalf("batch %d never ended", v)
		case err == nil && n != 1:
			fatalf("batch %d was acknowledged and is stored %d times", v, n)
		case err != nil && err.Class != code.ClassUnknown && n != 0:
			fatalf("batch %d ended %v (%v) and is stored", v, err, err.Class)
		case n > 1:
			fatalf("batch %d is stored %d times", v, n)
		}
	}
	if n := len(r.shard.log); r.named && n > 0 && n != r.shard.log[n-1]+1 {
		fatalf("a batch of a named producer was passed over: %v", r.shard.log)
	}
	if ordered && !slices.IsSorted(r.shard.log) {
		fatalf("stored out of order: %v", r.shard.log)
	}
}

// ID-01, S7: whatever is lost, refused, given up, left unanswered or forgotten, the line comes to rest and takes more, an
// acknowledged batch is stored once, a refused one is not, and order holds.
func TestLineIsHonest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.IntRange(0, 7).Draw(t, "kind")
		idempotent := kind > 0
		r := newRig(idempotent)
		if kind > 5 {
			r = newNamed(nil)
		}
		r.line.Up()
		actions := map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				group := 0
				if idempotent && !r.named {
					group = max(0, rapid.IntRange(-12, 3).Draw(t, "dedup id"))
				}
				if r.named && rapid.IntRange(0, 3).Draw(t, "leaves some out") == 0 {
					r.next += 2
				}
				v := r.pushOf(group, time.Duration(rapid.IntRange(1, 400).Draw(t, "timeout"))*time.Millisecond)
				r.fatal[v] = rapid.IntRange(0, 9).Draw(t, "fatal") == 0
			},
			"write":   func(*rapid.T) { r.write() },
			"process": func(*rapid.T) { r.process() },
			"answer":  func(*rapid.T) { r.answer() },
			"round": func(*rapid.T) {
				for moved := true; moved; {
					moved = r.write() || r.process() || r.answer()
				}
			},
			"lose": func(t *rapid.T) { r.lose(rapid.IntRange(0, 4).Draw(t, "processed")); r.line.Up() },
			"down": func(*rapid.T) { r.lose(0) },
			"up":   func(*rapid.T) { r.line.Up() },
			"refuse": func(t *rapid.T) {
				r.shard.refuse = rapid.Bool().Draw(t, "refuse")
			},
			"forget": func(*rapid.T) {
				// No producer is forgotten while it holds a batch: that is what the five minutes are for.
				if r.line.Len() == 0 && len(r.wire) == 0 {
					r.late = nil
					r.shard.forget()
				}
			},
			"time": func(t *rapid.T) {
				ms := rapid.IntRange(1, 200).Draw(t, "ms")
				r.pass(time.Duration(ms)*time.Millisecond, rapid.IntRange(0, 4).Draw(t, "processed"))
			},
			"mute":     func(t *rapid.T) { r.mute(rapid.IntRange(0, 4).Draw(t, "processed")) },
			"straggle": func(*rapid.T) { r.straggle() },
		}
		t.Repeat(actions)
		r.push(time.Hour) // whatever was, the line takes more
		r.settle(t.Fatalf)
		for len(r.late) > 0 {
			r.straggle()
		}
		r.check(t.Fatalf, idempotent)
	})
}

func TestSequenceIsTakenWhenWritten(t *testing.T) {
	r := newRig(true)
	r.push(time.Millisecond)
	r.push(time.Hour)
	r.now = r.now.Add(time.Second)
	r.line.Expire(r.now, "")
	r.collect()
	r.line.Up()
	if !r.write() {
		t.Fatal("the second batch is not written")
	}
	if f := r.wire[0]; f.seq != 1 || f.pre != 0 {
		t.Errorf("the first batch written has sequence %d after %d, want 1 after 0", f.seq, f.pre)
	}
	if e := r.fate[0]; e == nil || e.Class != code.ClassRefused || e.Code != code.Timeout {
		t.Errorf("a batch that was never sent ended with %v", e)
	}
}

// ID-01: a batch that was given up after it was sent is left out by its successor.
func TestSuccessorLeavesOutWhatWasGivenUp(t *testing.T) {
	for _, stored := range []bool{false, true} {
		r := newRig(true)
		r.line.Up()
		r.push(time.Millisecond)
		r.write()
		if stored {
			r.process()
		}
		r.now = r.now.Add(time.Second)
		r.line.Expire(r.now, "")
		r.collect()
		if e := r.fate[0]; e == nil || e.Class != code.ClassUnknown {
			t.Fatalf("given up after it was sent: %v", e)
		}
		r.lose(0)
		r.push(time.Hour)
		r.settle(t.Fatalf)
		want := []int{1}
		if stored {
			want = []int{0, 1}
		}
		if !slices.Equal(r.shard.log, want) {
			t.Errorf("stored %v: log is %v, want %v", stored, r.shard.log, want)
		}
		r.check(t.Fatalf, true)
	}
}

// S7: while the shard refuses the first batch, those behind it are refused because of it. Given up, each ends for the
// reason that the caller can act on, and none as if trying again could not help.
func TestSuccessorsEndForTheReasonOfTheFirst(t *testing.T) {
	full := code.New(code.StorageFull, "full")
	r := newRig(true)
	r.line.Up()
	for range 3 {
		r.push(time.Minute)
	}
	for r.write() {
	}
	r.line.Failed(r.wire[0].ticket, full, r.now)
	for _, f := range r.wire[1:] {
		r.line.Failed(f.ticket, code.New(code.ProducerUnknown, "who"), r.now)
	}
	r.now = r.now.Add(time.Hour)
	r.line.Expire(r.now, "")
	r.collect()
	for v := range 3 {
		if e := r.fate[v]; e == nil || e.Code != full.Code || e.Class != code.ClassRefused {
			t.Errorf("batch %d ended with %v", v, e)
		}
	}
}

// S7: a refusal makes the line go back, and not before every answer is in: what is still on its way may be stored, and
// without an identity would be stored twice.
func TestNothingIsWrittenAgainWhileItsAnswerIsOwed(t *testing.T) {
	r := newRig(false)
	r.line.Up()
	for range 3 {
		r.push(time.Hour)
	}
	for r.write() {
	}
	r.shard.refuse = true
	r.process()
	r.shard.refuse = false
	r.process()
	r.process()
	r.answer() // the first is refused; the others are stored, and their answers on their way
	r.now = r.now.Add(time.Minute)
	if r.write() {
		t.Fatal("something is written though two answers are owed")
	}
	r.settle(t.Fatalf)
	r.check(t.Fatalf, false)
}

// ID-04: a producer that was forgotten goes on by itself: what was certainly not stored is sent under a new id.
func TestForgottenProducerGoesOn(t *testing.T) {
	r := newRig(true)
	r.push(time.Hour)
	r.settle(t.Fatalf)
	r.shard.forget()
	for range 6 {
		r.push(time.Hour)
	}
	r.settle(t.Fatalf)
	r.check(t.Fatalf, true)
	for v := range 7 {
		if r.fate[v] != nil {
			t.Errorf("batch %d ended with %v", v, r.fate[v])
		}
	}
}

func TestForgottenProducerReportsWhatMayBeStored(t *testing.T) {
	r := newRig(true)
	r.push(time.Hour)
	r.settle(t.Fatalf)
	r.push(time.Hour)
	r.write()
	r.lose(1) // stored, answer lost
	r.shard.forget()
	r.push(time.Hour)
	r.settle(t.Fatalf)
	r.check(t.Fatalf, true)
	if e := r.fate[1]; e == nil || e.Code != code.OutcomeUnknown || e.Class != code.ClassUnknown {
		t.Errorf("the batch whose answer was lost ended with %v", e)
	}
	if r.fate[2] != nil {
		t.Errorf("the batch that was never sent ended with %v", r.fate[2])
	}
}

// A lossy promotion: the shard lost what it had acknowledged. The line follows the shard.
func TestShardThatLostItsTail(t *testing.T) {
	r := newRig(true)
	for range 3 {
		r.push(time.Hour)
		r.settle(t.Fatalf)
	}
	id := uint64(101)
	r.shard.log, r.shard.last[id] = r.shard.log[:1], 1
	delete(r.shard.stored, [2]uint64{id, 2})
	delete(r.shard.stored, [2]uint64{id, 3})
	r.push(time.Hour)
	r.settle(t.Fatalf)
	if r.fate[3] != nil || !slices.Equal(r.shard.log, []int{0, 3}) {
		t.Errorf("log %v, last batch ended with %v", r.shard.log, r.fate[3])
	}
}

func TestWindowAndPause(t *testing.T) {
	r := newRig(true)
	r.line.Up()
	for range 6 {
		r.push(time.Hour)
	}
	for range 4 {
		if !r.write() {
			t.Fatal("the window closed early")
		}
	}
	if r.write() {
		t.Fatal("a fifth batch is unanswered")
	}
	r.shard.refuse = true
	for r.process() {
	}
	r.answer()
	if r.write() {
		t.Fatal("written while answers are owed after a refusal")
	}
	for r.answer() {
	}
	if r.write() {
		t.Fatal("written before the pause ended")
	}
	if at, ok := r.line.Wake(r.now); !ok || !at.Equal(r.now.Add(time.Millisecond)) {
		t.Fatalf("wakes at %v", at)
	}
	r.now = r.now.Add(time.Millisecond)
	if !r.write() || r.wire[0].seq != 1 {
		t.Fatal("the refused batch is not written again first")
	}
	r.settle(t.Fatalf)
	r.check(t.Fatalf, true)
}

func TestAbortSaysWhatIsKnown(t *testing.T) {
	r := newRig(true)
	r.line.Up()
	r.push(time.Hour)
	r.push(time.Hour)
	r.write()
	r.line.Abort(code.Closed, "the publisher was closed")
	r.collect()
	if r.fate[0].Class != code.ClassUnknown || r.fate[1].Class != code.ClassFatal {
		t.Errorf("written: %v, unwritten: %v", r.fate[0].Class, r.fate[1].Class)
	}
}

// R5: what was on its way when the connection went may be stored, although it is not on its way any more.
func TestLostConnectionLeavesItUnknown(t *testing.T) {
	r := newRig(true)
	r.line.Up()
	r.push(time.Hour)
	r.write()
	r.lose(1)
	r.line.Abort(code.Closed, "the publisher was closed")
	r.collect()
	if e := r.fate[0]; e == nil || e.Class != code.ClassUnknown {
		t.Errorf("ended with %v", e)
	}
}

func TestWithoutIdentityNothingIsSentTwice(t *testing.T) {
	r := newRig(false)
	r.line.Up()
	r.push(time.Hour)
	r.write()
	r.lose(1)
	if e := r.fate[0]; e == nil || e.Class != code.ClassUnknown {
		t.Errorf("ended with %v", e)
	}
	r.push(time.Hour)
	r.shard.refuse = true
	r.line.Up()
	r.write()
	r.process()
	r.answer()
	r.settle(t.Fatalf)
	if r.fate[1] != nil || len(r.shard.log) != 2 {
		t.Errorf("a refused batch is not retried: %v", r.fate[1])
	}
}
