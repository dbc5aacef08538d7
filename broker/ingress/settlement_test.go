// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"testing"

	"margay.dev/broker/ingress"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/token"
)

// A batch that settles messages needs what a consumer needs, and a token that only publishes does not have.
func TestASettlementNeedsTheGrantToConsume(t *testing.T) {
	f := start(t, func(c *ingress.Config) { c.Verifier = only{} })
	b := batch.NewBuilder(batch.Limits{})
	if err := b.SetSettlement(batch.Settlement{Group: 1, Generation: 1, Tokens: []batch.SettledToken{{HandOut: 1}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.Add(batch.Record{Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	built, err := b.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	for action, want := range map[token.Action]code.Code{token.Publish: code.PermissionDenied, token.Any: code.NotFound} {
		conn := f.dial()
		control := f.lane(conn)
		f.want(control, &wire.Hello{VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.AllFeatures}, &wire.HelloOk{})
		f.want(control, &wire.Auth{Token: string(action)}, &wire.AuthOk{})
		conn.SetMaxFrame(wire.MaxFrame)
		var e wire.Error
		if f.want(f.lane(conn), &wire.Publish{Log: f.log.ID, Batch: built}, &e); e.Code != want {
			t.Errorf("with %s it is answered with %+v, want %v", action, e, want)
		}
	}
}
