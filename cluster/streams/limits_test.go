// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"margay.dev/broker"
	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/session/sessiontest"
)

func startLimited(t *testing.T, limits broker.Limits, more ...func(*node.Config)) *margaytest.Node {
	t.Helper()
	return margaytest.Start(t, margaytest.With(func(c *node.Config) {
		c.Limits = limits
		for _, f := range more {
			f(c)
		}
	}))
}

// refusedConnection demands that a connection is refused with a typed reason and when to come back.
func refusedConnection(t *testing.T, n *margaytest.Node) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(n.Context().CA))
	c, err := sessiontest.Dial(within(t), n.Address(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, session.Config{})
	if err == nil {
		defer func() { _ = c.Close(0, "") }()
		select {
		case <-c.Done():
			err = c.Err()
		case <-within(t).Done():
			t.Fatal("a connection over the limit is not ended")
		}
	}
	var e *code.Error
	if !errors.As(err, &e) || e.Code != code.TooMany || e.Class != code.ClassRefused || e.RetryAfter <= 0 {
		t.Fatalf("a connection over the limit got %v", err)
	}
}

// Connections beyond the limit, in all or from one address, are refused with the reason and when to try again;
// those that are there go on, and there is room again when one has gone.
func TestConnectionLimits(t *testing.T) {
	for name, limits := range map[string]broker.Limits{
		"total": {Connections: 2}, "address": {Connections: 10, ConnectionsPerAddress: 2},
	} {
		t.Run(name, func(t *testing.T) {
			n := startLimited(t, limits)
			create(t, n, control.StreamSpec{Name: "s"})
			first, second := dial(t, n).authenticate(n), dial(t, n).authenticate(n)
			refusedConnection(t, n)
			first.alive(first.lane())
			second.alive(second.lane())
			if got := metric(t, n, fmt.Sprintf("margay_connections_refused_total{limit=%q}", name)); got != "1" {
				t.Errorf("%s refused are counted", got)
			}
			_ = second.conn.Close(0, "")
			eventually(t, "room for another", func() bool { return metric(t, n, "margay_connections") == "1" })
			third := dial(t, n).authenticate(n)
			third.alive(third.lane())
		})
	}
}

// A client that is refused for a while gets in by itself when there is room.
func TestClientWaitsForRoom(t *testing.T) {
	n := startLimited(t, broker.Limits{Connections: 1})
	holder := dial(t, n).authenticate(n)
	done := make(chan error, 1)
	go func() {
		cc := n.Context()
		c, err := client.Connect(within(t), "", client.WithContext(cc))
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	eventually(t, "the client to be refused", func() bool {
		return metric(t, n, `margay_connections_refused_total{limit="total"}`) != "0"
	})
	_ = holder.conn.Close(0, "")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Who shows no token in time is ended.
func TestAuthTimeout(t *testing.T) {
	n := startLimited(t, broker.Limits{AuthTimeout: 50 * time.Millisecond})
	r := dial(t, n)
	r.want(r.ctl, &wire.Hello{VersionMin: 1, VersionMax: 1, Client: "test"}, &wire.HelloOk{})
	select {
	case <-r.conn.Done():
	case <-within(t).Done():
		t.Fatal("a connection without a token lives on")
	}
	if err := r.conn.Err(); !errors.Is(err, code.Unauthenticated) {
		t.Errorf("it ended with %v", err)
	}
	eventually(t, "the end to be counted", func() bool { return metric(t, n, `margay_connections_ended_total{reason="no_token"}`) == "1" })
}

// The subscription beyond the limit is refused, with the limit; those that are there go on.
func TestSubscriptionLimit(t *testing.T) {
	n := startLimited(t, broker.Limits{Subscriptions: 3})
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	var subs []*client.Subscription
	for range 3 {
		subs = append(subs, subscribe(t, c, "s"))
	}
	r := dial(t, n).authenticate(n)
	var info wire.LogInfo
	r.want(r.lane(), &wire.Lookup{Name: "default/default/s"}, &info)
	request := &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{Kind: wire.StartLatest}}}
	for range 3 {
		r.want(r.lane(), request, &wire.Subscribed{})
	}
	h, body := r.ask(r.lane(), request)
	var e wire.Error
	if h.Type != wire.TypeError || e.Parse(body) != nil || e.Code != code.TooMany || e.RetryAfterMs == 0 {
		t.Fatalf("the fourth was answered with %v %+v", h.Type, e)
	}
	if limit, ok := e.Err().Details.Get(code.DetailLimit); !ok || limit != 3 {
		t.Errorf("the refusal names limit %d, %v", limit, ok)
	}
	fill(t, c, "s", 0, 5)
	for _, s := range subs {
		take(t, s, 5)
	}
	eventually(t, "the refusal to be counted", func() bool { return metric(t, n, `margay_errors_total{code="too_many"}`) == "1" })
}

// A lane beyond the limit waits for another to end: the transport lets no more of them come.
func TestLaneLimit(t *testing.T) {
	n := startLimited(t, broker.Limits{}, func(c *node.Config) { c.Session.MaxLanes = 3 })
	create(t, n, control.StreamSpec{Name: "s"})
	r := dial(t, n).authenticate(n)
	a, b := r.lane(), r.lane()
	r.alive(a)
	r.alive(b)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if l, err := r.conn.OpenLane(ctx); err == nil {
		t.Fatalf("a lane beyond the limit was opened: %v", l)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	r.alive(r.lane())
}

// What a record may be is told in the hello, held by the broker, and by the client before it sends.
func TestSizeLimits(t *testing.T) {
	limits := batch.Limits{Batch: 8 << 10, Record: 4 << 10, Key: 16, Headers: 2, HeaderBytes: 64}
	n := startLimited(t, broker.Limits{Frame: 64 << 10, Records: limits})
	create(t, n, control.StreamSpec{Name: "s"})
	r := dial(t, n)
	var hello wire.HelloOk
	r.want(r.ctl, &wire.Hello{VersionMin: 1, VersionMax: 1, Client: "test"}, &hello)
	told := hello.Limits
	if told.MaxFrame != 64<<10 || told.MaxBatch != 8<<10 || told.MaxRecord != 4<<10 || told.MaxKey != 16 || told.MaxHeaders != 2 || told.MaxHeaderBytes != 64 {
		t.Errorf("the hello tells %+v", told)
	}
	raw := dial(t, n).authenticateWith(n, func(*wire.HelloOk) {})
	var info wire.LogInfo
	lane := raw.lane()
	raw.want(lane, &wire.Lookup{Name: "default/default/s"}, &info)
	p := n.Connect().Publisher("s")
	long := strings.Repeat("x", 4<<10)
	for name, c := range map[string]struct {
		records []client.Record
		fits    bool
	}{
		"right":          {[]client.Record{{Key: []byte("0123456789abcdef"), Value: []byte(long[:3<<10])}}, true},
		"record":         {[]client.Record{{Value: []byte(long + "x")}}, false},
		"key":            {[]client.Record{{Key: []byte("0123456789abcdefg")}}, false},
		"headers":        {[]client.Record{{Headers: []client.Header{{Key: "a"}, {Key: "b"}, {Key: "c"}}}}, false},
		"bytes of them":  {[]client.Record{{Headers: []client.Header{{Key: "a", Value: []byte(long[:64])}}}}, false},
		"batch of three": {[]client.Record{{Value: []byte(long[:3<<10])}, {Value: []byte(long[:3<<10])}, {Value: []byte(long[:3<<10])}}, false},
	} {
		_, err := p.PublishBatch(within(t), c.records...)
		if c.fits != (err == nil) {
			t.Errorf("%s: the client says %v", name, err)
		}
		if err != nil {
			wantCode(t, err, code.TooLarge, code.ClassFatal)
		}
		h, body := raw.ask(lane, &wire.Publish{Log: info.Log, Batch: built(t, c.records)})
		var e wire.Error
		if c.fits != (h.Type == wire.TypePublished) {
			t.Errorf("%s: the broker answers %v", name, h.Type)
		}
		if h.Type == wire.TypeError && (e.Parse(body) != nil || e.Code != code.TooLarge) {
			t.Errorf("%s: the broker answers %+v", name, e)
		}
	}
	over := dial(t, n).authenticateWith(n, func(*wire.HelloOk) {})
	if err := over.lane().Write(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: 64<<10 + 1, Corr: 77})); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over.conn.Done():
	case <-within(t).Done():
		t.Fatal("a frame beyond the limit is not refused")
	}
}

// built is a batch by the limits of the format, whatever those of a broker are.
func built(t *testing.T, records []client.Record) batch.Batch {
	t.Helper()
	b := batch.NewBuilder(batch.Limits{})
	for _, r := range records {
		if err := b.Add(batch.Record{Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := b.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is in flight is bounded per connection and in all: a client that has used up its share waits, and all of
// its records come through; a single publish beyond the share is refused; the gauge comes back to nothing.
func TestInFlightLimits(t *testing.T) {
	for name, limits := range map[string]broker.Limits{
		"connection": {InFlightConnection: 256 << 10}, "broker": {InFlight: 256 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			n := startLimited(t, limits)
			create(t, n, control.StreamSpec{Name: "s"})
			c := n.Connect()
			p := c.Publisher("s")
			const total = 400
			for range total {
				p.PublishAsync(within(t), client.Record{Value: make([]byte, 20<<10)}) // 8 MB in all
			}
			if err := p.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
			if o, err := c.Offsets(within(t), "s"); err != nil || o[0].Latest != total {
				t.Fatalf("%+v, %v", o, err)
			}
			_, err := p.Publish(within(t), client.Record{Value: make([]byte, 300<<10)})
			wantCode(t, err, code.TooLarge, code.ClassFatal)
			r := dial(t, n).authenticate(n)
			r.wantError(r.lane(), wire.AppendFrame(nil, 77, &wire.Publish{Batch: make([]byte, 300<<10)}), code.TooLarge)
			eventually(t, "nothing to be in flight", func() bool { return metric(t, n, "margay_inflight_bytes") == "0" })
		})
	}
}
