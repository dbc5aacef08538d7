// SPDX-License-Identifier: Apache-2.0

package storagetest_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/storagetest"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire/batch"
)

var (
	powerSeed  = flag.Uint64("power.seed", 0, "replay the power cuts of this seed only")
	powerSeeds = flag.Uint64("power.seeds", 0, "how many seeds to cut the power for; 0 for 4 in short runs and 40 in long ones")
)

// TestPowerCut cuts the power before every change of the disk while random operations run, several times with other luck,
// and holds what is left to the promises: everything a flush covered is there, what else is there is the log up to some
// point, a cut or removal that returned has happened, what opening counted stays, and the log goes on.
func TestPowerCut(t *testing.T) {
	first, last := uint64(1), *powerSeeds
	switch {
	case last > 0:
	case testing.Short():
		last = 4
	default:
		last = 40
	}
	if *powerSeed != 0 {
		first, last = *powerSeed, *powerSeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newCutter(t, seed)
			for range 40 {
				c.step()
			}
			t.Logf("%d power cuts; replay with -power.seed=%d", c.cuts, seed)
		})
	}
}

// TestPowerCutWhileRecovering is ST-09 in one process: the power goes again at every step of opening what a power cut
// left, and again.
func TestPowerCutWhileRecovering(t *testing.T) {
	c := newCutter(t, 7)
	remains, every := 0, 40
	if testing.Short() {
		every = 200
	}
	c.examine = func(left *memfs.FS) {
		if remains++; remains%every == 0 {
			c.openUnderCuts(left, 2)
		}
	}
	for range 30 {
		c.step()
	}
	t.Logf("%d power cuts, the log was opened under %d of them", remains, c.cuts-remains)
}

// cutter is a log beside its model, on a file system whose remains are examined before each change of it.
type cutter struct {
	t   *testing.T
	rng *rand.Rand
	mem *memfs.FS
	o   storage.Options
	l   *storage.Disk
	w   *storagetest.Writer

	m    *storagetest.Model // what the log holds, and what is promised of it
	next *storagetest.Model // what it will hold when the operation under way is done

	rest    []batch.Batch // of a checkpoint that was begun
	cuts    int
	doing   string
	examine func(*memfs.FS)
}

func newCutter(t *testing.T, seed uint64) *cutter {
	c := &cutter{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), mem: memfs.New(nil), w: storagetest.NewWriter(),
		m: &storagetest.Model{Whole: true},
	}
	c.examine = c.check
	if err := c.mem.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	if err := c.mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	c.o = options(faultfs.Wrap(c.mem, &faultfs.Rule{Hook: func(call faultfs.Call) {
		if call.Op.Mutates() && call.Op != faultfs.Preallocate {
			c.cut()
		}
	}}), "/data")
	c.o.ZeroAhead = seed%2 == 1
	c.l = create(t, c.o)
	return c
}

// cut looks at what a power cut at this moment may leave.
func (c *cutter) cut() {
	for luck := range 4 {
		c.cuts++
		if luck == 0 {
			c.examine(c.mem.Crash(nil))
		} else {
			c.examine(c.mem.Crash(c.rng))
		}
	}
}

func (c *cutter) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("cut %d, during %s, log of %d to %d, flushed %d, segments %v: %s", c.cuts, c.doing, c.m.Start(), c.m.Length(),
		c.m.Flushed, c.m.Bases, fmt.Sprintf(format, args...))
}

// do runs an operation whose outcome is known beforehand.
func (c *cutter) do(what string, next *storagetest.Model, op func() error) {
	c.t.Helper()
	c.doing, c.next = what, next
	if err := op(); err != nil {
		c.fail("%v", err)
	}
	c.m, c.next = next, nil
	c.cut()
	if err := c.m.Compare(c.l); err != nil {
		c.fail("%v", err)
	}
}

func (c *cutter) step() {
	switch n := c.rng.IntN(20); {
	case len(c.m.Bases) == 0, n < 2:
		c.roll()
	case n < 11:
		c.append()
	case n < 15:
		c.flush()
	case n == 15:
		c.drop()
	case n < 18:
		c.truncate()
	default:
		c.restart(n == 18)
	}
}

func (c *cutter) add(batches ...batch.Batch) {
	next := c.m.Clone()
	next.Append(batches...)
	if base, open := next.OpenCheckpoint(); open {
		next.Flushed = base // begun on a segment that was flushed whole
	} else if last := batches[len(batches)-1]; last.IsCheckpoint() {
		next.Flushed = next.Length()
	}
	c.do(fmt.Sprintf("append of %d", len(batches)), next, func() error { return c.l.Append(batches...) })
}

func (c *cutter) roll() {
	c.finish()
	c.w.Flushed = c.m.Flushed
	parts := c.w.Checkpoint(1+c.rng.IntN(3), []int{0, 300, 9000}[c.rng.IntN(3)])
	now := 1 + c.rng.IntN(len(parts))
	c.rest = parts[now:]
	c.add(parts[:now]...)
}

func (c *cutter) finish() {
	if len(c.rest) > 0 {
		rest := c.rest
		c.rest = nil
		c.add(rest...)
	}
}

func (c *cutter) append() {
	c.finish()
	var batches []batch.Batch
	for range 1 + c.rng.IntN(4) {
		c.w.Flushed = c.m.Flushed
		if c.rng.IntN(4) == 0 {
			c.w.Flushed = c.w.Sequence // a leader that has flushed more than this follower
		}
		batches = append(batches, c.w.Record([]int{10, 300, 5000}[c.rng.IntN(3)]))
	}
	c.add(batches...)
}

func (c *cutter) flush() {
	next := c.m.Clone()
	next.Flushed = next.Length()
	if base, open := next.OpenCheckpoint(); open {
		next.Flushed = base
	}
	c.do("flush", next, func() error { _, err := c.l.Flush(); return err })
}

func (c *cutter) drop() {
	seq := c.m.Start() + c.rng.Uint64N(c.m.Length()-c.m.Start()+1)
	next := c.m.Clone()
	next.DropBefore(seq)
	c.do(fmt.Sprintf("drop before %d", seq), next, func() error { _, err := c.l.DropBefore(seq); return err })
}

func (c *cutter) truncate() {
	length := c.m.Length() - c.rng.Uint64N(min(c.m.Length()-c.m.Start(), 12)+1)
	next := c.m.Clone()
	next.Truncate(length)
	if base, open := next.OpenCheckpoint(); open {
		length = base
		next.Truncate(length)
	}
	if length < c.m.Length() {
		c.rest = nil
		c.w.Sequence, c.w.Offset = next.Length(), next.NextOffset()
		c.w.Generation++
	}
	c.do(fmt.Sprintf("truncate to %d", length), next, func() error { return c.l.Truncate(length) })
}

// restart closes the log or leaves it behind as a kill does, and opens it on the same disk.
func (c *cutter) restart(clean bool) {
	if len(c.m.Bases) == 0 {
		return
	}
	next := c.m.Clone()
	next.Reopen()
	if len(next.Bases) == 0 {
		return
	}
	c.rest = nil
	c.do(fmt.Sprintf("restart (clean: %t)", clean), next, func() error {
		if clean {
			if err := c.l.Close(); err != nil {
				return err
			}
		}
		l, _, err := storage.Open(c.o, nil)
		c.l = l
		return err
	})
	c.w.Sequence, c.w.Offset = next.Length(), next.NextOffset()
}

// check opens what a power cut left and holds it to the promises.
func (c *cutter) check(left *memfs.FS) {
	if l, got := c.opened(left); l != nil {
		c.goesOn(left, l, got)
	}
}

// opened opens what is left and compares it with the log before and after the operation under way.
func (c *cutter) opened(left *memfs.FS) (*storage.Disk, *storagetest.Model) {
	promised, starts, longest := c.m.Flushed, []uint64{c.m.Start()}, c.m
	if c.next != nil {
		promised = min(promised, c.next.Flushed)
		for _, base := range c.m.Bases {
			if base <= c.next.Start() {
				starts = append(starts, base) // segments go one by one, the oldest first
			}
		}
		if c.next.Length() > longest.Length() {
			longest = c.next
		}
	}
	o := c.o
	o.FS = left
	l, _, err := storage.Open(o, nil)
	if errors.Is(err, storage.ErrNotExist) {
		if promised > longest.Start() {
			c.fail("nothing is left of a log of which %d were flushed: %v", promised, err)
		}
		return nil, nil
	}
	if err != nil {
		c.fail("open: %v", err)
	}
	s := l.State()
	if !slices.Contains(starts, s.StartSequence) {
		c.fail("the log starts at %d", s.StartSequence)
	}
	if s.Length < promised || s.Length > longest.Length() {
		c.fail("the log has length %d; %d were flushed, %d written", s.Length, promised, longest.Length())
	}
	got := longest.Clone()
	if s.Length < got.Length() {
		got.Truncate(s.Length)
	}
	got.DropBefore(s.StartSequence)
	got.Flushed = s.Length // opening flushes what it finds
	if err := got.Compare(l); err != nil {
		c.fail("%v", err)
	}
	return l, got
}

// goesOn holds that what was opened is durable, takes appends, and keeps them.
func (c *cutter) goesOn(left *memfs.FS, l *storage.Disk, m *storagetest.Model) {
	reopen := func(fsys *memfs.FS, what string) {
		o := c.o
		o.FS = fsys
		again, _, err := storage.Open(o, nil)
		if err != nil {
			c.fail("%s: %v", what, err)
		}
		if err := m.Compare(again); err != nil {
			c.fail("%s: %v", what, err)
		}
	}
	reopen(left.Crash(nil), "a power cut after opening")
	w := *c.w
	w.Sequence, w.Offset, w.Flushed = m.Length(), m.NextOffset(), m.Length()
	var more []batch.Batch
	if l.State().NeedsCheckpoint {
		more = w.Checkpoint(1, 10) // a cut to nothing: the log only knows where it goes on
	}
	more = append(more, w.Record(100), w.Record(5000))
	if c.cuts%3 == 0 {
		more = append(more, w.Checkpoint(2, 100)...)
		more = append(more, w.Record(7))
	}
	if err := l.Append(more...); err != nil {
		c.fail("append after opening: %v", err)
	}
	if _, err := l.Flush(); err != nil {
		c.fail("flush after opening: %v", err)
	}
	m.Append(more...)
	m.Flushed = m.Length()
	reopen(left.Crash(nil), "a power cut after going on")
	if err := l.Close(); err != nil {
		c.fail("close: %v", err)
	}
}

// openUnderCuts opens what is left while the power goes at every change that opening makes, to some depth.
func (c *cutter) openUnderCuts(left *memfs.FS, depth int) {
	o := c.o
	o.FS = faultfs.Wrap(left, &faultfs.Rule{Hook: func(call faultfs.Call) {
		if !call.Op.Mutates() || call.Op == faultfs.Preallocate {
			return
		}
		for range 2 {
			c.cuts++
			again := left.Crash(c.rng)
			if depth > 1 {
				c.openUnderCuts(again, depth-1)
			} else {
				c.check(again)
			}
		}
	}})
	l, _, err := storage.Open(o, nil)
	if errors.Is(err, storage.ErrNotExist) {
		return // opened has held elsewhere that nothing was promised
	}
	if err != nil {
		c.fail("open: %v", err)
	}
	if err := l.Close(); err != nil {
		c.fail("close: %v", err)
	}
}
