// SPDX-License-Identifier: Apache-2.0

// Package sim runs one node and its clients in one goroutine, in virtual time, under faults that a seed draws: the shipped
// cores, the steps of the shipped broker around them, and the client's core of publishing. It touches no disk, network or
// clock, and refuses to let anything but the seed decide what happens, so that a seed replays exactly.
package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"margay.dev/cluster/history"
)

// Options of a run.
type Options struct {
	// Trace, when set, is called with each thing that happens.
	Trace func(line string)
}

// Result is what one seed came to.
type Result struct {
	Seed       uint64         `json:"seed"`
	Hash       uint64         `json:"hash"` // of all that happened, in order: two runs of a seed have the same
	Steps      int            `json:"steps"`
	Acked      int            `json:"records_acknowledged"`
	Reads      int            `json:"records_read"`
	HandOuts   int            `json:"messages_handed_out"`
	Settles    int            `json:"settlements_acknowledged"`
	Starts     int            `json:"starts"` // of the node
	Faults     map[string]int `json:"faults"` // by kind
	Violations []string       `json:"violations"`
	Last       []string       `json:"last"` // what happened last, when there are violations
}

// Run runs one seed.
func Run(seed uint64, o Options) (r Result) {
	w := newWorld(seed, o)
	defer func() {
		if p := recover(); p != nil { // a panic of the code under test is a finding like any other
			w.violate("panic: %v\n%s", p, stack())
		}
		r = w.result()
	}()
	w.play()
	return w.result()
}

// world is all there is: what is to happen, and what has.
type world struct {
	seed  uint64
	rng   *rand.Rand
	now   time.Duration
	skew  time.Duration // of the wall clock
	walls []struct{ at, skew time.Duration }
	back  time.Duration // that it was set back in all: what is due by it may be so much later
	queue queue
	depth int // of waits within steps
	trace *trace

	plan    plan
	disk    *disk
	catalog *catalog
	proc    *process // nil while the node is down
	starts  int
	actors  []actor
	conns   []*conn
	ledgers []*ledger

	history history.Recorder
	found   []string
	faults  map[string]int
	steps   int
	acked   int
	handed  int // messages
	settles int // that were acknowledged
	uniques uint64
	calm    bool // no more faults, nothing new to publish
}

// actor is a client.
type actor interface {
	start()
	// done says whether it has nothing more to do, once the world is calm.
	done() bool
}

const (
	maxSteps  = 200_000          // a seed that takes more does not end
	quiet     = 5 * time.Second  // after which nothing comes that somebody began before
	drainTime = 60 * time.Second // that what was begun has to end, once the world is calm
)

var epoch = time.Date(2031, time.May, 4, 0, 0, 0, 0, time.UTC)

func newWorld(seed uint64, o Options) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6d6172676179)), trace: newTrace(o.Trace), faults: map[string]int{},
	}
	w.plan = draw(w.rng)
	w.catalog = newCatalog(w)
	w.disk = newDisk(w)
	for i := range w.plan.logs {
		w.ledgers = append(w.ledgers, newLedger(w, &w.plan.logs[i]))
	}
	return w
}

// clock is what intervals are measured by, wall what people call the time.
func (w *world) clock() time.Time { return epoch.Add(w.now) }
func (w *world) wall() time.Time  { return epoch.Add(w.now + w.skew) }

// play is the whole life of the world.
func (w *world) play() {
	w.logf("plan %s", &w.plan)
	w.boot()
	w.populate()
	for _, f := range w.plan.faults {
		w.after(f.at, "fault", always, func() { w.strike(f) })
	}
	w.runUntil(w.plan.length)
	w.calm = true
	w.heal()
	for _, a := range w.actors {
		if s, ok := a.(*sitter); ok {
			s.getUp()
		}
	}
	if !w.settle() {
		return
	}
	w.audit("audit")
	if !w.lookAround() || !w.lookAtQueues(false) {
		return
	}
	// What was acknowledged must outlive the power as well, with nobody there who could have had it flushed since.
	w.cutPower()
	w.reboot()
	if !w.settle() {
		return
	}
	w.audit("audit after the last power cut")
	if !w.lookAround() || !w.lookAtQueues(true) {
		return
	}
	for _, l := range w.ledgers {
		l.judge()
		l.judgeQueue()
	}
	for _, v := range w.history.Check() {
		w.violate("%s", v)
	}
}

// settle waits until all is through, also what nobody waits for: late packets, and the last words of those who are lost.
func (w *world) settle() bool {
	if !w.runWhile(func() bool { return !w.settled() }) {
		return false
	}
	w.runUntil(w.now + quiet + w.back)
	return w.runWhile(func() bool { return !w.settled() })
}

// settled says whether every client is through and every shard is open.
func (w *world) settled() bool {
	for _, a := range w.actors {
		if !a.done() {
			return false
		}
	}
	return w.proc.whole()
}

// runUntil lets happen what is due before a time.
func (w *world) runUntil(end time.Duration) {
	for len(w.found) == 0 && w.queue.len() > 0 && w.queue.first().at <= end && w.steps < maxSteps {
		w.fire(w.queue.pop())
	}
	w.now = max(w.now, end)
}

// runWhile lets things happen while a condition holds, and complains if that takes longer than drainTime.
func (w *world) runWhile(cond func() bool) bool {
	end := w.now + drainTime
	for cond() {
		if len(w.found) > 0 {
			return false
		}
		if w.steps >= maxSteps || w.queue.len() == 0 || w.queue.first().at > end {
			w.violate("nothing comes to its end: %s", w.stuck())
			return false
		}
		w.fire(w.queue.pop())
	}
	return len(w.found) == 0
}

// stuck says who is not through.
func (w *world) stuck() string {
	if w.steps >= maxSteps {
		return fmt.Sprintf("%d steps", w.steps)
	}
	for i, a := range w.actors {
		if !a.done() {
			return fmt.Sprintf("client %d (%v)", i, a)
		}
	}
	return w.proc.state()
}

func (w *world) fire(e *event) {
	w.now = max(w.now, e.at)
	w.steps++
	w.trace.note(w.now, e.kind)
	e.run()
}

// violate notes a broken promise. The run ends with the first.
func (w *world) violate(format string, args ...any) {
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func (w *world) logf(format string, args ...any) { w.trace.logf(w.now, format, args...) }

// debugf is for what is too much to keep: it is told to who traces, and is no part of the hash.
func (w *world) debugf(format string, args ...any) { w.trace.debugf(w.now, format, args...) }

func (w *world) result() Result {
	r := Result{
		Seed: w.seed, Hash: w.trace.sum(), Steps: w.steps, Acked: w.acked, Starts: w.starts, Faults: w.faults,
		Violations: w.found, HandOuts: w.handed, Settles: w.settles,
	}
	_, r.Reads = w.history.Counts()
	if len(w.found) > 0 {
		r.Last = w.trace.last()
	}
	return r
}
