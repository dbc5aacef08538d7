// SPDX-License-Identifier: Apache-2.0

// Package config reads the configuration of `margay serve` from a file, the environment and the command line, in that
// order; it touches the one file that is named, and refuses whatever it does not know, all faults at once.
package config

import (
	"time"

	"margay.dev/wire"
)

// Config is the whole of it. The tags of a field say its key in the file, what it does, and what it is when nobody says
// otherwise; what is read, checked, printed and documented follows from them.
type Config struct {
	Data     string   `yaml:"data" flag:"data" doc:"Directory of everything that the node keeps; a relative one is below the working directory" unset:"$XDG_DATA_HOME/margay"`
	Listen   Address  `yaml:"listen" flag:"listen" default:"127.0.0.1:7420" doc:"Address for clients: QUIC on the UDP port, TLS on the TCP port of the same number; port 0 takes one that is free for both"`
	TCP      bool     `yaml:"tcp" default:"true" doc:"Take clients over TLS on the TCP port too (margay+tls://), for networks that block UDP"`
	HTTP     Address  `yaml:"http" flag:"http" default:"127.0.0.1:7421" doc:"TCP address of the control plane, probes and metrics; port 0 takes a free one. Plain HTTP on a loopback address, TLS on any other"`
	Log      Log      `yaml:"log"`
	Shutdown Shutdown `yaml:"shutdown"`
	Limits   Limits   `yaml:"limits"`
	Storage  Storage  `yaml:"storage"`
	Session  Session  `yaml:"session"`
}

// Log is what the node says of itself, on standard error.
type Log struct {
	Level  Level  `yaml:"level" flag:"log-level" default:"info" live:"true" doc:"The least that is logged"`
	Format string `yaml:"format" flag:"log-format" default:"text" one:"text,json" doc:"Form of the lines"`
}

// Shutdown is how the node stops.
type Shutdown struct {
	Grace Duration `yaml:"grace" default:"1s" min:"10ms" max:"10m" doc:"Time that subscribers have to hear where to resume; the process ends at most 2s later"`
}

// Limits bound what clients can take of the node.
type Limits struct {
	Connections           int      `yaml:"connections" default:"10000" min:"1" max:"1000000" doc:"Client connections in all"`
	ConnectionsPerAddress int      `yaml:"connections_per_address" default:"0" min:"0" max:"1000000" doc:"Client connections from one IP address; 0 is no limit of its own"`
	Lanes                 int      `yaml:"lanes_per_connection" default:"4096" min:"8" max:"65536" doc:"Lanes of a connection: one for control, one for each subscription and publisher"`
	Subscriptions         int      `yaml:"subscriptions_per_connection" default:"4096" min:"1" max:"65536" doc:"Subscriptions of a connection"`
	InFlight              Size     `yaml:"in_flight" default:"128MiB" min:"1MiB" doc:"Bytes of publishes that are not answered yet, in all; a client beyond it waits"`
	InFlightConnection    Size     `yaml:"in_flight_per_connection" default:"64MiB" min:"64KiB" doc:"The same, per connection; a larger publish is refused"`
	AuthTimeout           Duration `yaml:"auth_timeout" default:"10s" min:"100ms" max:"10m" doc:"From connecting to a valid token"`
	Frame                 Size     `yaml:"frame" default:"16MiB" min:"64KiB" max:"16MiB" doc:"Body of a frame that a client sends; larger ones end its connection"`
	Batch                 Size     `yaml:"batch" default:"8MiB" min:"1KiB" max:"8MiB" doc:"Batch that a client publishes, as it would be without compression"`
	Record                Size     `yaml:"record" default:"8MiB" min:"1KiB" max:"8MiB" doc:"Record: key, headers and value"`
	Key                   Size     `yaml:"key" default:"4KiB" min:"16" max:"4KiB" doc:"Key of a record"`
	Headers               int      `yaml:"headers" default:"64" min:"1" max:"65535" doc:"Headers of a record"`
	HeaderBytes           Size     `yaml:"header_bytes" default:"16KiB" min:"16" max:"8MiB" doc:"Headers of a record together"`
}

// Storage is what the node takes of the machine for its data.
type Storage struct {
	DiskReserve Size `yaml:"disk_reserve" default:"8MiB" min:"1MiB" doc:"Free space of the disk below which records are refused and reads go on"`
	FlushSlots  int  `yaml:"flush_slots" default:"16" min:"1" max:"1024" doc:"Flushes under way at once, over all shards"`
	SealedFiles int  `yaml:"sealed_files" default:"0" min:"0" max:"65536" doc:"Finished segment files kept open for readers; 0 takes an eighth of the descriptors that the process may have, 256 at most"`
	KeyMemory   Size `yaml:"key_memory" default:"1GiB" min:"1MiB" doc:"Memory for the key indexes of all shards, about 120 bytes and the key for each; beyond it new keys are refused, and reads by key of logs that keep all records"`
}

// Session is the transport of clients: QUIC, and TLS over TCP.
type Session struct {
	KeepAlive           Duration `yaml:"keepalive" default:"3s" min:"100ms" max:"5m" doc:"How often a silent connection shows life"`
	Idle                Duration `yaml:"idle" default:"30s" min:"1s" max:"10m" doc:"Silence after which a connection is given up"`
	HandshakeTimeout    Duration `yaml:"handshake_timeout" default:"10s" min:"1s" max:"5m" doc:"Within which a connection has to come up"`
	ReadTimeout         Duration `yaml:"read_timeout" default:"30s" min:"1s" max:"10m" doc:"Standstill in the middle of a frame after which its lane is given up"`
	WriteTimeout        Duration `yaml:"write_timeout" default:"30s" min:"1s" max:"10m" doc:"Standstill of a write after which its lane is given up"`
	PacketSize          int      `yaml:"packet_size" default:"1200" min:"1200" max:"1452" doc:"First size of UDP payloads; larger ones that the path carries are found within some round trips"`
	SocketBuffer        Size     `yaml:"socket_buffer" default:"4MiB" min:"64KiB" max:"1GiB" doc:"Asked of the kernel for the UDP socket, each way; see net.core.rmem_max and wmem_max"`
	Outbound            Size     `yaml:"outbound" default:"1MiB" min:"64KiB" max:"1GiB" doc:"Answers that may wait on a lane; a client that takes none loses the lane"`
	LaneWindow          Size     `yaml:"lane_window" default:"1MiB" min:"64KiB" max:"1GiB" doc:"What a client may send ahead on a lane, at first"`
	MaxLaneWindow       Size     `yaml:"max_lane_window" default:"8MiB" min:"64KiB" max:"1GiB" doc:"And at most"`
	ConnectionWindow    Size     `yaml:"connection_window" default:"256KiB" min:"64KiB" max:"1GiB" doc:"What a client may send ahead on a connection, at first: all that one without a token can make the node hold"`
	MaxConnectionWindow Size     `yaml:"max_connection_window" default:"16MiB" min:"64KiB" max:"1GiB" doc:"And at most"`
}

// StopWithin is when the process ends at the latest once it was asked to: service managers kill what takes long, at a
// moment of their own choosing.
func (c *Config) StopWithin() time.Duration { return time.Duration(c.Shutdown.Grace) + 2*time.Second }

// check finds what single values cannot show.
func (c *Config) check(fault func(format string, args []any, paths ...string)) {
	above := func(low, high string, ok bool) {
		if !ok {
			fault("%s must not be above %s", []any{low, high}, low, high)
		}
	}
	s, l := &c.Session, &c.Limits
	if s.KeepAlive*2 > s.Idle {
		fault("session.keepalive must be at most half of session.idle, or one lost packet ends a connection", nil, "session.keepalive", "session.idle")
	}
	above("session.lane_window", "session.max_lane_window", s.LaneWindow <= s.MaxLaneWindow)
	above("session.connection_window", "session.max_connection_window", s.ConnectionWindow <= s.MaxConnectionWindow)
	above("limits.in_flight_per_connection", "limits.in_flight", l.InFlightConnection <= l.InFlight)
	above("limits.batch", "limits.frame", l.Batch+wire.PublishHead <= l.Frame)
	above("limits.record", "limits.batch", l.Record <= l.Batch)
	above("limits.header_bytes", "limits.record", l.HeaderBytes <= l.Record)
	above("limits.connections_per_address", "limits.connections", l.ConnectionsPerAddress <= l.Connections)
}
