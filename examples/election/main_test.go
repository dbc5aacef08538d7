// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"margay.dev/examples/internal/exampletest"
)

// The example does what it says, against a real node.
func TestRun(t *testing.T) {
	const want = `ann leads
bob leads, with a higher token: true
what ann does now is refused; the report is "by bob"
`
	if got := exampletest.Run(t, "locks", 4, run); got != want {
		t.Errorf("the example printed\n%s\nwant\n%s", got, want)
	}
}
