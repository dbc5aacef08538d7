// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"margay.dev/broker"
	"margay.dev/cluster/node"
	"margay.dev/wire/batch"
	"margay.dev/wire/session"
)

// Apply sets what of a node's configuration is decided here.
func (c *Config) Apply(n *node.Config) {
	n.Dir, n.Listen, n.HTTP = c.Data, string(c.Listen), string(c.HTTP)
	n.NoTCP = !c.TCP
	n.Grace = time.Duration(c.Shutdown.Grace)
	n.Reserve, n.FlushSlots, n.Sealed = uint64(c.Storage.DiskReserve), c.Storage.FlushSlots, c.Storage.SealedFiles
	n.KeyBytes = int64(c.Storage.KeyMemory)
	l, s := &c.Limits, &c.Session
	n.Limits = broker.Limits{
		Connections: l.Connections, ConnectionsPerAddress: l.ConnectionsPerAddress, Subscriptions: l.Subscriptions,
		InFlight: int64(l.InFlight), InFlightConnection: int64(l.InFlightConnection), AuthTimeout: time.Duration(l.AuthTimeout),
		Frame: int(l.Frame),
		Records: batch.Limits{
			Batch: int(l.Batch), Record: int(l.Record), Key: int(l.Key), Headers: l.Headers, HeaderBytes: int(l.HeaderBytes),
		},
	}
	n.Session = session.Config{
		InitialPacketSize: uint16(s.PacketSize), KeepAlive: time.Duration(s.KeepAlive), Idle: time.Duration(s.Idle),
		HandshakeTimeout: time.Duration(s.HandshakeTimeout), WriteTimeout: time.Duration(s.WriteTimeout), ReadTimeout: time.Duration(s.ReadTimeout),
		MaxLanes:      int64(l.Lanes),
		OutboundBytes: int(s.Outbound), SocketBuffer: int(s.SocketBuffer),
		LaneWindow: uint64(s.LaneWindow), MaxLaneWindow: uint64(s.MaxLaneWindow),
		ConnWindow: uint64(s.ConnectionWindow), MaxConnWindow: uint64(s.MaxConnectionWindow),
	}
}
