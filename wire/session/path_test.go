// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// narrow is a path that silently loses datagrams above its MTU, as a tunnel in the middle does. It has
// no batched calls, so segmentation offload is off.
type narrow struct {
	net.PacketConn
	udp *net.UDPConn
	mtu atomic.Int64
	// largest datagram that went through.
	largest atomic.Int64
}

func newNarrow(t *testing.T, payload int64) *narrow {
	t.Helper()
	n := &narrow{udp: udp(t)}
	n.PacketConn = n.udp
	n.mtu.Store(payload)
	t.Cleanup(func() { _ = n.udp.Close() })
	return n
}

func (n *narrow) WriteTo(p []byte, addr net.Addr) (int, error) {
	if int64(len(p)) > n.mtu.Load() {
		return len(p), nil
	}
	n.largest.Store(max(n.largest.Load(), int64(len(p))))
	return n.udp.WriteTo(p, addr)
}

// These three keep path MTU discovery on and the socket tunable.
func (n *narrow) SyscallConn() (syscall.RawConn, error) { return n.udp.SyscallConn() }
func (n *narrow) SetReadBuffer(size int) error          { return n.udp.SetReadBuffer(size) }
func (n *narrow) SetWriteBuffer(size int) error         { return n.udp.SetWriteBuffer(size) }

// TestPaths moves data both ways over paths of several widths, with and without offload.
func TestPaths(t *testing.T) {
	size := 8 << 20
	if !testing.Short() {
		size = 64 << 20
	}
	t.Run("loopback", func(t *testing.T) {
		transfer(t, overQUIC.listen(t, Config{}, echo), nil, Config{}, size)
	})
	t.Run("offload off", func(t *testing.T) {
		t.Setenv("QUIC_GO_DISABLE_GSO", "true")
		t.Setenv("QUIC_GO_DISABLE_ECN", "true")
		transfer(t, overQUIC.listen(t, Config{}, echo), nil, Config{}, size)
	})
	for _, tc := range []struct {
		name    string
		payload int64
		cfg     Config
	}{
		{"1500", 1472, Config{}},
		{"1500, large from the start", 1472, Config{InitialPacketSize: 1452}},
		{"wireguard", 1420 - 28, Config{}},
		{"1280", 1280 - 48, Config{}},
	} {
		t.Run("path of "+tc.name, func(t *testing.T) {
			transfer(t, listenOn(t, newNarrow(t, tc.payload), tc.cfg, echo), newNarrow(t, tc.payload), tc.cfg, size)
		})
	}
}

// TestPathNarrows drops the path's MTU in the middle of a transfer. The connection cannot be saved, but
// both ends know soon, and not by the silence, with an error that invites another try, and the next connection
// fits the path.
func TestPathNarrows(t *testing.T) {
	const size = 64 << 10
	for _, who := range []string{"client", "server"} {
		t.Run(who+" sends", func(t *testing.T) {
			paths := []*narrow{newNarrow(t, 1472), newNarrow(t, 1472)}
			stopped := make(chan error, 2)
			b := listenOn(t, paths[0], Config{}, func(c Conn, l *Lane) {
				c.SetMaxFrame(wire.MaxFrame)
				if who == "client" {
					drain(l)
				} else {
					flood(l, size)
				}
				<-c.Done()
				stopped <- c.Err()
			})
			defer b.Close()
			c, err := DialQUIC(t.Context(), paths[1], b.Listener.Addr().String(), b.Client, Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(0, "") }()
			c.SetMaxFrame(wire.MaxFrame)
			l := open(t, c)
			go func() {
				if who == "client" {
					flood(l, size)
				} else {
					_ = l.SendFrame(1, &wire.Ping{})
					drain(l)
				}
			}()
			eventually(t, "full packets", func() bool { return paths[0].largest.Load() > 1400 || paths[1].largest.Load() > 1400 })
			start := time.Now()
			for _, p := range paths {
				p.mtu.Store(1280 - 28)
			}
			late := time.After(2 * patience) // the idle timeout does not help: what is small comes through
			select {
			case <-c.Done():
				wantCode(t, "path narrowed", c.Err(), code.Unavailable)
			case <-late:
				t.Fatal("the client has not noticed")
			}
			select {
			case err := <-stopped:
				wantCode(t, "path narrowed", err, code.Unavailable)
			case <-late:
				t.Fatal("the server has not noticed")
			}
			if took := time.Since(start); took > stalled {
				t.Errorf("noticed after %v", took)
			}
			t.Logf("noticed after %v", time.Since(start))
		})
	}
}

// TestWhatANarrowPathLooksLike: each kind of standstill, told apart by what was sent, heard and lost meanwhile.
func TestWhatANarrowPathLooksLike(t *testing.T) {
	before := traffic{bytesSent: 1 << 20, packetsSent: 1000, packetsReceived: 900, lastRTT: time.Millisecond, window: 50_000}
	for name, tc := range map[string]struct {
		change          func(s *traffic)
		blackHole, late bool
	}{
		"nothing happens":                        {func(*traffic) {}, false, false},
		"large packets, and the peer shows life": {func(s *traffic) { s.bytesSent += 2900; s.packetsSent += 2; s.packetsReceived++ }, true, false},
		"small packets":                          {func(s *traffic) { s.bytesSent += 80; s.packetsSent += 2; s.packetsReceived++ }, false, false},
		"a dead path":                            {func(s *traffic) { s.bytesSent += 2900; s.packetsSent += 2 }, false, false},
		"a slow reader":                          {func(s *traffic) { s.packetsReceived += 5; s.lastRTT++ }, false, false},
		"the search for a wider path": {func(s *traffic) {
			s.bytesSent += 4400
			s.packetsSent += 3
			s.packetsReceived++
			s.lastRTT++
			s.bytesLost += 4400
		}, false, false},
		"both sides show life at once, and what was in flight is lost": {func(s *traffic) {
			s.bytesSent += 9000
			s.packetsSent += 8
			s.packetsReceived++
			s.lastRTT++
			s.window = 3000
			s.bytesLost += 48_000
		}, false, true},
	} {
		after := before
		tc.change(&after)
		if after.blackHole(before) != tc.blackHole || after.lossy(before) != tc.late {
			t.Errorf("%s: black hole %v, lossy %v", name, after.blackHole(before), after.lossy(before))
		}
	}
}

func flood(l *Lane, size int) {
	frame := append(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: uint32(size)}), make([]byte, size)...)
	var err error
	for err == nil {
		err = l.Write(frame)
	}
	_ = l.Close()
}

func drain(l *Lane) {
	for {
		if _, err := l.ReadHeader(); err != nil {
			_ = l.Close()
			return
		}
	}
}

// stalled is how long nothing may arrive in a transfer: what stands still for good ends here, before the idle timeout
// would end it, and a slow machine does not.
const stalled = 20 * time.Second

// transfer echoes size bytes in frames of 64 KiB.
func transfer(t *testing.T, b *broker, pc net.PacketConn, cfg Config, size int) {
	t.Helper()
	const frameSize = 64 << 10
	c, err := DialQUIC(t.Context(), pc, b.Listener.Addr().String(), b.Client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() // before the sockets close
	defer func() { _ = c.Close(0, "") }()
	l := open(t, c)
	body := bytes.Repeat([]byte("0123456789abcdef"), (frameSize-wire.HeaderSize)/16)
	frames := size / frameSize
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < frames && err == nil; i++ {
			err = l.Write(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: uint32(len(body)), Corr: uint64(i)}), body)
		}
		written <- err
	}()
	stall := time.AfterFunc(stalled, func() { _ = c.Close(0, "") })
	defer stall.Stop()
	start := time.Now()
	got := make([]byte, len(body))
	for i := range frames {
		h, err := l.ReadHeader()
		if err == nil {
			err = l.ReadBody(got)
		}
		if err != nil || h.Corr != uint64(i) || !bytes.Equal(got, body) {
			t.Fatalf("frame %d of %d: %+v, %v", i, frames, h, err)
		}
		stall.Reset(stalled)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	t.Logf("%d MiB each way in %v", size>>20, time.Since(start))
	_ = l.Close()
}
