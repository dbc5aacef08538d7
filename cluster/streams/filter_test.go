// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// filtered is a way to select and what it lets through, by the same rule that the broker is held to.
var filtered = map[string]struct {
	opt  client.SubscribeOption
	pass func(key string) bool
}{
	"pattern": {client.Keys("device/+/telemetry"), matches(wire.FilterPattern, "device/+/telemetry")},
	"rest":    {client.Keys("device/3/#"), matches(wire.FilterPattern, "device/3/#")},
	"exact":   {client.KeyExact("device/7/telemetry"), matches(wire.FilterExact, "device/7/telemetry")},
	"prefix":  {client.KeyPrefix("device/1"), matches(wire.FilterPrefix, "device/1")},
	"several": {client.Keys("device/+/telemetry", "device/2/#", "#"), func(string) bool { return true }},
	"nothing": {client.KeyExact("absent"), func(string) bool { return false }},
}

func matches(kind wire.FilterKind, value string) func(string) bool {
	return func(key string) bool { return wire.Filter{Kind: kind, Value: value}.Matches([]byte(key)) }
}

func deviceKey(i int) string {
	return fmt.Sprintf("device/%d/%s", i%20, []string{"telemetry", "command", "log"}[i%3])
}

// Filters deliver exactly the records that match, once each and in order, from history, live, over the step
// between them and over a restart, compressed or not.
func TestFilters(t *testing.T) {
	for _, compression := range []client.Compression{client.NoCompression, client.Zstd} {
		t.Run(fmt.Sprint("compression ", compression), func(t *testing.T) {
			n := margaytest.Start(t)
			create(t, n, control.StreamSpec{Name: "s", SegmentBytes: new(int64(64 << 10))})
			const total = 3000
			publish := func(from, to int) {
				ctx := within(t)
				p := n.Connect().Publisher("s", client.WithCompression(compression))
				for i := from; i < to; i++ {
					rec := client.Record{Key: []byte(deviceKey(i)), Value: fmt.Appendf(nil, "value %d, value %d", i, i)}
					if i%10 == 9 {
						rec.Key = nil // matches nothing
					}
					p.PublishAsync(ctx, rec)
				}
				if err := p.Flush(ctx); err != nil {
					t.Error(err)
				}
			}
			publish(0, total/3)
			var wg sync.WaitGroup
			for name, f := range filtered {
				var want []string
				for i := range total {
					if i%10 != 9 && f.pass(deviceKey(i)) {
						want = append(want, fmt.Sprintf("value %d, value %d", i, i))
					}
				}
				s := subscribe(t, n.Connect(), "s", client.FromEarliest(), f.opt)
				wg.Go(func() {
					got := make([]string, 0, len(want))
					for _, r := range take(t, s, len(want)) {
						got = append(got, string(r.Value))
						if r.Gap != nil {
							t.Errorf("%s: a hole between matching records was told as a gap %+v", name, *r.Gap)
						}
					}
					slices.SortFunc(got, byNumber)
					if !slices.Equal(got, want) {
						t.Errorf("%s: got %d records, want %d", name, len(got), len(want))
					}
				})
			}
			publish(total/3, 2*total/3)
			n.Restart()
			publish(2*total/3, total)
			wg.Wait()
		})
	}
}

func byNumber(a, b string) int {
	var x, y int
	_, _ = fmt.Sscanf(a, "value %d", &x)
	_, _ = fmt.Sscanf(b, "value %d", &y)
	return x - y
}

// A filtered subscription that gets nothing still ends at the mark, and its position moves on.
func TestFilteredPosition(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	fill(t, c, "s", 0, 500)
	s := subscribe(t, c, "s", client.FromEarliest(), client.KeyExact("absent"), client.UntilMark())
	for r, err := range s.Records(within(t)) {
		t.Fatalf("got %+v, %v", r, err)
	}
	live := subscribe(t, c, "s", client.KeyExact("absent"))
	fill(t, c, "s", 500, 600)
	start := live.Position()
	done := make(chan struct{})
	go func() { // progress notes are taken while somebody reads
		defer close(done)
		for range live.Records(t.Context()) {
		}
	}()
	eventually(t, "a progress note", func() bool { return live.Position() != start && live.Lag() == 0 })
	live.Close()
	<-done
}

// A subscription's filters lie within its token's grant, or are refused; a publish outside of it too (AU).
func TestKeyGrants(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := limited(t, n, "default", token.Grant{
		Actions: []token.Action{token.Publish, token.Subscribe}, Resource: "default/default/s", Keys: []string{"device/7/#", "public/+"},
	})
	for _, ok := range []client.SubscribeOption{
		client.Keys("device/7/#"), client.Keys("device/7/+/x", "public/a"), client.KeyExact("public/news"), client.KeyPrefix("device/7/t"),
	} {
		subscribe(t, c, "s", ok)
	}
	for _, wide := range []client.SubscribeOption{
		client.Keys("#"), client.Keys("device/+/telemetry"), client.Keys("device/7/#", "device/8/x"), client.KeyPrefix("device/7"), client.KeyExact("other"), client.FromLatest(),
	} {
		_, err := c.Subscribe(within(t), "s", wide)
		wantCode(t, err, code.PermissionDenied, code.ClassFatal)
	}
	p := c.Publisher("s")
	for key, ok := range map[string]bool{"device/7/t": true, "public/x": true, "device/8/t": false, "public/x/y": false, "": false} {
		rec := client.Record{Value: []byte("v")}
		if key != "" {
			rec.Key = []byte(key)
		}
		_, err := p.Publish(within(t), rec)
		if ok && err != nil {
			t.Errorf("publish %q: %v", key, err)
		}
		if !ok {
			wantCode(t, err, code.PermissionDenied, code.ClassFatal)
		}
	}
	for _, bad := range []client.SubscribeOption{client.Keys("a/#/b"), client.Keys("a+"), client.KeyExact(string(make([]byte, 5000)))} {
		_, err := c.Subscribe(within(t), "s", bad)
		wantCode(t, err, code.BadRequest, code.ClassFatal)
	}
}

// A record past its time to live is not delivered, neither from history nor after a restart; one with a delay
// is delivered at once.
func TestExpiredRecordsAreNotDelivered(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	c := n.Connect()
	ctx := within(t)
	acks, err := c.Publisher("s").PublishBatch(ctx,
		client.Record{Value: []byte("short"), TTL: 50 * time.Millisecond},
		client.Record{Value: []byte("long"), TTL: time.Hour},
		client.Record{Value: []byte("delayed"), Delay: time.Hour},
		client.Record{Value: []byte("plain")})
	if err != nil {
		t.Fatal(err)
	}
	deadline := acks[0].AppendTime.Add(51 * time.Millisecond)
	eventually(t, "the record to expire", func() bool { return time.Now().After(deadline) })
	for range 2 {
		got := ""
		for _, r := range take(t, subscribe(t, c, "s", client.FromEarliest()), 3) {
			got += string(r.Value) + " "
			if r.Gap != nil {
				t.Errorf("an expired record is told as a gap: %+v", *r.Gap)
			}
		}
		if got != "long delayed plain " {
			t.Errorf("delivered %s", got)
		}
		n.Restart()
	}
}
