// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// ownNetwork marks a process of this test binary that has a network of its own, which holds a loopback and nothing else.
const ownNetwork = "SESSION_TEST_OWN_NETWORK"

// TestKernelPaths moves data both ways over an interface of several widths, with the kernel's offload and without, and
// narrows it in the middle (WR-08). It needs a network namespace; where a process may not have one, TestPaths and
// TestPathNarrows do the same with a path that is simulated.
func TestKernelPaths(t *testing.T) {
	if os.Getenv(ownNetwork) == "" {
		inOwnNetwork(t)
		return
	}
	size := 4 << 20
	if !testing.Short() {
		size = 200 << 20
	}
	setLoopback(t, 65536)
	for _, mtu := range []int{65536, 9000, 1500, 1280} {
		for _, offload := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d, offload %v", mtu, offload), func(t *testing.T) {
				if !offload {
					t.Setenv("QUIC_GO_DISABLE_GSO", "true")
					t.Setenv("QUIC_GO_DISABLE_ECN", "true")
				}
				setLoopback(t, mtu)
				transfer(t, listenOn(t, socket(t), Config{}, echo), nil, Config{}, size)
			})
		}
	}
	t.Run("narrowed", narrowed)
}

// inOwnNetwork runs this test again in a network of its own.
func inOwnNetwork(t *testing.T) {
	t.Helper()
	args := []string{"-test.run=^TestKernelPaths$", "-test.v", fmt.Sprintf("-test.short=%v", testing.Short())}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), ownNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || strings.Contains(string(out), refusal):
		t.Skip("no network namespace here: TestPaths and TestPathNarrows simulate the paths")
	case err != nil:
		t.Errorf("in a network of its own: %v\n%s", err, out)
	default:
		t.Logf("%s", out)
	}
}

// refusal is what the process says that was given a network and may not set it up.
const refusal = "the loopback may not be set up"

// setLoopback gives the loopback a width and brings it up.
func setLoopback(t *testing.T, mtu int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint32(uint32(mtu))
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFMTU, request); err != nil {
		t.Fatalf("%s: %v", refusal, err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatalf("%s: %v", refusal, err)
	}
}

// narrowed drops the width from 9000 to 1280 while data flows. Either the connection goes on, or both ends know that it
// cannot, and the next one does: nobody waits for the idle timeout.
func narrowed(t *testing.T) {
	setLoopback(t, 9000)
	ended := make(chan error, 1)
	arrived := make(chan struct{}, 1<<16)
	b := listenOn(t, socket(t), Config{}, func(c Conn, l *Lane) {
		c.SetMaxFrame(wire.MaxFrame)
		defer func() { _ = l.Close() }()
		for {
			h, err := l.ReadHeader()
			if err == nil {
				err = l.Skip(h.Size)
			}
			if err != nil {
				ended <- err
				return
			}
			select {
			case arrived <- struct{}{}:
			default:
			}
		}
	})
	c := b.connect(Config{})
	l := open(t, c)
	go flood(l, 64<<10)
	await := func(frames int) {
		for range frames {
			select {
			case <-arrived:
			case <-c.Done():
				return
			case <-time.After(patience):
				t.Fatalf("waited %v for data, or for the end of the connection", patience)
			}
		}
	}
	await(100)
	began := time.Now()
	setLoopback(t, 1280)
	await(1000)
	if err := c.Err(); err != nil {
		wantCode(t, "path narrowed", err, code.Unavailable)
	}
	t.Logf("the connection ended with %v; decided after %v", c.Err(), time.Since(began))
	_ = c.Close(0, "")
	<-ended
	transfer(t, listenOn(t, socket(t), Config{}, echo), nil, Config{}, 4<<20)
}
