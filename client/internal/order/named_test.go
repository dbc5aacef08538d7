// SPDX-License-Identifier: Apache-2.0

package order

import (
	"errors"
	"slices"
	"testing"
	"time"

	"margay.dev/wire/code"
)

// ID-06: a process that comes back under the name of a producer gives its batches again under their sequences: what is
// stored is not stored twice, what is not is stored if the shard has not gone past it, and nobody is told otherwise.
func TestNamedProducerComesBack(t *testing.T) {
	first := newNamed(nil)
	first.line.Up()
	for range 5 {
		first.push(time.Hour)
	}
	for range 3 {
		first.write()
	}
	first.process() // 1 is stored
	first.wire[0].fatal = true
	for first.process() { // 2 is not, and 3 names it as its predecessor
	}
	first.shard.publish(frame{id: 7, seq: 3, pre: 1, value: 2}) // another process has left 2 out
	again := newNamed(first.shard)
	for range 5 {
		again.push(time.Hour)
	}
	again.settle(t.Fatalf)
	for v, want := range []error{nil, code.OutOfOrder, nil, nil, nil} {
		got := again.fate[v]
		if want == nil && got != nil || want != nil && (got == nil || !errors.Is(got, want) || got.Class != code.ClassFatal) {
			t.Errorf("sequence %d: %v, want %v", v+1, got, want)
		}
	}
	if !slices.Equal(first.shard.log, []int{0, 2, 3, 4}) {
		t.Errorf("stored %v", first.shard.log)
	}
	if again.line.settled != 5 {
		t.Errorf("the line stands by %d", again.line.settled)
	}
}

// A duplicate that is stored under another producer's name is not named as a predecessor.
func TestDuplicateElsewhere(t *testing.T) {
	r := newRig(true)
	r.shard.groups[1] = true
	r.push(time.Hour)
	r.settle(t.Fatalf)
	r.line.Up()
	r.pushOf(1, time.Hour)
	for moved := true; moved; {
		moved = r.write() || r.process() || r.answer()
	}
	r.push(time.Hour)
	r.write()
	if f := r.wire[0]; f.pre != 1 {
		t.Errorf("the next batch names %d, and the shard has 1", f.pre)
	}
	r.settle(t.Fatalf)
	if !slices.Equal(r.shard.log, []int{0, 2}) || r.fate[1] != nil {
		t.Errorf("stored %v, the duplicate ended with %v", r.shard.log, r.fate[1])
	}
}

// ID-06: nothing passes over a batch of a named producer that was not stored: who comes back takes what lies below for
// stored.
func TestNamedProducerLeavesNothingOut(t *testing.T) {
	for name, fail := range map[string]func(r *rig){
		"given up": func(r *rig) { r.now = r.now.Add(time.Minute); r.line.Expire(r.now, "") },
		"refused":  func(r *rig) { r.fatal[1] = true; r.line.Up() },
		"aborted":  func(r *rig) { r.line.Abort(code.Unauthenticated, "no") },
		"forgotten": func(r *rig) {
			r.line.Up()
			r.write()
			r.lose(1) // it is stored, the answer is lost
			r.shard.forget()
		},
	} {
		r := newNamed(nil)
		r.push(time.Hour)
		r.settle(t.Fatalf)
		r.push(time.Second)
		r.push(time.Hour)
		r.push(time.Hour)
		fail(r)
		r.push(time.Hour)
		r.settle(t.Fatalf)
		r.push(time.Hour)
		r.settle(t.Fatalf)
		r.collect()
		r.check(t.Fatalf, true)
		for v := 2; v <= 5; v++ {
			if e := r.fate[v]; e == nil || e.Code != code.Closed && name != "aborted" {
				t.Errorf("%s: batch %d ended with %v", name, v, e)
			}
		}
		if r.line.Broken() == nil {
			t.Errorf("%s: the line goes on", name)
		}
	}
}

// R5: a shard that cannot tell whether it has a batch says so, and nothing makes that "not stored", whether the batch was
// the first on its way or behind another; the line goes on as after any that is decided.
func TestTooOldToTell(t *testing.T) {
	old := code.New(code.OutOfOrder, "long ago").With(code.DetailLastSequence, 400).WithClass(code.ClassUnknown)
	r := newNamed(nil)
	r.line.Up()
	for range 2 {
		r.push(time.Minute)
		r.write()
	}
	r.line.Failed(r.wire[1].ticket, old, r.now)
	r.line.Failed(r.wire[0].ticket, old, r.now)
	r.now = r.now.Add(time.Hour)
	r.line.Expire(r.now, "")
	r.collect()
	for v, want := range []code.Code{code.OutOfOrder, code.Timeout} {
		if e := r.fate[v]; e == nil || e.Code != want || e.Class != code.ClassUnknown {
			t.Errorf("batch %d ended with %v", v, e)
		}
	}

	r = newNamed(nil)
	r.line.Up()
	r.push(time.Minute)
	r.write()
	r.line.Failed(r.wire[0].ticket, old, r.now)
	if r.line.Broken() != nil || r.line.settled != 400 {
		t.Errorf("the line ends with %v and stands by %d", r.line.Broken(), r.line.settled)
	}
}
