// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"testing"

	"margay.dev/cluster/load"
)

// TestServeAndDrive: the server says where it is, each workload prints a result, and the server ends with its input.
func TestServeAndDrive(t *testing.T) {
	for _, transport := range []string{"quic", "tls"} {
		in, hold := io.Pipe()
		said, out := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- run(t.Context(), []string{"serve", "-transport", transport}, in, out) }()
		line, err := bufio.NewReader(said).ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var ready struct{ Addr string }
		if err := json.Unmarshal(line, &ready); err != nil {
			t.Fatal(err)
		}
		for _, workload := range []string{"upload", "download", "pingpong"} {
			var printed bytes.Buffer
			args := []string{"drive", "-transport", transport, "-addr", ready.Addr, "-workload", workload, "-size", "256", "-duration", "20ms", "-warmup", "5ms"}
			if err := run(t.Context(), args, nil, &printed); err != nil {
				t.Fatalf("%s: %v", workload, err)
			}
			var r load.Result
			if err := json.Unmarshal(printed.Bytes(), &r); err != nil || r.Rate <= 0 || r.Bytes != 256*r.Messages {
				t.Errorf("%s over %s: %s, %v", workload, transport, printed.String(), err)
			}
		}
		var printed bytes.Buffer
		if err := run(t.Context(), []string{"drive", "-transport", transport, "-addr", ready.Addr, "-workload", "idle", "-connections", "3"}, nil, &printed); err != nil {
			t.Error(err)
		}
		_ = hold.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestDiskLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"-workload", "sequential"}, {"-writers", "2"}, {"-zeroed"}} {
		var printed bytes.Buffer
		if err := run(t.Context(), append([]string{"disk", "-dir", dir, "-duration", "10ms"}, args...), nil, &printed); err != nil {
			t.Fatal(err)
		}
		var r load.Result
		if err := json.Unmarshal(printed.Bytes(), &r); err != nil || r.Rate <= 0 {
			t.Errorf("%v: %s, %v", args, printed.String(), err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{}, {"measure"}, {"drive"}, {"disk"}, {"serve", "-transport", "smoke"}, {"disk", "-dir", t.TempDir(), "-workload", "x"}} {
		if err := run(t.Context(), args, bytes.NewReader(nil), io.Discard); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
