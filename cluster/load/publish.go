// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// group is how many messages share a stamp, at most, when they are ready to go at once: reading the clock for each would
// cost as much as the cheapest system takes for a message. The last of them may be handed over some microseconds later
// than its stamp says, which counts as latency.
const group = 64

// quota is what all clients of a phase share.
type quota struct {
	left         int64 // messages that nobody has claimed
	begin, until int64 // Unix nanoseconds
}

// claim returns how many of n messages are to be sent.
func (q *quota) claim(n int) int {
	left := atomic.AddInt64(&q.left, -int64(n)) + int64(n)
	return int(min(max(left, 0), int64(n)))
}

// client is one publisher with its window.
type client struct {
	r         *run
	i         int
	publisher Publisher
	flusher   Flusher // nil when it has no buffer
	window    *window
	msg       []byte
	// Of the phase: what it handed over, and what the schedule had and it did not.
	sent, unsent int64
	before       int64 // what it handed over in the phases before
}

func (r *run) openClients(ctx context.Context) error {
	if len(r.windows) == 0 {
		for range r.spec.Clients {
			r.windows = append(r.windows, newWindow(r.spec.InFlight))
		}
	}
	for i := range r.spec.Clients {
		c := &client{r: r, i: i, window: r.windows[i%len(r.windows)], msg: payload(r.spec.Size, i)}
		p, err := r.publisher(ctx, c)
		if err != nil {
			return fmt.Errorf("open publisher %d: %w", i, err)
		}
		c.publisher = p
		c.flusher, _ = p.(Flusher)
		r.clients = append(r.clients, c)
	}
	return nil
}

// payload is bytes that do not compress, the same in every run.
func payload(size, i int) []byte {
	var seed [32]byte
	seed[0], seed[1] = byte(i), byte(i>>8)
	msg := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(msg) // never fails
	return msg
}

// done takes what the adapter tells of. It is called for each message, or for many at once.
func (c *client) done(at int64, n int, err error) {
	r := c.r
	r.told.Add(int64(n))
	if err != nil {
		r.fail(n, err)
		c.window.give(n)
		return
	}
	if r.acks != nil {
		r.acks.of(c.i).record(r.clock.now()-at, n)
	}
	r.answered.Add(int64(n))
	if r.spec.receivers() == 0 {
		c.window.give(n)
	}
}

// run publishes what the quota gives it, until sends ends. Calls under way are bounded by calls, which ends later.
func (c *client) run(sends, calls context.Context, q *quota) {
	c.sent, c.unsent, c.before = 0, 0, c.before+c.sent
	if c.r.spec.Rate > 0 && !c.r.preparing {
		c.runAtRate(sends, calls, q)
		return
	}
	for {
		n := c.window.take(sends, group)
		if n == 0 {
			return
		}
		now := c.r.clock.now()
		use := 0
		if now < q.until && sends.Err() == nil {
			use = q.claim(n)
		}
		c.window.give(n - use)
		if use == 0 {
			return
		}
		putStamp(c.msg, now)
		for range use {
			c.send(calls, now)
		}
		c.flush(calls)
	}
}

// runAtRate publishes this client's share of the schedule. A message is stamped with the time that the schedule says,
// however late it is sent: a system that stalls keeps others from being sent, and their waiting is its latency.
func (c *client) runAtRate(sends, calls context.Context, q *quota) {
	every := 1e9 * float64(len(c.r.clients)) / c.r.spec.Rate
	// The clients take turns; all at once would be bursts that nobody asked for.
	first := every * float64(c.i) / float64(len(c.r.clients))
	sleep := c.r.o.sleeper(sends)
	defer sleep.close()
	now, dirty := c.r.clock.now(), false
	for k := 0; ; k++ {
		at := q.begin + int64(first+every*float64(k))
		if at >= q.until || q.claim(1) == 0 {
			break
		}
		for at > now && sends.Err() == nil {
			if now = c.r.clock.now(); at <= now {
				break
			}
			if dirty {
				c.flush(calls)
				dirty = false
			}
			sleep.sleep(durationOf(at - now))
		}
		if c.window.try(1) == 0 {
			c.flush(calls) // nothing would come back for what lies in a buffer
			if c.window.take(sends, 1) == 0 {
				c.omit(at, every, q)
				break
			}
		}
		if sends.Err() != nil {
			c.window.give(1)
			c.omit(at, every, q)
			break
		}
		putStamp(c.msg, at)
		c.send(calls, at)
		dirty = true
	}
	c.flush(calls)
}

// omit accounts for the messages from at on that the schedule has put before now and that will not be sent: each has waited this
// long at least.
func (c *client) omit(at int64, every float64, q *quota) {
	const steps = 10_000 // are enough for a distribution, however long the schedule is
	now := c.r.clock.now()
	late := min(now, q.until) - at
	if late <= 0 {
		return
	}
	c.unsent = int64(math.Ceil(float64(late) / every))
	step := c.unsent/steps + 1
	for k := int64(0); k < c.unsent; k += step {
		waited, n := now-at-int64(every*float64(k)), int(min(step, c.unsent-k))
		switch {
		case c.r.spec.Workload == Watch || c.r.spec.Workload == Handle:
			c.r.deliveries.of(c.i).record(waited, n)
		case c.r.spec.Workload == Fanout:
			c.r.deliveries.of(c.i).record(waited, n*c.r.spec.Subscribers)
		case c.r.acks != nil:
			c.r.acks.of(c.i).record(waited, n)
		}
	}
}

func (c *client) send(ctx context.Context, at int64) {
	c.sent++
	if err := c.publisher.Publish(ctx, c.msg, at); err != nil {
		c.r.fail(1, err)
		c.window.give(1)
	}
}

func (c *client) flush(ctx context.Context) {
	if c.flusher == nil {
		return
	}
	if err := c.flusher.Flush(ctx); err != nil {
		c.r.first.CompareAndSwap(nil, &err) // what lay in the buffer is told of by done
	}
}
