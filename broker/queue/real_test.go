// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/queue"
	"margay.dev/broker/shard"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

const realShards = 2

// onDisk is a queue on a host of its own, in a bubble.
type onDisk struct {
	t     *testing.T
	rig   *hosttest.Rig
	log   control.Log
	pub   *hosttest.Answers
	n     uint64 // publishes
	id    uint64 // of the group
	stats queue.Stats
	lanes []*realLane
}

func onHost(t *testing.T, run func(t *testing.T, r *onDisk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := hosttest.Log(func(l *control.Log) {
			l.Shards, l.Keep, l.SegmentBytes = realShards, control.KeepUnsettled, 16<<10
			l.Tenant, l.Namespace = "t", "n"
		})
		r := &onDisk{t: t, log: l, pub: hosttest.NewAnswers(), id: 9}
		r.rig = hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
		for n := range uint32(realShards) {
			settings := batch.DefaultGroupSettings()
			settings.MaxAttempts = 0
			r.command(n, group.Command{Op: group.Create, Group: r.id, Settings: &settings})
		}
		run(t, r)
		for _, x := range r.lanes {
			x.end()
		}
	})
}

func (r *onDisk) shard(n uint32) *host.Shard {
	r.t.Helper()
	return r.rig.Shard(r.log.ID, n)
}

func (r *onDisk) command(n uint32, x group.Command) {
	r.t.Helper()
	r.n++
	x.ID, x.Name = [16]byte{byte(r.n), byte(r.n >> 8), 1}, "workers"
	if _, err := r.shard(n).Do(r.t.Context(), func(to any) shard.Event {
		x.To = to
		return &shard.GroupCommand{Command: x}
	}); err != nil {
		r.t.Fatal(err)
	}
}

// push stores records as one batch. Its error is the publisher's.
func (r *onDisk) push(n uint32, settles *batch.Settlement, recs ...batch.Record) *code.Error {
	r.t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	for _, rec := range recs {
		if err := bl.Add(rec); err != nil {
			r.t.Fatal(err)
		}
	}
	if settles != nil {
		if err := bl.SetSettlement(*settles); err != nil {
			r.t.Fatal(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		r.t.Fatal(err)
	}
	r.n++
	q := &host.Request{Buffer: append(make([]byte, wire.PublishHead), b...), Head: wire.PublishHead, Correlation: r.n, Lane: r.pub}
	q.Publish = shard.Publish{Batch: batch.Batch(q.Buffer[wire.PublishHead:]), To: q}
	if refused := r.shard(n).Submit(q); refused != nil {
		return refused
	}
	synctest.Wait()
	r.pub.Mu.Lock()
	defer r.pub.Mu.Unlock()
	return r.pub.Errs[r.n]
}

// realLane is a consumer.
type realLane struct {
	*onDisk
	c      *consumer
	lane   *queue.Lane
	ok     *wire.Consumed
	ctx    context.Context
	cancel context.CancelCauseFunc
	over   chan struct{}
	corr   uint64
	have   []message
}

func (r *onDisk) consume(inFlight uint32) *realLane {
	r.t.Helper()
	x := &realLane{onDisk: r, c: newConsumer(r.t), over: make(chan struct{})}
	x.c.real = true
	x.ctx, x.cancel = context.WithCancelCause(r.t.Context())
	f := &wire.Consume{Log: r.log.ID, Group: "workers", Consumer: "me", MaxInFlight: inFlight, Concurrency: 1}
	var parts []queue.Part
	for n := range uint32(realShards) {
		parts = append(parts, queue.Part{ID: n, Shard: r.shard(n)})
	}
	var err error
	x.lane, x.ok, err = queue.Open(x.ctx, x.c, f, parts, queue.Config{
		Resolve: func(n uint32) (queue.Shard, *code.Error) { return r.shard(n), nil },
		Ended:   func(uint32, *code.Error) {},
		Stats:   &r.stats,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(x.over)
		x.lane.Serve(x.ctx)
	}()
	r.lanes = append(r.lanes, x)
	return x
}

// end ends a lane as the end of its connection does.
func (x *realLane) end() {
	x.cancel(nil)
	<-x.over
	synctest.Wait()
}

func (x *realLane) poll() []message {
	x.have = append(x.have, x.c.take()...)
	return slices.Clone(x.have)
}

func (x *realLane) token(n uint32) wire.Consuming {
	i := slices.IndexFunc(x.ok.Shards, func(s wire.Consuming) bool { return s.Shard == n })
	return x.ok.Shards[i]
}

// settle takes a message off those that it has, and says whether it was still the consumer's.
func (x *realLane) settle(op wire.SettleOp, m message) bool {
	x.t.Helper()
	x.have = slices.DeleteFunc(x.have, func(o message) bool { return o == m })
	at := x.token(m.shard)
	x.corr++
	x.lane.Settle(x.ctx, x.corr, &wire.Settle{
		GroupID: x.ok.GroupID, Shard: m.shard, Resets: at.Resets, Generation: at.Generation,
		Runs: []wire.SettleRun{{Op: op, HandOut: m.handOut, Offset: m.offset, Count: 1, AfterUs: 1000}},
	})
	var done *wire.Settled
	var err *code.Error
	hosttest.Eventually(x.t, "an answer", func() bool {
		x.c.mu.Lock()
		defer x.c.mu.Unlock()
		done, err = x.c.settled[x.corr], x.c.errs[x.corr]
		return done != nil || err != nil
	})
	return err == nil && len(done.Failed) == 0
}

func (r *onDisk) info(n uint32) (i group.Info) {
	r.t.Helper()
	if _, err := r.shard(n).Do(r.t.Context(), func(to any) shard.Event {
		return &shard.Inspect{Look: func(v *group.View) { i, _ = v.Info("workers") }, To: to}
	}); err != nil {
		r.t.Fatal(err)
	}
	return i
}

// reopen has the shards closed and opened again, with other settings.
func (r *onDisk) reopen() {
	r.t.Helper()
	was := r.shard(0).View().Generation
	r.log.SegmentAge += time.Minute
	r.rig.Plane.Set(r.log)
	hosttest.Eventually(r.t, "the shards to be opened again", func() bool {
		for n := range uint32(realShards) {
			if s := r.rig.Open(r.log.ID, n); s == nil || s.View().Generation == was {
				return false
			}
		}
		return true
	})
	synctest.Wait()
}

func some(r *rand.Rand, n int, size int) (out []batch.Record) {
	for i := range n {
		out = append(out, batch.Record{Key: fmt.Append(nil, i%4), Value: fmt.Appendf(nil, "%d%0*d", r.Uint64(), size, 0), Timestamp: 1})
	}
	return out
}

// TestNothingIsForgottenAndNothingIsDoneTwice: whatever consumers do, and however often shards are opened again, each message
// is acked once, and handed to nobody behind that; at the end all credit is back.
func TestNothingIsForgottenAndNothingIsDoneTwice(t *testing.T) {
	for seed := range uint64(12) {
		onHost(t, func(t *testing.T, r *onDisk) {
			rng := rand.New(rand.NewPCG(seed, 7))
			type id struct {
				shard  uint32
				offset uint64
			}
			acked := map[id]bool{}
			pushed := 0
			var lanes []*realLane
			look := func(x *realLane) []message {
				had := len(x.have)
				have := x.poll()
				for _, m := range have[had:] {
					if acked[id{m.shard, m.offset}] {
						t.Fatalf("seed %d: message %d of shard %d is handed out behind its ack", seed, m.offset, m.shard)
					}
				}
				return have
			}
			ack := func(x *realLane, m message) {
				for _, other := range lanes { // what came until now came before
					look(other)
				}
				if x.settle(wire.SettleAck, m) {
					acked[id{m.shard, m.offset}] = true
				}
			}
			lanes = []*realLane{r.consume(5), r.consume(1)}
			for range 150 {
				k := rng.IntN(len(lanes))
				x := lanes[k]
				have := look(x)
				switch what := rng.IntN(20); {
				case what < 6:
					n := 1 + rng.IntN(4)
					if err := r.push(rng.Uint32N(realShards), nil, some(rng, n, rng.IntN(2000))...); err != nil {
						t.Fatal(err)
					}
					pushed += n
				case what < 15 && len(have) > 0:
					op := wire.SettleOp(1 + rng.IntN(4))
					if m := have[rng.IntN(len(have))]; op == wire.SettleAck || op == wire.SettleReject {
						ack(x, m)
					} else {
						x.settle(op, m)
					}
				case what == 15:
					x.end()
					lanes[k] = r.consume(1 + rng.Uint32N(9))
				case what == 16:
					x.lane.Leave()
					<-x.over
					lanes[k] = r.consume(1 + rng.Uint32N(9))
				case what == 17 && rng.IntN(3) == 0:
					r.reopen()
					for i := range lanes {
						if rng.IntN(2) == 0 && len(lanes[i].have) > 0 {
							ack(lanes[i], lanes[i].have[0]) // on the lane that ended, to who leads now
						}
						lanes[i].end()
						lanes[i] = r.consume(1 + rng.Uint32N(9))
					}
				case what == 18:
					x.lane.Flow(&wire.Flow{MaxInFlight: rng.Uint32N(10)})
				case what == 19:
					time.Sleep(time.Duration(rng.IntN(40)) * time.Second)
				}
			}
			for _, x := range lanes {
				x.lane.Flow(&wire.Flow{MaxInFlight: 100})
			}
			for tries := 0; len(acked) < pushed; tries++ {
				if tries > 200 {
					t.Fatalf("seed %d: %d of %d are acked: %+v %+v", seed, len(acked), pushed, r.info(0), r.info(1))
				}
				for _, x := range lanes {
					for _, m := range look(x) {
						ack(x, m)
					}
				}
				time.Sleep(10 * time.Second)
			}
			for _, x := range lanes {
				if out, unsent := x.lane.Depth(); out != 0 || unsent != 0 {
					t.Errorf("seed %d: %d are out at the end, %d unsent", seed, out, unsent)
				}
			}
			for n := range uint32(realShards) {
				if i := r.info(n); i.InFlight != 0 || i.Ready != 0 || i.Delayed != 0 || i.Dead != 0 {
					t.Errorf("seed %d: at the end %+v", seed, i)
				}
			}
		})
	}
}

// TestAckAndPublishAreOne: what a batch settles gives its credit back, and a batch whose claim has ended is not stored.
func TestAckAndPublishAreOne(t *testing.T) {
	onHost(t, func(t *testing.T, r *onDisk) {
		rng := rand.New(rand.NewPCG(1, 1))
		x := r.consume(2)
		if err := r.push(0, nil, some(rng, 3, 1)...); err != nil {
			t.Fatal(err)
		}
		got := x.poll()
		if len(got) != 2 {
			t.Fatalf("got %v", got)
		}
		at := x.token(0)
		st := &batch.Settlement{Group: r.id, Resets: at.Resets, Generation: at.Generation, Tokens: []batch.SettledToken{{HandOut: got[0].handOut, Offset: got[0].offset}}}
		if err := r.push(0, st, some(rng, 2, 1)...); err != nil {
			t.Fatal(err)
		}
		if got = x.poll(); len(got) != 3 {
			t.Fatalf("the credit is not back: %v", got)
		}
		if err := r.push(0, st, some(rng, 1, 1)...); !errors.Is(err, code.NoLongerOwner) {
			t.Fatalf("a second time: %v", err)
		}
		x.settle(wire.SettleAck, got[1])
		x.settle(wire.SettleAck, got[2])
		for _, m := range x.poll()[1:] {
			if m.offset != 3 && m.offset != 4 {
				t.Errorf("got %v", m)
			}
		}
		if x.c.slices == 0 {
			t.Error("a batch with a settlement came whole")
		}
	})
}

// TestCarriedMessagesComeUnderTheirOwnOffsets: one that was written again before its segment went is the same message.
func TestCarriedMessagesComeUnderTheirOwnOffsets(t *testing.T) {
	onHost(t, func(t *testing.T, r *onDisk) {
		rng := rand.New(rand.NewPCG(1, 1))
		x := r.consume(1000)
		want := map[uint64]string{}
		for range 400 {
			if err := r.push(0, nil, some(rng, 2, 500)...); err != nil {
				t.Fatal(err)
			}
			for _, m := range x.poll() {
				if m.offset%100 == 0 {
					want[m.offset] = m.value
					x.have = slices.DeleteFunc(x.have, func(o message) bool { return o == m })
				} else {
					x.settle(wire.SettleAck, m)
				}
			}
		}
		hosttest.Eventually(t, "the head to be given up", func() bool { return r.shard(0).View().Start.Offset > 100 })
		x.end()
		y := r.consume(1000)
		got := y.poll()
		if len(got) != len(want) {
			t.Fatalf("got %d messages, want %d", len(got), len(want))
		}
		for _, m := range got {
			if want[m.offset] != m.value {
				t.Errorf("%d is %.20q, want %.20q", m.offset, m.value, want[m.offset])
			}
		}
		if r.stats.Unreadable.Load() != 0 {
			t.Errorf("%d were unreadable", r.stats.Unreadable.Load())
		}
	})
}

// TestGroupMetrics: the shards of a group are added up, and its name is told.
func TestGroupMetrics(t *testing.T) {
	onHost(t, func(t *testing.T, r *onDisk) {
		rng := rand.New(rand.NewPCG(1, 1))
		x := r.consume(3)
		for n := range uint32(realShards) {
			if err := r.push(n, nil, some(rng, 4, 1)...); err != nil {
				t.Fatal(err)
			}
		}
		x.settle(wire.SettleAck, x.poll()[0])
		x.settle(wire.SettleReject, x.poll()[0])
		x.settle(wire.SettleNack, x.poll()[0])
		time.Sleep(7 * time.Second)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(queue.NewGroupMetrics(r.rig.Host.Shards, r.rig.Table, time.Now))
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range all {
			for _, m := range f.GetMetric() {
				name := strings.TrimPrefix(f.GetName(), "margay_")
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"groups": 1, "group_acked_total workers t/n/orders": 1, "group_dead workers t/n/orders": 1, "group_in_flight workers t/n/orders": 3,
			"group_attempts_total workers t/n/orders": 2, "group_acked_total  ": 0, "group_stalled_seconds workers t/n/orders": 0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		if age := got["group_oldest_seconds workers t/n/orders"]; age < 7 || age > 8 {
			t.Errorf("the oldest is %v s old", age)
		}
	})
}
