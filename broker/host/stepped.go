// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"margay.dev/storage"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// Stepped is a host that nobody runs: its owner takes each step, in the order that he likes, in one goroutine. The steps
// are those of Run, so that what a simulation finds is true of what is shipped. A step is whole but for the calls of the
// file system in it: whoever gives that a hook may do meanwhile what other goroutines could.
type Stepped struct {
	h    *Host
	jobs []func()
}

// NewStepped makes a host to be stepped. Its configuration should have a clock of its own.
func NewStepped(cfg Config) *Stepped {
	x := &Stepped{h: New(cfg)}
	x.h.stepped = x
	x.h.space.look()
	return x
}

// Host is the host, for who asks it for metrics or sessions.
func (x *Stepped) Host() *Host { return x.h }

// Apply takes what the catalog says now.
func (x *Stepped) Apply(ctx context.Context, s control.Snapshot) error {
	x.h.snapshot = s
	return x.h.apply(ctx)
}

// Again tries once more what did not succeed and is due.
func (x *Stepped) Again(ctx context.Context) error { return x.h.apply(ctx) }

// UntilAgain is how long it takes until something is due.
func (x *Stepped) UntilAgain() time.Duration { return x.h.untilRetry() }

// Jobs counts what waits to be done beside the shards: openings, and readings of whole logs.
func (x *Stepped) Jobs() int { return len(x.jobs) }

// Work does the oldest of them.
func (x *Stepped) Work(ctx context.Context) error {
	if len(x.jobs) == 0 {
		return nil
	}
	job := x.jobs[0]
	x.jobs = x.jobs[1:]
	job()
	return x.h.apply(ctx)
}

// Shards are those that are open or closing, in order.
func (x *Stepped) Shards() []*Shard {
	all := make([]*Shard, 0, len(x.h.shards))
	for _, s := range x.h.shards {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Shard) int { return compareRefs(a.Ref, b.Ref) })
	return all
}

func compareRefs(a, b Ref) int {
	return cmp.Or(bytes.Compare(a.Log[:], b.Log[:]), cmp.Compare(a.Shard, b.Shard))
}

// Turn takes one turn of a shard's loop and says whether it was its last.
func (x *Stepped) Turn(ctx context.Context, s *Shard) (ended bool, err error) {
	if !s.turn() {
		return false, nil
	}
	x.h.reap(s)
	return true, x.h.apply(ctx)
}

// Busy says whether a turn would find something that has come.
func (s *Shard) Busy() bool { return s.more() }

// Pause is how long the shard may go without a turn when nothing comes.
func (s *Shard) Pause() time.Duration { return s.pause() }

// Stop tells every shard to close, as at an orderly end. Turns do it.
func (x *Stepped) Stop() {
	why := code.New(code.ShuttingDown, "the node is shutting down").Retry(time.Second)
	for _, s := range x.h.shards {
		s.close(why)
	}
}

// beside does work that waits for a disk, and counts it in wg.
func (h *Host) beside(wg *sync.WaitGroup, work func()) {
	if h.stepped != nil {
		h.stepped.jobs = append(h.stepped.jobs, work)
		return
	}
	wg.Go(work)
}

// handResult gives the result of an opening to the host's loop.
func (h *Host) handResult(r openResult) {
	if h.stepped != nil {
		h.opened(r)
		return
	}
	h.results <- r
}

// LogState is the state of the shard's log, if it has one.
func (s *Shard) LogState() (storage.State, bool) {
	l := s.log.Load()
	if l == nil {
		return storage.State{}, false
	}
	return l.State(), true
}
