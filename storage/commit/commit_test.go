// SPDX-License-Identifier: Apache-2.0

package commit_test

import (
	"sync"
	"testing"

	"margay.dev/storage"
	"margay.dev/storage/commit"
)

// slow is a log whose flush waits until it is let go, and counts how many are under way.
type slow struct {
	mu           *sync.Mutex
	now, most    *int
	entered      chan<- struct{}
	release      <-chan struct{}
	state, after storage.State
}

func (s *slow) State() storage.State { return s.state }

func (s *slow) Flush() (uint64, error) {
	s.mu.Lock()
	*s.now++
	*s.most = max(*s.most, *s.now)
	s.mu.Unlock()
	s.entered <- struct{}{}
	<-s.release
	s.mu.Lock()
	*s.now--
	s.mu.Unlock()
	s.state = s.after
	return s.state.Flushed, nil
}

func TestFlushIsBoundedAndObserved(t *testing.T) {
	const slots, logs = 3, 12
	var (
		mu        sync.Mutex
		now, most int
		rounds    []commit.Round
		wg        sync.WaitGroup
	)
	entered, release := make(chan struct{}, logs), make(chan struct{})
	c := commit.New(slots)
	c.Observe = func(r commit.Round) {
		mu.Lock()
		defer mu.Unlock()
		rounds = append(rounds, r)
	}
	for range logs {
		wg.Go(func() {
			log := &slow{
				mu: &mu, now: &now, most: &most, entered: entered, release: release,
				state: storage.State{Flushed: 5, FlushedOffset: 50}, after: storage.State{Flushed: 8, FlushedOffset: 90},
			}
			if length, err := c.Flush(log); err != nil || length != 8 {
				t.Errorf("flushed %d, %v", length, err)
			}
		})
	}
	for range logs {
		<-entered // one of those that hold a slot
		release <- struct{}{}
	}
	wg.Wait()
	if most > slots {
		t.Errorf("%d flushes at once with %d slots", most, slots)
	}
	if len(rounds) != logs || rounds[0] != (commit.Round{Batches: 3, Records: 40}) {
		t.Errorf("rounds %v", rounds)
	}
}
