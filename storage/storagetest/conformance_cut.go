// SPDX-License-Identifier: Apache-2.0

package storagetest

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"margay.dev/storage"
	"margay.dev/wire/batch"
)

func testTruncate(t *testing.T, f *fixture) {
	f.fill(3, 4, 100)
	if err := f.l.Truncate(f.m.Length() + 1); !errors.Is(err, storage.ErrOutOfRange) {
		t.Errorf("truncate beyond the end: %v", err)
	}
	f.truncate(f.m.Length())
	f.check()
	f.truncate(f.m.Length() - 1)
	f.reopened()
	f.append(f.w.Record(10))
	f.reopened()
	f.truncate(f.m.Bases[2] + 1) // right behind a checkpoint
	f.reopened()
	f.truncate(f.m.Bases[2]) // right before it
	f.reopened()
	f.append(f.w.Record(10))
	f.fill(2, 2, 10)
	f.reopened()
	f.truncate(f.m.Bases[1] + 3) // into the middle of an older segment
	f.reopened()
	f.append(f.w.Record(10))
	f.drop(f.m.Length())
	if err := f.l.Truncate(f.m.Start() - 1); !errors.Is(err, storage.ErrDropped) {
		t.Errorf("truncate before the start: %v", err)
	}
	f.reopened()
	// Into a checkpoint: its rest may follow.
	parts := f.w.Checkpoint(3, 200)
	f.append(parts...)
	f.append(f.w.Record(10))
	f.truncate(parts[2].Sequence())
	f.check()
	if s := f.l.State(); s.Flushed > parts[0].Sequence() {
		t.Errorf("flushed is %d inside a checkpoint at sequence %d", s.Flushed, parts[0].Sequence())
	}
	f.append(parts[2])
	f.w.Sequence++
	f.append(f.w.Record(10))
	f.reopened()
}

// testTruncateEverything leaves a log that still knows where it goes on: an offset is never given twice.
func testTruncateEverything(_ *testing.T, f *fixture) {
	f.fill(2, 3, 10)
	f.drop(f.m.Length())
	f.truncate(f.m.Start())
	f.check()
	w := *f.w
	f.refused([]batch.Batch{w.Record(10)}, storage.ErrCheckpoint)
	w = *f.w
	w.Offset++
	f.refused(w.Checkpoint(1, 10), storage.ErrOrder)
	w = *f.w
	w.Sequence++
	f.refused(w.Checkpoint(1, 10), storage.ErrOrder)
	f.append(f.w.Checkpoint(1, 10)...)
	f.append(f.w.Record(10))
	f.reopened()
}

// testTruncateThenOther: a follower that is cut gets other batches in the same places, and no index, hint or cached file
// may still show the old ones.
func testTruncateThenOther(_ *testing.T, f *fixture) {
	f.fill(3, 6, 80)
	for round := range 6 {
		for seq := f.m.Start(); seq < f.m.Length(); seq++ {
			if _, err := f.m.CompareRead(f.l, seq, seq+2, 100); err != nil {
				f.t.Fatal(err)
			}
		}
		f.findOffsets(0)
		f.truncate(f.m.Bases[1] + uint64(round%3))
		f.w.Generation++
		if round%3 != 0 {
			f.append(f.w.Record(33 + round))
		}
		f.fill(2, 3+round, 60+7*round)
		f.check()
		f.findOffsets(0)
		if round%2 == 1 {
			f.reopened()
		}
	}
}

func testDropBefore(t *testing.T, f *fixture) {
	f.fill(5, 3, 100)
	f.drop(0)
	f.drop(f.m.Bases[1] - 1) // not yet the whole segment
	f.reopened()
	f.drop(f.m.Bases[1])
	f.reopened()
	if len(f.m.Bases) != 4 {
		t.Fatalf("%d segments are left", len(f.m.Bases))
	}
	start := f.m.Start()
	if _, err := f.l.Read(start-1, start+1, 100); !errors.Is(err, storage.ErrDropped) {
		t.Errorf("read of what was dropped: %v", err)
	}
	if got, err := f.l.FindTime(0); err != nil || got != f.m.StartOffset() {
		t.Errorf("find a time before the start: offset %d, %v, want %d", got, err, f.m.StartOffset())
	}
	f.drop(f.m.Bases[2] + 1)
	f.reopened()
	f.drop(1 << 60) // never the newest
	f.reopened()
	if len(f.m.Bases) != 1 {
		t.Fatalf("%d segments are left", len(f.m.Bases))
	}
	f.append(f.w.Record(10))
	f.fill(1, 1, 10)
	f.reopened()
	// While the newest has no whole checkpoint the one before it is the newest that counts.
	parts := f.w.Checkpoint(2, 10)
	f.append(parts[0])
	f.drop(f.m.Length())
	f.check()
	if len(f.m.Bases) != 2 {
		t.Fatalf("%d segments are left", len(f.m.Bases))
	}
	f.append(parts[1])
	f.drop(f.m.Length())
	f.reopened()
}

func testReplay(t *testing.T, f *fixture) {
	f.fill(2, 3, 100)
	f.append(f.w.Control())
	replay := func() {
		t.Helper()
		var got []batch.Batch
		err := f.l.Replay(func(b batch.Batch) error { got = append(got, slices.Clone(b)); return nil })
		if want := f.m.Newest(); err != nil || !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("replay: %d batches, %v, want %d", len(got), err, len(want))
		}
	}
	replay()
	f.append(f.w.Record(100_000))
	f.append(f.w.Checkpoint(3, 1000)...)
	replay()
	f.truncate(f.m.Bases[2])
	replay()
	f.reopened()
	replay()
	stop := errors.New("stop")
	seen := 0
	if err := f.l.Replay(func(batch.Batch) error { seen++; return stop }); !errors.Is(err, stop) || seen != 1 {
		t.Errorf("replay goes on after an error: %d, %v", seen, err)
	}
}

// testStartElsewhere: a follower that is built anew begins where its leader's log does.
func testStartElsewhere(_ *testing.T, f *fixture) {
	f.w.Sequence, f.w.Offset, f.w.Generation = 1000, 5000, 7
	f.m.Sequence, f.m.Offset = 1000, 5000
	f.fill(2, 3, 50)
	f.reopened()
	f.drop(f.m.Length())
	f.findOffsets(f.m.StartOffset())
	f.reopened()
}

// testSize: the sizes that rolling and retention decide on.
func testSize(t *testing.T, f *fixture) {
	f.append(f.w.Checkpoint(2, 600)...)
	s := f.l.State()
	if want := int64(len(f.m.Batches[0]) + len(f.m.Batches[1])); s.CheckpointBytes != want || s.SegmentBytes != 0 {
		t.Errorf("after a checkpoint of %d bytes: %+v", want, s)
	}
	b := f.w.Record(1000)
	f.append(b)
	if s := f.l.State(); s.SegmentBytes != int64(len(b)) {
		t.Errorf("after a batch of %d bytes: %+v", len(b), s)
	}
	f.reopened()
	if s := f.l.State(); s.SegmentBytes != int64(len(b)) {
		t.Errorf("after it was opened again, with a batch of %d bytes: %+v", len(b), s)
	}
	f.fill(1, 1, 10)
	sum := int64(0)
	for _, info := range f.l.Segments() {
		sum += info.Bytes
	}
	if s := f.l.State(); s.Bytes != sum {
		t.Errorf("segments of %d bytes, state %+v", sum, s)
	}
}

func testClose(t *testing.T, f *fixture) {
	f.fill(2, 2, 10)
	next := f.w.Record(10)
	for range 2 {
		if err := f.l.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	for name, call := range map[string]func() error{
		"append":      func() error { return f.l.Append(next) },
		"flush":       func() error { _, err := f.l.Flush(); return err },
		"read":        func() error { _, err := f.l.Read(0, 1, 1); return err },
		"find offset": func() error { _, err := f.l.FindOffset(0); return err },
		"find time":   func() error { _, err := f.l.FindTime(0); return err },
		"truncate":    func() error { return f.l.Truncate(1) },
		"drop":        func() error { _, err := f.l.DropBefore(100); return err },
		"replay":      func() error { return f.l.Replay(func(batch.Batch) error { return nil }) },
	} {
		if err := call(); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
}

// testConcurrent: one appends and drops, one flushes, four read; nobody sees a byte that is not the log's.
func testConcurrent(t *testing.T, f *fixture) {
	const batches = 600
	all := make([]batch.Batch, 0, batches)
	for len(all) < batches {
		if len(all)%50 == 0 {
			all = append(all, f.w.Checkpoint(1, 30)...)
		}
		all = append(all, f.w.Record(200))
	}
	f.append(all[0])
	total := uint64(len(all))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, b := range all[1:] {
			if err := f.l.Append(b); err != nil {
				t.Errorf("append: %v", err)
				return
			}
			if i%97 == 96 {
				if _, err := f.l.DropBefore(b.Sequence() - 120); err != nil && i > 200 {
					t.Errorf("drop: %v", err)
				}
			}
		}
	})
	wg.Go(func() {
		for flushed := uint64(0); flushed < total; {
			got, err := f.l.Flush()
			if err != nil || got < flushed {
				t.Errorf("flush: %d after %d, %v", got, flushed, err)
				return
			}
			flushed = got
		}
	})
	for range 4 {
		wg.Go(func() { tail(t, f.l, all) })
	}
	wg.Wait()
	f.m.Append(all[1:]...)
	f.m.DropBefore(f.l.State().StartSequence)
	f.reopened()
}

// tail reads a log as it grows and compares every byte.
func tail(t *testing.T, l storage.Log, all []batch.Batch) {
	for seq := uint64(0); seq < uint64(len(all)); {
		got, err := l.Read(seq, 1<<60, 2000)
		if errors.Is(err, storage.ErrDropped) {
			seq = max(seq+1, l.State().StartSequence)
			continue
		}
		if err != nil {
			t.Errorf("read %d: %v", seq, err)
			return
		}
		for len(got) > 0 {
			want := all[seq]
			if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
				t.Errorf("other bytes at sequence %d", seq)
				return
			}
			if offset := want.BaseOffset(); seq%37 == 0 {
				if found, err := l.FindOffset(offset); err == nil && found < seq {
					t.Errorf("offset %d of sequence %d is found at %d", offset, seq, found)
				}
			}
			got = got[len(want):]
			seq++
		}
	}
}
