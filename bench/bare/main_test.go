// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"margay.dev/cluster/load"
)

// TestServeAndDrive runs the generator against the prototype: every message is acknowledged.
func TestServeAndDrive(t *testing.T) {
	for _, flags := range [][]string{nil, {"-no-flush"}} {
		in, hold := io.Pipe()
		said, out := io.Pipe()
		ended := make(chan error, 1)
		args := append([]string{"serve", "-transport", "tls", "-dir", t.TempDir()}, flags...)
		go func() { ended <- run(t.Context(), args, in, out) }()
		line, err := bufio.NewReader(said).ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var ready struct{ Addr string }
		if err := json.Unmarshal(line, &ready); err != nil {
			t.Fatal(err)
		}
		var printed bytes.Buffer
		drive := []string{"drive", "-transport", "tls", "-addr", ready.Addr, "-workload", "pub", "-clients", "2", "-messages", "2000", "-warmup", "1ms"}
		if err := run(t.Context(), drive, nil, &printed); err != nil {
			t.Fatal(err)
		}
		var r load.Result
		if err := json.Unmarshal(printed.Bytes(), &r); err != nil || r.Messages != 2000 || r.Errors != 0 || r.Missing != 0 {
			t.Errorf("%s, %v", printed.String(), err)
		}
		_ = hold.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{}, {"publish"}, {"serve"}, {"serve", "-dir", t.TempDir(), "-transport", "smoke"}, {"drive", "-transport", "smoke"}} {
		if err := run(t.Context(), args, bytes.NewReader(nil), io.Discard); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
