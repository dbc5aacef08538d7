// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"margay.dev/examples/data"
)

// untouched says that the demo left nothing behind in the user's home.
func untouched(t *testing.T, h *home) {
	t.Helper()
	for _, dir := range []string{".config", ".local"} {
		if _, err := os.Stat(h.path(dir)); err == nil {
			t.Errorf("the demo wrote to the user's %s", dir)
		}
	}
	if left, err := filepath.Glob(h.path("tmp/*")); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v behind, %v", left, err)
	}
}

// gone waits until a process is not there any more.
func gone(t *testing.T, pid int) {
	t.Helper()
	late := time.Now().Add(patience)
	for syscall.Kill(pid, 0) == nil {
		if time.Now().After(late) {
			t.Fatalf("the demo's node, process %d, is still there", pid)
		}
		time.Sleep(10 * time.Millisecond) // nobody tells about the death of a process that is not one's child
	}
}

func TestDemo(t *testing.T) {
	h := newHome(t)
	start := time.Now()
	got := h.run("", "demo", "-o", "json")
	if got.code != 0 || got.err != "" {
		t.Fatalf("exit %d\n%s%s", got.code, got.out, got.err)
	}
	if took := time.Since(start); took > patience {
		t.Errorf("took %v", took)
	}
	type result struct {
		Acknowledged, Resent, Found, Missing, Duplicates, Tailed int
		Before                                                   int     `json:"acknowledged_before_crash"`
		Recovery                                                 float64 `json:"recovery_seconds"`
	}
	r := objects[result](t, got.out)[0]
	if r.Acknowledged != data.Records || r.Found != data.Records || r.Tailed != data.Records || r.Missing+r.Duplicates != 0 {
		t.Errorf("%+v", r)
	}
	if r.Resent == 0 || r.Before == 0 || r.Before == data.Records || r.Recovery <= 0 {
		t.Errorf("the crash was not in the middle: %+v", r)
	}
	untouched(t, h)
}

func TestDemoInWords(t *testing.T) {
	h := newHome(t)
	out := h.ok("demo")
	for _, want := range []string{"acknowledged", "kill -9", "duplicates", "recovery", "Nothing that was acknowledged was lost"} {
		if !strings.Contains(out, want) {
			t.Errorf("the summary does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colour without a terminal")
	}
}

// nodePID reads the process id of the demo's node out of what it says.
func nodePID(t *testing.T, said string) int {
	t.Helper()
	_, after, ok := strings.Cut(said, ", process ")
	number, _, _ := strings.Cut(after, "\n")
	pid, err := strconv.Atoi(number)
	if !ok || err != nil {
		t.Fatalf("no process id in %q: %v", said, err)
	}
	return pid
}

func TestDemoInterrupted(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(s.String(), func(t *testing.T) {
			h := newHome(t)
			demo := h.start("demo")
			demo.await(demo.out, "tail  ")
			demo.signal(s)
			code := demo.exit(patience)
			gone(t, nodePID(t, demo.out.String()))
			if s == syscall.SIGKILL {
				return // nobody is left to clean up, but the node must not stay
			}
			if code == 0 {
				t.Error("a demo that was cut short calls itself good")
			}
			untouched(t, h)
		})
	}
}

func TestDemoStays(t *testing.T) {
	h := newHome(t)
	demo := h.start("demo", "--stay")
	demo.await(demo.out, "stream info")
	for line := range strings.Lines(demo.out.String()) {
		line = strings.TrimSpace(line)
		if i := strings.Index(line, " --context "); i > 0 {
			args := strings.Fields(strings.ReplaceAll(line, "'my own record'", "mine"))
			h.ok(args[1:]...)
		}
	}
	demo.signal(syscall.SIGINT)
	if code := demo.exit(patience); code != 0 {
		t.Errorf("exit %d", code)
	}
	untouched(t, h)
}
