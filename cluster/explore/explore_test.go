// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"margay.dev/cluster/explore"
)

// grid has two counters that count up to a bound each: (bound + 1)² states, and as many actions to the last.
type grid struct {
	n     [2]int
	bound int
}

type up int

func (u up) String() string { return fmt.Sprintf("counter %d goes up", int(u)) }

func (g *grid) Actions(to []up) []up {
	for i, n := range g.n {
		if n < g.bound {
			to = append(to, up(i))
		}
	}
	return to
}

func (g *grid) Apply(u up) error    { g.n[u]++; return nil }
func (g *grid) Fingerprint() uint64 { return uint64(g.n[0])<<32 | uint64(g.n[1]) }
func (g *grid) Check() error        { return nil }

// copied is the same, and can be copied.
type copied struct{ grid }

func (c *copied) Clone() *copied { is := *c; return &is }

func TestEveryStateIsVisitedOnce(t *testing.T) {
	const bound = 30
	for name, r := range map[string]explore.Result[up]{
		"repeated": explore.Run(func() *grid { return &grid{bound: bound} }, explore.Options{}),
		"copied":   explore.Run(func() *copied { return &copied{grid{bound: bound}} }, explore.Options{}),
	} {
		if !r.Complete || r.Violation != nil || r.States != (bound+1)*(bound+1) || r.Transitions != 2*bound*(bound+1) || r.Depth != 2*bound {
			t.Errorf("%s: %+v", name, r)
		}
		t.Log(name, r)
	}
}

func TestBudgets(t *testing.T) {
	start := func() *copied { return &copied{grid{bound: 30}} }
	for _, c := range []struct {
		o      explore.Options
		states int
		why    string
	}{
		{explore.Options{Depth: 3}, 1 + 2 + 3 + 4, "3 actions"},
		{explore.Options{States: 1}, 3, "1 states"}, // what one action leads to is always looked at whole
		{explore.Options{Time: 1}, 3, "1ns"},
		{explore.Options{Depth: 60}, 31 * 31, "60 actions"}, // nobody has looked whether there is more
	} {
		r := explore.Run(start, c.o)
		if r.Complete || r.States != c.states || !strings.Contains(r.Ended, c.why) || r.Depth > c.o.Depth {
			t.Errorf("%+v: %+v", c.o, r)
		}
	}
	if r := explore.Run(start, explore.Options{Depth: 61, States: 10_000, Time: time.Hour}); !r.Complete {
		t.Errorf("within all its bounds: %v", r)
	}
}

// disk is a store that acknowledges what it has flushed, and may lose what it has not; broken, it acknowledges what is
// written.
type disk struct {
	broken                         bool
	written, flushed, acked, given int
	crashes                        int
}

type act struct {
	what string
	keep int
}

func (a act) String() string { return fmt.Sprint(a.what, " ", a.keep) }

func (d *disk) Actions(to []act) []act {
	if d.given < 3 {
		to = append(to, act{"write", 0})
	}
	if d.flushed < d.written {
		to = append(to, act{"flush", 0})
	}
	if d.acked < d.flushed || d.broken && d.acked < d.written {
		to = append(to, act{"acknowledge", 0})
	}
	if d.crashes > 0 {
		for keep := d.flushed; keep <= d.written; keep++ {
			to = append(to, act{"crash", keep})
		}
	}
	return to
}

func (d *disk) Apply(a act) error {
	switch a.what {
	case "write":
		d.written, d.given = d.written+1, d.given+1
	case "flush":
		d.flushed = d.written
	case "acknowledge":
		d.acked++
	case "crash":
		d.written, d.flushed, d.crashes = a.keep, a.keep, d.crashes-1
	}
	return nil
}

func (d *disk) Fingerprint() uint64 {
	return uint64(d.written)<<40 | uint64(d.flushed)<<30 | uint64(d.acked)<<20 | uint64(d.given)<<10 | uint64(d.crashes)
}

var errLost = errors.New("what was acknowledged is lost")

func (d *disk) Check() error {
	if d.acked > d.written {
		return errLost
	}
	return nil
}

// Finish flushes and acknowledges all.
func (d *disk) Finish() error {
	for actions := d.Actions(nil); d.acked < d.written; actions = d.Actions(nil) {
		for _, a := range actions {
			if a.what == "acknowledge" || a.what == "flush" {
				_ = d.Apply(a)
				break
			}
		}
	}
	if d.given == 3 && d.crashes == 1 && d.acked < 3 {
		return fmt.Errorf("only %d of 3 were acknowledged", d.acked)
	}
	return nil
}

// A planted mistake is found, by a shortest path, which can be taken again.
func TestAViolationIsFoundByAShortestPath(t *testing.T) {
	good := explore.Run(func() *disk { return &disk{crashes: 1} }, explore.Options{Finish: 1})
	if good.Violation != nil || !good.Complete || good.Finished != good.States {
		t.Fatalf("unbroken: %v\n%v", good, good.Violation)
	}
	start := func() *disk { return &disk{broken: true, crashes: 1} }
	r := explore.Run(start, explore.Options{})
	v := r.Violation
	if v == nil || r.Complete || !errors.Is(v.Err, errLost) {
		t.Fatalf("the mistake is not found: %v", r)
	}
	if want := []act{{"write", 0}, {"acknowledge", 0}, {"crash", 0}}; !slices.Equal(v.Actions, want) {
		t.Fatalf("by %v, want %v", v.Actions, want)
	}
	for _, want := range []string{"acknowledged is lost", "path " + v.Path.String(), "1  write 0", "3  crash 0"} {
		if !strings.Contains(v.String(), want) {
			t.Errorf("it says nothing of %q: %v", want, v)
		}
	}
	path, err := explore.ParsePath(v.Path.String())
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	err = explore.Replay(start(), path, false, func(a act, before bool, d *disk) {
		if !before {
			seen = append(seen, fmt.Sprint(a, d.written))
		}
	})
	if !errors.Is(err, errLost) || len(seen) != 3 || seen[2] != "crash 0 0" {
		t.Errorf("replayed: %v, %q", err, seen)
	}
	if err := explore.Replay(&disk{crashes: 1}, path, true, nil); err == nil || errors.Is(err, errLost) {
		t.Errorf("replayed in another system: %v", err)
	}
	if err := explore.Replay(start(), path[:2], true, nil); err != nil {
		t.Errorf("the path without its end: %v", err)
	}
	if _, err := explore.ParsePath("1.x"); err == nil {
		t.Error("a path of letters is taken")
	}
}

// wrong is a grid in which something goes wrong beyond its states.
type wrong struct {
	grid
	how string
}

var errStuck = errors.New("stuck")

func (w *wrong) Apply(u up) error {
	_ = w.grid.Apply(u)
	if w.n == [2]int{2, 1} {
		switch w.how {
		case "apply":
			return errStuck
		case "panic":
			panic("out of range")
		}
	}
	return nil
}

func (w *wrong) Finish() error {
	if w.how == "finish" && w.n == [2]int{2, 1} {
		return errStuck
	}
	return nil
}

func TestWhatGoesWrongBesideTheStates(t *testing.T) {
	for how, want := range map[string]string{"apply": "stuck", "panic": "panic: out of range", "finish": "led to its end: stuck"} {
		r := explore.Run(func() *wrong { return &wrong{grid{bound: 3}, how} }, explore.Options{Finish: 1})
		if r.Violation == nil || len(r.Violation.Actions) != 3 || !strings.HasPrefix(r.Violation.Err.Error(), want) {
			t.Errorf("%s: %v %v", how, r, r.Violation)
		}
	}
}

// sharing clones a slice without what is in it.
type sharing struct{ n []int }

func (s *sharing) Actions(to []up) []up { return (&grid{[2]int(s.n), 3}).Actions(to) }
func (s *sharing) Apply(u up) error     { s.n[u]++; return nil }
func (s *sharing) Fingerprint() uint64  { return uint64(s.n[0])<<32 | uint64(s.n[1]) }
func (s *sharing) Check() error         { return nil }
func (s *sharing) Clone() *sharing      { return &sharing{s.n} }

// A clone that is none would hide states, and show some that are not.
func TestSharedMemoryIsNoticed(t *testing.T) {
	r := explore.Run(func() *sharing { return &sharing{make([]int, 2)} }, explore.Options{})
	if r.Violation == nil || !errors.Is(r.Violation.Err, explore.ErrNondeterministic) {
		t.Errorf("%v: %v", r, r.Violation)
	}
}

// wide has many ways on from each state, as real systems have.
type wide struct{ n [8]uint8 }

func (w *wide) Actions(to []up) []up {
	for i, n := range w.n {
		if n < 3 {
			to = append(to, up(i))
		}
	}
	return to
}

func (w *wide) Apply(u up) error    { w.n[u]++; return nil }
func (w *wide) Fingerprint() uint64 { return binary.LittleEndian.Uint64(w.n[:]) }
func (w *wide) Check() error        { return nil }
func (w *wide) Clone() *wide        { is := *w; return &is }

// What the engine itself takes.
func BenchmarkRun(b *testing.B) {
	for b.Loop() {
		r := explore.Run(func() *wide { return &wide{} }, explore.Options{})
		b.ReportMetric(float64(r.States)/r.Took.Seconds(), "states/s")
	}
}

// A walk comes far, and what it finds on the way is told without what did not matter.
func TestWalk(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	start := func() *disk { return &disk{broken: true, crashes: 2} }
	r := explore.Walk(start, rng, explore.Options{States: 100_000, Depth: 100, Finish: 1})
	v := r.Violation
	if v == nil || !errors.Is(v.Err, errLost) {
		t.Fatalf("the mistake is not found: %v", r)
	}
	if want := []act{{"write", 0}, {"acknowledge", 0}, {"crash", 0}}; !slices.Equal(v.Actions, want) {
		t.Fatalf("by %v, want %v", v.Actions, want)
	}
	if err := explore.Replay(start(), v.Path, false, nil); !errors.Is(err, errLost) {
		t.Errorf("replayed: %v", err)
	}
	if r := explore.Walk(func() *disk { return &disk{crashes: 2} }, rng, explore.Options{States: 1000, Depth: 10, Finish: 1}); r.Violation != nil || r.States < 1000 || r.Finished < 100 {
		t.Errorf("unbroken: %v", r)
	}
}
