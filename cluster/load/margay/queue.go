// SPDX-License-Identifier: Apache-2.0

package margay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/load"
	"margay.dev/router/hash"
	"margay.dev/wire/control"
)

// ackWait is longer than any run: nothing is to be handed out again.
const ackWait = time.Hour

// Queue is a queue under load, with a group of its own.
type Queue struct {
	*System
	group string
	admin *client.Client
}

var _ load.Queue = (*Queue)(nil)

// OpenQueue makes the queue, or finds it, and makes a group.
func OpenQueue(ctx context.Context, cfg Config, spec *load.Spec) (*Queue, error) {
	s, err := open(ctx, cfg, control.PresetQueue)
	if err != nil {
		return nil, err
	}
	q := &Queue{System: s, group: "bench-" + randomName()}
	if q.admin, err = s.connect(ctx); err == nil {
		err = q.handle().Ensure(ctx, client.GroupConfig{AckWait: ackWait, OrderByKey: spec.Ordered})
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func (q *Queue) handle() *client.Group { return q.admin.Queue(q.name).Group(q.group) }

// pusher pushes from one goroutine, with as many on their way as it is let.
type pusher struct {
	answers // a lane for each shard

	c    *client.Client // nil when others share it
	q    *client.Queue
	wait bool // for each answer
	keys [][]byte
	n    int
}

// Pusher connects. Messages without a key go round the shards.
func (q *Queue) Pusher(ctx context.Context, i int, done load.Done) (load.Putter, error) {
	c, own, err := q.publisherClient(ctx, i)
	if err != nil {
		return nil, err
	}
	p := &pusher{answers: answers{done: done}, q: c.Queue(q.name), wait: q.cfg.OneAtATime}
	if own {
		p.c = c
	}
	for shard := range q.shards {
		p.keys = append(p.keys, keyOf(shard, q.shards))
		p.open(nil, p.wait)
	}
	return p, nil
}

func (p *pusher) Put(ctx context.Context, key string, value []byte, at int64) error {
	rec, shard := client.Record{Value: value}, 0
	switch {
	case key != "":
		rec.Key, shard = []byte(key), int(hash.Shard([]byte(key), len(p.lanes)))
	case len(p.lanes) > 1:
		shard = p.n / turn % len(p.lanes)
		rec.ShardKey = p.keys[shard]
		p.n++
	}
	if p.wait {
		_, err := p.q.Push(ctx, rec)
		p.done(at, 1, err)
		return nil
	}
	p.lanes[shard].add(p.q.PushAsync(ctx, rec), at)
	return nil
}

// Close ends the client: what is under way fails.
func (p *pusher) Close() error {
	if p.c != nil {
		p.c.Close()
	}
	p.close()
	return nil
}

// consumer is one that works off: one goroutine takes messages and acknowledges them, another hears of the answers.
type consumer struct {
	g      *client.Consumer
	c      load.Consumer
	cancel context.CancelFunc
	ended  sync.WaitGroup
	once   sync.Once

	wake    chan struct{}
	mu      sync.Mutex
	asked   []*client.Settlement // oldest first
	closing bool
}

// Consume joins the group.
func (q *Queue) Consume(ctx context.Context, c load.Consumer) (io.Closer, error) {
	conn, err := q.sharedClient(ctx, connection{number: c.Connection})
	if err != nil {
		return nil, err
	}
	g, err := conn.Queue(q.name).Consume(ctx, q.group, client.MaxInFlight(c.MaxInFlight), client.MustExist())
	if err != nil {
		return nil, err
	}
	r := &consumer{g: g, c: c, wake: make(chan struct{}, 1)}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.ended.Go(func() { r.work(ctx) })
	r.ended.Go(r.reap)
	return r, nil
}

// work bounds nothing itself: the client hands out no more while too many settlements are not confirmed.
func (r *consumer) work(ctx context.Context) {
	defer r.signal(true)
	for m, err := range r.g.Messages(ctx) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.fail(err)
			return
		case m.Attempt > 1:
			r.fail(fmt.Errorf("message %v was handed out for the %d. time", m.ID(), m.Attempt))
			return
		}
		r.c.Handle(m.Value)
		s := m.AckAsync()
		r.mu.Lock()
		r.asked = append(r.asked, s)
		first := len(r.asked) == 1
		r.mu.Unlock()
		if first {
			r.signal(false)
		}
	}
}

func (r *consumer) signal(closing bool) {
	if closing {
		r.mu.Lock()
		r.closing = true
		r.mu.Unlock()
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// reap waits for what was asked, oldest first: others are settled with it, mostly.
func (r *consumer) reap() {
	var taken []*client.Settlement
	for {
		r.mu.Lock()
		room, closing := taken[:0], r.closing
		taken, r.asked = r.asked, room
		r.mu.Unlock()
		if len(taken) == 0 {
			if closing {
				return
			}
			<-r.wake
			continue
		}
		n := 0
		for i, s := range taken {
			select {
			case <-s.Done():
			default:
				r.settled(n) // what is known, before it waits
				n = 0
			}
			if err := s.Wait(context.Background()); err != nil { // it ends with the consumer
				r.fail(err)
			} else {
				n++
			}
			taken[i] = nil
		}
		r.settled(n)
	}
}

func (r *consumer) settled(n int) {
	if n > 0 {
		r.c.Settled(n)
	}
}

func (r *consumer) fail(err error) { r.once.Do(func() { r.c.Fail(err) }) }

// Close leaves the group.
func (r *consumer) Close() error {
	r.once.Do(func() {})
	r.cancel()
	r.g.Close()
	r.ended.Wait()
	return nil
}

// Left asks the group.
func (q *Queue) Left(ctx context.Context) (int64, error) {
	info, err := q.handle().Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.Ready + info.InFlight + info.Delayed + info.Dead), nil
}

// Close takes away the group, and the queue if it was made for the run.
func (q *Queue) Close() error {
	var err error
	if q.admin != nil {
		if q.own.Name == "" && q.api == nil {
			ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
			err = q.handle().Delete(ctx)
			cancel()
		}
		q.admin.Close()
	}
	return errors.Join(err, q.System.Close())
}
