// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"margay.dev/broker"
	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// received is how many frame bytes the node has read.
func received(t *testing.T, n *margaytest.Node) int {
	t.Helper()
	got, err := strconv.ParseFloat(metric(t, n, transport("margay_transport_in_bytes_total")), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(got)
}

// headers sends a header of this size on count lanes of their own, and nothing behind it, and waits until the
// node has them.
func (r *raw) headers(n *margaytest.Node, typ wire.Type, size uint32, count int) {
	r.t.Helper()
	before := received(r.t, n)
	for range count {
		if err := r.lane().Write(wire.AppendHeader(nil, wire.Header{Type: typ, Size: size, Corr: 1})); err != nil {
			r.t.Fatal(err)
		}
	}
	eventually(r.t, "the headers to arrive", func() bool { return received(r.t, n) >= before+count*wire.HeaderSize })
}

// WR-10: memory follows the bytes that have come, never the size that a header claims, whatever the frame.
func TestHeadersCostNoMemory(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	r := dial(t, n).authenticate(n)
	l := r.lane()
	r.alive(l)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, typ := range []wire.Type{wire.TypeLookup, wire.TypeOffsets, wire.TypeTrim, wire.TypeSubscribe, wire.TypeCursorList, wire.TypeSetLast, wire.TypeProducerState} {
		r.headers(n, typ, wire.MaxFrame, 10)
		r.headers(n, typ, 1<<20, 10)
	}
	r.alive(l)
	runtime.ReadMemStats(&after)
	if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 200 { // they claim 1,190 MiB
		t.Errorf("headers made the node allocate %d MiB", grown)
	}
	// A frame that is larger than its kind may be is passed over and answered with the bound.
	h, body := r.send(l, append(wire.AppendHeader(nil, wire.Header{Type: wire.TypeLookup, Size: 1 << 20, Corr: 77}), make([]byte, 1<<20)...))
	var e wire.Error
	if h.Type != wire.TypeError || e.Parse(body) != nil || e.Code != code.TooLarge || e.Details.Limit != wire.MaxFrameBeforeAuth {
		t.Errorf("a lookup of 1 MiB is answered with %v %+v", h.Type, e)
	}
	r.alive(l)
}

// The room that a broker has for publishes is taken by bytes that have come: headers whose bodies never do, large
// ones or many small ones, hold up nobody else.
func TestHeadersHoldUpNobody(t *testing.T) {
	const mib = 1 << 20
	for _, size := range []int{2 * mib, mib / 4, mib / 16} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			n := margaytest.Start(t, margaytest.With(func(c *node.Config) {
				c.Limits = broker.Limits{InFlight: 4 * mib, InFlightConnection: 2 * mib}
			}))
			create(t, n, control.StreamSpec{Name: "s"})
			p := n.Connect().Publisher("s")
			for range 3 { // together they claim more than there is
				dial(t, n).authenticate(n).headers(n, wire.TypePublish, uint32(size), 2*mib/size)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience/6) // far below what a body may take to come
			defer cancel()
			for range 20 {
				if _, err := p.Publish(ctx, client.Record{Value: make([]byte, 100<<10)}); err != nil {
					t.Fatalf("a publish beside them: %v", err)
				}
			}
		})
	}
}

// A connection that has shown no token holds one lane, however many it opens.
func TestLanesBeforeAuthentication(t *testing.T) {
	n := margaytest.Start(t)
	r := dial(t, n)
	r.want(r.ctl, &wire.Hello{VersionMin: 1, VersionMax: 1}, &wire.HelloOk{})
	const lanes = 500
	before := received(t, n)
	for range lanes {
		if err := r.lane().Write([]byte{1}); err != nil && !errors.Is(err, code.Unauthenticated) { // it may know already
			t.Fatal(err)
		}
	}
	eventually(t, "the node to be left with the control lane", func() bool {
		open, err := strconv.Atoi(metric(t, n, transport("margay_transport_lanes")))
		return err == nil && open <= 1
	})
	if got := received(t, n) - before; got > lanes/2 {
		t.Errorf("the node read %d bytes of %d lanes that it does not serve", got, lanes)
	}
}

// A subscriber may not make its queue larger than the documented bound; the error says what that is.
func TestQueueLimitsAreBounded(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	r := dial(t, n).authenticate(n)
	var info wire.LogInfo
	r.want(r.lane(), &wire.Lookup{Name: "default/default/s"}, &info)
	sub := func(records, bytes uint32) *wire.Subscribe {
		return &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{}}, QueueRecords: records, QueueBytes: bytes}
	}
	const maxRecords, maxBytes = 1 << 20, 64 << 20
	for _, c := range []struct {
		f     *wire.Subscribe
		limit uint64
	}{{sub(maxRecords+1, 0), maxRecords}, {sub(0, maxBytes+1), maxBytes}, {sub(1<<31, 1<<31), maxRecords}} {
		h, body := r.ask(r.lane(), c.f)
		var e wire.Error
		if h.Type != wire.TypeError || e.Parse(body) != nil || e.Code != code.TooLarge || e.Details.Limit != c.limit {
			t.Errorf("a queue of %d records, %d bytes is answered with %v %+v", c.f.QueueRecords, c.f.QueueBytes, h.Type, e)
		}
	}
	r.want(r.lane(), sub(maxRecords, maxBytes), &wire.Subscribed{})
}

// next reads one frame of a subscription.
func (r *raw) next(l *session.Lane) (wire.Header, []byte) {
	r.t.Helper()
	h, err := l.ReadHeader()
	if err != nil {
		r.t.Fatal(err)
	}
	body := make([]byte, h.Size)
	if err := l.ReadBody(body); err != nil {
		r.t.Fatal(err)
	}
	return h, body
}

// AU: a subscription lives as long as its connection's token allows it: it ends when one is shown that does not.
func TestSubscriptionEndsWithItsGrant(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	p := n.Connect().Publisher("s")
	subscribing := []token.Action{token.Subscribe}
	for name, c := range map[string]struct {
		token string
		ends  code.Code // 0: it goes on
	}{
		"another tenant":    {n.Token("stranger", time.Hour), code.NotFound},
		"without the grant": {n.Token("default", time.Hour, token.Grant{Actions: []token.Action{token.Publish}, Resource: "default/default/s"}), code.PermissionDenied},
		"other keys":        {n.Token("default", time.Hour, token.Grant{Actions: subscribing, Resource: "default/default/s", Keys: []string{"b/#"}}), code.PermissionDenied},
		"the same grant":    {n.Token("default", time.Hour, token.Grant{Actions: subscribing, Resource: "default/default/s"}), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := dial(t, n).authenticate(n)
			l := r.lane()
			var info wire.LogInfo
			r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
			r.want(l, &wire.Subscribe{
				Log: info.Log, Shards: []wire.Start{{}}, Filters: []wire.Filter{{Kind: wire.FilterPattern, Value: "a/#"}},
			}, &wire.Subscribed{})
			r.want(r.ctl, &wire.Auth{Token: c.token}, &wire.AuthOk{})
			if _, err := p.Publish(within(t), client.Record{Key: []byte("a/1"), Value: []byte("secret")}); err != nil {
				t.Fatal(err)
			}
			h, body := r.next(l)
			if c.ends == 0 {
				if h.Type != wire.TypeDeliver {
					t.Fatalf("a subscription that is still granted gets %v", h.Type)
				}
				return
			}
			var end wire.End
			if h.Type != wire.TypeEnd || end.Parse(body) != nil || end.Code != c.ends {
				t.Fatalf("it gets %v %+v, want an end with %v", h.Type, end, c.ends)
			}
		})
	}
}

// flood publishes total records of size bytes and waits for all.
func flood(t *testing.T, n *margaytest.Node, total, size int) {
	t.Helper()
	ctx := within(t)
	p := n.Connect().Publisher("s")
	value := make([]byte, size)
	for range total {
		p.PublishAsync(ctx, client.Record{Value: value})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// A subscriber that does not read holds up an orderly stop no longer than the grace: its connection is closed.
func TestStopWaitsForNobodyWhoDoesNotRead(t *testing.T) {
	n := margaytest.Start(t) // its grace is a second
	create(t, n, control.StreamSpec{Name: "s", Fsync: new(control.FsyncNever)})
	r := dial(t, n).authenticate(n)
	l := r.lane()
	var info wire.LogInfo
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	r.want(l, &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{}}}, &wire.Subscribed{})
	flood(t, n, 400, 64<<10) // far more than the transport takes ahead
	began := time.Now()
	n.Stop()
	if took := time.Since(began); took > patience/6 {
		t.Errorf("the stop took %v", took)
	}
}

// R2: a position never passes a loss that was not stated: what was dropped behind the last delivery is told with the
// progress note at the latest, and everything that a subscriber is told of is without a hole.
func TestLossIsStatedBeforeThePositionPassesIt(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Fsync: new(control.FsyncNever)})
	r := dial(t, n).authenticate(n)
	l := r.lane()
	var info wire.LogInfo
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	r.want(l, &wire.Subscribe{
		Log: info.Log, Shards: []wire.Start{{}}, Policy: wire.PolicyDropNew, QueueRecords: 8, QueueBytes: 1 << 20,
	}, &wire.Subscribed{})
	const total = 400
	flood(t, n, total, 64<<10)
	var next, lost uint64
	for noted := false; !noted || next < total; { // a note comes within seconds of rest
		h, body := r.next(l)
		switch h.Type {
		case wire.TypeDeliver:
			var d wire.Deliver
			if err := d.Parse(body); err != nil {
				t.Fatal(err)
			}
			for b := d.Batch; len(b) > 0; b = b[b.Size():] {
				one := b[:b.Size()]
				if one.BaseOffset() != next {
					t.Fatalf("offset %d follows %d and no gap is stated", one.BaseOffset(), next)
				}
				next = one.NextOffset()
			}
		case wire.TypeGap:
			var g wire.Gap
			if err := g.Parse(body); err != nil || g.From != next || g.To <= g.From || g.Reason != wire.GapDropped {
				t.Fatalf("at %d the gap %+v, %v", next, g, err)
			}
			next, lost = g.To, lost+g.To-g.From
		case wire.TypeProgress:
			var p wire.Progress
			if err := p.Parse(body); err != nil || p.Next != next {
				t.Fatalf("all is told up to %d, and the position is %d, %v", next, p.Next, err)
			}
			noted = true
		default:
			t.Fatalf("the subscription gets %v", h.Type)
		}
	}
	if lost == 0 {
		t.Error("nothing was dropped: the test has not reached what it tests")
	}
}
