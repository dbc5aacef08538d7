// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

func subscribe(t testing.TB, c *client.Client, opts ...client.SubscribeOption) *client.Subscription {
	t.Helper()
	s, err := c.Subscribe(within(t), "orders", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func feed(t testing.TB, b *fakebroker.Broker, l *fakebroker.Log, from, to, perBatch int) {
	t.Helper()
	for i := from; i < to; {
		var vs []string
		for ; i < to && len(vs) < perBatch; i++ {
			vs = append(vs, value(i))
		}
		b.Feed(l, 0, vs...)
	}
}

// wantRun checks that records are from..to, in order and without hole.
func wantRun(t testing.TB, recs []client.Record, from, to int) {
	t.Helper()
	if len(recs) != to-from {
		t.Fatalf("%d records, want %d", len(recs), to-from)
	}
	for i, rec := range recs {
		if string(rec.Value) != value(from+i) || rec.Offset != uint64(from+i) {
			t.Fatalf("record %d is %s at %d, want %s at %d", i, rec.Value, rec.Offset, value(from+i), from+i)
		}
		if rec.Gap != nil {
			t.Fatalf("record %d has a gap: %+v", i, *rec.Gap)
		}
	}
}

func TestStarts(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 20, 3)
	c := connect(t, b)
	wantRun(t, all(t, subscribe(t, c, client.FromEarliest(), client.UntilMark())), 0, 20)
	// An offset inside a batch: the client passes over what lies before it.
	wantRun(t, all(t, subscribe(t, c, client.FromOffset(0, 7), client.UntilMark())), 7, 20)
	wantRun(t, all(t, subscribe(t, c, client.FromTime(time.UnixMicro(0)), client.UntilMark())), 0, 20)
	if recs := all(t, subscribe(t, c, client.UntilMark())); len(recs) != 0 {
		t.Fatalf("from latest until the mark: %d records", len(recs))
	}
	live := subscribe(t, c)
	feed(t, b, l, 20, 25, 2)
	wantRun(t, take(t, live, 5), 20, 25)
	if lag := live.Lag(); lag != 0 {
		t.Errorf("lag is %d", lag)
	}
}

func TestUntilMarkEndsWhereItBegan(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 10, 10)
	s := subscribe(t, connect(t, b), client.FromEarliest(), client.UntilMark())
	first := take(t, s, 4)
	feed(t, b, l, 10, 30, 10)
	b.KillConnections() // the end is that of the beginning, also after a resume
	wantRun(t, append(first, all(t, s)...), 0, 10)
}

// WR-09, ID-11, ID-12: without gap or repeat across restarts and lost connections, and it says so.
func TestResumeWithoutGapOrRepeat(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	var mu sync.Mutex
	var states []client.Status
	s := subscribe(t, connect(t, b), client.FromEarliest(), client.OnStatus(func(st client.Status) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, st)
	}))
	var got []client.Record
	for round := range 6 {
		feed(t, b, l, round*100, round*100+100, 7)
		got = append(got, take(t, s, 50)...)
		if round%2 == 0 {
			b.Stop()
			b.Start()
		} else {
			b.KillConnections()
		}
		got = append(got, take(t, s, 50)...)
	}
	wantRun(t, got, 0, 600)
	mu.Lock()
	defer mu.Unlock()
	lost, back := 0, 0
	for _, st := range states {
		switch {
		case st.Connected:
			back++
		case st.Attempt == 0 && st.Err != nil:
			lost++
		}
	}
	if lost == 0 || back == 0 {
		t.Errorf("statuses: %d times lost, %d times back", lost, back)
	}
}

// SB-14: reads that are cancelled lose nothing.
func TestCancelledReadsLoseNothing(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	s := subscribe(t, connect(t, b), client.FromEarliest())
	var feeding sync.WaitGroup
	feeding.Go(func() { feed(t, b, l, 0, 2000, 5) })
	var got []client.Record
	for n := 0; len(got) < 2000; n++ {
		ctx, cancel := context.WithCancel(within(t))
		if n%3 == 0 {
			cancel()
		}
		for rec, err := range s.Records(ctx) {
			if err != nil {
				wantError(t, err, client.ErrCancelled, client.Refused)
				break
			}
			if got = append(got, rec); len(got)%3 == 0 || len(got) == 2000 {
				cancel() // the next element is the error, and the record behind it is not lost
			}
		}
		cancel()
	}
	feeding.Wait()
	wantRun(t, got, 0, 2000)
}

func TestPositionResumesElsewhere(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 3)
	for shard := range 3 {
		b.Feed(l, shard, value(shard), value(shard+10), value(shard+20))
	}
	c := connect(t, b)
	s := subscribe(t, c, client.FromEarliest())
	seen := map[string]int{}
	for _, rec := range take(t, s, 4) {
		seen[string(rec.Value)]++
	}
	token := s.Position()
	s.Close()
	c2 := connect(t, b)
	for _, rec := range all(t, subscribe(t, c2, client.FromPosition(token), client.UntilMark())) {
		seen[string(rec.Value)]++
	}
	if len(seen) != 9 {
		t.Errorf("%d different records of 9", len(seen))
	}
	for v, n := range seen {
		if n != 1 {
			t.Errorf("%s was read %d times", v, n)
		}
	}
	b.AddLog(stream, 3)
	_, err := c2.Subscribe(within(t), "orders", client.FromPosition(token))
	wantError(t, err, client.ErrBadRequest, client.Fatal)
}

// A reader that stops holds no more than its buffer; the rest waits at the broker, and comes.
func TestBackpressure(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	big := make([]byte, 10_000)
	const records = 3000 // 30 MB: more than the buffer and the transport's windows
	for range records / 10 {
		var vs []string
		for range 10 {
			vs = append(vs, string(big))
		}
		b.Feed(l, 0, vs...)
	}
	s := subscribe(t, connect(t, b), client.FromEarliest(), client.ReceiveBuffer(256<<10))
	first := take(t, s, 1)
	if first[0].Offset != 0 {
		t.Fatal("the first record is not the first")
	}
	rest := take(t, s, records-1)
	for i, rec := range rest {
		if rec.Offset != uint64(i+1) {
			t.Fatalf("record %d has offset %d", i+1, rec.Offset)
		}
	}
}

// SB-06: a place that is gone is an error with the offsets there are, or a gap when asked for; never a jump.
func TestOutOfRange(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 30, 5)
	b.Change(func() { l.Shards[0].Earliest = 10 })
	c := connect(t, b)
	_, err := c.Subscribe(within(t), "orders", client.FromOffset(0, 3))
	wantError(t, err, client.ErrOutOfRange, client.Fatal)
	if e := client.AsError(err); e.Details.Earliest != 10 || e.Details.Latest != 30 {
		t.Errorf("details %+v", e.Details)
	}
	_, err = c.Subscribe(within(t), "orders", client.FromOffset(0, 99), client.SkipLost())
	wantError(t, err, client.ErrOutOfRange, client.Fatal)

	recs := all(t, subscribe(t, c, client.FromOffset(0, 3), client.SkipLost(), client.UntilMark()))
	if len(recs) != 20 || recs[0].Gap == nil || *recs[0].Gap != (client.Gap{From: 3, To: 10, Reason: client.GapRetention}) {
		t.Fatalf("%d records, the first with gap %+v", len(recs), recs[0].Gap)
	}
	recs[0].Gap = nil
	wantRun(t, recs, 10, 30)
}

func TestRetentionPassesAReaderThatWasAway(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 10, 5)
	s := subscribe(t, connect(t, b), client.FromEarliest())
	wantRun(t, take(t, s, 10), 0, 10)
	b.Stop()
	feed(t, b, l, 10, 30, 5)
	b.Change(func() { l.Shards[0].Earliest = 20 })
	b.Start()
	for rec, err := range s.Records(within(t)) {
		if err == nil {
			t.Fatalf("read %s at %d", rec.Value, rec.Offset)
		}
		wantError(t, err, client.ErrOutOfRange, client.Fatal)
	}
	// The end stays the end.
	for _, err := range s.Records(within(t)) {
		wantError(t, err, client.ErrOutOfRange, client.Fatal)
	}
}

// A log that was cut by a failover: the loss is stated and the subscription goes on.
func TestCutIsAGap(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 10, 2)
	s := subscribe(t, connect(t, b), client.FromEarliest())
	wantRun(t, take(t, s, 10), 0, 10)
	b.Stop()
	b.Change(func() { l.Shards[0].Cut(6) })
	b.Feed(l, 0, "new")
	b.Start()
	rec := take(t, s, 1)[0]
	if string(rec.Value) != "new" || rec.Offset != 6 || rec.Generation != 2 {
		t.Fatalf("read %s at %d of generation %d", rec.Value, rec.Offset, rec.Generation)
	}
	if rec.Gap == nil || *rec.Gap != (client.Gap{From: 6, To: 10, Reason: client.GapCut}) {
		t.Fatalf("gap %+v", rec.Gap)
	}
}

func TestDeliveryThatIsDamagedIsFetchedAgain(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 10, 2)
	var mu sync.Mutex
	spoil := 3
	b.Script(func(s *fakebroker.Script) {
		s.Corrupt = func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			if spoil--; spoil == 0 {
				p[len(p)-1] ^= 1
			}
		}
	})
	c := connect(t, b)
	wantRun(t, all(t, subscribe(t, c, client.FromEarliest(), client.UntilMark())), 0, 10)

	b.Script(func(s *fakebroker.Script) { s.Corrupt = func(p []byte) { p[len(p)-1] ^= 1 } })
	s := subscribe(t, c, client.FromEarliest())
	for _, err := range s.Records(within(t)) {
		wantError(t, err, client.ErrCorruptBatch, client.Fatal)
	}
}

func TestRefusedSubscriptionsAreTriedAgain(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 10, 2)
	n := 0
	b.Script(func(s *fakebroker.Script) {
		s.Subscribe = func(*wire.Subscribe) error {
			if n++; n < 4 {
				return code.New(code.Opening, "not yet")
			}
			return nil
		}
	})
	c := connect(t, b)
	wantRun(t, all(t, subscribe(t, c, client.FromEarliest(), client.UntilMark())), 0, 10)
	b.Script(func(s *fakebroker.Script) {
		s.Subscribe = func(*wire.Subscribe) error { return code.New(code.PermissionDenied, "no") }
	})
	_, err := c.Subscribe(within(t), "orders")
	wantError(t, err, client.ErrPermissionDenied, client.Fatal)
	_, err = c.Subscribe(within(t), "nothing")
	wantError(t, err, client.ErrNotFound, client.Fatal)
}

// A shard that hangs must not keep a subscription from trying again, nor from saying so.
func TestSubscriptionThatIsNotAnsweredTriesAgain(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	feed(t, b, l, 0, 1, 1)
	failed := make(chan error, 1)
	s := subscribe(t, connect(t, b, client.SubscribeTimeout(200*time.Millisecond)), client.FromEarliest(),
		client.OnStatus(func(st client.Status) {
			// Over TLS a lane may be missed before its connection is: then a first try still goes there, in vain.
			if st.Attempt > 0 && !errors.Is(st.Err, client.ErrUnavailable) {
				select {
				case failed <- st.Err:
				default:
				}
			}
		}))
	wantRun(t, take(t, s, 1), 0, 1)
	hang := make(chan struct{})
	defer close(hang)
	b.Script(func(s *fakebroker.Script) {
		s.Subscribe = func(*wire.Subscribe) error { <-hang; return code.New(code.Unavailable, "too late") }
	})
	b.KillConnections()
	select {
	case err := <-failed:
		wantError(t, err, client.ErrTimeout, client.Refused)
	case <-within(t).Done():
		t.Fatal("the subscription waits without an end")
	}
	b.Script(func(s *fakebroker.Script) { s.Subscribe = nil })
	feed(t, b, l, 1, 2, 1)
	wantRun(t, take(t, s, 1), 1, 2)
}

func TestLiveSubscriptionStaysLiveWhenItResumes(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	s := subscribe(t, connect(t, b))
	feed(t, b, l, 0, 1, 1)
	wantRun(t, take(t, s, 1), 0, 1)
	b.KillConnections()
	feed(t, b, l, 1, 2, 1)
	wantRun(t, take(t, s, 1), 1, 2)
	asked := b.Subscribes()
	last := asked[len(asked)-1]
	if last.Policy != wire.PolicyDropNew || last.Shards[0].Kind != wire.StartOffset || last.Shards[0].At != 1 || last.Shards[0].Generation != 1 {
		t.Errorf("resumed with %+v", last)
	}
}

func TestEndOfASubscriptionIsSaid(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	c := connect(t, b)
	s := subscribe(t, c)
	done := make(chan error, 1)
	go func() {
		for _, err := range s.Records(within(t)) {
			done <- err
			return
		}
		done <- fmt.Errorf("it ended silently")
	}()
	c.Close()
	wantError(t, <-done, client.ErrClosed, client.Fatal)
	_, err := c.Subscribe(within(t), "orders")
	wantError(t, err, client.ErrClosed, client.Fatal)
	_ = l
}

func TestSubscribeOptionsAreChecked(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 2)
	c := connect(t, b)
	for name, opts := range map[string][]client.SubscribeOption{
		"two starts":       {client.FromEarliest(), client.FromLatest()},
		"bad token":        {client.FromPosition("mp1_xxxx")},
		"no such shard":    {client.Shards(2)},
		"a shard twice":    {client.Shards(1, 1)},
		"shard not placed": {client.FromOffset(0, 1), client.Shards(1)},
		"before 1970":      {client.FromTime(time.Unix(-1, 0))},
		"policy":           {client.Overflow(99)},
		"buffer":           {client.ReceiveBuffer(0)},
	} {
		if _, err := c.Subscribe(within(t), "orders", opts...); client.AsError(err) == nil || client.AsError(err).Code != code.BadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}
