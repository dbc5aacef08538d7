// SPDX-License-Identifier: Apache-2.0

// Package cache judges what the clients of one cache saw: that what was done with a key happened one at a time, between
// request and answer, in the order of its versions, and that a watcher got the state, then every change and nothing else;
// it holds data only, opens nothing, and refuses to call a history good that it could not judge.
package cache

import (
	"slices"
	"sync"
	"time"

	"margay.dev/cluster/history"
)

// Op is what a client asks of a key.
type Op uint8

const (
	// Get reads the key.
	Get Op = iota + 1
	// Put sets a value.
	Put
	// Delete takes the value away. The key need not be there.
	Delete
	// Add adds to a number; a key that is not there counts as 0.
	Add
	// Touch gives the value another deadline and a version. A key that is not there stays so.
	Touch
)

var opNames = [...]string{Get: "get", Put: "put", Delete: "delete", Add: "add", Touch: "touch"}

func (o Op) String() string {
	if o == 0 || int(o) >= len(opNames) {
		return "invalid"
	}
	return opNames[o]
}

// Times are microseconds since 1970 by the clock of who decides on expiry. Clients know it in bounds only.

// Attempt is one thing that a client asked.
type Attempt struct {
	Client string // for messages
	Op     Op
	Key    string
	Value  string // of a Put. Two puts of a key must not have one value: it is how a value that was read is told apart.
	Delta  int64  // of an Add
	// If is the version that the key is to have, 0 for none; nil for no condition.
	If *uint64
	// TTL is the time to live that the value gets, 0 for ever.
	TTL time.Duration
	// KeepTTL says that the value keeps the deadline that the key had.
	KeepTTL bool
	// Stale says that a Get may be answered with what was there a while ago, and AtLeast that all below an offset is to be
	// in it.
	Stale   bool
	AtLeast uint64
	// NotBefore is a time that had come when the request left.
	NotBefore int64
}

// Answer is how an attempt ended.
type Answer struct {
	Outcome history.Outcome
	// NotAfter is a time that had not passed when the answer had come; 0 stands for not known.
	NotAfter int64
	// Have is the version that the key was said to have, of a conditional attempt that was refused for it.
	Have *uint64
	// The rest is read for Acked only.

	Shard uint32
	// Version that the key got, or, of a Get, that it has. 0: the key is not there, of a Get or Touch.
	Version uint64
	Got     string // the value, of a Get that found the key
	Sum     int64  // of an Add
	// AppendTime of the record, 0 when the answer did not say. Expires is the deadline that a Get was told.
	AppendTime int64
	Expires    *int64
	AsOf       uint64 // of a stale Get: the offset, exclusive, as of which it was answered
}

// ID names an attempt of one Recorder.
type ID int

// Recorder collects a history of one cache. Its methods may be called from many goroutines; what happens before the call
// of one method and after the return of another is kept in that order, and concurrent calls in some order.
type Recorder struct {
	// Skew is how far the clocks of this history may lie beside each other.
	Skew time.Duration
	// Steps bounds the search for an order, for each key; 0 stands for two millions. A key that needs more is Undecided:
	// no clock decides what a check finds.
	Steps int

	mu       sync.Mutex
	moment   int
	attempts []attempt
	watchers []*Watcher
	stores   []store
}

type attempt struct {
	Attempt
	Answer
	began, ended int // moments; ended is 0 while there is no answer
	// version that the record is known to have, by the answer or because somebody saw the value; 0: not known.
	version uint64
}

// Begin records an attempt. Call it before the request leaves.
func (r *Recorder) Begin(a Attempt) ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.attempts = append(r.attempts, attempt{Attempt: a, began: r.moment})
	return ID(len(r.attempts) - 1)
}

// End records the answer of an attempt. Call it after the answer arrived. An attempt without End counts as unknown.
func (r *Recorder) End(id ID, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moment++
	r.attempts[id].Answer = a
	r.attempts[id].ended = r.moment
}

// Times says when an attempt was under way, where that is known better by now than it was: see NotBefore and NotAfter.
func (r *Recorder) Times(id ID, notBefore, notAfter int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts[id].NotBefore, r.attempts[id].NotAfter = notBefore, notAfter
}

// Counts says how much of each operation was acknowledged: a run that acknowledged nothing proves nothing.
func (r *Recorder) Counts() map[Op]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[Op]int{}
	for i := range r.attempts {
		if r.attempts[i].Outcome == history.Acked {
			n[r.attempts[i].Op]++
		}
	}
	return n
}

// Check returns every violation that the history shows so far, none if it keeps every promise.
func (r *Recorder) Check() []Violation {
	r.mu.Lock()
	c := checker{
		attempts: slices.Clone(r.attempts), skew: r.Skew.Microseconds(), steps: r.Steps, stores: slices.Clone(r.stores), moments: r.moment,
	}
	for _, w := range r.watchers {
		c.watchers = append(c.watchers, &Watcher{name: w.name, match: w.match, conflates: w.conflates, events: slices.Clip(w.events)})
	}
	r.mu.Unlock()
	return c.check()
}

// writes says whether it leaves a record, if it is applied.
func (a *attempt) writes() bool { return a.Op != Get }

// binding says whether the answer promises a record with a version.
func (a *attempt) binding() bool {
	return a.Outcome == history.Acked && a.writes() && a.Version != 0
}

// denied says that nothing of it may be there.
func (a *attempt) denied() bool { return a.Outcome == history.Refused || a.Outcome == history.Fatal }
