// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/process"
	"margay.dev/wire/code"
)

// The node is killed again and again while one group works, fails, rejects, redrives, cancels and puts off, and another is moved
// about, reset, paused, deleted and made again under its consumers. What was answered holds, and at rest everything adds up.
func TestKilledInTheMiddleOfEverything(t *testing.T) {
	t.Parallel()
	kills, count := 3, 1500
	if !testing.Short() {
		kills, count = 15, 8000
	}
	p := process.Start(t, process.Config{})
	p.Must(nil, "queue", "create", "q", "--shards", "3", "--segment-bytes", "32KiB")
	c := p.Connect()
	q := c.Queue("q")
	tame := q.Group("tame")
	err := tame.Ensure(await.Within(t), client.GroupConfig{
		AckWait: 2 * time.Second, MaxAttempts: 3, Backoff: []time.Duration{time.Millisecond, 100 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{acked: map[client.MessageID]int{}}
	gone := &ledger{acked: map[client.MessageID]int{}} // cancelled
	ctx, cancel := context.WithCancel(await.Within(t))
	defer cancel()
	var wg sync.WaitGroup
	// The tame group's consumers.
	for range 3 {
		wg.Go(func() { tameConsumer(ctx, t, q, l, gone) })
	}
	for range 2 {
		wg.Go(func() { wildConsumer(ctx, t, q) })
	}
	wg.Go(func() { commander(ctx, t, q, gone) })
	wg.Go(func() { wildCommander(ctx, t, q) })
	per := count / (kills + 1)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range kills + 1 {
		for i := range per {
			rec := client.Record{Value: fmt.Append(nil, round*per+i), Priority: uint8(i % 3)}
			if i%5 == 0 {
				rec.Delay = time.Duration(rng.IntN(2000)) * time.Millisecond
			}
			q.PushAsync(ctx, rec)
		}
		await.True(t, "some to be acked", func() bool { return l.len() >= min(per*(round+1)/2, count/2) })
		if round < kills {
			p.Kill()
			p.Start()
		}
	}
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	published := uint64(per * (kills + 1))
	var info *client.GroupInfo
	late := time.Now().Add(90 * time.Second)
	await.True(t, "the tame group to come to rest", func() bool {
		if _, err := tame.Redrive(ctx, client.RedriveOptions{Rate: 500}); err != nil && code.From(err).Code != code.NotFound && ctx.Err() == nil {
			t.Errorf("redrive: %v", err)
		}
		info, err = tame.Info(ctx, client.Counted())
		if time.Now().After(late) {
			t.Fatalf("stuck: %+v, %v", info, err)
		}
		return err == nil && info.Ready+info.InFlight+info.Delayed+info.Dead == 0
	})
	cancel()
	wg.Wait()
	info = adds(t, tame, published)
	if info.Totals.Acked+info.Totals.Cancelled != published {
		t.Errorf("%+v", *info)
	}
	if uint64(l.len()) > info.Totals.Acked {
		t.Errorf("%d acks were answered, %d counted", l.len(), info.Totals.Acked)
	}
	t.Logf("%+v", info.Totals)
	wild := q.Group("wild")
	if err := wild.Delete(await.Within(t)); err != nil && code.From(err).Code != code.NotFound {
		t.Error(err)
	}
	p.Kill()
	p.Start()
	info2 := adds(t, tame, published)
	if info2.Totals != info.Totals {
		t.Errorf("totals %+v, before a restart %+v", info2.Totals, info.Totals)
	}
}

func tameConsumer(ctx context.Context, t *testing.T, q *client.Queue, l, gone *ledger) {
	g, err := q.Consume(ctx, "tame", client.MaxInFlight(40))
	if err != nil {
		t.Errorf("consume: %v", err)
		return
	}
	defer g.Close()
	n := 0
	for m, err := range g.Messages(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("the consumer ended: %v", err)
			}
			return
		}
		if l.has(m.ID()) {
			t.Errorf("%v was acked, and came again", m.ID())
		}
		if gone.has(m.ID()) {
			t.Errorf("%v was cancelled, and came", m.ID())
		}
		switch n++; {
		case n%23 == 0:
			m.RejectAsync("no")
		case n%7 == 0:
			m.NackAsync(0, "not yet")
		case n%31 == 0: // forgotten
		default:
			s := m.AckAsync()
			if n%3 == 0 {
				if s.Wait(ctx) == nil {
					l.ack(m.ID())
				}
				continue
			}
			go func() {
				if s.Wait(ctx) == nil {
					l.ack(m.ID())
				}
			}()
		}
	}
}

func wildConsumer(ctx context.Context, t *testing.T, q *client.Queue) {
	for ctx.Err() == nil {
		g, err := q.Consume(ctx, "wild", client.MaxInFlight(20))
		if err != nil {
			if e := code.From(err); ctx.Err() == nil && e.Class == code.ClassFatal && e.Code != code.NotFound && e.Code != code.Deleted && e.Code != code.Conflict {
				t.Errorf("consume: %v", err)
			}
			continue
		}
		for m, err := range g.Messages(ctx) {
			if err != nil {
				if e := code.From(err); ctx.Err() == nil && e.Code != code.NotFound && e.Code != code.Deleted && e.Code != code.Conflict {
					t.Errorf("the wild consumer ended: %v", err)
				}
				break
			}
			m.AckAsync()
		}
		g.Close()
	}
}

// commander does to the tame group what loses nothing.
func commander(ctx context.Context, t *testing.T, q *client.Queue, gone *ledger) {
	g := q.Group("tame")
	rng := rand.New(rand.NewPCG(3, 4))
	for ctx.Err() == nil {
		var err error
		id := client.MessageID{Shard: uint32(rng.IntN(3)), Offset: rng.Uint64N(2000)}
		switch rng.IntN(5) {
		case 0:
			_, err = g.Redrive(ctx, client.RedriveOptions{Rate: 200})
		case 1:
			if _, err = g.Cancel(ctx, id); err == nil {
				gone.ack(id)
			}
		case 2:
			_, err = g.Reschedule(ctx, time.Now().Add(time.Duration(rng.IntN(1000))*time.Millisecond), id)
		case 3:
			_ = g.Pause(ctx) // one that failed may have been done
			for again := true; again; again = err != nil && ctx.Err() == nil {
				err = g.Resume(ctx)
			}
		default:
			_, err = g.Info(ctx)
		}
		if e := code.From(err); err != nil && ctx.Err() == nil && e.Code != code.NotFound && e.Code != code.Conflict && e.Class == code.ClassFatal {
			t.Errorf("command: %v", err)
		}
	}
}

// wildCommander moves a group about.
func wildCommander(ctx context.Context, t *testing.T, q *client.Queue) {
	g := q.Group("wild")
	rng := rand.New(rand.NewPCG(5, 6))
	for ctx.Err() == nil {
		var err error
		switch rng.IntN(6) {
		case 0:
			err = g.Seek(ctx, client.PlaceEarliest())
		case 1:
			err = g.Seek(ctx, client.PlaceLatest())
		case 2:
			err = g.Seek(ctx, client.PlaceTime(time.Now().Add(-time.Second)))
		case 3:
			err = g.Reset(ctx)
		case 4:
			err = g.Delete(ctx)
		default:
			err = g.Ensure(ctx, client.GroupConfig{})
		}
		if e := code.From(err); err != nil && ctx.Err() == nil && e.Code != code.NotFound && e.Code != code.Conflict && e.Code != code.OutOfRange && e.Class == code.ClassFatal {
			t.Errorf("wild command: %v", err)
		}
	}
}
