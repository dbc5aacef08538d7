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
	"margay.dev/cluster/node"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// clock is a node's wall clock, which a test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }
func (c *clock) node() margaytest.Option {
	return margaytest.With(func(cfg *node.Config) { cfg.Wall = c.now })
}

func wantConflict(t *testing.T, err error, version uint64) {
	t.Helper()
	wantCode(t, err, code.Conflict, code.ClassFatal)
	if have, _, ok := client.CurrentVersion(err); !ok || have != version {
		t.Fatalf("told version %d, %v; the key has %d: %v", have, ok, version, err)
	}
}

// A key's version is one above the offset of its newest record, and none when that is a tombstone, has expired, or was
// trimmed away; the same after a restart. CA-06: what is absent can be created, whatever it was before.
func TestVersions(t *testing.T) {
	for _, storage := range []string{control.StorageDisk, control.StorageMemory} {
		t.Run(storage, func(t *testing.T) {
			var clk clock
			n := margaytest.Start(t, clk.node())
			create(t, n, control.StreamSpec{Name: "s", Storage: &storage})
			c := n.Connect()
			p := c.Publisher("s")
			ctx := within(t)
			live := subscribe(t, n.Connect(), "s")
			put := func(key, value string, o ...client.RecordOption) (client.Ack, error) {
				return p.Publish(ctx, client.Record{Key: []byte(key), Value: []byte(value)}, o...)
			}
			must := func(a client.Ack, err error) client.Ack {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			a := must(put("a", "1", client.IfAbsent()))
			_, err := put("a", "2", client.IfAbsent())
			wantConflict(t, err, a.Version())
			a = must(put("a", "2", client.IfVersion(a.Version())))
			b := must(put("b", ""))
			_, err = put("b", "", client.IfAbsent()) // CA-08: an empty value is there
			wantConflict(t, err, b.Version())
			must(p.Publish(ctx, client.Record{Key: []byte("a")}, client.IfVersion(a.Version())))
			_, err = put("a", "3", client.IfVersion(a.Version()))
			wantConflict(t, err, 0)
			a = must(put("a", "3", client.IfAbsent()))
			ttl := must(p.Publish(ctx, client.Record{Key: []byte("t"), Value: []byte("1"), TTL: time.Minute}, client.IfAbsent()))
			_, err = put("t", "2", client.IfAbsent())
			wantConflict(t, err, ttl.Version())
			for i, r := range take(t, live, 6) { // whole, conditions or not
				if r.Offset != uint64(i) || r.Key == nil {
					t.Errorf("delivered %+v as the %d-th", r, i)
				}
			}
			clk.advance(time.Minute)
			_, err = put("t", "2", client.IfVersion(ttl.Version()))
			wantConflict(t, err, 0)
			if storage == control.StorageDisk { // the other is gone with the process
				n.Restart()
			}
			_, err = put("t", "2", client.IfVersion(ttl.Version()))
			wantConflict(t, err, 0)
			must(put("t", "2", client.IfAbsent()))
			_, err = put("a", "4", client.IfAbsent())
			wantConflict(t, err, a.Version())
			if _, err := c.Trim(ctx, "s", client.TrimBeforeOffset(0, a.Offset+1)); err != nil {
				t.Fatal(err)
			}
			_, err = put("a", "4", client.IfVersion(a.Version()))
			wantConflict(t, err, 0)
			must(put("a", "4", client.IfAbsent()))
		})
	}
}

// Conditions of one PublishBatch call all hold in a shard, or nothing is stored there; the shards stand for themselves.
func TestConditionsOfOneCall(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(2)})
	c := n.Connect()
	p := c.Publisher("s")
	ctx := within(t)
	var keys [2][]string // by shard
	for i := 0; len(keys[0]) < 2 || len(keys[1]) < 2; i++ {
		k := fmt.Sprintf("k%d", i)
		s, err := p.ShardOf(ctx, client.Record{Key: []byte(k)})
		if err != nil {
			t.Fatal(err)
		}
		keys[s] = append(keys[s], k)
	}
	rec := func(key string, o ...client.RecordOption) client.Record {
		return client.Record{Key: []byte(key), Value: []byte("x")}.With(o...)
	}
	ack, err := p.Publish(ctx, rec(keys[0][1]))
	if err != nil {
		t.Fatal(err)
	}
	acks, err := p.PublishBatch(ctx,
		rec(keys[0][0], client.IfAbsent()), rec(keys[1][0], client.IfAbsent()),
		rec(keys[0][1], client.IfAbsent()), rec(keys[1][1], client.IfAbsent()))
	wantConflict(t, err, ack.Version())
	for _, a := range acks {
		switch {
		case a.Shard == 1 && a.Err != nil:
			t.Errorf("shard 1: %v", a.Err)
		case a.Shard == 0:
			if v, i, ok := client.CurrentVersion(a.Err); !ok || v != ack.Version() || i != 1 {
				t.Errorf("shard 0: record %d has version %d: %v", i, v, a.Err)
			}
		}
	}
	if _, err := p.PublishBatch(ctx, rec(keys[0][0], client.IfAbsent()), rec(keys[0][1], client.IfVersion(ack.Version()))); err != nil {
		t.Fatal(err)
	}
	if o, err := c.Offsets(ctx, "s"); err != nil || o[0].Latest != 3 || o[1].Latest != 2 {
		t.Errorf("the shards end at %+v, %v", o, err)
	}
}

// increment is one attempt to move a counter on, and what its author knows of it.
type increment struct {
	from  uint64 // version
	value string
	ack   client.Ack
	err   error
}

// CA-07: whatever number of writers compare and set one key at once, over restarts of the node, the log is one chain: each
// record follows the version that its writer had seen, of those that saw one version exactly one is stored, and every
// writer was told the truth.
func TestCompareAndSet(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(16 << 10))})
	const writers, each = 50, 30
	ctx := within(t)
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		attempts []increment
	)
	clients := []*client.Client{n.Connect(), n.Connect(), n.Connect(), n.Connect()}
	done := make(chan struct{})
	for w := range writers {
		p := clients[w%len(clients)].Publisher("s")
		wg.Go(func() {
			var version uint64
			for i := range each {
				a := increment{from: version, value: fmt.Sprintf("%d %d/%d", version, w, i)}
				a.ack, a.err = p.Publish(ctx, client.Record{Key: []byte("counter"), Value: []byte(a.value)}, client.IfVersion(version))
				if a.err == nil {
					version = a.ack.Version()
				} else if have, _, ok := client.CurrentVersion(a.err); ok {
					version = have
				}
				mu.Lock()
				attempts = append(attempts, a)
				mu.Unlock()
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for range 3 {
		n.Restart()
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond): // load between two restarts, however little
		}
	}
	<-done
	checkChain(t, n.Connect(), attempts)
}

// checkChain holds the log, and what each writer was told, against the rule of comparing and setting.
func checkChain(t *testing.T, c *client.Client, attempts []increment) {
	t.Helper()
	o, err := c.Offsets(within(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]uint64{}
	var version uint64
	for _, r := range take(t, subscribe(t, c, "s", client.FromEarliest()), int(o[0].Latest)) {
		var from uint64
		if _, err := fmt.Sscan(string(r.Value), &from); err != nil {
			t.Fatal(err)
		}
		if from != version {
			t.Fatalf("the record at %d follows version %d, its writer had seen %d", r.Offset, version, from)
		}
		version = r.Version()
		stored[string(r.Value)] = r.Offset
	}
	successes, unknown := 0, 0
	for _, a := range attempts {
		at, found := stored[a.value]
		e := client.AsError(a.err)
		switch {
		case e == nil:
			successes++
			if !found || at != a.ack.Offset {
				t.Fatalf("%q was acknowledged at %d; stored %v at %d", a.value, a.ack.Offset, found, at)
			}
		case e.Class == code.ClassUnknown:
			unknown++
		case found:
			t.Fatalf("%q ended with %v and is stored", a.value, a.err)
		case !errors.Is(a.err, code.Conflict):
			t.Fatalf("%q ended with %v", a.value, a.err)
		}
	}
	if successes == 0 || len(stored) < successes || len(stored) > successes+unknown {
		t.Fatalf("%d increments are stored; %d writers were told so, %d do not know", len(stored), successes, unknown)
	}
	t.Logf("%d attempts, %d stored, %d unknown", len(attempts), len(stored), unknown)
}

// A flag that makes no sense with its batch fails that publish alone, with a reason.
func TestBadConditions(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	r := dial(t, n).authenticate(n)
	l := r.lane()
	var info wire.LogInfo
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	bl := batch.NewBuilder(batch.Limits{})
	for _, k := range [][]byte{[]byte("a"), nil, []byte("b")} {
		if err := bl.Add(batch.Record{Key: k, Value: []byte("v"), Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(conds ...wire.Condition) []byte {
		return wire.AppendFrame(nil, 77, &wire.Publish{Log: info.Log, Batch: b, Conditions: conds})
	}
	r.wantError(l, frame(wire.Condition{Record: 3}), code.BadRequest)
	r.wantError(l, frame(wire.Condition{Record: 1}), code.BadRequest)
	r.wantError(l, frame(wire.Condition{Record: 2}, wire.Condition{Record: 0}), code.BadRequest)
	unflagged := frame(wire.Condition{Record: 0})
	unflagged[3] = 0
	r.wantError(l, unflagged, code.BadRequest)
	r.wantError(l, frame(wire.Condition{Record: 0}, wire.Condition{Record: 2, Version: 5}), code.Conflict)
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.ProducerState{Log: info.Log, Shard: 4, Producer: 1}), code.NotFound)
	live := r.lane()
	r.want(live, &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{}}}, &wire.Subscribed{})
	var ok wire.Published
	r.want(l, &wire.Publish{Log: info.Log, Batch: b, Conditions: []wire.Condition{{Record: 0}, {Record: 2}}}, &ok)
	if ok.BaseOffset != 0 {
		t.Errorf("the first good publish got offset %d", ok.BaseOffset)
	}
	// What subscribers get is framed in the publish's own buffer, where conditions lie too.
	h, err := live.ReadHeader()
	if err != nil {
		t.Fatal(err)
	}
	body := make([]byte, h.Size)
	if err := live.ReadBody(body); err != nil {
		t.Fatal(err)
	}
	var d wire.Deliver
	if h.Type != wire.TypeDeliver || d.Parse(body) != nil {
		t.Fatalf("delivered as %v", h.Type)
	}
	if x, err := batch.CheckStored(d.Batch); err != nil || x.Count() != 3 {
		t.Errorf("delivered a batch of %d, %v", x.Count(), err)
	}
}

// The versions of a log that was there before are learned while others publish; who compares waits no longer than that.
func TestFirstConditionOfAnOldLog(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(256 << 10))})
	c := n.Connect()
	ctx := within(t)
	p := c.Publisher("s")
	const records = 50_000
	for i := range records {
		p.PublishAsync(ctx, client.Record{Key: fmt.Appendf(nil, "k%d", i%10_000), Value: []byte("v")})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	n.Restart()
	busy, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		p := n.Connect().Publisher("s")
		for busy.Err() == nil {
			if _, err := p.Publish(ctx, client.Record{Key: []byte("other"), Value: []byte("v")}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 100 {
		version := uint64(records - 10_000 + i + 1)
		rec := client.Record{Key: fmt.Appendf(nil, "k%d", i), Value: []byte("w")}
		_, err := p.Publish(ctx, rec, client.IfVersion(version-10_000))
		wantConflict(t, err, version)
		if _, err := p.Publish(ctx, rec, client.IfVersion(version)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	wg.Wait()
}
