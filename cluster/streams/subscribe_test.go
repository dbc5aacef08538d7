// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// What was published is replayed in order of each shard, over a restart too, with its bytes.
func TestPublishReplayTail(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", Shards: new(4)})
	c := n.Connect()
	live := subscribe(t, c, "orders", client.Overflow(client.PolicyCatchUp))
	fill(t, c, "orders", 0, 500)
	contiguous(t, take(t, live, 500))
	n.Restart()
	recs := take(t, subscribe(t, c, "orders", client.FromEarliest()), 500)
	contiguous(t, recs)
	perKey := map[string]int{}
	for _, r := range recs {
		var i int
		if _, err := fmt.Sscanf(string(r.Value), "v%d", &i); err != nil {
			t.Fatal(err)
		}
		if last, ok := perKey[string(r.Key)]; ok && i != last+17 {
			t.Fatalf("key %s: %d follows %d", r.Key, i, last)
		}
		perKey[string(r.Key)] = i
	}
	fill(t, c, "orders", 500, 600)
	contiguous(t, append(recs, take(t, subscribe(t, c, "orders", client.FromEarliest()), 600)[:0]...))
	contiguous(t, take(t, live, 100))
}

// SB-03: a replay far larger than any queue delivers everything, in order, to a slow reader, and reaches
// its end without new traffic.
func TestLongReplay(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(256 << 10))})
	c := n.Connect()
	const total = 100_000
	fill(t, c, "s", 0, total)
	for _, opts := range [][]client.SubscribeOption{
		{client.FromEarliest(), client.UntilMark()},
		{client.FromEarliest(), client.UntilMark(), client.QueueLimits(1, 1)},
		{client.FromOffset(0, 0), client.ReceiveBuffer(64 << 10)},
	} {
		contiguous(t, take(t, subscribe(t, c, "s", opts...), total))
	}
}

// A subscription until the mark delivers all that was committed at its start, and ends without an error.
func TestUntilMark(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(4)})
	c := n.Connect()
	for _, want := range []int{0, 20, 3000} {
		fill(t, c, "s", 0, want)
		got := 0
		for _, err := range subscribe(t, c, "s", client.FromEarliest(), client.UntilMark()).Records(within(t)) {
			if err != nil {
				t.Fatal(err)
			}
			got++
		}
		if want += map[int]int{3000: 20}[want]; got != want {
			t.Errorf("%d records until the mark, want %d", got, want)
		}
	}
}

// SB-04: subscribers that start anywhere while records are published each see a contiguous run from their
// start.
func TestJoinBetweenHistoryAndLive(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(64 << 10))})
	c := n.Connect()
	const before, total, subs = 2000, 6000, 60
	fill(t, c, "s", 0, before)
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx := within(t)
		p := c.Publisher("s")
		for i := before; i < total; i++ {
			if i%3 == 0 {
				if _, err := p.Publish(ctx, client.Record{Value: []byte("x")}); err != nil {
					t.Error(err)
					return
				}
				continue
			}
			p.PublishAsync(ctx, client.Record{Value: []byte("y")})
		}
		if err := p.Flush(ctx); err != nil {
			t.Error(err)
		}
	})
	for i := range subs {
		wg.Go(func() {
			offsets, err := c.Offsets(within(t), "s")
			if err != nil {
				t.Error(err)
				return
			}
			latest := offsets[0].Latest
			at := []uint64{uint64(i * 31), latest, latest - 1, latest + 1, 0}[i%5]
			s, err := c.Subscribe(within(t), "s", client.FromOffset(0, at))
			if errors.Is(err, code.OutOfRange) && at > latest {
				return // it had not been given out yet
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			next := at
			for r, err := range s.Records(within(t)) {
				if err != nil {
					t.Error(err)
					return
				}
				if r.Offset != next || r.Gap != nil {
					t.Errorf("subscriber %d from %d got offset %d, want %d, gap %+v", i, at, r.Offset, next, r.Gap)
					return
				}
				if next++; next == total {
					return
				}
			}
		})
	}
	wg.Wait()
}

// SB-06: an offset that is gone, or not there yet, is a typed error with both ends, never a jump.
func TestOffsetOutOfRange(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(4 << 10)), MaxBytes: new(int64(16 << 10))})
	c := n.Connect()
	p := c.Publisher("s")
	for range 200 { // one batch each: retention removes whole segments
		if _, err := p.Publish(within(t), client.Record{Value: make([]byte, 500)}); err != nil {
			t.Fatal(err)
		}
	}
	var earliest uint64
	eventually(t, "retention to remove something", func() bool {
		o, err := c.Offsets(within(t), "s")
		if err != nil {
			t.Fatal(err)
		}
		earliest = o[0].Earliest
		return earliest > 0
	})
	for _, at := range []uint64{0, earliest - 1, 201} {
		_, err := c.Subscribe(within(t), "s", client.FromOffset(0, at))
		wantCode(t, err, code.OutOfRange, code.ClassFatal)
		var e *client.Error
		errors.As(err, &e)
		if low, ok := e.Details.Get(code.DetailEarliest); !ok || low < earliest {
			t.Errorf("the error names earliest %d, %v; it was %d", low, ok, earliest)
		}
		if high, ok := e.Details.Get(code.DetailLatest); !ok || high != 200 {
			t.Errorf("the error names latest %d, %v", high, ok)
		}
	}
	s := subscribe(t, c, "s", client.FromOffset(0, 0), client.SkipLost())
	if r := take(t, s, 1)[0]; r.Gap == nil || r.Gap.From != 0 || r.Gap.To != r.Offset {
		t.Errorf("the first record after a skip: offset %d, gap %+v", r.Offset, r.Gap)
	}
}

// SB-08: a start by time delivers the first record at or after it and misses none; after the last it
// waits; absurd times are refused.
func TestStartByTime(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	p := c.Publisher("s")
	var times []time.Time
	for i := range 20 {
		ack, err := p.Publish(within(t), client.Record{Value: fmt.Appendf(nil, "%d", i), Timestamp: time.Unix(1_000_000-int64(i), 0)})
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, ack.AppendTime)
	}
	check := func(at time.Time, want int) {
		t.Helper()
		r := take(t, subscribe(t, c, "s", client.FromTime(at)), 1)[0]
		if r.AppendTime.Before(at) || (want > 0 && !times[want-1].Before(at)) || r.Offset != uint64(want) {
			t.Errorf("from %v: offset %d appended %v, want %d", at, r.Offset, r.AppendTime, want)
		}
	}
	for range 2 {
		check(times[0].Add(-time.Hour), 0)
		first := 7
		for first > 0 && times[first-1].Equal(times[7]) {
			first--
		}
		check(times[7], first)
		n.Restart()
	}
	s := subscribe(t, c, "s", client.FromTime(time.Now().Add(time.Millisecond)))
	eventually(t, "the start time to pass", func() bool { return time.Now().After(times[19].Add(20 * time.Millisecond)) })
	if _, err := p.Publish(within(t), client.Record{Value: []byte("late")}); err != nil {
		t.Fatal(err)
	}
	if r := take(t, s, 1)[0]; string(r.Value) != "late" {
		t.Errorf("a start after the last record delivered %q", r.Value)
	}
	for _, at := range []time.Time{time.Unix(0, 0), time.UnixMicro(time.Now().Unix()), time.Now().AddDate(10, 0, 0)} {
		_, err := c.Subscribe(within(t), "s", client.FromTime(at))
		wantCode(t, err, code.BadRequest, code.ClassFatal)
	}
}

// SB-01, SB-12: subscribers that never read cost the publisher and the others nothing, and bounded memory.
func TestSlowSubscribers(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	for _, p := range []client.Policy{client.PolicyDropNew, client.PolicyDropOld, client.PolicyCatchUp, client.PolicyDisconnect} {
		subscribe(t, c, "s", client.Overflow(p), client.QueueLimits(100, 64<<10), client.ReceiveBuffer(64<<10))
	}
	reader := n.Connect()
	fast := subscribe(t, reader, "s", client.Overflow(client.PolicyCatchUp))
	const total = 3000
	var wg sync.WaitGroup
	wg.Go(func() { contiguous(t, take(t, fast, total)) })
	ctx := within(t)
	p := n.Connect().Publisher("s")
	value := make([]byte, 16<<10)
	for range total {
		p.PublishAsync(ctx, client.Record{Value: value})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// Each overflow policy has its documented outcome, and a loss is stated in the delivery that follows it.
func TestOverflowPolicies(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	for _, c := range []struct {
		policy client.Policy
		check  func(t *testing.T, got []client.Record, err error, total int)
	}{
		{client.PolicyDropNew, lossStated},
		{client.PolicyDropOld, lossStated},
		{client.PolicyCatchUp, func(t *testing.T, got []client.Record, err error, _ int) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			contiguous(t, got)
		}},
		{client.PolicyDisconnect, func(t *testing.T, _ []client.Record, err error, _ int) {
			t.Helper()
			wantCode(t, err, code.SlowConsumer, code.ClassRefused)
		}},
	} {
		t.Run(fmt.Sprint("policy ", c.policy), func(t *testing.T) {
			cl := n.Connect()
			s := subscribe(t, cl, "s", client.Overflow(c.policy), client.QueueLimits(64, 1<<20), client.ReceiveBuffer(32<<10))
			p := n.Connect().Publisher("s")
			ctx := within(t)
			const total = 2000
			value := make([]byte, 8<<10) // far more than the transport holds ahead
			for range total {
				p.PublishAsync(ctx, client.Record{Value: value})
			}
			if err := p.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			var got []client.Record
			var failed error
			end := uint64(0)
			done := make(chan struct{})
			go func() { // records that mark the end come until one is seen
				defer close(done)
				for i := 0; ; i++ {
					if _, err := p.Publish(ctx, client.Record{Value: []byte("end")}); err != nil {
						return
					}
					if atomic.LoadUint64(&end) > 0 || i > 100_000 {
						return
					}
				}
			}()
			for r, err := range s.Records(ctx) {
				if err != nil {
					failed = err
					break
				}
				got = append(got, r)
				if string(r.Value) == "end" {
					break
				}
			}
			atomic.StoreUint64(&end, 1)
			<-done
			c.check(t, got, failed, total)
		})
	}
}

// lossStated demands that what was dropped was said: every hole is a gap, every gap a hole.
func lossStated(t *testing.T, got []client.Record, err error, _ int) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	gaps := 0
	for i, r := range got[1:] {
		want := got[i].Offset + 1
		switch {
		case r.Gap == nil && r.Offset != want:
			t.Fatalf("offset %d follows %d, and no gap is stated", r.Offset, got[i].Offset)
		case r.Gap != nil && (r.Gap.From != want || r.Gap.To != r.Offset || r.Gap.Reason != client.GapDropped):
			t.Fatalf("offset %d follows %d with gap %+v", r.Offset, got[i].Offset, *r.Gap)
		case r.Gap != nil:
			gaps++
		}
	}
	if gaps == 0 {
		t.Error("nothing was dropped: the test has not reached the policy")
	}
}

// SB-14: receives that are given up at once lose nothing and leave nothing behind.
func TestAbandonedReceives(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	s := subscribe(t, c, "s", client.Overflow(client.PolicyCatchUp))
	const total = 2000
	var wg sync.WaitGroup
	wg.Go(func() { fill(t, c, "s", 0, total) })
	var got []client.Record
	late := within(t)
	for i := 0; len(got) < total && late.Err() == nil; i++ {
		ctx, cancel := context.WithTimeout(late, time.Duration(i%3)*100*time.Microsecond)
		for r, err := range s.Records(ctx) {
			if err != nil {
				break
			}
			if got = append(got, r); len(got)%7 == 0 {
				break
			}
		}
		cancel()
	}
	wg.Wait()
	if len(got) < total {
		t.Fatalf("%d of %d records came", len(got), total)
	}
	contiguous(t, got)
	if got[0].Offset != 0 {
		t.Errorf("the first record has offset %d", got[0].Offset)
	}
}

// SB-09: retention under slow readers: contiguous runs with stated skips between them.
func TestRetentionUnderReaders(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(32 << 10)), MaxBytes: new(int64(256 << 10))})
	c := n.Connect()
	const total = 4000
	fill(t, c, "s", 0, 10)
	var wg sync.WaitGroup
	for i := range 5 {
		s := subscribe(t, n.Connect(), "s", client.FromEarliest(), client.SkipLost(), client.ReceiveBuffer(32<<10), client.QueueLimits(10, 32<<10))
		wg.Go(func() {
			next := uint64(0)
			for r, err := range s.Records(within(t)) {
				if err != nil {
					t.Error(err)
					return
				}
				if r.Gap != nil {
					if r.Gap.From != next || r.Gap.To != r.Offset {
						t.Errorf("reader %d: gap %+v before offset %d, expected from %d", i, *r.Gap, r.Offset, next)
						return
					}
				} else if r.Offset != next {
					t.Errorf("reader %d: offset %d, want %d, and no gap is stated", i, r.Offset, next)
					return
				}
				if next = r.Offset + 1; next >= total {
					return
				}
			}
		})
	}
	p := c.Publisher("s")
	ctx := within(t)
	for i := 10; i < total; i++ {
		p.PublishAsync(ctx, client.Record{Value: make([]byte, 2000)})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// A resume token goes on exactly where it was taken, on another client, over a restart.
func TestResumeToken(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(3)})
	c := n.Connect()
	fill(t, c, "s", 0, 300)
	s := subscribe(t, c, "s", client.FromEarliest())
	first := take(t, s, 120)
	token := s.Position()
	s.Close()
	n.Restart()
	rest := take(t, subscribe(t, n.Connect(), "s", client.FromPosition(token)), 180)
	contiguous(t, append(first, rest...))
	_, err := c.Subscribe(within(t), "s", client.FromPosition(token[:len(token)-3]))
	wantCode(t, err, code.BadRequest, code.ClassFatal)
}

// A memory log is empty after a restart, says so in the ack, and a position of before is told that it was
// cut.
func TestMemoryLog(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "m", Storage: new("memory")})
	c := n.Connect()
	ack, err := c.Publisher("m").Publish(within(t), client.Record{Value: []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	if ack.Flushed {
		t.Error("a record in memory is said to be flushed")
	}
	s := subscribe(t, c, "m", client.FromEarliest())
	take(t, s, 1)
	n.Restart()
	if _, err := c.Publisher("m").Publish(within(t), client.Record{Value: []byte("b")}); err != nil {
		t.Fatal(err)
	}
	r := take(t, s, 1)[0]
	if string(r.Value) != "b" || r.Offset != 0 {
		t.Errorf("after the restart: %q at %d", r.Value, r.Offset)
	}
}

// A memory log is bounded: the oldest records make room, and publishing goes on.
func TestMemoryLogIsBounded(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "m", Storage: new("memory")})
	c := n.Connect()
	p := c.Publisher("m")
	ctx := within(t)
	const total = 3000
	value := make([]byte, 40<<10) // 120 MB in all
	for range total {
		p.PublishAsync(ctx, client.Record{Value: value})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	o, err := c.Offsets(ctx, "m")
	if err != nil {
		t.Fatal(err)
	}
	if held := o[0].Latest - o[0].Earliest; o[0].Latest != total || held*40<<10 > 64<<20 {
		t.Errorf("%d records are held, %d to %d", held, o[0].Earliest, o[0].Latest)
	}
	take(t, subscribe(t, c, "m", client.FromEarliest(), client.SkipLost()), 100)
}
