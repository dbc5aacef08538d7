// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// holdAll makes the broker withhold every answer until release.
func holdAll(b *fakebroker.Broker) (release func()) {
	hold := make(chan struct{})
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict { return fakebroker.Verdict{Hold: hold} }
	})
	return sync.OnceFunc(func() { close(hold) })
}

func publishAsync(t testing.TB, p *client.Publisher, from, to int) []client.Future {
	t.Helper()
	var fs []client.Future
	for i := from; i < to; i++ {
		fs = append(fs, p.PublishAsync(within(t), client.Record{Value: []byte(value(i))}))
	}
	return fs
}

func waitAll(t testing.TB, fs []client.Future) []client.Ack {
	t.Helper()
	var acks []client.Ack
	for i, f := range fs {
		ack, err := f.Wait(within(t))
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		acks = append(acks, ack)
	}
	return acks
}

func wantValues(t testing.TB, got []string, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%d records are stored, want %d", len(got), n)
	}
	for i, v := range got {
		if v != value(i) {
			t.Fatalf("record %d is %s, want %s", i, v, value(i))
		}
	}
}

// GC-06, and the rule of batching: a batch goes at once while fewer than four are unanswered; otherwise it grows.
func TestBatchesGrowOnlyWhileFourAreUnanswered(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	release := holdAll(b)
	defer release()
	p := connect(t, b).Publisher("orders")
	var fs []client.Future
	for i := range 4 {
		fs = append(fs, publishAsync(t, p, i, i+1)...)
		eventually(t, "a batch to arrive without company", func() bool { return len(b.Publishes()) == i+1 })
	}
	fs = append(fs, publishAsync(t, p, 4, 500)...)
	if n := len(b.Publishes()); n != 4 {
		t.Fatalf("%d batches are on the lane, want 4", n)
	}
	release()
	for i, ack := range waitAll(t, fs) {
		if ack.Offset != uint64(i) {
			t.Fatalf("record %d got offset %d", i, ack.Offset)
		}
	}
	got := b.Publishes()
	if len(got) != 5 || got[4].Count != 496 {
		t.Fatalf("batches %v, want one of 496 records behind the first four", counts(got))
	}
	wantValues(t, b.Values(l, 0), 500)
}

func counts(ps []fakebroker.Publish) []int {
	var out []int
	for _, p := range ps {
		out = append(out, p.Count)
	}
	return out
}

func TestBatchEndsAtItsBounds(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	release := holdAll(b)
	defer release()
	p := connect(t, b).Publisher("orders")
	fs := publishAsync(t, p, 0, 1)
	eventually(t, "the first batch", func() bool { return len(b.Publishes()) == 1 })
	fs = append(fs, publishAsync(t, p, 0, 25_000)...)
	big := make([]byte, 300<<10)
	for range 8 {
		fs = append(fs, p.PublishAsync(within(t), client.Record{Value: big}))
	}
	fs = append(fs, p.PublishAsync(within(t), client.Record{Value: make([]byte, 3<<20)}))
	release()
	waitAll(t, fs)
	for _, got := range b.Publishes() {
		if got.Count > 10_000 || got.Count > 1 && got.Size > 1<<20 {
			t.Errorf("a batch of %d records and %d bytes", got.Count, got.Size)
		}
	}
}

func TestSequencesFollowEachOther(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	p := connect(t, b, client.WithAck(client.AckLeader)).Publisher("orders")
	for i := range 5 {
		if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range b.Publishes() {
		if got.Sequence != uint64(i+1) || got.Before != uint64(i) || got.Producer == 0 || got.Ack != wire.AckLeader {
			t.Errorf("publish %d: %+v", i, got)
		}
		if got.TimeoutMs == 0 || got.TimeoutMs > 120_000 {
			t.Errorf("publish %d: the broker may take %d ms", i, got.TimeoutMs)
		}
	}
}

// S7: whatever happens to answers, connections and the broker, each record is stored once and in order.
func TestRetriesAreStoredOnce(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	n := 0
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict {
			n++
			switch n % 7 {
			case 1:
				return fakebroker.Verdict{Err: code.New(code.Overloaded, "busy").Retry(time.Millisecond)}
			case 2:
				return fakebroker.Verdict{Err: code.New(code.OutcomeUnknown, "lost"), Apply: true}
			case 4:
				return fakebroker.Verdict{Kill: true}
			case 5:
				return fakebroker.Verdict{Kill: true, Err: code.New(code.Internal, "not stored")}
			}
			return fakebroker.Verdict{}
		}
	})
	p := connect(t, b).Publisher("orders")
	const records = 400
	var fs []client.Future
	for i := range records {
		fs = append(fs, publishAsync(t, p, i, i+1)...)
		if i%20 == 0 {
			waitAll(t, fs[len(fs)-1:])
		}
	}
	for i, ack := range waitAll(t, fs) {
		if ack.Offset != uint64(i) {
			t.Fatalf("record %d got offset %d", i, ack.Offset)
		}
	}
	wantValues(t, b.Values(l, 0), records)
}

// WR-09, ID-02 in small: a broker that restarts on its port is found again, and nothing is lost or repeated.
func TestPublisherSurvivesRestarts(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 2)
	c := connect(t, b)
	p := c.Publisher("orders")
	const records = 300
	var fs []client.Future
	for i := range records {
		rec := client.Record{Key: []byte("same"), Value: []byte(value(i))}
		fs = append(fs, p.PublishAsync(within(t), rec))
		if i%100 == 50 {
			waitAll(t, fs[len(fs)-1:])
			b.Stop()
			b.Start()
		}
	}
	acks := waitAll(t, fs)
	wantValues(t, b.Values(l, int(acks[0].Shard)), records)
}

// ID-01: a publish that its caller gave up does not swallow the next, and is stored at most once.
func TestCancelledPublishSwallowsNothing(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	p := connect(t, b).Publisher("orders")
	for round := range 30 {
		release := holdAll(b)
		ctx, cancel := context.WithCancel(within(t))
		done := make(chan error, 1)
		go func() {
			_, err := p.Publish(ctx, client.Record{Value: []byte(value(2 * round))})
			done <- err
		}()
		eventually(t, "the publish to arrive", func() bool { return len(b.Publishes()) == 2*round+1 })
		cancel()
		wantError(t, <-done, client.ErrCancelled, client.Unknown)
		f := publishAsync(t, p, 2*round+1, 2*round+2)
		eventually(t, "the next publish to arrive", func() bool { return len(b.Publishes()) == 2*round+2 })
		release()
		if ack := waitAll(t, f)[0]; ack.Offset != uint64(2*round+1) {
			t.Fatalf("round %d: offset %d", round, ack.Offset)
		}
	}
	wantValues(t, b.Values(l, 0), 60)
}

// GC-07: waiters that give up leave the others and what follows alone.
func TestSomeWaitersGiveUp(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	p := connect(t, b).Publisher("orders")
	release := holdAll(b)
	defer release()
	impatient, cancel := context.WithCancel(within(t))
	results := make([]error, 100)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			ctx := within(t)
			if i%2 == 0 {
				ctx = impatient
			}
			_, results[i] = p.Publish(ctx, client.Record{Value: fmt.Appendf(nil, "%d", i)})
		})
	}
	eventually(t, "publishes to be under way", func() bool { return len(b.Publishes()) >= 1 })
	cancel()
	release()
	wg.Wait()
	stored := b.Values(l, 0)
	for i, err := range results {
		n := 0
		for _, v := range stored {
			if v == fmt.Sprint(i) {
				n++
			}
		}
		switch {
		case err == nil && n != 1, n > 1:
			t.Errorf("record %d: error %v, stored %d times", i, err, n)
		case err != nil && client.AsError(err).Class != client.Unknown && n != 0:
			t.Errorf("record %d: error %v of class %v, and it is stored", i, err, client.AsError(err).Class)
		}
		if i%2 == 1 && err != nil {
			t.Errorf("record %d, whose caller waited: %v", i, err)
		}
	}
	if _, err := p.Publish(within(t), client.Record{Value: []byte("after")}); err != nil {
		t.Fatal(err)
	}
}

// A record that runs out of time is left out by its successor.
func TestGivenUpBatchIsLeftOut(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	p := connect(t, b, client.WithDeliveryTimeout(100*time.Millisecond)).Publisher("orders")
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict {
			return fakebroker.Verdict{Err: code.New(code.StorageFull, "full")}
		}
	})
	_, err := p.Publish(within(t), client.Record{Value: []byte("lost")})
	// Its time may run out while an answer is under way, or, on a slow machine, before anything was sent.
	if e := client.AsError(err); e == nil || e.Code == code.StorageFull && e.Class != client.Refused ||
		e.Code == code.Timeout && e.Class == client.Fatal {
		t.Fatalf("error is %v", err)
	}
	b.Script(func(s *fakebroker.Script) { s.Publish = nil })
	for i := range 3 {
		if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
	}
	wantValues(t, b.Values(l, 0), 3)
	got := b.Publishes()
	if last := got[len(got)-1]; last.Before != last.Sequence-1 || last.Sequence < 3 {
		t.Errorf("the last publish is %+v", last)
	}
}

// A broker that answers nothing for a while, over a connection that lives: what was sent may be stored, and when the
// broker works again so does the publisher.
func TestUnansweredLaneIsGivenUp(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	release := holdAll(b)
	defer release()
	p := connect(t, b, client.WithDeliveryTimeout(300*time.Millisecond)).Publisher("orders")
	var fs []client.Future
	for i := range 4 {
		fs = append(fs, publishAsync(t, p, i, i+1)...)
		eventually(t, "a batch to arrive", func() bool { return len(b.Publishes()) > i })
	}
	b.Script(func(s *fakebroker.Script) { s.Publish = nil })
	for _, f := range fs {
		_, err := f.Wait(within(t))
		wantError(t, err, client.ErrTimeout, client.Unknown)
	}
	eventually(t, "the publisher to be of use again", func() bool {
		_, err := p.Publish(within(t), client.Record{Value: []byte("after")})
		return err == nil
	})
	if n := b.Connections(); n != 2 {
		t.Errorf("%d connections were made, want 2: the lane is given up, not what others use", n)
	}
	got := b.Values(l, 0)
	wantValues(t, got[:4], 4)
	if got[len(got)-1] != "after" {
		t.Errorf("what was acknowledged is not the last that is stored: %v", got)
	}
}

func TestUnreachableBrokerEndsAsRefused(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	p := connect(t, b, client.WithDeliveryTimeout(300*time.Millisecond)).Publisher("orders")
	if _, err := p.Publish(within(t), client.Record{Value: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	_, err := p.Publish(within(t), client.Record{Value: []byte("b")})
	if e := client.AsError(err); e == nil || e.Class == client.Fatal {
		t.Fatalf("error is %v", err)
	}
}

// ID-04: a producer that the shard has forgotten carries on by itself.
func TestForgottenProducerCarriesOn(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	p := connect(t, b).Publisher("orders")
	for i := range 10 {
		if i == 5 {
			b.Change(l.Shards[0].Forget)
		}
		if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
	}
	wantValues(t, b.Values(l, 0), 10)
}

func TestFatalAnswerFailsOneBatchOnly(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(p fakebroker.Publish) fakebroker.Verdict {
			if slices.Contains(p.Values, "bad") {
				return fakebroker.Verdict{Err: code.New(code.PermissionDenied, "no")}
			}
			return fakebroker.Verdict{}
		}
	})
	p := connect(t, b).Publisher("orders")
	var fs []client.Future
	for i := range 20 {
		fs = append(fs, publishAsync(t, p, i, i+1)...)
		if i == 10 {
			waitAll(t, fs) // so that the bad one travels alone
			_, err := p.Publish(within(t), client.Record{Value: []byte("bad")})
			wantError(t, err, client.ErrPermissionDenied, client.Fatal)
		}
	}
	waitAll(t, fs)
	wantValues(t, b.Values(l, 0), 20)
}

func TestWithoutIdempotenceNothingIsRepeated(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	p := connect(t, b).Publisher("orders", client.WithoutIdempotence())
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict { return fakebroker.Verdict{Kill: true} }
	})
	_, err := p.Publish(within(t), client.Record{Value: []byte(value(0))})
	wantError(t, err, client.ErrOutcomeUnknown, client.Unknown)
	b.Script(func(s *fakebroker.Script) { s.Publish = nil })
	if _, err := p.Publish(within(t), client.Record{Value: []byte(value(1))}); err != nil {
		t.Fatal(err)
	}
	wantValues(t, b.Values(l, 0), 2)
}

// A broker that answers what it was not asked loses the lane, not the client's records.
func TestAnswersToNothing(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	n := 0
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict { n++; return fakebroker.Verdict{Twice: n%3 == 0} }
	})
	p := connect(t, b).Publisher("orders")
	for i := range 12 {
		if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
	}
	wantValues(t, b.Values(l, 0), 12)
}

func TestDeletedLogIsLookedUpAgain(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	p := connect(t, b).Publisher("orders")
	if _, err := p.Publish(within(t), client.Record{Value: []byte("old")}); err != nil {
		t.Fatal(err)
	}
	l := b.AddLog(stream, 2)
	_, err := p.Publish(within(t), client.Record{Value: []byte("to the old one")})
	wantError(t, err, client.ErrDeleted, client.Fatal)
	ack, err := p.Publish(within(t), client.Record{Value: []byte(value(0))})
	if err != nil {
		t.Fatal(err)
	}
	wantValues(t, b.Values(l, int(ack.Shard)), 1)
}
