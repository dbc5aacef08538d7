// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"margay.dev/bench/internal/node"
	"margay.dev/cluster/margaytest"
)

// TestEach: what is opened is on the node, and the node tells what it holds. How much that is here, where the client lives in
// the same process, says nothing.
func TestEach(t *testing.T) {
	n, err := node.New(margaytest.Start(t).Context())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, what := range []string{"connections", "lanes", "watches"} {
		o := &opened{node: n, transport: "quic"}
		defer o.close()
		before, err := n.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		open, gauge := o.connections, "margay_connections"
		switch what {
		case "lanes":
			open, gauge = o.lanes, "margay_subscriptions"
		case "watches":
			open, gauge = o.watches, "margay_watches"
			if err := o.connections(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
		}
		if err := open(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		after, err := n.Metrics(t.Context())
		if err != nil || after[gauge]-before[gauge] < 5 {
			t.Errorf("%s: %v before, %v after, %v", what, before[gauge], after[gauge], err)
		}
		if _, err := each(t.Context(), n, what, "quic", 3); err != nil {
			t.Error(err)
		}
	}
	if _, err := each(t.Context(), n, "nonsense", "quic", 3); err == nil {
		t.Error("nonsense was measured")
	}
}

func TestRouting(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-measure", "routing"}, &out); err != nil {
		t.Fatal(err)
	}
	var r Routing
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Rate <= 0 {
		t.Errorf("%s, %v", out.String(), err)
	}
	if err := run(t.Context(), nil, io.Discard); err == nil {
		t.Error("a node that is nowhere was measured")
	}
}
