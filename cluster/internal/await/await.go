// SPDX-License-Identifier: Apache-2.0

// Package await waits in tests for what must come: with a deadline that no test passes by and that no slow machine meets,
// and that names what it waited for; it refuses to sleep.
package await

import (
	"context"
	"testing"
	"time"
)

// Patience is the deadline. It is for what has gone wrong: a test that needs less to be right is not right.
const Patience = 2 * time.Minute

const look = 2 * time.Millisecond // between two looks at a condition

// Within is a context for what must come.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// True waits for a condition that no event announces.
func True(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(look)
	defer tick.Stop()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("waited %v for: %s", Patience, what)
		}
	}
}
