// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/wire/batch"
)

var crashSeeds = flag.Int("crash-seeds", 25, "how many seeds TestPowerCuts runs")

// TestPowerCuts appends, flushes, rolls, cuts and drops at random, cuts the power at random, and demands of what is opened
// then: everything that was flushed, and of the rest a prefix of what was appended.
func TestPowerCuts(t *testing.T) {
	for seed := range uint64(*crashSeeds) {
		if !t.Run("", func(t *testing.T) { powerCuts(t, seed) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

// history is what was appended: the batch of each sequence, from start on.
type history struct {
	start   uint64
	batches []string
}

func (h *history) cut(length uint64) { h.batches = h.batches[:length-h.start] }

func powerCuts(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	fs := newFS(t)
	var h history
	d, err := storage.Create(options(fs))
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: d, gen: 1}
	for range 12 { // lives
		for range rng.IntN(30) {
			step(t, rng, l, d, &h)
		}
		flushed := d.State().Flushed
		if rng.IntN(3) > 0 {
			fs = fs.Crash(rng)
		} // else only the process died
		d, _, err = storage.Open(options(fs), nil)
		if errors.Is(err, storage.ErrNotExist) && flushed == h.start {
			h = history{}
			if d, err = storage.Create(options(fs)); err != nil {
				t.Fatal(err)
			}
			l.log = d
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		l.log = d
		s := d.State()
		if s.Length < flushed || s.Length > h.start+uint64(len(h.batches)) || s.Flushed != s.Length {
			t.Fatalf("opened with %+v, flushed were %d of %d", s, flushed, h.start+uint64(len(h.batches)))
		}
		h.cut(s.Length)
		check(t, d, &h)
		l.gen++
		again, _, err := storage.Open(options(fs.Crash(nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := again.State(); a.Length != s.Length {
			t.Fatalf("an open counted %d batches of which %d were on the disk", s.Length, a.Length)
		}
	}
}

func step(t *testing.T, rng *rand.Rand, l *leader, d *storage.Disk, h *history) {
	t.Helper()
	s := d.State()
	var next []batch.Batch
	switch n := rng.IntN(20); {
	case s.NeedsCheckpoint || n == 0:
		next = l.checkpoint(1 + uint32(rng.IntN(3)))
		next = next[:1+rng.IntN(len(next))]
		if len(next) > 0 && next[len(next)-1].IsCheckpoint() {
			if part, _ := next[len(next)-1].CheckpointPart(); !part.Last() {
				// A checkpoint that is not finished is cut again, as a new leader would.
				l.must(next...)
				if err := d.Truncate(s.Length); err != nil {
					t.Fatal(err)
				}
				return
			}
		}
	case n < 12:
		for range 1 + rng.IntN(4) {
			next = append(next, records(t, 1+rng.IntN(5), 1+rng.IntN(3000)))
		}
		next = l.assign(next...)
	case n < 16:
		l.flush()
		return
	case n == 16 && s.Length > s.StartSequence+1:
		length := s.StartSequence + 1 + rng.Uint64N(s.Length-s.StartSequence)
		if err := d.Truncate(length); err != nil {
			t.Fatal(err)
		}
		h.cut(length)
		if c := d.State(); c.Length != length || c.Flushed > length {
			t.Fatalf("cut to %d: %+v", length, c)
		}
		if pending(d) { // a cut inside a checkpoint: only its next part may follow, so cut it whole
			base := d.Segments()[len(d.Segments())-1].BaseSequence
			h.cut(base)
			if err := d.Truncate(base); err != nil {
				t.Fatal(err)
			}
		}
		l.gen++
		return
	case n == 17:
		seq := s.StartSequence + rng.Uint64N(s.Flushed-s.StartSequence+1)
		if _, err := d.DropBefore(seq); err != nil {
			t.Fatal(err)
		}
		start := d.State().StartSequence
		h.batches, h.start = h.batches[start-h.start:], start
		return
	default:
		check(t, d, h)
		return
	}
	l.must(next...)
	for _, b := range next {
		h.batches = append(h.batches, string(b))
	}
}

// pending reports whether the log ends inside a checkpoint.
func pending(d *storage.Disk) bool {
	s := d.State()
	segs := d.Segments()
	last := segs[len(segs)-1]
	p, err := d.Read(s.Length-1, s.Length, 1)
	if err != nil || last.NextSequence != s.Length {
		return false
	}
	part, ok := batch.Batch(p).CheckpointPart()
	return ok && !part.Last()
}

func check(t *testing.T, d *storage.Disk, h *history) {
	t.Helper()
	if d.State().Segments == 0 {
		return
	}
	want := ""
	for _, b := range h.batches {
		want += b
	}
	if s := d.State(); s.StartSequence > h.start { // a drop that was not noted before the cut
		t.Fatalf("starts at %d, history at %d", s.StartSequence, h.start)
	}
	got, err := readFrom(d, h.start)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatalf("holds %d bytes, %d were appended", len(got), len(want))
	}
}

// TestKilledAtEveryCall ends the process at every call that changes something: no call after it happens. The next process
// sees the page cache; what it counts must be on the disk by then.
func TestKilledAtEveryCall(t *testing.T) {
	for kill := 0; ; kill++ {
		mem := newFS(t)
		died := &faultfs.Rule{Err: errIO, Skip: kill}
		died.Ops = []faultfs.Op{
			faultfs.Create, faultfs.Remove, faultfs.Rename, faultfs.MkdirAll, faultfs.SyncDir, faultfs.WriteAt, faultfs.Truncate, faultfs.Sync,
		}
		flushed, length, finished := work(t, faultfs.Wrap(mem, died))
		for range 2 { // killed, then opened; then the power goes
			d, _, err := storage.Open(options(mem), nil)
			if errors.Is(err, storage.ErrNotExist) && flushed == 0 {
				break
			}
			if err != nil {
				t.Fatalf("killed at call %d: %v", kill, err)
			}
			s := d.State()
			if s.Length < flushed || s.Length > length {
				t.Fatalf("killed at call %d: length %d, flushed were %d of %d", kill, s.Length, flushed, length)
			}
			all(t, d)
			flushed, length = s.Length, s.Length
			mem = mem.Crash(nil)
		}
		if finished {
			return
		}
	}
}

// work does a little of everything and returns what was flushed and what was ever appended when it ended.
func work(t *testing.T, fs vfs.FS) (flushed, length uint64, finished bool) {
	t.Helper()
	d, err := storage.Create(options(fs))
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: d, gen: 1}
	note := func(err error) bool {
		s := d.State()
		flushed, length = s.Flushed, max(length, s.Length)
		return err == nil
	}
	appends := func(batches []batch.Batch) bool {
		length = max(length, d.State().Length+uint64(len(batches))) // a write may succeed and its flush fail
		return note(d.Append(batches...))
	}
	flush := func() bool { _, err := d.Flush(); return note(err) }
	for range 3 {
		if !appends(l.checkpoint(2)) || !appends(l.records(1, 2)) || !flush() || !appends(l.records(3)) {
			return flushed, length, false
		}
	}
	// A cut may be durable before it returns, so from here on that much is all that can be demanded.
	segs := d.Segments()
	flushed = segs[1].BaseSequence + 3
	if err := d.Truncate(flushed); err != nil {
		return flushed, length, false
	}
	l.gen++
	if !appends(l.records(1)) || !flush() || !appends(l.checkpoint(1)) || !appends(l.records(1)) {
		return flushed, length, false
	}
	if _, err := d.DropBefore(segs[1].BaseSequence); !note(err) {
		return flushed, length, false
	}
	return flushed, length, note(d.Close())
}
