// SPDX-License-Identifier: Apache-2.0

package fanout_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"margay.dev/broker/fanout"
	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// env is a batch of one record of 60 bytes at offset n, whose sequence is n too.
func env(n uint64) *fanout.Envelope {
	return envelope(n, batch.Record{Value: make([]byte, 60), Timestamp: 1})
}

func envelope(n uint64, recs ...batch.Record) *fanout.Envelope {
	bl := batch.NewBuilder(batch.Limits{})
	for _, r := range recs {
		if err := bl.Add(r); err != nil {
			panic(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		panic(err)
	}
	b.Assign(batch.Assigned{Sequence: n, BaseOffset: n, Generation: 1, AppendTime: 1_000_000})
	return &fanout.Envelope{Frame: wire.AppendFrame(nil, 0, &wire.Deliver{Batch: b}), Batch: b}
}

func publish(h *fanout.Hub, from, to uint64) {
	var envs []*fanout.Envelope
	for n := from; n < to; n++ {
		envs = append(envs, env(n))
	}
	h.Publish(envs, fanout.Position{Sequence: to, Offset: to}, 0)
}

func join(h *fanout.Hub, q *fanout.Queue, at uint64) bool {
	_, ok := h.Join(q, at)
	return ok
}

func offsets(q *fanout.Queue) (out []uint64, left []uint32, ended map[uint32]error) {
	var t fanout.Taken
	for {
		q.Take(&t, 250)
		for _, d := range t.Deliveries {
			out = append(out, d.BaseOffset)
		}
		if len(t.Deliveries) == 0 || t.Left != nil || t.Ended != nil {
			return out, t.Left, t.Ended
		}
	}
}

func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy fanout.Policy
		want   string // offsets taken of 0..9 by a queue of 4 records
		left   bool
	}{
		{fanout.DropNew, "[0 1 2 3]", false},
		{fanout.DropOld, "[6 7 8 9]", false},
		{fanout.CatchUp, "[0 1 2 3]", true},
		{fanout.Disconnect, "[0 1 2 3]", true},
	} {
		h := fanout.NewHub(0, fanout.Position{})
		q := fanout.NewQueue(fanout.Limits{Records: 4}, c.policy, nil)
		if !join(h, q, 0) {
			t.Fatal("no join at the hub's position")
		}
		publish(h, 0, 6)
		publish(h, 6, 10)
		if r, b := q.Depth(); r > 4 || b > 4*250 {
			t.Errorf("policy %d: the queue holds %d records, %d bytes", c.policy, r, b)
		}
		got, left, _ := offsets(q)
		if fmt.Sprint(got) != c.want || (left != nil) != c.left {
			t.Errorf("policy %d: took %v, left %v; want %s, %v", c.policy, got, left, c.want, c.left)
		}
		if live := h.Subscribers() == 1; live == c.left {
			t.Errorf("policy %d: still with the hub: %v", c.policy, live)
		}
	}
}

// A batch larger than the whole queue still goes through an empty one.
func TestOversizedBatch(t *testing.T) {
	h := fanout.NewHub(0, fanout.Position{})
	q := fanout.NewQueue(fanout.Limits{Bytes: 10}, fanout.DropNew, nil)
	h.Join(q, 0)
	publish(h, 0, 2)
	if got, _, _ := offsets(q); fmt.Sprint(got) != "[0]" {
		t.Fatalf("took %v", got)
	}
}

func TestEndIsToldBehindWhatWasQueued(t *testing.T) {
	h := fanout.NewHub(3, fanout.Position{})
	q := fanout.NewQueue(fanout.Limits{}, fanout.DropNew, nil)
	h.Join(q, 0)
	publish(h, 0, 5)
	why := errors.New("moved")
	h.Close(why)
	got, _, ended := offsets(q)
	if len(got) != 5 || !errors.Is(ended[3], why) {
		t.Fatalf("took %v, ended %v", got, ended)
	}
	if join(h, q, 5) {
		t.Fatal("joined a hub that ended")
	}
}

// A queue joins at the hub's position and at no other: below it a batch would be missed, above it one would
// come before its turn.
func TestJoinOnlyAtThePosition(t *testing.T) {
	h := fanout.NewHub(0, fanout.Position{})
	publish(h, 0, 10)
	q := fanout.NewQueue(fanout.Limits{}, fanout.DropNew, nil)
	for _, at := range []uint64{0, 9, 11} {
		if join(h, q, at) {
			t.Fatalf("a queue that stands at %d joined a hub at 10", at)
		}
	}
	if !join(h, q, 10) {
		t.Fatal("a queue that stands at the hub's position did not join")
	}
}

// SB-04: readers that join while batches are committed see each exactly once. Joining without comparing
// the position, or registering after it was compared, fails here.
func TestJoinWithoutGapOrRepeat(t *testing.T) {
	const total, readers = 3000, 16
	h := fanout.NewHub(0, fanout.Position{})
	var wg sync.WaitGroup
	for r := range readers {
		wg.Go(func() {
			q := fanout.NewQueue(fanout.Limits{Records: 8}, fanout.CatchUp, nil)
			next := uint64(r * 100)
			live := false
			for next < total {
				if !live {
					if at := h.Sequence(); next < at {
						next++ // read one from the log
						continue
					}
					live = join(h, q, next)
					continue
				}
				<-q.Ready()
				got, left, _ := offsets(q)
				for _, n := range got {
					if n != next {
						t.Errorf("reader %d got %d, want %d", r, n, next)
						return
					}
					next++
				}
				live = left == nil
			}
		})
	}
	for n := uint64(0); n < total; n += 3 {
		publish(h, n, n+3)
	}
	wg.Wait()
}

func BenchmarkFanOut(b *testing.B) {
	for _, subs := range []int{10, 1000} {
		b.Run(fmt.Sprint(subs), func(b *testing.B) {
			h := fanout.NewHub(0, fanout.Position{})
			queues := make([]*fanout.Queue, subs)
			for i := range queues {
				queues[i] = fanout.NewQueue(fanout.Limits{}, fanout.DropNew, nil)
				h.Join(queues[i], 0)
			}
			envs := []*fanout.Envelope{env(0)}
			var t fanout.Taken
			b.ReportAllocs()
			for b.Loop() {
				h.Publish(envs, fanout.Position{}, 0)
				for _, q := range queues {
					q.Take(&t, 1<<20)
				}
			}
		})
	}
}
