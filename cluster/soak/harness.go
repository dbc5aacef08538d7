// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// harness is what cluster/process takes for a test: this command runs one that may go on for days, and the tests' tools
// for processes are good for that. Whatever would fail the test is a problem of the report.
type harness struct {
	testing.TB // nil: what is not below is not used

	ctx context.Context //nolint:containedctx // the command's
	dir string

	mu       sync.Mutex
	problems []string
	cleanups []func()
}

func (h *harness) Helper()                  {}
func (h *harness) Context() context.Context { return h.ctx }
func (h *harness) TempDir() string          { return h.dir }
func (h *harness) Cleanup(f func())         { h.cleanups = append(h.cleanups, f) }
func (h *harness) Logf(string, ...any)      {}

func (h *harness) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.problems) > 0
}

func (h *harness) Error(args ...any) { h.Errorf("%s", fmt.Sprint(args...)) }

func (h *harness) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const most = 100
	if len(h.problems) < most {
		h.problems = append(h.problems, fmt.Sprintf(format, args...))
	}
}

func (h *harness) Fatal(args ...any) { h.Fatalf("%s", fmt.Sprint(args...)) }

func (h *harness) Fatalf(format string, args ...any) {
	h.Errorf(format, args...)
	runtime.Goexit()
}

// run calls f, which may be cut short by Fatal, then the cleanups, and returns what went wrong.
func (h *harness) run(f func()) []string {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, cleanup := range slices.Backward(h.cleanups) {
				cleanup()
			}
		}()
		f()
	}()
	<-done
	return h.seen()
}

// seen are the problems so far.
func (h *harness) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.problems)
}

// place makes the directory that everything lies below.
func place(dir string) (string, func(), error) {
	if dir != "" {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", nil, err
		}
		return dir, func() {}, nil // it was asked for: it stays
	}
	dir, err := os.MkdirTemp("", "margay-soak-")
	return dir, func() { _ = os.RemoveAll(dir) }, err // a temporary directory
}
