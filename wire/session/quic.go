// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"github.com/quic-go/quic-go"

	"margay.dev/wire/code"
)

func (c Config) quic() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           c.HandshakeTimeout / 2, // the whole handshake is given twice this
		MaxIdleTimeout:                 c.Idle,
		KeepAlivePeriod:                c.KeepAlive,
		InitialPacketSize:              c.InitialPacketSize,
		InitialStreamReceiveWindow:     c.LaneWindow,
		MaxStreamReceiveWindow:         c.MaxLaneWindow,
		InitialConnectionReceiveWindow: c.ConnWindow,
		MaxConnectionReceiveWindow:     c.MaxConnWindow,
		MaxIncomingStreams:             c.MaxLanes,
		MaxIncomingUniStreams:          -1,
		RequireStreamCreditRelease:     true,
		Allow0RTT:                      false, // early data can be replayed: a captured publish would be appended twice
	}
}

func (c Config) tls(t *tls.Config) *tls.Config {
	t = t.Clone()
	t.NextProtos = []string{c.ALPN}
	t.MinVersion = tls.VersionTLS13
	return t
}

// connIDLength makes a packet with one Ping frame in it large enough to be answered with a stateless
// reset (more than 42 bytes), with room to spare.
const connIDLength = 8

func (c Config) transport(pc net.PacketConn) *quic.Transport {
	t := &quic.Transport{Conn: pc, ConnectionIDLength: connIDLength}
	if c.ResetKey != nil {
		t.StatelessResetKey = (*quic.StatelessResetKey)(c.ResetKey)
	}
	return t
}

// quicConn is a Conn over QUIC.
type quicConn struct {
	*shared
	conn *quic.Conn
	// release frees what the connection alone uses: the socket of a dialed one, a listener's entry.
	release func() error

	once     sync.Once
	closeErr error
	ended    chan struct{}
}

func newQUICConn(conn *quic.Conn, cfg Config, release func() error) *quicConn {
	c := &quicConn{conn: conn, release: release, ended: make(chan struct{})}
	c.shared = newShared(cfg, quicLink{conn})
	cfg.Stats.OpenConns.Add(1)
	return c
}

func (c *quicConn) OpenLane(ctx context.Context) (*Lane, error) {
	st, err := c.conn.OpenStreamSync(ctx)
	if err != nil {
		e := code.From(convert("open lane", err))
		if e.Class == code.ClassUnknown {
			e.Class = code.ClassRefused // there is no lane, so nothing was applied on it
		}
		return nil, e
	}
	return newLane(c.shared, quicStream{st, c}), nil
}

func (c *quicConn) AcceptLane(ctx context.Context) (*Lane, error) {
	st, err := c.conn.AcceptStream(ctx)
	if err != nil {
		return nil, convert("accept lane", err)
	}
	return newLane(c.shared, quicStream{st, c}), nil
}

func (c *quicConn) SetMaxFrame(n uint32) { c.maxFrame.Store(n) }

func (c *quicConn) Close(why code.Code, msg string) error {
	c.once.Do(func() {
		_ = c.conn.CloseWithError(quic.ApplicationErrorCode(why), msg) // always nil
		c.wait()
		c.closeErr = c.release()
		c.cfg.Stats.OpenConns.Add(-1)
		close(c.ended)
	})
	<-c.ended
	return c.closeErr
}

func (c *quicConn) Done() <-chan struct{} { return c.conn.Context().Done() }

func (c *quicConn) Err() error {
	if c.conn.Context().Err() == nil {
		return nil
	}
	return convert("connection", context.Cause(c.conn.Context()))
}

func (c *quicConn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }
func (c *quicConn) LocalAddr() net.Addr  { return c.conn.LocalAddr() }

type quicLink struct{ conn *quic.Conn }

func (l quicLink) abort(why code.Code, msg string) {
	_ = l.conn.CloseWithError(quic.ApplicationErrorCode(why), msg) // always nil
}

func (c *quicConn) traffic() traffic {
	s := c.conn.ConnectionStats()
	return traffic{
		bytesSent: s.BytesSent, packetsSent: s.PacketsSent, packetsReceived: s.PacketsReceived,
		bytesLost: s.BytesLost, lastRTT: s.LatestRTT, window: s.CongestionWindow,
	}
}
