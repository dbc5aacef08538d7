// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"testing"

	"margay.dev/broker/ingress"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// granted is a connection that may do one thing, and its control lane.
func (f *front) granted(a token.Action) (session.Conn, *session.Lane) {
	f.t.Helper()
	c := f.dial()
	l := f.lane(c)
	f.want(l, &wire.Hello{VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.AllFeatures}, &wire.HelloOk{})
	f.want(l, &wire.Auth{Token: string(a)}, &wire.AuthOk{})
	c.SetMaxFrame(wire.MaxFrame)
	return c, l
}

// TestGrantsOnGroups: who may consume may do all, who manages the log may change its groups and look at them, and nobody else
// anything.
func TestGrantsOnGroups(t *testing.T) {
	f := startWith(t, hosttest.Log(func(l *control.Log) { l.Keep = control.KeepUnsettled }), func(cfg *ingress.Config) { cfg.Verifier = only{} })
	for _, x := range []struct {
		action            token.Action
		changes, consumes bool
	}{{token.Manage, true, false}, {token.Consume, true, true}, {token.Publish, false, false}, {token.Subscribe, false, false}} {
		_, l := f.granted(x.action)
		may := func(granted bool, request, answer wire.Frame) {
			t.Helper()
			var e wire.Error
			if granted {
				f.want(l, request, answer)
			} else if f.want(l, request, &e); e.Code != code.PermissionDenied {
				t.Errorf("%s: %v is answered with %+v", x.action, request.Type(), e)
			}
		}
		may(x.changes, &wire.GroupCommand{ID: [16]byte{1}, Log: f.log.ID, Op: wire.GroupCreate, Group: "workers"}, &wire.GroupDone{})
		may(x.changes, &wire.GroupQuery{Log: f.log.ID, Limit: 1}, &wire.GroupInfos{})
		may(x.consumes, &wire.Browse{Log: f.log.ID, Group: "workers", States: wire.MessageReady, Limit: 1, Filter: everyKey}, &wire.Browsed{})
		may(x.consumes, &wire.Consume{Log: f.log.ID, Group: "workers", MaxInFlight: 1, Concurrency: 1, Shards: []uint32{0}}, &wire.Consumed{})
	}
}

// TestAConsumerEndsWithItsGrant: a token that does not allow it any more ends it, and its messages go to others untried.
func TestAConsumerEndsWithItsGrant(t *testing.T) {
	f := startWith(t, hosttest.Log(func(l *control.Log) { l.Keep = control.KeepUnsettled }), func(cfg *ingress.Config) {
		cfg.Verifier, cfg.MaxSubscriptions = only{}, 1
	})
	_, pub := f.granted(token.Publish)
	c, l := f.granted(token.Consume)
	f.want(l, &wire.GroupCommand{ID: [16]byte{1}, Log: f.log.ID, Op: wire.GroupCreate, Group: "workers"}, &wire.GroupDone{})
	x := f.consume(c, 10)
	var e wire.Error
	f.want(f.lane(c), &wire.Consume{Log: f.log.ID, Group: "workers", MaxInFlight: 1, Concurrency: 1, Shards: []uint32{0}}, &e)
	if e.Code != code.TooMany {
		t.Errorf("one consumer more than the connection may have: %+v", e)
	}
	f.push(pub, values(3)...)
	x.take(3)
	f.want(l, &wire.Auth{Token: string(token.Publish)}, &wire.AuthOk{})
	x.read(func() bool { return len(x.ends) > 0 })
	if end := x.ends[0]; end.Shard != wire.AllShards || end.Code != code.PermissionDenied {
		t.Errorf("the end: %+v", end)
	}
	c2, _ := f.granted(token.Consume)
	for _, m := range f.consume(c2, 10).take(3) {
		if m.attempt != 1 {
			t.Errorf("%v comes as another attempt", m)
		}
	}
}
