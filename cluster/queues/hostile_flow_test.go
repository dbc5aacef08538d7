// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

// With one message in flight over many shards there are never two.
func TestOneInFlightOverManyShards(t *testing.T) {
	t.Parallel()
	const count = 400
	n := margaytest.Start(t)
	hostileQueue(t, n, control.QueueSpec{Name: "q", Shards: new(8), Fsync: new("never")})
	q := n.Connect().Queue("q")
	if err := q.Group("g").Ensure(await.Within(t), client.GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, n, "q", "")
	_ = p
	hostilePush(t, q, count, 50)
	g, err := q.Consume(await.Within(t), "g", client.MaxInFlight(1))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var working atomic.Int32
	var done atomic.Int32
	ctx, cancel := context.WithCancel(await.Within(t))
	defer cancel()
	err = g.Handle(ctx, 4, func(context.Context, *client.Message) error {
		if w := working.Add(1); w > 1 {
			t.Errorf("%d messages at once", w)
		}
		if done.Add(1) == count {
			cancel()
		}
		working.Add(-1)
		return nil
	})
	if !errors.Is(err, context.Canceled) || done.Load() != count {
		t.Fatalf("handled %d: %v", done.Load(), err)
	}
	g.Close()
	if info := adds(t, q.Group("g"), count); info.Totals.Acked != count {
		t.Errorf("%+v", *info)
	}
}

// ledger remembers what became of each message.
type ledger struct {
	mu    sync.Mutex
	acked map[client.MessageID]int // acks that were answered
}

func (l *ledger) ack(id client.MessageID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[id]++
}

func (l *ledger) has(id client.MessageID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked[id] > 0
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// Consumers come and go, some in order, some not; some never read, some fail, some let their claims time out. Everything is acked
// at last, nothing acked comes again, and the numbers add up.
func TestConsumersComeAndGo(t *testing.T) {
	t.Parallel()
	count, comers, keys := 2000, 40, 0
	if !testing.Short() {
		count, comers = 20_000, 500
	}
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprint("ordered=", ordered), func(t *testing.T) {
			t.Parallel()
			if ordered {
				keys = 50
			}
			comeAndGo(t, count, comers, keys, ordered)
		})
	}
}

func comeAndGo(t *testing.T, count, comers, keys int, ordered bool) {
	n := margaytest.Start(t)
	hostileQueue(t, n, control.QueueSpec{Name: "q", Shards: new(2), Fsync: new("never"), SegmentBytes: new(int64(64 << 10))})
	q := n.Connect().Queue("q")
	err := q.Group("g").Ensure(await.Within(t), client.GroupConfig{
		AckWait: 300 * time.Millisecond, MaxAttempts: client.Unlimited, Backoff: []time.Duration{time.Millisecond, 20 * time.Millisecond}, OrderByKey: ordered,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{acked: map[client.MessageID]int{}}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(await.Within(t))
	defer cancel()
	slots := make(chan struct{}, 20)
	wg.Go(func() {
		defer cancel()
		var come sync.WaitGroup
		defer come.Wait()
		for i := range comers {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			come.Go(func() {
				defer func() { <-slots }()
				comer(ctx, t, n, l, uint64(i), count/comers*2)
			})
		}
	})
	for i := range count {
		rec := client.Record{Value: fmt.Append(nil, i)}
		if keys > 0 {
			rec.Key = fmt.Append(nil, "k", i%keys)
		}
		if i%17 == 0 {
			rec.Delay = time.Duration(i%100) * time.Millisecond
		}
		rec.Priority = uint8(i % 3)
		q.PushAsync(t.Context(), rec)
	}
	if err := q.Flush(await.Within(t)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	g, err := q.Consume(await.Within(t), "g", client.MaxInFlight(100))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for l.len() < count {
		for m, err := range g.Messages(await.Within(t)) {
			if err != nil {
				info, _ := q.Group("g").Info(context.Background(), client.Counted())
				t.Fatalf("%v, after %d of %d: %+v", err, l.len(), count, info)
			}
			if l.has(m.ID()) {
				t.Errorf("%v was acked, and came again", m.ID())
			}
			if m.Ack(await.Within(t)) == nil {
				l.ack(m.ID())
			}
			break
		}
	}
	g.Close()
	if info := adds(t, q.Group("g"), uint64(count)); info.Totals.Acked != uint64(count) {
		t.Errorf("%+v", *info)
	}
	for id, times := range l.acked {
		if times != 1 {
			t.Errorf("%v was acked %d times", id, times)
		}
	}
}

// comer consumes some messages and goes, in a way of its own.
func comer(ctx context.Context, t *testing.T, n *margaytest.Node, l *ledger, seed uint64, most int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	cctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	c, err := client.Connect(cctx, n.URL(), client.WithContext(n.Context()))
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("connect: %v", err)
		}
		return
	}
	defer c.Close()
	g, err := c.Queue("q").Consume(cctx, "g", client.MaxInFlight(1+rng.IntN(64)), client.ConsumerName(fmt.Sprint("c", seed)))
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("consume: %v", err)
		}
		return
	}
	if seed%7 == 3 { // reads nothing, and is gone
		return
	}
	life, end := context.WithTimeout(cctx, time.Duration(20+rng.IntN(300))*time.Millisecond)
	defer end()
	held := 0
	for m, err := range g.Messages(life) {
		if err != nil {
			break
		}
		if l.has(m.ID()) {
			t.Errorf("%v was acked, and came again", m.ID())
		}
		switch what := rng.IntN(20); {
		case what < 14:
			if m.Ack(ctx) == nil {
				l.ack(m.ID())
			}
		case what < 16:
			_ = m.Nack(ctx, 0)
		case what < 17:
			_ = m.Release(ctx)
		case what < 18:
			_ = m.Extend(ctx, time.Second)
			if m.Ack(ctx) == nil {
				l.ack(m.ID())
			}
		default:
			held++ // until its claim times out, or the consumer goes
		}
		if most--; most == 0 {
			break
		}
	}
	switch rng.IntN(3) {
	case 0:
		_ = g.Drain(life)
	case 1:
		g.Close()
	}
}
