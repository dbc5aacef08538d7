// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// importer is an application that publishes numbered records under a name, in the documented way.
type importer struct {
	t *testing.T
	n *margaytest.Node
	// skip what its shard is past, or send it all again.
	skip bool
}

// record is the n-th: nine of ten have keys of one shard, some have none.
func (x *importer) record(n uint64, hot [][]byte) client.Record {
	rec := client.Record{Value: fmt.Append(nil, n)}
	switch {
	case n%10 != 0:
		rec.Key = hot[n%uint64(len(hot))]
	case n%20 == 0:
		rec.Key = fmt.Appendf(nil, "cold%d", n)
	}
	return rec
}

// life is one process: it publishes the records from to to, and waits for them or dies in the middle of it.
func (x *importer) life(from, to uint64, dies bool) (published int) {
	t := x.t
	t.Helper()
	c := x.n.Connect()
	defer c.Close()
	p := c.Publisher("s", client.ProducerName("importer"))
	ctx := within(t)
	var hot [][]byte
	for i := 0; len(hot) < 5; i++ {
		k := fmt.Appendf(nil, "hot%d", i)
		if s, err := p.ShardOf(ctx, client.Record{Key: k}); err != nil {
			t.Fatal(err)
		} else if s == 1 {
			hot = append(hot, k)
		}
	}
	last, err := p.Sequences(ctx)
	if err != nil {
		t.Fatal(err)
	}
	futures := map[uint64]client.Future{}
	for n := from; n <= to; n++ {
		rec := x.record(n, hot)
		shard, err := p.ShardOf(ctx, rec, client.Sequence(n))
		if err != nil {
			t.Fatal(err)
		}
		if x.skip && n <= last[shard] {
			continue
		}
		futures[n] = p.PublishAsync(ctx, rec, client.Sequence(n))
		if dies && n == to/2 {
			if _, err := futures[n].Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if dies {
		return 0
	}
	for n, f := range futures {
		a, err := f.Wait(ctx)
		switch {
		case err == nil && a.Duplicate:
		case err == nil:
			published++
		case !x.skip && errors.Is(err, client.ErrOutOfOrder) && client.AsError(err).Class == client.Unknown:
			// stored so long ago that the shard cannot tell
		default:
			t.Errorf("record %d: %v", n, err)
		}
	}
	return published
}

// once demands each of the records up to n once, and each shard's in order.
func (x *importer) once(n int) {
	t := x.t
	t.Helper()
	seen := map[string]bool{}
	last := map[uint32]int{}
	for _, r := range take(t, subscribe(t, x.n.Connect(), "s", client.FromEarliest()), n) {
		if seen[string(r.Value)] {
			t.Fatalf("record %s is stored twice", r.Value)
		}
		seen[string(r.Value)] = true
		var i int
		if _, err := fmt.Sscan(string(r.Value), &i); err != nil {
			t.Fatal(err)
		}
		if i <= last[r.Shard] {
			t.Fatalf("shard %d: record %d behind %d", r.Shard, i, last[r.Shard])
		}
		last[r.Shard] = i
	}
	c := x.n.Connect()
	o, err := c.Offsets(within(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	var total uint64
	for _, s := range o {
		total += s.Latest
	}
	if total != uint64(n) {
		t.Errorf("%d records are stored, want %d", total, n)
	}
}

// ID-06: a producer that is restarted goes on in each shard where that is: nothing new is taken for old, nothing old is
// stored again, whether it skips what is stored or sends it all, and wherever it or the node was interrupted.
func TestNamedProducer(t *testing.T) {
	for _, skip := range []bool{true, false} {
		t.Run(fmt.Sprintf("skips %v", skip), func(t *testing.T) {
			n := margaytest.Start(t)
			create(t, n, control.StreamSpec{Name: "s", Shards: new(4), SegmentBytes: new(int64(16 << 10))})
			x := &importer{t: t, n: n, skip: skip}
			if got := x.life(1, 1000, false); got != 1000 {
				t.Fatalf("%d of 1000 are new", got)
			}
			if got := x.life(1001, 1100, false); got != 100 {
				t.Fatalf("%d of 100 are new: the others were taken for old", got)
			}
			n.Restart()
			if got := x.life(901, 1200, false); got != 100 {
				t.Fatalf("%d of 100 are new", got)
			}
			x.once(1200)
			x.life(1201, 1400, true) // dies with some of them under way
			n.Restart()
			x.life(1, 1500, false)
			x.once(1500)
		})
	}
}

// ID-04: a producer that was idle goes on by itself: when retention has removed all that it stored, and when the shard
// had to forget it; nothing of it is stored twice.
func TestIdleProducer(t *testing.T) {
	var clk clock
	n := margaytest.Start(t, clk.node())
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(4 << 10))})
	c := n.Connect()
	ctx := within(t)
	p, named := c.Publisher("s"), c.Publisher("s", client.ProducerName("idle"))
	want := uint64(0)
	publish := func(p *client.Publisher, opts ...client.RecordOption) {
		t.Helper()
		a, err := p.Publish(ctx, client.Record{Value: []byte("v")}, opts...)
		if err != nil || a.Duplicate || a.Offset != want {
			t.Fatalf("after the pause: %+v, %v; want offset %d", a, err, want)
		}
		want++
	}
	publish(p)
	publish(c.Publisher("s")) // one more that is idle, so that two fit again later
	publish(named, client.Sequence(10))
	if _, err := c.Trim(ctx, "s", client.TrimBeforeOffset(0, want)); err != nil {
		t.Fatal(err)
	}
	publish(p)
	n.Restart()
	clk.advance(time.Hour)
	publish(p)
	publish(named, client.Sequence(20))
	if last, err := named.LastSequence(ctx, 0); err != nil || last != 20 {
		t.Fatalf("the last sequence is %d, %v", last, err)
	}
	clk.advance(time.Hour)
	want += crowdOut(t, n)
	if last, err := named.LastSequence(ctx, 0); err != nil || last != 0 {
		t.Fatalf("the shard has not forgotten: the last sequence is %d, %v", last, err)
	}
	publish(p)
	publish(named, client.Sequence(30))
	if a, err := named.Publish(ctx, client.Record{Value: []byte("v")}, client.Sequence(30)); err != nil || !a.Duplicate {
		t.Fatalf("the same again: %+v, %v", a, err)
	}
	if o, err := c.Offsets(ctx, "s"); err != nil || o[0].Latest != want {
		t.Fatalf("the log ends at %+v, %v; want %d", o, err, want)
	}
}

// crowdOut lets so many producers publish that the shard forgets those that are idle, and returns how many records that took.
func crowdOut(t *testing.T, n *margaytest.Node) (records uint64) {
	t.Helper()
	r := dial(t, n).authenticate(n)
	l := r.lane()
	var info wire.LogInfo
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	const producers, round = 9_998, 500 // one above what fits beside the three
	for from := uint64(0); from < producers; from += round {
		var frames []byte
		to := min(from+round, producers)
		for id := from + 1; id <= to; id++ {
			bl := batch.NewBuilder(batch.Limits{})
			if err := bl.Add(batch.Record{Value: []byte("v"), Timestamp: 1}); err != nil {
				t.Fatal(err)
			}
			b, err := bl.Build(id, 1, batch.None)
			if err != nil {
				t.Fatal(err)
			}
			frames = wire.AppendFrame(frames, id, &wire.Publish{Log: info.Log, Batch: b})
		}
		if err := l.Write(frames); err != nil {
			t.Fatal(err)
		}
		for range to - from {
			h, err := l.ReadHeader()
			if err != nil {
				t.Fatal(err)
			}
			body := make([]byte, h.Size)
			if err := l.ReadBody(body); err != nil {
				t.Fatal(err)
			}
			if h.Type == wire.TypePublished {
				records++
				continue
			}
			var e wire.Error
			if err := e.Parse(body); err != nil || e.Code != code.ProducersFull {
				t.Fatalf("a producer was answered %v %+v", h.Type, e)
			}
		}
	}
	return records
}
