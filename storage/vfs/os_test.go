// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestClassify(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		err := classify(&os.PathError{Op: "write", Path: "x", Err: errno})
		if !IsFull(err) || !errors.Is(err, errno) || err.Error() != "write x: "+errno.Error() {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := classify(syscall.EIO); IsFull(err) {
		t.Errorf("%v counts as full", err)
	}
	if classify(nil) != nil {
		t.Error("no error becomes one")
	}
}

// role tells the re-executed test binary what to do instead of running tests.
const role = "MARGAY_VFS_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "lock":
		holdLock(os.Args[1])
	case "limit":
		writeBeyondLimit(os.Args[1])
	}
}

// child runs this test binary in a role.
func child(t *testing.T, as, arg string) (*exec.Cmd, io.ReadCloser) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], arg)
	cmd.Env = append(os.Environ(), role+"="+as)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe() // held open: the child ends with its parent
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd, out
}

func holdLock(name string) {
	if _, err := OS().Lock(name); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestLockBetweenProcesses is ST-16 at the level of the file: the holder is named, and its death frees the lock.
func TestLockBetweenProcesses(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	cmd, out := child(t, "lock", name)
	if _, err := io.ReadFull(out, make([]byte, len("held\n"))); err != nil {
		t.Fatal(err)
	}
	_, err := OS().Lock(name)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Fatalf("want process %d named, got %v", cmd.Process.Pid, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Wait()
	held, err := OS().Lock(name)
	if err != nil {
		t.Fatalf("after the holder was killed: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeBeyondLimit meets a limit on the size of a file, as under `ulimit -f`.
func writeBeyondLimit(name string) {
	limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	f, err := OS().Create(name)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	n, err := f.WriteAt(make([]byte, 1<<20), 1<<10)
	size, _ := f.Size()
	again, againErr := f.WriteAt([]byte("x"), 0)
	fmt.Println(n, IsFull(err), size, again, againErr)
}

// TestShortWrite is the part of ST-12 that only a real kernel can show: a write cut short by a limit is full, tells how
// much of it is there, and does not end the process.
func TestShortWrite(t *testing.T) {
	_, out := child(t, "limit", filepath.Join(t.TempDir(), "a"))
	got, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintln(63<<10, true, 64<<10, 1, nil)
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLockedErrorNamesTheHolder(t *testing.T) {
	if msg := (&LockedError{Name: "d/LOCK", PID: 12}).Error(); !strings.Contains(msg, "d/LOCK") || !strings.Contains(msg, "12") {
		t.Error(msg)
	}
	if msg := (&LockedError{Name: "d/LOCK"}).Error(); !strings.Contains(msg, "another process") {
		t.Error(msg)
	}
}
