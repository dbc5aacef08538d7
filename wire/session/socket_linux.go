// SPDX-License-Identifier: Apache-2.0

package session

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tuneSocket asks the kernel for buffers of size bytes in both directions and reads back what it gave:
// setting them never fails, it is silently cut to net.core.rmem_max and wmem_max. A packet conn that is
// no socket has nothing to tune.
func tuneSocket(pc net.PacketConn, size int) error {
	sc, ok := pc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var tuneErr error
	err = raw.Control(func(fd uintptr) {
		if tuneErr = setBuffer(int(fd), unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, size); tuneErr == nil {
			tuneErr = setBuffer(int(fd), unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, size)
		}
	})
	if err != nil {
		return err
	}
	return tuneErr
}

func setBuffer(fd, force, plain, size int) error {
	// The kernel reports twice what it grants: its own bookkeeping counts too.
	if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain); err == nil && got >= 2*size {
		return nil
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil { // needs CAP_NET_ADMIN
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size) // the next line sees what came of it
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
	if err != nil {
		return fmt.Errorf("read socket buffer: %w", err)
	}
	if got < 2*size {
		return fmt.Errorf("set socket buffer: got %d of %d bytes", got/2, size)
	}
	return nil
}

// maxNotSent is how much of a lane the kernel takes that it cannot send yet. Left to itself it takes megabytes, and who
// writes to a slow reader would not notice before those are full.
const maxNotSent = 1 << 20

// tuneTCP gives a connection up whose data nobody has acknowledged for so long; the kernel's own patience is a quarter
// of an hour. None of it is needed: what the kernel does not know, it leaves as it is.
func tuneTCP(c *net.TCPConn, unacknowledged time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxNotSent)
	})
}
