// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"margay.dev/bench/peers/peer"
	"margay.dev/bench/peers/peer/peertest"
	"margay.dev/cluster/load"
)

func TestMain(m *testing.M) { peertest.Main(m, self()) }

func needsRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("NOT TESTED: no redis-server on this machine (apt-get install redis-server)")
	}
}

func TestEveryWorkload(t *testing.T) {
	needsRedis(t)
	for _, mode := range []string{modeDefault, modeAlways, modeNo} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			peertest.Smoke(t, "-mode", mode)
		})
	}
}

func TestKeys(t *testing.T) {
	needsRedis(t)
	for _, mode := range []string{modeDefault, modeAlways} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			peertest.SmokeKeys(t, false, "-mode", mode)
		})
	}
}

// Answers to GETs are told of one by one and in order, wherever a read cuts them, and only a whole value is a good one.
func TestAnswersOfKeysAreReadInAnyPieces(t *testing.T) {
	s := kv{&system{spec: load.Spec{Size: 3}}}
	const text = "$3\r\nabc\r\n$-1\r\n-OOM no room\r\n$1\r\na\r\n$3\r\ndef\r\n"
	for cut := range len(text) + 1 {
		var told []string
		rest := text
		for _, end := range []int{cut, len(text)} {
			for {
				n, failed, err := s.wholeGet([]byte(rest[:end-(len(text)-len(rest))]))
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				told, rest = append(told, map[bool]string{true: "good", false: "failed"}[failed == nil]), rest[n:]
			}
		}
		if got := strings.Join(told, " "); got != "good failed failed failed good" {
			t.Fatalf("cut at %d: %s", cut, got)
		}
	}
	for _, bad := range []string{"+OK\r\n", "$4\r\nabcd\r\n", "\n"} {
		if _, _, err := s.wholeGet([]byte(bad)); !errors.Is(err, errProtocol) {
			t.Errorf("%q: %v", bad, err)
		}
		if bad[0] != '+' {
			if _, _, err := wholeSet([]byte(bad)); !errors.Is(err, errProtocol) {
				t.Errorf("SET, %q: %v", bad, err)
			}
		}
	}
}

// What -place names is there for the next process.
func TestPlaceIsKept(t *testing.T) {
	needsRedis(t)
	s := peertest.Serve(t)
	peertest.Drive(t, s, "-workload", "pub", "-messages", "100", "-warmup", "0s", "-place", "kept")
	r := peertest.Drive(t, s, "-workload", "sub", "-messages", "100", "-prepared", "-place", "kept")
	if r.Messages != 100 {
		t.Errorf("%d messages, want 100", r.Messages)
	}
}

// A comparison that is killed leaves no server behind, which would take its share of what comes next.
func TestServerDiesWithUs(t *testing.T) {
	needsRedis(t)
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux: nothing else ends a child with its parent")
	}
	s := peertest.Serve(t)
	if err := s.Signal(t, syscall.SIGKILL); err == nil {
		t.Fatal("a kill was an orderly end")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		c, err := connect(ctx, s.Addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("redis-server %d still listens", s.PID)
		}
	}
}

// Where Redis is not installed, whoever compares can tell that from a failure.
func TestWithoutRedisTheCodeSaysSo(t *testing.T) {
	cmd := peertest.Command(t, "serve", "-dir", t.TempDir())
	cmd.Env = append(cmd.Env, "PATH="+t.TempDir())
	code, said := peertest.ExitCode(t, cmd)
	if code != peer.ExitUnavailable || !strings.Contains(said, "no redis-server") {
		t.Errorf("ended with %d: %s", code, said)
	}
}

// Answers are told of one by one and in order, wherever a read cuts them.
func TestAnswersAreReadInAnyPieces(t *testing.T) {
	const text = "$3\r\n1-0\r\n$4\r\n10-0\r\n-OOM no room\r\n$3\r\n2-0\r\n"
	for cut := range len(text) + 1 {
		var told []string
		p := &pipe{under: peer.NewUnderWay(4, func(_ int64, n int, err error) {
			for range n {
				told = append(told, map[bool]string{true: "good", false: "failed"}[err == nil])
			}
		})}
		for at := range int64(4) {
			if err := p.under.Add(at); err != nil {
				t.Fatal(err)
			}
		}
		used, err := p.tell([]byte(text[:cut]))
		rest, err2 := p.tell([]byte(text[used:]))
		if err := errors.Join(err, err2); err != nil || used+rest != len(text) {
			t.Fatalf("cut at %d: read %d and %d: %v", cut, used, rest, err)
		}
		if got := strings.Join(told, " "); got != "good good failed good" {
			t.Fatalf("cut at %d: %s", cut, got)
		}
	}
}

func TestOtherAnswersEndTheConnection(t *testing.T) {
	for _, text := range []string{":1\r\n", "+OK\r\n", "$-1\r\n", "$x\r\n", "$99999999999999999999\r\n", "\n"} {
		p := &pipe{under: peer.NewUnderWay(1, load.Done(func(int64, int, error) {}))}
		if _, err := p.tell([]byte(text)); !errors.Is(err, errProtocol) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestServerThatDiesEndsTheRun(t *testing.T) {
	needsRedis(t)
	for _, args := range [][]string{
		{"-in-flight", "1"},
		{"-in-flight", "500"},
		{"-workload", "put", "-in-flight", "1"},
		{"-workload", "put", "-in-flight", "64"},
	} {
		peertest.ServerDies(t, append([]string{"-workload", "pub", "-messages", "1000000000"}, args...)...)
	}
}
