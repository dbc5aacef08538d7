// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"
)

// fake is a system in memory whose behavior a test decides. Inside a bubble its times are exact.
type fake struct {
	// answer says how long a message takes that is handed over now, and how it ends. It is called under mu.
	answer func(n int64) (time.Duration, error)
	// never answers from this message on; 0 for always.
	never int64
	// refuse makes Publish itself fail.
	refuse error
	// drop this message on its way to subscribers; 0 for none.
	drop int64
	// twice tells of every message twice.
	twice bool

	mu          sync.Mutex
	handed      int64
	under, most map[int]int64
	stored      [][]byte
	subscribers []*fakeSubscriber
	opened      int
	closed      int
	all         sync.WaitGroup
}

type fakeSubscriber struct {
	s      Subscription
	mu     sync.Mutex
	closed bool
}

func (s *fakeSubscriber) give(msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.s.Each(msg)
	}
}

func (s *fakeSubscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

type fakePublisher struct {
	f    *fake
	i    int
	done Done
	all  sync.WaitGroup
	lost []int64 // stamps of what is never answered
}

func (f *fake) Publisher(_ context.Context, i int, done Done) (Publisher, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	if f.under == nil {
		f.under, f.most = map[int]int64{}, map[int]int64{}
	}
	return &fakePublisher{f: f, i: i, done: done}, nil
}

func (p *fakePublisher) Publish(_ context.Context, msg []byte, at int64) error {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.handed++
	n := f.handed
	f.under[p.i]++
	f.most[p.i] = max(f.most[p.i], f.under[p.i])
	if f.never > 0 && n >= f.never {
		p.lost = append(p.lost, at)
		return nil
	}
	var wait time.Duration
	var err error
	if f.answer != nil {
		wait, err = f.answer(n)
	}
	kept := slices.Clone(msg)
	p.all.Go(func() {
		time.Sleep(wait)
		f.mu.Lock()
		f.under[p.i]--
		subscribers := f.subscribers
		if err == nil {
			f.stored = append(f.stored, kept)
		}
		f.mu.Unlock()
		if err == nil && n != f.drop {
			for _, s := range subscribers {
				s.give(kept)
			}
		}
		p.done(at, 1, err)
		if f.twice {
			p.done(at, 1, err)
		}
	})
	return nil
}

func (p *fakePublisher) Close() error {
	p.all.Wait()
	for _, at := range p.lost {
		p.done(at, 1, errFake)
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.closed++
	return nil
}

func (f *fake) Subscribe(_ context.Context, s Subscription) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sub := &fakeSubscriber{s: s}
	f.subscribers = append(f.subscribers, sub)
	if s.Replay {
		stored := f.stored
		f.all.Go(func() {
			for _, msg := range stored {
				sub.give(msg)
			}
		})
	}
	return sub, nil
}

func (f *fake) Close() error {
	f.all.Wait()
	return nil
}

// drive runs the fake system in the bubble of the test.
func drive(ctx context.Context, t *testing.T, f *fake, spec Spec, o Options) (*Result, error) {
	t.Helper()
	o.sleeper = newTimer // the kernel's timers know nothing of virtual time
	res, err := Run(ctx, f, spec, o)
	if closed := f.Close(); closed != nil {
		t.Error(closed)
	}
	if f.opened != f.closed {
		t.Errorf("%d publishers opened, %d closed", f.opened, f.closed)
	}
	return res, err
}

var errFake = errors.New("refused by the test")
