// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"margay.dev/examples/internal/exampletest"
)

// The example does what it says, against a real node.
func TestRun(t *testing.T) {
	const want = `visits: 1000
call 1 of ann: let through true
call 2 of ann: let through true
call 3 of ann: let through true
call 4 of ann: let through false
`
	if got := exampletest.Run(t, "counters", 4, run); got != want {
		t.Errorf("the example printed\n%s\nwant\n%s", got, want)
	}
}
