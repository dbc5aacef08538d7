// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"syscall"
	"testing"

	"margay.dev/bench/peers/peer/peertest"
)

func TestMain(m *testing.M) { peertest.Main(m, self()) }

func TestEveryWorkload(t *testing.T) {
	for name, args := range map[string][]string{
		"default": nil,
		"always":  {"-mode", modeAlways},
		"TLS":     {"-tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peertest.Smoke(t, args...)
		})
	}
}

func TestKeys(t *testing.T) {
	for name, args := range map[string][]string{"default": nil, "always": {"-mode", modeAlways}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peertest.SmokeKeys(t, true, args...)
		})
	}
}

func TestQueues(t *testing.T) { peertest.SmokeQueue(t) }

// The other ways to do the same.
func TestOtherWays(t *testing.T) {
	s := peertest.Serve(t)
	for _, args := range []string{
		"-workload pub -via raw -warmup 0s -messages 3000",
		"-workload sub -consume push -messages 3000",
		"-workload put -via raw -warmup 0s -messages 3000",
		"-workload put -via calls -warmup 0s -messages 3000",
		"-workload get -clients 8 -in-flight 1 -share 3 -warmup 0s -messages 3000",
		"-workload work -messages 3000 -retention workqueue -pull 100",
		"-workload get -via raw -warmup 0s -messages 3000 -history 1",
	} {
		if r := peertest.Drive(t, s, strings.Fields(args)...); r.Messages != 3000 {
			t.Errorf("%s: %d messages", args, r.Messages)
		}
	}
}

// A batch without end is answered up to its last message, also when it is not a whole group.
func TestFastIngest(t *testing.T) {
	s := peertest.Serve(t)
	for _, args := range []string{
		"-in-flight 500 -messages 2001",
		"-in-flight 1 -messages 50",
		"-in-flight 100 -messages 3003 -clients 3",
	} {
		r := peertest.Drive(t, s, append(strings.Fields(args), "-workload", "pub", "-via", viaFast, "-warmup", "0s")...)
		if r.Messages != r.Spec.Messages {
			t.Errorf("%s: %d messages", args, r.Messages)
		}
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

func TestTermIsAnOrderlyEnd(t *testing.T) {
	if err := peertest.Serve(t).Signal(t, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

func TestMisuseIsRefused(t *testing.T) {
	for _, args := range []string{
		"serve",
		"serve -dir " + t.TempDir() + " -mode sometimes",
		"drive -addr nats://127.0.0.1:1",
		"drive -workload pub",
		"nothing",
	} {
		if code, said := peertest.ExitCode(t, peertest.Command(t, strings.Fields(args)...)); code != 2 {
			t.Errorf("%s: ended with %d: %s", args, code, said)
		}
	}
}

func TestServerThatDiesEndsTheRun(t *testing.T) {
	for _, args := range [][]string{
		{"-via", "sync", "-in-flight", "1"},
		{"-via", "async"},
		{"-via", "raw"},
		{"-via", "fast"},
		{"-workload", "put", "-via", "calls"},
		{"-workload", "put"},
	} {
		peertest.ServerDies(t, append([]string{"-workload", "pub", "-messages", "1000000000"}, args...)...)
	}
}
