// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

// Many consumers, many keys, an order by key, and a message here and there that kills or fails whoever has it: of each key one
// message is worked on at a time, in its order, and other keys flow.
func TestOrderByKeyHoldsUnderManyConsumers(t *testing.T) {
	t.Parallel()
	count, keys, consumers := 1500, 30, 10
	if !testing.Short() {
		count, consumers = 10_000, 50
	}
	n := margaytest.Start(t)
	hostileQueue(t, n, control.QueueSpec{Name: "q", Shards: new(2), Fsync: new("never"), SegmentBytes: new(int64(64 << 10))})
	q := n.Connect().Queue("q")
	err := q.Group("g").Ensure(await.Within(t), client.GroupConfig{
		MaxAttempts: 3, Backoff: []time.Duration{time.Millisecond, 50 * time.Millisecond}, OrderByKey: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	o := &order{t: t, busy: map[string]int{}, last: map[string]int{}, ended: map[int]bool{}}
	ctx, cancel := context.WithCancel(await.Within(t))
	defer cancel()
	var wg sync.WaitGroup
	poisoned := func(i int) bool { return i%211 == 7 }
	var dead atomic.Int32
	for i := range consumers {
		wg.Go(func() {
			c, err := client.Connect(ctx, n.URL(), client.WithContext(n.Context()))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for ctx.Err() == nil {
				g, err := c.Queue("q").Consume(ctx, "g", client.MaxInFlight(1+i%20))
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				life, end := context.WithTimeout(ctx, time.Duration(50+37*i)*time.Millisecond)
				err = g.Handle(life, 3, func(_ context.Context, m *client.Message) error {
					i, _ := strconv.Atoi(string(m.Value))
					o.begin(string(m.Key), i)
					defer func() {
						gone := !poisoned(i)
						if poisoned(i) && m.Attempt == 3 {
							gone = true
							dead.Add(1)
						}
						if o.end(string(m.Key), i, gone) == count {
							cancel()
						}
					}()
					if poisoned(i) {
						return errors.New("poison")
					}
					return nil
				})
				end()
				_ = g.Drain(ctx)
				g.Close()
				if err != nil && life.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	hostilePush(t, q, count, keys)
	wg.Wait()
	if len(o.ended) != count {
		info, _ := q.Group("g").Info(context.Background(), client.Counted())
		t.Fatalf("%d of %d: %+v", len(o.ended), count, *info)
	}
	await.True(t, "all to be settled", func() bool {
		info, err := q.Group("g").Info(await.Within(t), client.Counted())
		return err == nil && info.Ready+info.InFlight+info.Delayed == 0
	})
	info := adds(t, q.Group("g"), uint64(count))
	if info.Dead == 0 || info.Dead != uint64(dead.Load()) {
		t.Errorf("%d dead letters, want %d", info.Dead, dead.Load())
	}
}

// order watches the messages of keys.
type order struct {
	t     *testing.T
	mu    sync.Mutex
	busy  map[string]int // how many are worked on
	last  map[string]int // the highest that was begun
	ended map[int]bool
}

func (o *order) begin(key string, i int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy[key]++; o.busy[key] > 1 {
		o.t.Errorf("%d messages of %s are worked on", o.busy[key], key)
	}
	if i < o.last[key] {
		o.t.Errorf("%d of %s came after %d", i, key, o.last[key])
	}
	if last := o.last[key]; i > last && last > 0 && !o.ended[last] {
		o.t.Errorf("%d of %s came before %d had ended", i, key, last)
	}
	if o.ended[i] {
		o.t.Errorf("%d of %s had ended and came again", i, key)
	}
	o.last[key] = max(o.last[key], i)
}

func (o *order) end(key string, i int, gone bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy[key]--
	if gone {
		o.ended[i] = true
	}
	return len(o.ended)
}
