// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"margay.dev/examples/internal/exampletest"
)

// The example does what it says, against a real node.
func TestRun(t *testing.T) {
	const want = `checkout/new: false, checkout/express: false
checkout/express: true
checkout/express is on
`
	if got := exampletest.Run(t, "flags", 4, run); got != want {
		t.Errorf("the example printed\n%s\nwant\n%s", got, want)
	}
}
