// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"margay.dev/wire/session"
)

// tune asks for the socket buffers that Margay asks for; what the kernel grants both of them is the same.
func tune(pc net.PacketConn) {
	sc, ok := pc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	size := session.Config{}.WithDefaults().SocketBuffer
	_ = raw.Control(func(fd uintptr) {
		for force, plain := range map[int]int{unix.SO_RCVBUFFORCE: unix.SO_RCVBUF, unix.SO_SNDBUFFORCE: unix.SO_SNDBUF} {
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, force, size) != nil { // needs CAP_NET_ADMIN
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, plain, size)
			}
		}
	})
}
