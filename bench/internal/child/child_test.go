// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
)

func shell(script string) Command { return Command{Argv: []string{"/bin/sh", "-c", script}} }

func TestServerSaysWhereItIsAndEnds(t *testing.T) {
	for name, script := range map[string]string{
		"with its input":     `trap "" TERM; echo '{"addr":"127.0.0.1:7","pid":'$$'}'; while read line; do :; done`,
		"by signal":          `echo '{"address":"127.0.0.1:7","http":"http://x"}'; exec sleep 600 </dev/null`,
		"after other output": `echo starting; echo '{"addr":"127.0.0.1:7"}'; read line`,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Start(t.Context(), shell(script))
			if err != nil {
				t.Fatal(err)
			}
			if s.Addr != "127.0.0.1:7" {
				t.Errorf("address %q", s.Addr)
			}
			s.Stop()
			s.Stop()
			if err := syscall.Kill(s.PID, 0); err == nil {
				t.Errorf("process %d is still there", s.PID)
			}
		})
	}
}

func TestServerThatDoesNotStartSaysWhy(t *testing.T) {
	_, err := Start(t.Context(), shell("echo 'no such disk' >&2; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "no such disk") || errors.Is(err, ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	_, err = Start(t.Context(), shell("echo 'no redis-server' >&2; exit 69"))
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "no redis-server") {
		t.Errorf("error %v", err)
	}
}

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), Command{Argv: []string{"/bin/sh", "-c", `echo "$WORD"`}, Env: []string{"WORD=hello"}})
	if err != nil || string(out) != "hello\n" {
		t.Errorf("printed %q, %v", out, err)
	}
	if _, err := Run(t.Context(), shell("echo oops >&2; exit 1")); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, shell("exec sleep 600")); err == nil {
		t.Error("a command outlived its context")
	}
}
