// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"margay.dev/bench/peers/peer/peertest"
)

func TestMain(m *testing.M) { peertest.Main(m, self()) }

func TestEveryWorkload(t *testing.T) { peertest.Smoke(t) }

// What -place names is there for the next process.
func TestPlaceIsKept(t *testing.T) {
	s := peertest.Serve(t)
	peertest.Drive(t, s, "-workload", "pub", "-messages", "100", "-warmup", "0s", "-place", "kept")
	r := peertest.Drive(t, s, "-workload", "sub", "-messages", "100", "-prepared", "-place", "kept")
	if r.Messages != 100 {
		t.Errorf("%d messages, want 100", r.Messages)
	}
}
