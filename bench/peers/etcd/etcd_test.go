// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"margay.dev/bench/peers/peer/peertest"
)

func TestMain(m *testing.M) { peertest.Main(m, self()) }

func TestEveryWorkload(t *testing.T) { peertest.Smoke(t) }

func TestKeys(t *testing.T) { peertest.SmokeKeys(t, true) }

// Publishers over fewer connections than there are of them.
func TestShare(t *testing.T) {
	s := peertest.Serve(t)
	args := []string{"-workload", "pub", "-messages", "500", "-warmup", "0s", "-clients", "8", "-in-flight", "2", "-share", "3"}
	if r := peertest.Drive(t, s, args...); r.Messages != 500 {
		t.Errorf("%d messages, want 500", r.Messages)
	}
}

// What -place names is there for the next process.
func TestPlaceIsKept(t *testing.T) {
	s := peertest.Serve(t)
	peertest.Drive(t, s, "-workload", "pub", "-messages", "100", "-warmup", "0s", "-place", "kept")
	r := peertest.Drive(t, s, "-workload", "sub", "-messages", "100", "-prepared", "-place", "kept")
	if r.Messages != 100 {
		t.Errorf("%d messages, want 100", r.Messages)
	}
}

func TestServerThatDiesEndsTheRun(t *testing.T) {
	for _, args := range [][]string{
		{"-in-flight", "1"},
		{"-in-flight", "64"},
		{"-workload", "put", "-in-flight", "1"},
		{"-workload", "put", "-in-flight", "64"},
	} {
		// Large messages: its files grow by many megabytes at a time.
		peertest.ServerDies(t, append([]string{"-workload", "pub", "-messages", "1000000000", "-size", "65536"}, args...)...)
	}
}
