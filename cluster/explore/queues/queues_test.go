// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"margay.dev/cluster/explore"
	"margay.dev/wire/batch"
)

var (
	states  = flag.Int("states", 0, "states to visit in all; 0: 5 million, and few with -short")
	minutes = flag.Float64("minutes", 0, "time to take in all; 0: 3, and any time with -short")
	path    = flag.String("path", "", "a path that a violation printed, to be taken again by the one test that -run names")
)

// settings are those of all setups: two attempts, and times that are told apart.
func settings() batch.GroupSettings {
	return batch.GroupSettings{AckWait: 100_000, MaxAttempts: 2, Backoff: []uint64{1000}, MaxDead: 100, PriorityAge: 60_000_000}
}

// plain has no keys, and a message that is not due at once.
func plain(b Budget) *Setup {
	s := &Setup{
		Messages: []Message{{}, {Delay: 1500}, {}}, Settings: settings(), Consumers: 2, Credit: 2, Ready: true, Faults: b,
	}
	return s.timed()
}

// keyed has an order by key.
func keyed(b Budget) *Setup {
	s := &Setup{
		Messages: []Message{{Key: "k"}, {Key: "k"}, {Key: "l"}}, Settings: settings(), Consumers: 2, Credit: 2, Ready: true, Faults: b,
	}
	s.Settings.OrderByKey = true
	return s.timed()
}

// timed gives messages an end, where that is a fault: one that comes before their claims' and one that comes after.
func (s *Setup) timed() *Setup {
	if s.Faults[Expire] > 0 {
		s.Messages[0].TTL, s.Messages[1].TTL = 5000, 150_000
		s.Settings.DeadExpired = s.Faults[Redrive] > 0 || s.Faults[Discard] > 0
	}
	return s
}

// run explores, or takes a path again.
func run(t *testing.T, s *Setup, o explore.Options) explore.Result[Action] {
	t.Helper()
	start := func() *World { return New(s) }
	if *path != "" {
		p, err := explore.ParsePath(*path)
		if err != nil {
			t.Fatal(err)
		}
		err = explore.Replay(start(), p, true, func(a Action, before bool, w *World) {
			if before {
				t.Log(a)
				return
			}
			t.Logf("now %d, flushed %d of %d and %d; %+v; hands %+v", w.now-began, w.flushed, len(w.file), len(w.unwritten), w.ledger, w.hands)
		})
		t.Log("replayed:", err)
		return explore.Result[Action]{}
	}
	r := explore.Run(start, o)
	if r.Violation != nil {
		t.Fatalf("%s: %s\n%s\n-run '^%s$' -path %s", s.Faults, r, r.Violation, t.Name(), r.Violation.Path)
	}
	return r
}

// S8, S9: no two kinds of faults together, however they fall among what goes well, have a message held twice, forgotten,
// settled and not, or stuck.
func TestPairsOfFaults(t *testing.T) {
	type one struct {
		name  string
		setup *Setup
	}
	var all []one
	for i, f := range Faults() {
		for _, g := range Faults()[i+1:] {
			b := withDead(Only(2, f, g))
			all = append(all, one{"plain/" + b.String(), plain(b)}, one{"keyed/" + b.String(), keyed(b)})
		}
	}
	var total explore.Result[Action]
	began := time.Now()
	most, limit := *states, time.Duration(*minutes*float64(time.Minute))
	switch {
	case testing.Short() && most == 0:
		most = 60 * len(all)
	case most == 0:
		most = 5_000_000
	}
	if limit == 0 && !testing.Short() {
		limit = 3 * time.Minute
	}
	complete := 0
	for i, x := range all {
		t.Run(x.name, func(t *testing.T) {
			left := len(all) - i // what one leaves over, the others have
			o := explore.Options{States: max((most-total.States)/left, 1), Finish: 4}
			if limit > 0 {
				o.Time = max((limit-time.Since(began))/time.Duration(left), 1)
			}
			r := run(t, x.setup, o)
			t.Log(r)
			total.States, total.Transitions, total.Finished = total.States+r.States, total.Transitions+r.Transitions, total.Finished+r.Finished
			if r.Complete {
				complete++
			}
		})
	}
	total.Took = time.Since(began)
	fmt.Printf("%d setups, %d of them completely: %d states, %d transitions, %d led to an end, %.0f s\n",
		len(all), complete, total.States, total.Transitions, total.Finished, total.Took.Seconds())
}

// withDead lets there be a dead letter where one is needed.
func withDead(b Budget) Budget {
	if (b[Redrive] > 0 || b[Discard] > 0) && b[Reject]+b[Nack]+b[Timeout]+b[Die] == 0 {
		b[Reject] = 1
	}
	return b
}

// S8: what became of a message is in the checkpoint that a restart reads.
func TestCheckpointsHoldWhatBecame(t *testing.T) {
	for _, f := range []Fault{Reject, Nack, Timeout} {
		t.Log(run(t, plain(Only(1, f, Roll, Crash)), explore.Options{States: 3000, Finish: 4}))
	}
}
