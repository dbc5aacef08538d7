// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"margay.dev/broker/host"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/broker/stream"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// bench is one shard, its publisher and its subscribers, in a bubble: what is published is answered, and what can be
// delivered is delivered, before time passes.
type bench struct {
	t     *testing.T
	log   control.Log
	shard *host.Shard
	lane  *hosttest.Answers
	n     uint64 // publishes
	next  uint64 // offset
}

// inBubble gives a test a bench.
func inBubble(t *testing.T, run func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := hosttest.Log(func(l *control.Log) { l.SegmentBytes = 4 << 10 })
		r := hosttest.Start(t, memfs.New(rand.New(rand.NewPCG(1, 1))), hosttest.NewPlane(l))
		run(t, &bench{t: t, log: l, shard: r.Shard(l.ID, 0), lane: hosttest.NewAnswers()})
	})
}

// publish stores count batches of one record each, whose values are their offsets.
func (b *bench) publish(count int) {
	b.t.Helper()
	for range count {
		b.publishBatch(1)
	}
}

func (b *bench) publishBatch(records int) {
	b.t.Helper()
	recs := make([]batch.Record, records)
	for i := range recs {
		recs[i] = batch.Record{Key: fmt.Appendf(nil, "k%d", (b.next+uint64(i))%2), Value: fmt.Append(nil, b.next+uint64(i)), Timestamp: 1}
	}
	if err := b.shard.Submit(hosttest.RequestOf(b.t, b.lane, b.n, recs...)); err != nil {
		b.t.Fatal(err)
	}
	b.n++
	b.next += uint64(records)
	synctest.Wait()
	if got := b.lane.N.Load(); got != int64(b.n) || len(b.lane.Errs) > 0 {
		b.t.Fatalf("%d of %d publishes were answered: %v", got, b.n, b.lane.Errs)
	}
}

// reader is a subscription that is being served.
type reader struct {
	t    *testing.T
	lane *hosttest.Lane
	stop context.CancelFunc
	end  chan *wire.End
}

// subscribe opens a subscription and serves it. A gated one does not read until its gate is closed.
func (b *bench) subscribe(req *wire.Subscribe, start wire.Start, gated bool) *reader {
	b.t.Helper()
	r := &reader{t: b.t, lane: &hosttest.Lane{}, end: make(chan *wire.End, 1)}
	if gated {
		r.lane.Gate = make(chan struct{})
	}
	req.Log, req.Shards = b.log.ID, []wire.Start{start}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	sub, _, err := stream.Open(ctx, r.lane, req, []stream.Part{{Start: start, Shard: b.shard}}, time.Now(), stream.Durable{})
	if err != nil {
		cancel()
		b.t.Fatal(err)
	}
	go func() {
		defer sub.Close()
		r.end <- sub.Serve(ctx)
	}()
	synctest.Wait()
	return r
}

// finish ends the subscription and returns all that it was told.
func (r *reader) finish() []hosttest.Told {
	r.t.Helper()
	synctest.Wait()
	r.stop()
	<-r.end
	return r.lane.Told(r.t)
}

// offsets lists the offsets of the records that a subscriber got, and the ranges that it was told are missing.
func offsets(t *testing.T, told []hosttest.Told) (got []uint64, gaps [][2]uint64) {
	t.Helper()
	for _, x := range told {
		switch x.Type {
		case wire.TypeDeliver:
			for i, v := range x.Values {
				at := x.From + uint64(i)
				if v != fmt.Sprint(at) {
					t.Errorf("offset %d holds %q", at, v)
				}
				got = append(got, at)
			}
		case wire.TypeGap:
			gaps = append(gaps, [2]uint64{x.From, x.To})
		default:
		}
	}
	return got, gaps
}

func upTo(from, to uint64) (all []uint64) {
	for o := from; o < to; o++ {
		all = append(all, o)
	}
	return all
}

// R1: whatever a subscriber starts at, history and live are joined without gap or repeat, and the records come while
// others are published.
func TestHistoryAndLiveAreJoined(t *testing.T) {
	for name, start := range map[string]wire.Start{
		"earliest": {Kind: wire.StartEarliest}, "offset": {Kind: wire.StartOffset, At: 37}, "the end": {Kind: wire.StartOffset, At: 100},
		"latest": {Kind: wire.StartLatest},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.publish(100)
				from := map[string]uint64{"earliest": 0, "offset": 37, "the end": 100, "latest": 100}[name]
				// It stands in its first write while more is published: history that has become live meanwhile.
				r := b.subscribe(&wire.Subscribe{}, start, true)
				b.publish(50)
				close(r.lane.Gate)
				synctest.Wait()
				b.publish(50)
				got, gaps := offsets(t, r.finish())
				if !slices.Equal(got, upTo(from, 200)) || len(gaps) > 0 {
					t.Errorf("from %d it got %v and was told of %v", from, got, gaps)
				}
			})
		})
	}
}

// R2: each policy does to a queue that is full what it says, and what is lost is stated where it is missing.
func TestOverflow(t *testing.T) {
	const live, queue = 40, 8
	for name, c := range map[string]struct {
		policy wire.Policy
		check  func(t *testing.T, got []uint64, gaps [][2]uint64, end *wire.End)
	}{
		"drop new": {wire.PolicyDropNew, func(t *testing.T, got []uint64, gaps [][2]uint64, _ *wire.End) {
			t.Helper()
			// One is in the write, the queue holds what came behind it, and then nothing until somebody reads.
			if !slices.Equal(got, append(upTo(0, 1+queue), live)) || !slices.Equal(gaps, [][2]uint64{{1 + queue, live}}) {
				t.Errorf("got %v, told of %v", got, gaps)
			}
		}},
		"drop old": {wire.PolicyDropOld, func(t *testing.T, got []uint64, gaps [][2]uint64, _ *wire.End) {
			t.Helper()
			if !slices.Equal(got, append([]uint64{0}, upTo(live-queue, live+1)...)) || !slices.Equal(gaps, [][2]uint64{{1, live - queue}}) {
				t.Errorf("got %v, told of %v", got, gaps)
			}
		}},
		"catch up": {wire.PolicyCatchUp, func(t *testing.T, got []uint64, gaps [][2]uint64, _ *wire.End) {
			t.Helper()
			if !slices.Equal(got, upTo(0, live+1)) || len(gaps) > 0 {
				t.Errorf("got %v, told of %v", got, gaps)
			}
		}},
		"disconnect": {wire.PolicyDisconnect, func(t *testing.T, got []uint64, gaps [][2]uint64, end *wire.End) {
			t.Helper()
			if !slices.Equal(got, upTo(0, 1+queue)) || len(gaps) > 0 || end == nil || end.Code != code.SlowConsumer {
				t.Errorf("got %v, told of %v, ended with %+v", got, gaps, end)
				return
			}
			if len(end.Resume) != 1 || end.Resume[0].Offset != 1+queue {
				t.Errorf("it may resume at %+v, want %d", end.Resume, 1+queue)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				r := b.subscribe(&wire.Subscribe{Policy: c.policy, QueueRecords: queue}, wire.Start{Kind: wire.StartLatest}, true)
				b.publish(live)
				close(r.lane.Gate)
				synctest.Wait()
				b.publish(1)
				r.stop()
				end := <-r.end
				got, gaps := offsets(t, r.lane.Told(t))
				c.check(t, got, gaps, end)
			})
		})
	}
}

// A subscription until the mark ends at the mark that it saw when it was opened, whatever comes behind, and an empty one at
// once.
func TestUntilTheMark(t *testing.T) {
	for _, c := range []struct{ before, from, want uint64 }{{0, 0, 0}, {30, 0, 30}, {30, 12, 18}, {30, 30, 0}} {
		t.Run(fmt.Sprintf("%d from %d", c.before, c.from), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.publish(int(c.before))
				r := b.subscribe(&wire.Subscribe{UntilMark: true}, wire.Start{Kind: wire.StartOffset, At: c.from}, true)
				b.publish(20)
				close(r.lane.Gate)
				end := <-r.end
				r.stop()
				got, gaps := offsets(t, r.lane.Told(t))
				if !slices.Equal(got, upTo(c.from, c.from+c.want)) || len(gaps) > 0 || end == nil || end.Code != 0 {
					t.Errorf("got %v, told of %v, ended with %+v", got, gaps, end)
				}
			})
		})
	}
}

// An idle subscription is told where it stands, also past what was not for it; never ahead of what is still to come.
func TestProgressOfTheIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.publish(10)
		r := b.subscribe(&wire.Subscribe{Filters: []wire.Filter{{Kind: wire.FilterExact, Value: "k0"}}}, wire.Start{Kind: wire.StartEarliest}, false)
		time.Sleep(6 * time.Second)
		b.publish(1) // offset 10: of k0
		b.publish(1) // offset 11: not
		time.Sleep(6 * time.Second)
		told := r.finish()
		var passed uint64
		var notes []uint64
		for _, x := range told {
			if x.Type == wire.TypeProgress {
				if x.To < passed {
					t.Errorf("the position goes back from %d to %d", passed, x.To)
				}
				notes = append(notes, x.To)
			} else if x.From < passed {
				t.Errorf("%+v comes behind a position of %d", x, passed)
			}
			passed = max(passed, x.To)
		}
		if !slices.Contains(notes, 10) || notes[len(notes)-1] != 12 {
			t.Errorf("its positions are %v, want 10 and then 12", notes)
		}
		var got []string
		for _, x := range told {
			got = append(got, x.Values...)
		}
		if want := []string{"0", "2", "4", "6", "8", "10"}; !slices.Equal(got, want) {
			t.Errorf("it got %v, want %v", got, want)
		}
	})
}
