// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire/code"
)

func TestFullBufferWaitsForRoom(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	release := holdAll(b)
	defer release()
	p := connect(t, b, client.WithBufferBytes(10_000)).Publisher("orders")
	rec := client.Record{Value: make([]byte, 1000)}
	var fs []client.Future
	for range 9 { // 9 * 1064 bytes
		fs = append(fs, p.PublishAsync(within(t), rec))
	}
	ctx, cancel := context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	_, err := p.Publish(ctx, rec)
	wantError(t, err, client.ErrTimeout, client.Refused)
	waiting := make(chan error, 1)
	go func() {
		_, err := p.Publish(within(t), rec)
		waiting <- err
	}()
	release()
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	waitAll(t, fs)
	if n := len(b.Values(l, 0)); n != 10 {
		t.Errorf("%d records are stored, want 10", n)
	}
}

func TestFullBufferFailsWhenAsked(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	release := holdAll(b)
	defer release()
	c := connect(t, b, client.WithBufferBytes(5_000), client.FailWhenFull())
	p := c.Publisher("orders")
	rec := client.Record{Value: make([]byte, 1000)}
	var fs []client.Future
	for range 4 {
		fs = append(fs, p.PublishAsync(within(t), rec))
	}
	_, err := p.Publish(within(t), rec)
	wantError(t, err, client.ErrBufferFull, client.Refused)
	release()
	waitAll(t, fs)
	if _, err := p.Publish(within(t), rec); err != nil {
		t.Errorf("with room again: %v", err)
	}
	_, err = p.Publish(within(t), client.Record{Value: make([]byte, 6000)})
	wantError(t, err, client.ErrTooLarge, client.Fatal)
}

func TestPublishBatch(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 4)
	p := connect(t, b).Publisher("orders")
	var recs []client.Record
	for i := range 100 {
		recs = append(recs, client.Record{Key: []byte{byte(i % 10)}, Value: []byte(value(i))})
	}
	recs = append(recs, client.Record{Value: []byte("keyless 1")}, client.Record{Value: []byte("keyless 2")})
	acks, err := p.PublishBatch(within(t), recs...)
	if err != nil {
		t.Fatal(err)
	}
	placed := 0
	for _, ack := range acks {
		stored := b.Values(l, int(ack.Shard))
		if len(stored) != len(ack.Records) {
			t.Fatalf("shard %d holds %d records, %d were acknowledged", ack.Shard, len(stored), len(ack.Records))
		}
		for i, k := range ack.Records {
			if stored[i] != string(recs[k].Value) {
				t.Errorf("shard %d offset %d is %s, want %s", ack.Shard, i, stored[i], recs[k].Value)
			}
		}
		placed += len(ack.Records)
	}
	if placed != len(recs) {
		t.Errorf("%d records are answered, want %d", placed, len(recs))
	}
	for _, got := range b.Publishes() {
		if got.Sequence != 1 {
			t.Errorf("shard %d took more than one batch", got.Shard)
		}
	}
}

func TestPublishBatchFailsByShard(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 2)
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(p fakebroker.Publish) fakebroker.Verdict {
			if p.Shard == 1 {
				return fakebroker.Verdict{Err: code.New(code.PermissionDenied, "no")}
			}
			return fakebroker.Verdict{}
		}
	})
	p := connect(t, b).Publisher("orders")
	var recs []client.Record
	for i := range 20 {
		recs = append(recs, client.Record{Key: []byte{byte(i)}, Value: []byte(value(i))})
	}
	acks, err := p.PublishBatch(within(t), recs...)
	wantError(t, err, client.ErrPermissionDenied, client.Fatal)
	if len(acks) != 2 {
		t.Fatalf("%d shards answered", len(acks))
	}
	for _, ack := range acks {
		if (ack.Err != nil) != (ack.Shard == 1) {
			t.Errorf("shard %d: %v", ack.Shard, ack.Err)
		}
	}
	if len(b.Values(l, 1)) != 0 || len(b.Values(l, 0)) == 0 {
		t.Error("stored where it was refused, or not stored where it was not")
	}
}

func TestRecordsAreCheckedBeforeTheyAreSent(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	p := connect(t, b).Publisher("orders")
	headers := make([]client.Header, 65)
	for i := range headers {
		headers[i].Key = "k"
	}
	for name, tc := range map[string]struct {
		rec  client.Record
		want code.Code
	}{
		"negative delay":   {client.Record{Delay: -1}, code.BadRequest},
		"negative TTL":     {client.Record{TTL: -1}, code.BadRequest},
		"TTL within delay": {client.Record{TTL: time.Second, Delay: time.Second}, code.BadRequest},
		"large key":        {client.Record{Key: make([]byte, 4097)}, code.TooLarge},
		"many headers":     {client.Record{Headers: headers}, code.TooLarge},
		"large headers":    {client.Record{Headers: []client.Header{{Key: "k", Value: make([]byte, 16<<10)}}}, code.TooLarge},
		"large value":      {client.Record{Value: make([]byte, 8<<20+1)}, code.TooLarge},
		"just too large":   {client.Record{Value: make([]byte, 8<<20)}, code.TooLarge},
	} {
		_, err := p.Publish(within(t), tc.rec)
		wantError(t, err, tc.want, client.Fatal)
		if _, err := p.PublishBatch(within(t), tc.rec); !errors.Is(err, tc.want) {
			t.Errorf("%s in a batch: %v", name, err)
		}
	}
	_, err := p.PublishBatch(within(t))
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	_, err = p.PublishBatch(within(t), slices.Repeat([]client.Record{{}}, 10_001)...)
	wantError(t, err, client.ErrTooLarge, client.Fatal)
	if n := len(b.Publishes()); n != 0 {
		t.Errorf("%d publishes were sent", n)
	}
	if _, err := p.Publish(within(t), client.Record{Delay: time.Second, TTL: 2 * time.Second}); err != nil {
		t.Error(err)
	}
}

func TestFlushAndClose(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 3)
	c := connect(t, b)
	p := c.Publisher("orders")
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	publishAsync(t, p, 0, 1000)
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	stored := func() int { return len(b.Values(l, 0)) + len(b.Values(l, 1)) + len(b.Values(l, 2)) }
	if n := stored(); n != 1000 {
		t.Fatalf("%d records are stored after Flush, want 1000", n)
	}
	publishAsync(t, p, 0, 100)
	if err := p.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if n := stored(); n != 1100 {
		t.Fatalf("%d records are stored after Close, want 1100", n)
	}
	_, err := p.Publish(within(t), client.Record{})
	wantError(t, err, client.ErrClosed, client.Fatal)
	_, err = p.PublishBatch(within(t), client.Record{})
	wantError(t, err, client.ErrClosed, client.Fatal)
}

func TestDrainSendsWhatWasAccepted(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	c := connect(t, b)
	publishAsync(t, c.Publisher("orders"), 0, 500)
	if err := c.Drain(within(t)); err != nil {
		t.Fatal(err)
	}
	wantValues(t, b.Values(l, 0), 500)
	_, err := c.Publisher("orders").Publish(within(t), client.Record{})
	wantError(t, err, client.ErrClosed, client.Fatal)
}

func TestCloseSaysWhatIsKnown(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	release := holdAll(b)
	defer release()
	c := connect(t, b)
	p := c.Publisher("orders")
	fs := publishAsync(t, p, 0, 1)
	eventually(t, "the batch to arrive", func() bool { return len(b.Publishes()) == 1 })
	c.Close()
	_, err := fs[0].Wait(within(t))
	wantError(t, err, client.ErrClosed, client.Unknown)
	_, err = client.Future{}.Wait(within(t))
	wantError(t, err, client.ErrClosed, client.Fatal)
	c.Close()
}

// Records without a key go to one shard per batch, and to all of them in turn.
func TestRecordsWithoutKeySpread(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 3)
	p := connect(t, b).Publisher("orders")
	for i := range 9 {
		if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
	}
	for shard := range 3 {
		if n := len(b.Values(l, shard)); n != 3 {
			t.Errorf("shard %d holds %d records, want 3", shard, n)
		}
	}
}

func TestCompression(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	c := connect(t, b)
	p := c.Publisher("orders", client.WithCompression(client.Zstd))
	const size = 100_000
	if _, err := p.Publish(within(t), client.Record{Value: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	if got := b.Publishes()[0].Size; got > size/10 {
		t.Errorf("%d zeros travel as %d bytes", size, got)
	}
	recs := all(t, subscribe(t, c, client.FromEarliest(), client.UntilMark()))
	if len(recs) != 1 || len(recs[0].Value) != size {
		t.Errorf("read %d records", len(recs))
	}
}

// Who ignores futures hears of a loss at the next Flush, once.
func TestFlushTellsWhatNobodyHeard(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict {
			return fakebroker.Verdict{Err: code.New(code.PermissionDenied, "no")}
		}
	})
	p := connect(t, b).Publisher("orders")
	f := p.PublishAsync(within(t), client.Record{})
	<-f.Done()
	wantError(t, p.Flush(within(t)), client.ErrPermissionDenied, client.Fatal)
	if err := p.Flush(within(t)); err != nil {
		t.Errorf("told again: %v", err)
	}
	if _, err := p.Publish(within(t), client.Record{}); err == nil {
		t.Fatal("it is not refused")
	}
	if err := p.Flush(within(t)); err != nil {
		t.Errorf("told again what Publish returned: %v", err)
	}
}
