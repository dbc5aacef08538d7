// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"margay.dev/broker/ingress"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// keyed publishes values under keys, and waits until the shard knows its keys.
func (f *front) keyed(l *session.Lane, keys ...string) {
	f.t.Helper()
	for i, key := range keys {
		b := hosttest.RequestOf(f.t, hosttest.NewAnswers(), 1, batch.Record{Key: []byte(key), Value: fmt.Append(nil, i), Timestamp: 1}).Publish.Batch
		f.want(l, &wire.Publish{Log: f.log.ID, Batch: b}, &wire.Published{})
	}
	s := f.rig.Shard(f.log.ID, 0)
	hosttest.Eventually(f.t, "the shard to know its keys", func() bool {
		_, err := s.Keys(context.Background())
		return err == nil
	})
}

func (f *front) ask(keys ...string) *wire.Get {
	ask := &wire.Get{Log: f.log.ID}
	for _, k := range keys {
		ask.Keys = append(ask.Keys, []byte(k))
	}
	return ask
}

// A Get that waits for an offset, and a List, do not hold up what is asked behind them on their lane.
func TestReadsDoNotWaitForEachOther(t *testing.T) {
	f := start(t, nil)
	c, _ := f.client()
	writes, l := f.lane(c), f.lane(c)
	f.keyed(writes, "a", "b", "c")
	late := f.ask("a")
	late.AtLeast = 4
	if err := l.SendFrame(1, late); err != nil {
		t.Fatal(err)
	}
	var got wire.Got
	if f.want(l, f.ask("b", "none", "a"), &got); len(got.Entries) != 3 || string(got.Entries[0].Value) != "1" || got.Entries[1].Kind != wire.EntryNone || got.AsOf != 3 {
		t.Errorf("got %+v", got)
	}
	var listed wire.Listed
	if f.want(l, &wire.List{Log: f.log.ID, Limit: 2}, &listed); len(listed.Entries) != 2 || !listed.More || listed.Next != "b" {
		t.Errorf("listed %+v", listed)
	}
	var counted wire.Counted
	if f.want(l, &wire.Count{Log: f.log.ID, Filter: wire.Filter{Kind: wire.FilterPattern, Value: "+"}}, &counted); counted.Count != 3 {
		t.Errorf("counted %+v", counted)
	}
	f.keyed(writes, "a")
	if f.next(l, &got); string(got.Entries[0].Value) != "0" || got.Entries[0].Offset != 3 || got.AsOf != 4 {
		t.Errorf("the Get that waited got %+v", got)
	}
	late.AtLeast, late.TimeoutMs = 100, 1
	var e wire.Error
	if f.want(l, late, &e); e.Code != code.Timeout {
		t.Errorf("what does not come: %+v", e)
	}
}

// Many Gets in flight are each answered with their own key.
func TestManyGetsInFlight(t *testing.T) {
	f := start(t, nil)
	c, _ := f.client()
	l := f.lane(c)
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	f.keyed(f.lane(c), keys...)
	const gets = 5000
	go func() {
		for i := range gets {
			if err := l.SendFrame(uint64(i), f.ask(keys[i%len(keys)])); err != nil {
				for err != nil { // the lane's queue is full
					err = l.Write(wire.AppendFrame(nil, uint64(i), f.ask(keys[i%len(keys)])))
				}
			}
		}
	}()
	for range gets {
		h, err := l.ReadHeader()
		if err != nil {
			t.Fatal(err)
		}
		body, err := l.AppendBody(nil)
		if err != nil {
			t.Fatal(err)
		}
		var got wire.Got
		if err := wire.ParseFrame(h, &got, body); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(h.Corr % uint64(len(keys))); string(got.Entries[0].Value) != want {
			t.Fatalf("get %d is answered with %q", h.Corr, got.Entries[0].Value)
		}
	}
}

// some grants some keys of every log; to the token "less" fewer.
type some struct{}

func (some) Verify(tok string) (*token.Claims, error) {
	g := token.Grant{Actions: []token.Action{token.Subscribe}, Resource: "*", Keys: []string{"mine/#", "ours/+"}}
	if tok == "less" {
		g.Keys = g.Keys[:1]
	}
	all := token.Grant{Actions: []token.Action{token.Publish}, Resource: "*"}
	return &token.Claims{Subject: "test", Tenant: "default", ExpiresAt: time.Now().Add(time.Hour), Grants: []token.Grant{g, all}}, nil
}

// Who may read some of the keys reads no others, whatever he asks with; and with fewer of them his watches end.
func TestReadsAreHeldToTheToken(t *testing.T) {
	f := start(t, func(c *ingress.Config) { c.Verifier = some{} })
	c, control := f.client()
	l := f.lane(c)
	f.keyed(f.lane(c), "mine/1", "ours/1", "theirs/1")
	f.want(l, f.ask("mine/1", "ours/1"), &wire.Got{})
	pattern := func(v string) wire.Filter { return wire.Filter{Kind: wire.FilterPattern, Value: v} }
	f.want(l, &wire.List{Log: f.log.ID, Limit: 1, Filter: pattern("mine/+")}, &wire.Listed{})
	for _, request := range []wire.Frame{
		f.ask("mine/1", "theirs/1"),
		&wire.List{Log: f.log.ID, Limit: 1},
		&wire.Count{Log: f.log.ID, Filter: pattern("+/1")},
		&wire.Watch{Log: f.log.ID, ID: 1},
		&wire.Watch{Log: f.log.ID, ID: 1, Filter: wire.Filter{Kind: wire.FilterPrefix, Value: "ours/"}},
	} {
		var e wire.Error
		if f.want(l, request, &e); e.Code != code.PermissionDenied {
			t.Errorf("%+v is answered with %+v", request, e)
		}
	}
	f.want(l, &wire.Watch{Log: f.log.ID, ID: 1, Filter: pattern("mine/#")}, &wire.Watched{})
	f.next(l, &wire.WatchDone{})
	f.want(l, &wire.Watch{Log: f.log.ID, ID: 2, Filter: pattern("ours/1")}, &wire.Watched{})
	f.next(l, &wire.WatchDone{})
	f.want(control, &wire.Auth{Token: "less"}, &wire.AuthOk{})
	var end wire.WatchEnd
	if f.next(l, &end); end.ID != 2 || end.Code != code.PermissionDenied {
		t.Errorf("the watch that is not granted any more: %+v", end)
	}
	f.keyed(f.lane(c), "mine/2")
	f.next(l, &wire.Deliver{})
}

// only grants one action on every log: what its token is called.
type only struct{}

func (only) Verify(tok string) (*token.Claims, error) {
	g := token.Grant{Actions: []token.Action{token.Action(tok)}, Resource: "*"}
	return &token.Claims{Subject: "test", Tenant: "default", ExpiresAt: time.Now().Add(time.Hour), Grants: []token.Grant{g}}, nil
}

// Reading and writing are granted on caches, and mean nothing on a stream; what is granted on a stream holds for a cache.
func TestGrantsOnCaches(t *testing.T) {
	cache := control.Log{ID: batch.NewLogID(), Name: "cache", Preset: control.PresetCache}
	cache.SetDefaults()
	for _, c := range []struct {
		log            control.Log
		action         token.Action
		reads, changes bool
	}{
		{cache, token.Read, true, false},
		{cache, token.Write, false, true},
		{cache, token.Subscribe, true, false},
		{cache, token.Publish, false, true},
		{cache, token.Consume, false, false},
		{hosttest.Log(nil), token.Read, false, false},
		{hosttest.Log(nil), token.Write, false, false},
		{hosttest.Log(nil), token.Subscribe, true, false},
	} {
		f := startWith(t, c.log, func(cfg *ingress.Config) { cfg.Verifier = only{} })
		conn := f.dial()
		control := f.lane(conn)
		f.want(control, &wire.Hello{VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.AllFeatures}, &wire.HelloOk{})
		f.want(control, &wire.Auth{Token: string(c.action)}, &wire.AuthOk{})
		conn.SetMaxFrame(wire.MaxFrame)
		l := f.lane(conn)
		may := func(granted bool, request, answer wire.Frame) {
			t.Helper()
			var e wire.Error
			if granted {
				f.want(l, request, answer)
			} else if f.want(l, request, &e); e.Code != code.PermissionDenied {
				t.Errorf("%s on %s: %v is answered with %+v", c.action, f.log.Name, request.Type(), e)
			}
		}
		b := hosttest.RequestOf(t, hosttest.NewAnswers(), 1, batch.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: 1}).Publish.Batch
		may(c.reads || c.changes || c.action == token.Consume, &wire.Lookup{Name: f.log.FullName()}, &wire.LogInfo{})
		may(c.changes, &wire.Publish{Log: f.log.ID, Batch: b}, &wire.Published{})
		if c.reads {
			hosttest.Eventually(t, "the shard to know its keys", func() bool {
				_, err := f.rig.Shard(f.log.ID, 0).Keys(context.Background())
				return err == nil
			})
		}
		may(c.reads, f.ask("k"), &wire.Got{})
		may(c.reads, &wire.List{Log: f.log.ID, Limit: 1}, &wire.Listed{})
		may(c.reads, &wire.Watch{Log: f.log.ID, ID: 1}, &wire.Watched{})
	}
}

// A lane of watches is of one log, takes no other requests, and ends with its client.
func TestWatchLane(t *testing.T) {
	f := start(t, nil)
	c, _ := f.client()
	l := f.lane(c)
	f.keyed(f.lane(c), "a", "b")
	var e wire.Error
	if f.want(l, &wire.Watch{Log: f.log.ID, Shard: 9, ID: 1}, &e); e.Code != code.NotFound {
		t.Errorf("a shard that is not there: %+v", e)
	}
	f.want(l, f.ask("a"), &wire.Got{}) // still a lane of requests
	f.want(l, &wire.Watch{Log: f.log.ID, ID: 1, Start: wire.WatchSnapshot}, &wire.Watched{})
	f.next(l, &wire.WatchEntries{})
	f.next(l, &wire.WatchDone{})
	if f.gauge("margay_watches") != 1 || f.gauge("margay_watch_feeds") != 1 {
		t.Error("the watch is not counted")
	}
	other := f.log.ID
	other[0] ^= 1
	for _, request := range []wire.Frame{&wire.Watch{Log: other, ID: 2}, f.ask("a"), &wire.Watch{Log: f.log.ID, ID: 1}} {
		if f.want(l, request, &e); e.Code != code.BadRequest {
			t.Errorf("%+v is answered with %+v", request, e)
		}
	}
	f.want(l, &wire.Unwatch{ID: 1}, &wire.WatchEnd{})
	f.want(l, &wire.Watch{Log: f.log.ID, ID: 1}, &wire.Watched{})
	f.next(l, &wire.WatchDone{})
	_ = l.Close()
	hosttest.Eventually(t, "the watches to be forgotten", func() bool { return f.gauge("margay_watches") == 0 && f.gauge("margay_watch_feeds") == 0 })
}

// A node that goes away tells its watches so, and where to go on.
func TestTheEndIsToldToWatches(t *testing.T) {
	f := start(t, nil)
	c, _ := f.client()
	l := f.lane(c)
	f.keyed(f.lane(c), "a", "b")
	f.want(l, &wire.Watch{Log: f.log.ID, ID: 1}, &wire.Watched{})
	f.next(l, &wire.WatchDone{})
	f.stop()
	var end wire.WatchEnd
	if f.next(l, &end); end.ID != 0 || end.Code != code.ShuttingDown || end.Resume != 2 {
		t.Errorf("the end: %+v", end)
	}
	<-f.ended
}
