// SPDX-License-Identifier: Apache-2.0

package host

import (
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"margay.dev/storage/vfs"
)

// space watches the room on the data disk. Records are refused while less than the reserve is left, so
// that settlements, checkpoints and log starts can still be written, and with them room be made.
type space struct {
	fs      vfs.FS
	dir     string
	reserve uint64
	log     *slog.Logger
	clock   func() time.Time

	free   atomic.Int64 // at the last look
	since  atomic.Int64 // bytes written since the last look
	isFull atomic.Bool

	mu   sync.Mutex
	next time.Time
}

func (s *space) wrote(n int64) {
	if s.since.Add(n) >= int64(s.reserve/2) {
		s.look()
	}
}

func (s *space) fill() { s.set(true) }

// set says whether the disk is full, and tells the operator when that changes.
func (s *space) set(full bool) {
	if s.isFull.Swap(full) == full {
		return
	}
	if full {
		s.log.Error("the disk is full: records are refused, reads go on", "dir", s.dir, "free", s.free.Load(), "reserve", s.reserve)
	} else {
		s.log.Info("the disk has room again: records are taken", "dir", s.dir, "free", s.free.Load())
	}
}

// full says whether records are to be refused. While they are, it looks again now and then.
func (s *space) full() bool {
	if s.isFull.Load() {
		s.mu.Lock()
		due := s.clock().After(s.next)
		s.mu.Unlock()
		if due {
			s.look()
		}
	}
	return s.isFull.Load()
}

func (s *space) look() {
	free, err := s.fs.Free(s.dir)
	s.since.Store(0)
	s.mu.Lock()
	s.next = s.clock().Add(spaceInterval)
	s.mu.Unlock()
	if err == nil {
		s.free.Store(int64(min(free, math.MaxInt64)))
		s.set(free < s.reserve)
	}
}

// missing is how many bytes of room are missing for n bytes of records; not above 0 when there is enough. It
// looks at the disk only when what it knows says that there is not.
func (s *space) missing(n int64) int64 {
	want := max(int64(s.reserve), int64(s.reserve/2)+n)
	if s.free.Load()-s.since.Load() >= want && !s.isFull.Load() {
		return 0
	}
	s.look()
	return want - s.free.Load()
}

// ahead is how much more is freed at once, so that the next batch does not find the disk full again.
func (s *space) ahead() int64 { return int64(s.reserve / 2) }
