// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"margay.dev/storage"
	"margay.dev/storage/vfs"
)

// openDirRole makes the re-executed test binary open the directory it names and hold it until its input ends.
const openDirRole = "MARGAY_STORAGE_TEST_OPEN_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(openDirRole); dir != "" {
		os.Exit(holdDir(dir))
	}
	goleak.VerifyTestMain(m)
}

func holdDir(dir string) int {
	d, err := storage.OpenDir(vfs.OS(), dir, node("b1"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held", d.Starts())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

type holder struct {
	cmd   *exec.Cmd
	out   *bufio.Reader
	stdin io.Closer
}

func startHolder(t *testing.T, dir string) *holder {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), openDirRole+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &holder{cmd, bufio.NewReader(out), stdin}
	t.Cleanup(func() { _ = h.end() })
	return h
}

func (h *holder) says(t *testing.T) string {
	t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (h *holder) end() error {
	_ = h.stdin.Close()
	return h.cmd.Wait()
}

// TestDirHasOneHolder is ST-16: a second process is refused with the directory and the holder named, the first one does
// not notice, and a kill leaves nothing to clean up.
func TestDirHasOneHolder(t *testing.T) {
	dir := t.TempDir()
	a := startHolder(t, dir)
	if got := a.says(t); got != "held 1" {
		t.Fatal(got)
	}
	before := fingerprint(t, dir)
	_, err := storage.OpenDir(vfs.OS(), dir, node("b1"))
	var locked *vfs.LockedError
	if !errors.As(err, &locked) || locked.PID != a.cmd.Process.Pid || !strings.Contains(err.Error(), dir) {
		t.Fatalf("want %s and process %d named, got: %v", dir, a.cmd.Process.Pid, err)
	}
	b := startHolder(t, dir)
	if got := b.says(t); !strings.Contains(got, fmt.Sprint("process ", a.cmd.Process.Pid)) || b.end() == nil {
		t.Errorf("the second process: %s", got)
	}
	if fingerprint(t, dir) != before {
		t.Error("a refused opening changes the directory")
	}
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.end()
	closeDir(t, openDir(t, vfs.OS(), dir, node("b1")))
}

// TestDirRace is the race of ST-16: of two processes that start at one instant exactly one runs, and no start is counted
// twice.
func TestDirRace(t *testing.T) {
	dir := t.TempDir()
	for round := 1; round <= 20; round++ {
		both := []*holder{startHolder(t, dir), startHolder(t, dir)}
		held := 0
		for _, h := range both {
			switch got := h.says(t); {
			case got == fmt.Sprint("held ", round):
				held++
			case !strings.Contains(got, "held by"):
				t.Errorf("round %d: %s", round, got)
			}
		}
		if held != 1 {
			t.Fatalf("round %d: %d processes hold the directory", round, held)
		}
		for _, h := range both {
			_ = h.end()
		}
	}
}
