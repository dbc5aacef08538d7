// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"

	"margay.dev/wire"
)

// recorder keeps the datagrams that a client sends.
type recorder struct {
	net.PacketConn
	mu   sync.Mutex
	sent [][]byte
}

func (r *recorder) WriteTo(p []byte, addr net.Addr) (int, error) {
	r.mu.Lock()
	r.sent = append(r.sent, bytes.Clone(p))
	r.mu.Unlock()
	return r.PacketConn.WriteTo(p, addr)
}

func (r *recorder) flight() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// TestReplayedFlight: a client that resumes its session and sends a publish with its first flight is not heard before the
// handshake is complete, and what was recorded of its connection and is sent again, from its address or from another, is
// not taken for a publish once more (WR-13).
func TestReplayedFlight(t *testing.T) {
	var publishes, lanes atomic.Int64
	var server Stats
	b := listenOn(t, socket(t), Config{Stats: &server}, func(_ Conn, l *Lane) {
		lanes.Add(1)
		defer func() { _ = l.Close() }()
		for {
			h, err := l.ReadHeader()
			if err != nil {
				return
			}
			if h.Type == wire.TypePublish {
				publishes.Add(1)
			}
			_ = l.SendFrame(h.Corr, &wire.Pong{})
		}
	})
	cfg := Config{}.WithDefaults()
	tc := cfg.tls(b.Client)
	tc.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	frame := wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: 4, Corr: 1})
	frame = append(frame, "once"...)
	var again *recorder
	for i := range 3 {
		again = &recorder{PacketConn: udp(t)}
		publishEarly(t, again, b.Listener.Addr(), tc, frame, i > 0)
		if n := publishes.Load(); n != int64(i)+1 {
			t.Fatalf("%d publishes came of %d connections", n, i+1)
		}
	}
	eventually(t, "the connections to be gone", func() bool { return server.OpenConns.Load() == 0 })
	known := lanes.Load()
	elsewhere := udp(t)
	defer func() { _ = elsewhere.Close() }()
	for _, from := range []net.PacketConn{again.PacketConn, elsewhere} {
		for _, p := range again.flight() {
			if _, err := from.WriteTo(p, b.Listener.Addr()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What is sent behind the replay is served behind it.
	l := open(t, b.connect(Config{}))
	if err := l.SendFrame(1, &wire.Ping{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.ReadHeader(); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if n := publishes.Load(); n != 3 {
		t.Errorf("a replay was taken for %d publishes", n-3)
	}
	if n := lanes.Load(); n != known+1 {
		t.Errorf("a replay opened %d lanes", n-known-1)
	}
	_ = again.Close()
}

// publishEarly dials as eagerly as QUIC allows, publishes at once and waits for the answer.
func publishEarly(t *testing.T, pc net.PacketConn, addr net.Addr, tc *tls.Config, frame []byte, resumed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tr := &quic.Transport{Conn: pc}
	defer func() { _ = tr.Close() }()
	qc, err := tr.DialEarly(ctx, addr, tc, &quic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := qc.OpenStreamSync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Write(frame); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Read(make([]byte, wire.HeaderSize)); err != nil {
		t.Fatal(err)
	}
	state := qc.ConnectionState()
	if state.Used0RTT {
		t.Error("the server took early data")
	}
	if state.TLS.DidResume != resumed {
		t.Errorf("the session is resumed: %v, want %v: the test has not reached what it tests", state.TLS.DidResume, resumed)
	}
	_ = st.Close()
	_ = qc.CloseWithError(0, "")
}

// socket is open until the test ends.
func socket(t *testing.T) *net.UDPConn {
	t.Helper()
	pc := udp(t)
	t.Cleanup(func() { _ = pc.Close() })
	return pc
}
