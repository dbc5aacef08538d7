// SPDX-License-Identifier: Apache-2.0

// Package explore visits, breadth first, every state that a deterministic system can reach within bounds, and holds each to
// the system's promises; it touches nothing but the system it is given, and refuses to be called complete when it is not.
package explore

import (
	"fmt"
	"math"
	"time"
)

// System is what is explored: small, and decided by its actions alone. An action is a small value that prints as what it does.
type System[A comparable] interface {
	// Actions appends what may happen next. Equal states list the same in the same order.
	Actions(to []A) []A
	// Apply lets one of them happen. An error is a promise that this step broke.
	Apply(a A) error
	// Fingerprint is the same for two states that behave alike for ever, and else, but for an accident, not. Of 64 bits, an
	// accident hides a state in one of a million explorations of five million states.
	Fingerprint() uint64
	// Check says which promise the state breaks, if any.
	Check() error
}

// A System may have two methods more.
//
// Clone() S, a copy that shares nothing which changes: without it a state is reached again by repeating its whole path.
//
// Finish() error, which lets all go well from here to the end, and says what then is not as promised. The system is not
// used any more afterwards. What a state cannot show (that something is stuck) shows here.

// Options bound an exploration. The zero value visits everything.
type Options struct {
	States int           // visited at most; 0 for as many as can be counted
	Depth  int           // actions in a row; 0 for any number
	Time   time.Duration // 0 for any
	Finish int           // one of so many states is led to its end; 0 for none
}

// Result is what an exploration came to.
type Result[A comparable] struct {
	States      int // distinct, the first included
	Transitions int
	Depth       int // every state of so many actions, or fewer, was visited
	Finished    int // states that were led to their end
	Complete    bool
	Ended       string // what ended it, when it is not complete
	Took        time.Duration
	Violation   *Violation[A]
}

// String is one line for a log.
func (r Result[A]) String() string {
	rate := float64(r.States) / max(r.Took.Seconds(), 1e-9)
	s := fmt.Sprintf("%d states, %d transitions, depth %d, %d led to an end, %.1f s, %.0f states/s",
		r.States, r.Transitions, r.Depth, r.Finished, r.Took.Seconds(), rate)
	switch {
	case r.Violation != nil:
		return s + ": a promise is broken"
	case !r.Complete:
		return s + ": ended by " + r.Ended
	}
	return s + ": complete"
}

// Run visits the states that can be reached from start's, those of few actions first: the path of a violation is a shortest
// one.
func Run[A comparable, S System[A]](start func() S, o Options) Result[A] {
	if o.States <= 0 || o.States > math.MaxInt32 {
		o.States = math.MaxInt32
	}
	if o.Depth <= 0 {
		o.Depth = math.MaxInt
	}
	s := &search[A, S]{start: start, o: o, began: time.Now(), visited: map[uint64]struct{}{}}
	s.run()
	s.Took = time.Since(s.began)
	return s.Result
}
