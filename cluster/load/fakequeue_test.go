// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"
)

// fakeQueue hands messages out in memory. A test decides how long things take, and what goes wrong.
type fakeQueue struct {
	fake                // its publishers answer and count
	took  time.Duration // from an acknowledgement to its confirmation
	late  time.Duration // from an answer to handing out
	lost  int64         // so many acknowledgements are never confirmed
	again bool          // every acknowledgement is confirmed twice
	left  int64         // what the system says is left

	queue     sync.Mutex
	keys      []string
	waiting   [][]byte
	consumers []*fakeConsumer
	next      int
}

type fakeConsumer struct {
	c         Consumer
	turn      chan struct{} // one goroutine at a time
	out, most int
	handed    int
}

type fakePusher struct {
	*fakePublisher
	f *fakeQueue
}

func (f *fakeQueue) Pusher(ctx context.Context, i int, done Done) (Putter, error) {
	p, err := f.Publisher(ctx, i, done)
	return &fakePusher{p.(*fakePublisher), f}, err
}

func (p *fakePusher) Put(ctx context.Context, key string, value []byte, at int64) error {
	f := p.f
	kept := slices.Clone(value)
	f.queue.Lock()
	f.keys = append(f.keys, key)
	f.queue.Unlock()
	f.all.Go(func() {
		time.Sleep(f.late)
		f.queue.Lock()
		f.waiting = append(f.waiting, kept)
		f.queue.Unlock()
		f.give()
	})
	return p.Publish(ctx, value, at)
}

func (f *fakeQueue) Consume(_ context.Context, c Consumer) (io.Closer, error) {
	f.queue.Lock()
	f.consumers = append(f.consumers, &fakeConsumer{c: c, turn: make(chan struct{}, 1)})
	f.queue.Unlock()
	f.give()
	return io.NopCloser(nil), nil
}

// give hands out what waits, to the consumers in turn that have credit.
func (f *fakeQueue) give() {
	f.queue.Lock()
	defer f.queue.Unlock()
	for tried := 0; len(f.waiting) > 0 && tried < len(f.consumers); {
		c := f.consumers[f.next%len(f.consumers)]
		f.next++
		if c.out == c.c.MaxInFlight {
			tried++
			continue
		}
		tried = 0
		msg := f.waiting[0]
		f.waiting = f.waiting[1:]
		c.out, c.handed = c.out+1, c.handed+1
		c.most = max(c.most, c.out)
		f.all.Go(func() { f.work(c, msg) })
	}
}

func (f *fakeQueue) work(c *fakeConsumer, msg []byte) {
	c.turn <- struct{}{}
	c.c.Handle(msg)
	<-c.turn
	time.Sleep(f.took)
	f.queue.Lock()
	c.out--
	lost := f.lost > 0
	if lost {
		f.lost--
	}
	f.queue.Unlock()
	if !lost {
		c.c.Settled(1)
	}
	if f.again {
		c.c.Settled(1)
	}
	f.give()
}

func (f *fakeQueue) Left(context.Context) (int64, error) { return f.left, nil }

// driveQueue runs the fake system in the bubble of the test.
func driveQueue(t *testing.T, f *fakeQueue, spec Spec, o Options) (*Result, error) {
	t.Helper()
	o.sleeper = newTimer
	res, err := Run(t.Context(), Queued(f), spec, o)
	if closed := f.Close(); closed != nil {
		t.Error(closed)
	}
	if f.opened != f.closed {
		t.Errorf("%d pushers opened, %d closed", f.opened, f.closed)
	}
	return res, err
}
