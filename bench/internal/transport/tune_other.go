// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package transport

import "net"

func tune(net.PacketConn) {}
