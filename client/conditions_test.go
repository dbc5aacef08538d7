// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// A condition travels with its record, alone in its batch; those of one call's records for a shard travel together.
func TestConditionsTravelWithTheirRecords(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	release := holdAll(b)
	defer release()
	p := connect(t, b).Publisher("orders")
	ctx := within(t)
	var fs []client.Future
	for range 6 { // more than go at once: the rest waits, and must not be joined
		fs = append(fs,
			p.PublishAsync(ctx, client.Record{Key: []byte("k")}),
			p.PublishAsync(ctx, client.Record{Key: []byte("k")}, client.IfVersion(7)))
	}
	release()
	waitAll(t, fs)
	recs := []client.Record{
		client.Record{Key: []byte("a")}.With(client.IfAbsent()),
		{Key: []byte("b")},
		client.Record{Key: []byte("c")}.With(client.IfVersion(9)),
	}
	if _, err := p.PublishBatch(ctx, recs...); err != nil {
		t.Fatal(err)
	}
	all := b.Publishes()
	for _, x := range all[:len(all)-1] {
		if len(x.Conditions) > 0 && (x.Count != 1 || len(x.Conditions) != 1 || x.Conditions[0] != (wire.Condition{Version: 7})) {
			t.Errorf("a batch of %d has conditions %v", x.Count, x.Conditions)
		}
	}
	if last := all[len(all)-1]; last.Count != 3 || !slices.Equal(last.Conditions, []wire.Condition{{}, {Record: 2, Version: 9}}) {
		t.Errorf("the call is a batch of %d with conditions %v", last.Count, last.Conditions)
	}
}

// A lost comparison is told with the version that the key has, and holds up nobody behind it.
func TestConflictIsTold(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(p fakebroker.Publish) (v fakebroker.Verdict) {
			if len(p.Conditions) > 0 {
				v.Err = code.New(code.Conflict, "no").With(code.DetailLatest, 12).With(code.DetailIndex, 0)
			}
			return v
		}
	})
	p := connect(t, b).Publisher("orders")
	ctx := within(t)
	var lost, free []client.Future
	for i := range 5 {
		lost = append(lost, p.PublishAsync(ctx, client.Record{Key: []byte("k")}, client.IfVersion(3)))
		free = append(free, p.PublishAsync(ctx, client.Record{Value: []byte(value(i))}))
	}
	for _, f := range lost {
		_, err := f.Wait(ctx)
		wantError(t, err, client.ErrConflict, client.Fatal)
		if v, i, ok := client.CurrentVersion(err); !ok || v != 12 || i != 0 {
			t.Errorf("told version %d of record %d, %v", v, i, ok)
		}
	}
	for i, a := range waitAll(t, free) {
		if a.Offset != uint64(i) || a.Version() != uint64(i+1) {
			t.Errorf("record %d: offset %d, version %d", i, a.Offset, a.Version())
		}
	}
	if _, _, ok := client.CurrentVersion(errors.New("other")); ok {
		t.Error("any error names a version")
	}
}

// What cannot be meant is refused at home.
func TestRecordOptionsThatMakeNoSense(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 2)
	c := connect(t, b)
	ctx := within(t)
	plain, named := c.Publisher("orders"), c.Publisher("orders", client.ProducerName("importer"))
	key := []byte("k")
	_, nobody := c.Publisher("orders", client.ProducerName("")).Publish(ctx, client.Record{Key: key}, client.Sequence(1))
	_, anonymous := c.Publisher("orders", client.ProducerName("x"), client.WithoutIdempotence()).Publish(ctx, client.Record{}, client.Sequence(1))
	publish := func(p *client.Publisher, rec client.Record, opts ...client.RecordOption) error {
		_, err := p.Publish(ctx, rec, opts...)
		return err
	}
	fresh := func() *client.Publisher { return c.Publisher("orders", client.ProducerName("importer")) }
	batch := func(recs ...client.Record) error {
		_, err := plain.PublishBatch(ctx, recs...)
		return err
	}
	_, unnamed := plain.Sequences(ctx)
	_, beyond := named.LastSequence(ctx, 2)
	_, anywhere := plain.ShardOf(ctx, client.Record{})
	for name, err := range map[string]error{
		"no name":                       nobody,
		"a name without idempotence":    anonymous,
		"condition without key":         publish(plain, client.Record{}, client.IfAbsent()),
		"sequence without name":         publish(plain, client.Record{Key: key}, client.Sequence(1)),
		"name without sequence":         publish(named, client.Record{Key: key}),
		"sequence 0":                    publish(fresh(), client.Record{Key: key}, client.Sequence(0)),
		"sequence and dedup id":         publish(fresh(), client.Record{Key: key, DedupID: "x"}, client.Sequence(1)),
		"the header by hand":            publish(plain, client.Record{Headers: []client.Header{{Key: "dedup-id"}}}),
		"dedup ids that share":          batch(client.Record{Key: key, DedupID: "x"}, client.Record{Key: key}),
		"a condition of many, no key":   batch(client.Record{Key: key}, client.Record{}.With(client.IfAbsent())),
		"sequences of an unnamed":       unnamed,
		"the last of no shard":          beyond,
		"the shard of a record for any": anywhere,
	} {
		if !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := publish(plain, client.Record{DedupID: strings.Repeat("x", 129)}); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("a long dedup id: %v", err)
	}
	if n := len(b.Publishes()); n != 0 {
		t.Errorf("%d of them were sent", n)
	}
}

// What decides the shard: the shard key before the key, a dedup id where there is neither, so that the same record
// always meets what remembers it; none of it is stored but the id, which comes back as what it was.
func TestWhatDecidesTheShard(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 8)
	c := connect(t, b)
	p := c.Publisher("orders")
	ctx := within(t)
	shard := func(rec client.Record) uint32 {
		t.Helper()
		a, err := p.Publish(ctx, rec)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := p.ShardOf(ctx, rec); err != nil || s != a.Shard {
			t.Errorf("ShardOf says %d, %v; it went to %d", s, err, a.Shard)
		}
		return a.Shard
	}
	for i := range 20 {
		k := fmt.Appendf(nil, "key%d", i)
		home := shard(client.Record{Key: k})
		if at := shard(client.Record{Key: []byte("other"), ShardKey: k}); at != home {
			t.Errorf("with the shard key %s it went to %d, not %d", k, at, home)
		}
		if at := shard(client.Record{ShardKey: k, DedupID: "id" + string(k)}); at != home {
			t.Errorf("with the shard key %s and an id it went to %d, not %d", k, at, home)
		}
		if at := shard(client.Record{DedupID: string(k)}); at != home {
			t.Errorf("with the id %s it went to %d, not %d", k, at, home)
		}
	}
	sub, err := c.Subscribe(ctx, "orders", client.FromEarliest(), client.UntilMark())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	ids := 0
	for _, rec := range all(t, sub) {
		if rec.ShardKey != nil || len(rec.Headers) != 0 {
			t.Errorf("came back as %+v", rec)
		}
		if rec.DedupID != "" {
			ids++
		}
	}
	if ids != 40 {
		t.Errorf("%d dedup ids came back, want 40", ids)
	}
}

// A record that is stored by another's hand is acknowledged as a duplicate, and the producer goes on behind it.
func TestDuplicateOfAnotherProducer(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	ctx := within(t)
	var said strings.Builder
	quiet := client.WithLogger(slog.New(slog.NewTextHandler(&said, nil)))
	first, second := connect(t, b).Publisher("orders"), connect(t, b, quiet).Publisher("orders")
	for round := range 3 {
		id := fmt.Sprint(round)
		a, err := first.Publish(ctx, client.Record{DedupID: id})
		if err != nil || a.Duplicate {
			t.Fatalf("%+v, %v", a, err)
		}
		var fs []client.Future
		for range 3 {
			fs = append(fs, second.PublishAsync(ctx, client.Record{DedupID: id}), second.PublishAsync(ctx, client.Record{Value: []byte("x")}))
		}
		for i, x := range waitAll(t, fs) {
			if dup := i%2 == 0; x.Duplicate != dup || dup && x.Offset != a.Offset {
				t.Errorf("round %d, %d: %+v, the first is at %d", round, i, x, a.Offset)
			}
		}
	}
	if err := second.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if said.Len() > 0 {
		t.Errorf("said %s", said.String())
	}
	for _, x := range b.Publishes() {
		if x.DedupID != "" && x.Count != 1 {
			t.Errorf("a batch of %d has the id %s", x.Count, x.DedupID)
		}
	}
}

// ID-06: under its name a producer goes on in another process, whatever the first left unanswered; what is stored is not
// stored again, each sequence keeps its record, and records without a key find their shard again.
func TestNamedProducerGoesOn(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 4)
	ctx := within(t)
	record := func(n uint64) client.Record {
		rec := client.Record{Value: fmt.Appendf(nil, "record %d", n)}
		if n%3 > 0 {
			rec.Key = fmt.Appendf(nil, "key%d", n%10)
		}
		return rec
	}
	life := func(from, to uint64, wait bool) (acks []client.Ack) {
		c := connect(t, b, client.WithDeliveryTimeout(10*time.Second))
		defer c.Close()
		p := c.Publisher("orders", client.ProducerName("importer"))
		var fs []client.Future
		for n := from; n <= to; n++ {
			fs = append(fs, p.PublishAsync(ctx, record(n), client.Sequence(n)))
		}
		if wait {
			return waitAll(t, fs)
		}
		eventually(t, "some of it to arrive", func() bool { return len(b.Publishes()) > 20 })
		return nil
	}
	life(1, 100, false)
	b.Script(func(s *fakebroker.Script) {
		var n atomic.Int64 // every lane asks
		s.Publish = func(fakebroker.Publish) (v fakebroker.Verdict) {
			v.Kill = n.Add(1) == 10
			return v
		}
	})
	life(1, 100, true)
	for n, a := range life(41, 140, true) {
		if seq := n + 41; a.Duplicate != (seq <= 100) {
			t.Errorf("sequence %d: duplicate %v", seq, a.Duplicate)
		}
	}
	c := connect(t, b)
	p := c.Publisher("orders", client.ProducerName("importer"))
	last, err := p.Sequences(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for s, sh := range l.Shards {
		var prev uint64
		for _, x := range sh.Batches {
			seq := x.ProducerSequence()
			if seq <= prev {
				t.Errorf("shard %d: sequence %d behind %d", s, seq, prev)
			}
			prev = seq
			seen[fmt.Sprint(seq)]++
			if at, err := p.ShardOf(ctx, record(seq), client.Sequence(seq)); err != nil || int(at) != s {
				t.Errorf("sequence %d lies in shard %d, ShardOf says %d, %v", seq, s, at, err)
			}
		}
		if last[s] != prev {
			t.Errorf("shard %d: the last sequence is %d, told %d", s, prev, last[s])
		}
		if one, err := p.LastSequence(ctx, uint32(s)); err != nil || one != prev {
			t.Errorf("shard %d: the last sequence is %d, told %d, %v", s, prev, one, err)
		}
	}
	if len(seen) != 140 {
		t.Errorf("%d records are stored, want 140", len(seen))
	}
}

// A sequence that the shard has gone past without it ends with the shard's last one, and is not a duplicate.
func TestSequenceThatWasPassed(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	ctx := within(t)
	p := connect(t, b).Publisher("orders", client.ProducerName("importer"))
	for _, n := range []uint64{1, 5} {
		if _, err := p.Publish(ctx, client.Record{}, client.Sequence(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []*client.Publisher{p, connect(t, b).Publisher("orders", client.ProducerName("importer"))} {
		_, err := p.Publish(ctx, client.Record{}, client.Sequence(3))
		wantError(t, err, client.ErrOutOfOrder, client.Fatal)
		if last := client.AsError(err).Details.LastSequence; last != 5 {
			t.Errorf("told that the last is %d", last)
		}
		a, err := p.Publish(ctx, client.Record{}, client.Sequence(5))
		if err != nil || !a.Duplicate {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if a, err := p.Publish(ctx, client.Record{}, client.Sequence(6)); err != nil || a.Duplicate || a.Offset != 2 {
		t.Errorf("%+v, %v", a, err)
	}
}

// ID-06: a record of a named publisher that is not stored is not passed over by those behind it, whether the broker or
// the client refused it, and whoever only looks at Flush hears of it.
func TestNamedPublisherEndsWithWhatIsNotStored(t *testing.T) {
	for name, bad := range map[string]client.Record{
		"by the broker": {Value: []byte("bad")},
		"by the client": {Value: make([]byte, 9<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			b := fakebroker.New(t)
			b.AddLog(stream, 1)
			b.Script(func(s *fakebroker.Script) {
				s.Publish = func(p fakebroker.Publish) (v fakebroker.Verdict) {
					if p.Values[0] == "bad" {
						v.Err = code.New(code.PermissionDenied, "no")
					}
					return v
				}
			})
			ctx := within(t)
			c := connect(t, b)
			p := c.Publisher("orders", client.ProducerName("importer"))
			for n := uint64(1); n <= 20; n++ {
				rec := client.Record{Value: []byte("good")}
				if n == 7 {
					rec = bad
				}
				p.PublishAsync(ctx, rec, client.Sequence(n))
			}
			if err := p.Flush(ctx); err == nil {
				t.Fatal("Flush says that all is well")
			}
			_, err := p.Publish(ctx, client.Record{Value: []byte("good")}, client.Sequence(30))
			wantError(t, err, client.ErrClosed, client.Fatal)
			again := c.Publisher("orders", client.ProducerName("importer"))
			if last, err := again.LastSequence(ctx, 0); err != nil || last != 6 {
				t.Fatalf("the last sequence is %d, %v; want 6", last, err)
			}
			if a, err := again.Publish(ctx, client.Record{Value: []byte("good")}, client.Sequence(7)); err != nil || a.Duplicate || a.Offset != 6 {
				t.Fatalf("in another life: %+v, %v", a, err)
			}
		})
	}
}
