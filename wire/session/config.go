// SPDX-License-Identifier: Apache-2.0

// Package session carries frames on lanes over QUIC; it is the only package that touches the network
// transport, knows no request, and refuses early data, unbounded buffers and waits without a deadline.
//
// A connection has lanes; a lane is one bidirectional stream of frames. Callers see Listener, Conn and
// Lane, never QUIC: another transport fits under the same three by giving Lane its stream.
package session

import (
	"log/slog"
	"sync/atomic"
	"time"

	"margay.dev/wire"
)

// ALPN is the protocol that clients and brokers agree on in the TLS handshake.
const ALPN = "margay/1"

// Config of a listener or of a dialed connection. The zero value works; a zero field means the default
// named beside it.
type Config struct {
	// ALPN that both sides must offer (session.ALPN). It replaces the NextProtos of the TLS configuration.
	ALPN string
	// InitialPacketSize of UDP payloads, and their lower limit for the life of the connection (1200, which
	// every path carries). Path MTU discovery finds the rest within some twenty round trips; 1452 saves
	// those on a path known to carry 1500-byte packets, and makes the handshake fail on one that does not.
	InitialPacketSize uint16
	// KeepAlive is how often a silent connection shows life (3 s: so that a path that has become too narrow
	// is noticed within five), Idle after how long a silence it is given up (30 s), HandshakeTimeout how
	// long it may take to come up (10 s).
	KeepAlive, Idle, HandshakeTimeout time.Duration
	// WriteTimeout is how long a write may make no progress (30 s), ReadTimeout the same for the rest of a
	// frame once it has begun (30 s). Waiting for the next frame has no limit: lanes may be idle.
	WriteTimeout, ReadTimeout time.Duration
	// MaxLanes that the peer may have open on one connection (4096). A lane counts until our side has
	// closed it too, so this bounds what a peer can make us hold, not only what it holds itself.
	MaxLanes int64
	// MaxConns a listener has (10,000), and from one address (0: no bound of its own). More are refused.
	MaxConns, MaxConnsPerAddress int
	// MaxSockets is how many TCP connections a TLS listener has, one for each connection and one for each lane (65,536).
	// An eighth of them is for those that are on their way, or refused.
	MaxSockets int
	// OutboundBytes that Send may queue on one lane (1 MiB).
	OutboundBytes int
	// Flow control: what a peer may send ahead of our reading, on a lane at first (1 MiB) and at most
	// (8 MiB), on a connection at first (256 KiB) and at most (16 MiB). They grow only while we read, so
	// a peer that was never read from, because it never authenticated, is held to the first ones.
	LaneWindow, MaxLaneWindow, ConnWindow, MaxConnWindow uint64
	// SocketBuffer asked of the kernel for a UDP socket, in each direction (4 MiB).
	SocketBuffer int
	// ResetKey lets a restarted broker tell its clients that their connections are gone, as an answer to
	// any packet but the smallest: keep it across restarts, and secret. A client that is otherwise silent
	// sends a Ping frame every KeepAlive, because the transport's own keepalive is too small for it. Nil:
	// clients of a killed broker notice at the idle timeout.
	ResetKey *[32]byte
	// Logger for what an operator should know (discarded).
	Logger *slog.Logger
	// Stats that connections count in (none).
	Stats *Stats
}

// Stats are running counters that any number of connections may share. They are exported as metrics by
// who owns them.
type Stats struct {
	// OpenConns and OpenLanes are gauges.
	OpenConns, OpenLanes atomic.Int64
	// Outbound is a gauge of the bytes that Send has queued and no write has taken.
	Outbound atomic.Int64
	// BytesIn and BytesOut count frame bytes, without the transport's own.
	BytesIn, BytesOut atomic.Uint64
	// RefusedConns counts connections that were over a limit.
	RefusedConns atomic.Uint64
}

// minPacketSize is what QUIC demands of every path.
const minPacketSize = 1200

// WithDefaults is the configuration as it takes effect.
func (c Config) WithDefaults() Config {
	setDefault(&c.ALPN, ALPN)
	setDefault(&c.InitialPacketSize, minPacketSize)
	setDefault(&c.KeepAlive, 3*time.Second)
	setDefault(&c.Idle, 30*time.Second)
	setDefault(&c.HandshakeTimeout, 10*time.Second)
	setDefault(&c.WriteTimeout, 30*time.Second)
	setDefault(&c.ReadTimeout, 30*time.Second)
	setDefault(&c.MaxLanes, 4096)
	setDefault(&c.MaxConns, 10_000)
	setDefault(&c.MaxSockets, 1<<16)
	setDefault(&c.OutboundBytes, 1<<20)
	setDefault(&c.LaneWindow, 1<<20)
	setDefault(&c.MaxLaneWindow, 8<<20)
	setDefault(&c.ConnWindow, 256<<10)
	setDefault(&c.MaxConnWindow, wire.MaxFrame)
	setDefault(&c.SocketBuffer, 4<<20)
	setDefault(&c.Logger, slog.New(slog.DiscardHandler))
	setDefault(&c.Stats, new(Stats))
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
