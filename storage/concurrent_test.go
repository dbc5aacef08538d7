// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/vfs"
	"margay.dev/wire/batch"
)

// TestConcurrentUse appends, flushes, reads, searches, drops and cuts at once. What is read must be whole, in order, and
// from where it was asked for; run it with -race.
func TestConcurrentUse(t *testing.T) {
	fs := &countFS{FS: newFS(t)}
	const readers, openFiles = 4, 1
	o := options(fs)
	o.Files = storage.NewFiles(openFiles)
	d, err := storage.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	l := &leader{t: t, log: d, gen: 1}
	l.must(l.checkpoint(1)...)
	var wg sync.WaitGroup
	done := make(chan struct{})
	loop := func(f func(rng *rand.Rand)) {
		rng := rand.New(rand.NewPCG(5, rand.Uint64()))
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					f(rng)
				}
			}
		})
	}
	loop(func(*rand.Rand) {
		if _, err := d.Flush(); err != nil {
			t.Error(err)
		}
	})
	loop(func(*rand.Rand) {
		if s := d.State(); s.Segments > 6 {
			if _, err := d.DropBefore(d.Segments()[2].BaseSequence); err != nil {
				t.Error(err)
			}
		}
	})
	for range readers {
		loop(func(rng *rand.Rand) { readSomewhere(t, d, rng) })
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range 1200 {
		switch {
		case i%40 == 0:
			l.must(l.checkpoint(1)...)
		case i%101 == 0:
			if s := d.State(); s.SegmentBytes > 0 {
				length := s.Length - rng.Uint64N(min(60, s.Length-s.StartSequence-1)+1)
				if err := d.Truncate(length); err != nil && !errors.Is(err, storage.ErrDropped) {
					t.Fatal(err)
				}
				l.gen++
			}
		default:
			l.must(l.records(1+rng.IntN(3), 1)...)
		}
	}
	close(done)
	wg.Wait()
	all(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := fs.open.Load(); n != 0 {
		t.Errorf("%d files are still open", n)
	}
	// The newest segment, the shared limit, one for each read under way, and one that Truncate or a roll is changing.
	if n := fs.most.Load(); n > 1+openFiles+readers+2 {
		t.Errorf("%d files were open at once", n)
	}
}

func readSomewhere(t *testing.T, d *storage.Disk, rng *rand.Rand) {
	s := d.State()
	if s.Length == s.StartSequence {
		return
	}
	seq := s.StartSequence + rng.Uint64N(s.Length-s.StartSequence)
	p, err := d.Read(seq, s.Length, 1+rng.IntN(3000))
	if errors.Is(err, storage.ErrDropped) || errors.Is(err, storage.ErrOutOfRange) {
		return // dropped or cut meanwhile
	}
	if err != nil {
		t.Errorf("read at %d: %v", seq, err)
	}
	for len(p) > 0 {
		b, err := batch.CheckStored(p)
		if err != nil || b.Sequence() != seq {
			t.Errorf("read at %d: %v", seq, err)
			return
		}
		seq, p = seq+1, p[len(b):]
	}
	if s.NextOffset > s.StartOffset {
		offset := s.StartOffset + rng.Uint64N(s.NextOffset-s.StartOffset)
		if _, err := d.FindOffset(offset); err != nil && !errors.Is(err, storage.ErrDropped) && !errors.Is(err, storage.ErrOutOfRange) {
			t.Errorf("find offset %d: %v", offset, err)
		}
	}
	if _, err := d.FindTime(rng.Int64N(s.LastAppendTime + 2)); err != nil && !errors.Is(err, storage.ErrDropped) {
		t.Error(err)
	}
}

// countFS counts open segment files.
type countFS struct {
	vfs.FS
	open, most atomic.Int64
}

type countFile struct {
	vfs.File
	fs *countFS
}

func (f countFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

func (c *countFS) count(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !segments(name) {
		return f, err
	}
	for n := c.open.Add(1); ; {
		if most := c.most.Load(); n <= most || c.most.CompareAndSwap(most, n) {
			return countFile{f, c}, nil
		}
	}
}

func (c *countFS) Create(name string) (vfs.File, error) {
	f, err := c.FS.Create(name)
	return c.count(name, f, err)
}

func (c *countFS) OpenFile(name string) (vfs.File, error) {
	f, err := c.FS.OpenFile(name)
	return c.count(name, f, err)
}

func (c *countFS) OpenRead(name string) (vfs.File, error) {
	f, err := c.FS.OpenRead(name)
	return c.count(name, f, err)
}
