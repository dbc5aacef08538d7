// SPDX-License-Identifier: Apache-2.0

package e2e_test

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
	"margay.dev/cluster/history"
	"margay.dev/cluster/history/queue"
	"margay.dev/cluster/process"
	"margay.dev/wire/control"
)

// clerk writes down what is done with a queue.
type clerk struct {
	t    *testing.T
	rec  queue.Recorder
	n    atomic.Int64 // of all bodies
	good atomic.Int64 // settlements that were acknowledged
	stop atomic.Bool
}

func told(err error) history.Outcome {
	if err == nil {
		return history.Acked
	}
	return outcomeOf(err)
}

func (x *clerk) push(ctx context.Context, q *client.Queue, who string, rng *rand.Rand) {
	for !x.stop.Load() {
		body, key := fmt.Sprint("m", x.n.Add(1)), fmt.Sprint("k", rng.IntN(8))
		id := x.rec.Push(queue.Push{Client: who, Body: body, Key: key, NotBefore: time.Now().UnixMicro()})
		ack, err := q.Push(ctx, client.Record{Key: []byte(key), Value: []byte(body)})
		a := queue.PushAnswer{Message: queue.Message{Shard: ack.Shard, Offset: ack.Offset}}
		a.Outcome = told(err)
		x.rec.Pushed(id, a)
	}
}

// work takes messages and acks most of them, until ctx ends.
func (x *clerk) work(ctx context.Context, g *client.Consumer, group, who string, rng *rand.Rand) {
	for m, err := range g.Messages(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				x.t.Errorf("%s: %v", who, err)
			}
			return
		}
		f := m.Fence()
		id := x.rec.HandOut(queue.Claim{
			Group: group, Consumer: who, Message: queue.Message{Shard: m.Shard, Offset: m.Offset}, Resets: f.Resets, Generation: f.Generation,
			HandOut: f.HandOut, Attempt: uint32(m.Attempt), Body: string(m.Value), Key: string(m.Key), NotAfter: time.Now().UnixMicro(),
		})
		op := queue.Ack
		if !x.stop.Load() && rng.IntN(10) == 0 {
			op = queue.Nack
		}
		s := x.rec.Settle(queue.Settlement{Claim: id, Op: op, NotBefore: time.Now().UnixMicro()})
		if op == queue.Ack {
			err = m.Ack(ctx)
		} else {
			err = m.Nack(ctx, 0)
		}
		a := queue.SettleAnswer{Outcome: told(err), Ended: errors.Is(err, client.ErrNoLongerOwner), NotAfter: time.Now().UnixMicro()}
		if a.Outcome == history.Acked {
			x.good.Add(1)
		}
		x.rec.Settled(s, a)
	}
}

// S8, S9, Q2: over kills of the node no message is lost, none has two holders, and none comes back behind its ack.
func TestQueuesOverKills(t *testing.T) {
	t.Parallel()
	kills := 3
	if !testing.Short() {
		kills = 12
	}
	p := process.Start(t, process.Config{})
	cc := p.Context()
	spec := control.QueueSpec{Name: "jobs", Shards: new(2), SegmentBytes: new(int64(killSegmentBytes))}
	if _, err := p.Control().CreateQueue(within(t), cc.Tenant, cc.Namespace, spec); err != nil {
		t.Fatal(err)
	}
	x := &clerk{t: t}
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var pushers, workers sync.WaitGroup
	groups := []string{"plain", "keyed"}
	for i, name := range groups {
		cfg := client.GroupConfig{AckWait: time.Hour, MaxAttempts: client.Unlimited, Backoff: []time.Duration{time.Millisecond}, OrderByKey: i == 1}
		if err := p.Connect().Queue("jobs").Group(name).Ensure(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		x.rec.Group(name, queue.Group{AckWait: time.Hour, ByKey: i == 1})
		for k := range 2 {
			who := fmt.Sprintf("%s %d", name, k)
			g, err := p.Connect().Queue("jobs").Consume(ctx, name, client.MaxInFlight(16))
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			workers.Go(func() { x.work(ctx, g, name, who, rand.New(rand.NewPCG(uint64(i), uint64(k)))) })
		}
	}
	for i := range 2 {
		q := p.Connect().Queue("jobs")
		pushers.Go(func() { x.push(ctx, q, fmt.Sprint("pusher ", i), rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	for i := range kills {
		goal := x.good.Load() + 150
		eventually(t, "settlements before an end", func() bool { return x.good.Load() >= goal })
		for shard := range uint32(2) {
			x.rec.LeaderEnds(shard)
		}
		if i%3 == 2 {
			p.Stop()
		} else {
			p.Kill()
		}
		p.Start()
	}
	x.stop.Store(true)
	pushers.Wait()
	q := p.Connect().Queue("jobs")
	for _, name := range groups {
		var i *client.GroupInfo
		eventually(t, "group "+name+" to be through", func() bool {
			var err error
			i, err = q.Group(name).Info(ctx)
			return err == nil && i.Ready+i.Delayed+i.InFlight == 0
		})
		for _, s := range i.Shards {
			x.rec.Audit(queue.Audit{Group: name, Shard: s.Shard, To: s.End, NotAfter: time.Now().UnixMicro()})
		}
	}
	cancel()
	workers.Wait()
	for _, v := range x.rec.Check() {
		t.Error(v)
	}
	if pushed, handed, settled := x.rec.Counts(); pushed == 0 || handed < pushed || settled[queue.Nack] == 0 {
		t.Errorf("a history without substance proves nothing: %d pushed, %d handed out, %v", pushed, handed, settled)
	}
}
