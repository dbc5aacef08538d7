// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"syscall"
	"testing"

	"margay.dev/bench/peers/peer/peertest"
)

func TestMain(m *testing.M) { peertest.Main(m, self()) }

func needs(t *testing.T) {
	t.Helper()
	if _, _, err := find(); err != nil {
		t.Skip("NOT TESTED:", err)
	}
}

func TestQueues(t *testing.T) {
	needs(t)
	peertest.SmokeQueue(t)
}

func TestAcknowledgmentsOfMany(t *testing.T) {
	needs(t)
	r := peertest.Drive(t, peertest.Serve(t), strings.Fields("-workload work -messages 3001 -ack-every 100")...)
	if r.Messages != 3001 {
		t.Errorf("%d messages", r.Messages)
	}
}

func TestTermIsAnOrderlyEnd(t *testing.T) {
	needs(t)
	if err := peertest.Serve(t).Signal(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

func TestMisuseIsRefused(t *testing.T) {
	for _, args := range []string{"serve", "drive -addr 127.0.0.1:1", "drive -workload work", "nothing"} {
		if code, said := peertest.ExitCode(t, peertest.Command(t, strings.Fields(args)...)); code != 2 {
			t.Errorf("%s: ended with %d: %s", args, code, said)
		}
	}
	for _, args := range []string{"-workload pub", "-workload work -keys 5 -ordered", "-workload work -ack-every 0"} {
		args = "drive -addr 127.0.0.1:1 " + args
		if code, said := peertest.ExitCode(t, peertest.Command(t, strings.Fields(args)...)); code != 1 {
			t.Errorf("%s: ended with %d: %s", args, code, said)
		}
	}
}

func TestServerThatDiesEndsTheRun(t *testing.T) {
	needs(t)
	peertest.ServerDies(t, "-workload", "work", "-messages", "10000000")
}
