// SPDX-License-Identifier: Apache-2.0

package margaytest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire/control"
)

func Test(t *testing.T) {
	n := margaytest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.CreateStream(ctx, "default", "default", control.StreamSpec{Name: "orders", Shards: new(4)}); err != nil {
		t.Fatal(err)
	}
	c := n.Connect()
	p := c.Publisher("orders")
	for i := range 100 {
		ack, err := p.Publish(ctx, client.Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		if !ack.Flushed {
			t.Fatalf("%+v", ack)
		}
	}
	n.Restart()
	s, err := c.Subscribe(ctx, "orders", client.FromEarliest())
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for r, err := range s.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		_ = r
		if got++; got == 100 {
			break
		}
	}
}

//go:fix inline
