// SPDX-License-Identifier: Apache-2.0

package systems

import (
	"slices"
	"strings"
	"testing"

	"margay.dev/bench/internal/child"
)

func TestCommandsAreReadable(t *testing.T) {
	b := Binaries("/repo/bin/bench")
	s := &child.Server{Ready: child.Ready{Addr: "nats://127.0.0.1:40179", PID: 4711}}
	for _, j := range []Job{
		b.Margay(Load{Workload: "pub", Clients: 2, Transport: "quic", Fsync: "always"}), b.Peer("nats", Load{Workload: "pub", Mode: "always", TLS: true}),
		b.Bare(Load{Workload: "pub", Transport: "tls", Fsync: "never"}), b.Raw("quic", "-size", "1"), b.Idle("-measure", "process"),
	} {
		for _, c := range []child.Command{j.Serve("/repo/bin/x/cell"), j.Drive("/repo/bin/x/cell", s)} {
			got := Readable(c, "/repo", string(b), "/repo/bin/x/cell")
			if strings.Contains(got, "/repo") || strings.Contains(got, "4711") || strings.Contains(got, "40179") || !strings.Contains(got, "bin/bench/") {
				t.Errorf("%s", got)
			}
		}
	}
	if c := Readable(child.Command{Argv: []string{"serve", "--addr", "127.0.0.1:0"}}, "", "", ""); c != "serve --addr 127.0.0.1:0" {
		t.Errorf("%s: a free port is nobody's", c)
	}
}

// TestFlags: what is not said is not passed, and a replay takes no time that it is told.
func TestFlags(t *testing.T) {
	l := Load{Workload: "pub", Clients: 64, InFlight: 1, Size: 128, Duration: "2s", Warmup: "1s"}
	if got := l.drive(); !slices.Equal(got, strings.Fields("drive --workload pub --clients 64 --in-flight 1 --size 128 --duration 2s --warmup 1s")) {
		t.Errorf("%v", got)
	}
	l = Load{Workload: replay, Size: 128, Messages: 1000, Duration: "2s", Warmup: "1s"}
	if got := l.flags(); !slices.Equal(got, strings.Fields("--size 128 --messages 1000")) {
		t.Errorf("%v", got)
	}
}
