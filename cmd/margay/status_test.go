// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"margay.dev/wire/control"
)

func TestStatusAndTop(t *testing.T) {
	h := newHome(t)
	serve := h.serve()
	h.ok("stream", "create", "orders", "--shards", "2")
	h.ok("pub", "orders", "one", "--key", "k")

	text := h.ok("status")
	for _, want := range []string{"verdict", "healthy", "2 open", "free", "0 connections"} {
		if !strings.Contains(text, want) {
			t.Errorf("status does not say %q:\n%s", want, text)
		}
	}
	if got := h.ok("status", "-o", "raw"); got != "healthy\n" {
		t.Errorf("raw: %q", got)
	}
	if got := objects[control.Status](t, h.ok("status", "-o", "json")); len(got) != 1 || got[0].Totals.RecordsIn != 1 || got[0].Shards.States["open"] != 2 {
		t.Errorf("json: %+v", got)
	}

	type interval struct {
		Node     string
		Interval float64 `json:"interval_seconds"`
		Records  float64 `json:"records_in_per_second"`
	}
	lines := objects[interval](t, h.ok("top", "--interval", "100ms", "--count", "2", "-o", "json"))
	if len(lines) != 2 || lines[0].Node == "" || lines[0].Interval <= 0 || lines[0].Records != 0 {
		t.Errorf("top: %+v", lines)
	}
	if got := h.ok("top", "--interval", "100ms"); strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("top in a pipe: %q", got)
	}
	if got := h.ok("top", "--interval", "100ms", "-o", "raw"); got != "0 0\n" {
		t.Errorf("top, raw: %q", got)
	}
	for _, args := range [][]string{{"top", "--interval", "1ms"}, {"top", "--count", "0"}, {"status", "x"}} {
		if got := h.run("", args...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}

	for range 8 {
		h.ok("pub", "orders", "more", "--key", "k")
	}
	serve.signal(syscall.SIGTERM)
	serve.exit(30 * time.Second)
	if got := h.run("", "status", "--timeout", "1s"); got.code != 3 {
		t.Errorf("status of nobody: %+v", got)
	}
	segments, err := filepath.Glob(h.path(".local/share/margay/shards/*/*/*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("no segment below %s, %v", h.dir, err)
	}
	b, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0x10 // of what was flushed long before the end
	if err := os.WriteFile(segments[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	h.serve()
	got := h.run("", "status")
	if got.code != 4 || !strings.Contains(got.out, "quarantined") || !strings.Contains(got.out, "default/default/orders shard") ||
		!strings.Contains(got.err, "the node is degraded") || !strings.Contains(got.err, "margay log verify") {
		t.Errorf("status of a damaged node: %+v", got)
	}
}
