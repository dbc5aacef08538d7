// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"margay.dev/bench/internal/build"
)

// TestQuick goes through all lives of a node with little in it. How fast it was says nothing.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("long: run ./task long")
	}
	root, err := build.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := build.Ours(t.Context(), root, dir, "margay"); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"-json", "-quick", "-messages", "1000", "-rate", "100", "-groups", "20", "-data", data, "-binaries", dir}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	var r Result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	if r.Messages != 1000 || r.Open <= 0 || r.OpenStopped <= 0 || r.Due != 100 || r.Late == nil || r.Groups != 20 || r.Ranges < 999 || r.RangesRatio <= 0 {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if err := r.print(&out); err != nil || strings.Contains(out.String(), "%!") {
		t.Errorf("%s, %v", out.String(), err)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range []string{
		"more", "-messages 0", "-size 4", "-groups 5 -queues 6", "-rate 0", "-ranges 0", "-backlog 0", "-idle 0s", "-transport udp", "-nonsense",
	} {
		if err := run(context.Background(), strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("%s was taken", args)
		}
	}
}
