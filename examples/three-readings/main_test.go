// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"margay.dev/examples/internal/exampletest"
)

// The example does what it says, against a real node. The three readings print when they get to it, so lines are compared
// whatever their order; what each has to say of one order comes in its order.
func TestRun(t *testing.T) {
	want := []string{
		"dead letter: order-3, after 3 attempts: no such address",
		"ship: order-1, attempt 1: done",
		"ship: order-2, attempt 1: the carrier does not answer",
		"ship: order-2, attempt 2: done",
		"ship: order-3, attempt 1: no such address",
		"ship: order-3, attempt 2: no such address",
		"ship: order-3, attempt 3: no such address",
		"state: order-1 is shipped",
		"state: order-2 is shipped",
		"state: order-3 is placed",
		"tail: order-1 is placed",
		"tail: order-1 is shipped",
		"tail: order-2 is placed",
		"tail: order-2 is shipped",
		"tail: order-3 is placed",
	}
	printed := exampletest.RunStream(t, "purchases", 4, run)
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	for _, story := range [][2]string{
		{"tail: order-1 is placed", "tail: order-1 is shipped"},
		{"ship: order-2, attempt 1: the carrier does not answer", "ship: order-2, attempt 2: done"},
		{"ship: order-3, attempt 3: no such address", "dead letter: order-3, after 3 attempts: no such address"},
	} {
		if slices.Index(lines, story[0]) > slices.Index(lines, story[1]) {
			t.Errorf("%q came behind %q", story[0], story[1])
		}
	}
	if slices.Sort(lines); !slices.Equal(lines, want) {
		t.Errorf("the example printed\n%s", printed)
	}
}
