// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package session

import (
	"errors"
	"net"
	"time"
)

// tuneSocket asks the kernel for buffers of size bytes in both directions.
func tuneSocket(pc net.PacketConn, size int) error {
	u, ok := pc.(*net.UDPConn)
	if !ok {
		return nil
	}
	return errors.Join(u.SetReadBuffer(size), u.SetWriteBuffer(size))
}

func tuneTCP(*net.TCPConn, time.Duration) {}
