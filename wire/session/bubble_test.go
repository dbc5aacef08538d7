// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// network is a simulated network inside a synctest bubble: virtual time, and a router that loses packets.
type network struct {
	simnet.PerfectRouter
	sim *simnet.Simnet

	mu   sync.Mutex
	sent int
	// loseEvery n-th packet; 0 none. cut loses all of them.
	loseEvery int
	cut       bool
}

func (n *network) SendPacket(p simnet.Packet) error {
	n.mu.Lock()
	n.sent++
	lost := n.cut || n.loseEvery > 0 && n.sent%n.loseEvery == 0
	n.mu.Unlock()
	if lost {
		return nil
	}
	_ = n.PerfectRouter.SendPacket(p) // an unknown destination is a host that is down
	return nil
}

func (n *network) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// inBubble runs a test in a bubble with two hosts, 10 ms apart.
func inBubble(t *testing.T, loseEvery int, run func(t *testing.T, n *network, server, client net.PacketConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{loseEvery: loseEvery}
		n.sim = &simnet.Simnet{Router: n}
		client, server := n.host("10.0.0.1", 4000), n.host("10.0.0.2", 7420)
		if err := n.sim.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = client.Close()
			_ = server.Close()
			_ = n.sim.Close()
		}()
		run(t, n, server, client)
	})
}

func (n *network) host(ip string, port int) *simnet.SimConn {
	return n.sim.NewEndpoint(&net.UDPAddr{IP: net.ParseIP(ip).To4(), Port: port}, simnet.NodeBiDiLinkSettings{Latency: 5 * time.Millisecond})
}

func dialBubble(t *testing.T, b *broker, pc net.PacketConn, cfg Config) Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := DialQUIC(ctx, pc, b.Listener.Addr().String(), b.Client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLossyNetwork: five minutes of requests and pauses over a network that loses every 13th packet.
func TestLossyNetwork(t *testing.T) {
	inBubble(t, 13, func(t *testing.T, _ *network, server, client net.PacketConn) {
		b := listenOn(t, server, Config{}, echo)
		defer b.Close()
		c := dialBubble(t, b, client, Config{})
		defer func() { _ = c.Close(0, "") }()
		for i := range 300 {
			l := open(t, c)
			if _, got, err := ask(l, uint64(i), make([]byte, i*40)); err != nil || len(got) != i*40 {
				t.Fatalf("request %d: %d bytes, %v", i, len(got), err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestIdleTimeout: keepalives hold a silent connection; when the path is cut, both sides give up at the
// idle timeout with an error that says nothing new was applied.
func TestIdleTimeout(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, n *network, server, client net.PacketConn) {
		ended := make(chan error, 1)
		b := listenOn(t, server, Config{}, func(c Conn, l *Lane) {
			echo(c, l)
			<-c.Done()
			ended <- c.Err()
		})
		defer b.Close()
		c := dialBubble(t, b, client, Config{})
		defer func() { _ = c.Close(0, "") }()
		l := open(t, c)
		if _, _, err := ask(l, 1, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, _, err := ask(l, 2, nil); err != nil {
			t.Fatalf("after an hour of silence: %v", err)
		}
		n.setCut(true)
		start := time.Now()
		<-c.Done()
		if took := time.Since(start); took > 36*time.Second { // idle counts from the last keepalive that went unanswered
			t.Errorf("gave up after %v", took)
		}
		for _, err := range []error{c.Err(), <-ended} {
			wantCode(t, "path cut", err, code.Unavailable)
			if e := code.From(err); e.Class != code.ClassRefused {
				t.Errorf("class %v", e.Class)
			}
		}
		_ = l.Close()
	})
}

// TestRestartOnTheSamePort: a broker that was killed and comes back with the same reset key tells its
// clients at their next frame that it does not know them, long before the idle timeout. An idle client
// sends a Ping frame every five seconds for this: QUIC's own keepalive is too small to be answered with
// a reset.
func TestRestartOnTheSamePort(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, n *network, server, client net.PacketConn) {
		key := [32]byte{1, 2, 3}
		b := listenOn(t, server, Config{ResetKey: &key}, echo)
		c := dialBubble(t, b, client, Config{})
		defer func() { _ = c.Close(0, "") }()
		l := open(t, c)
		if _, _, err := ask(l, 1, nil); err != nil {
			t.Fatal(err)
		}
		n.setCut(true) // the killed process says nothing
		b.Close()
		_ = server.Close()
		again := &network{}
		again.sim = &simnet.Simnet{Router: n}
		pc := again.host("10.0.0.2", 7420)
		if err := again.sim.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pc.Close(); _ = again.sim.Close() }()
		b2 := listenOn(t, pc, Config{ResetKey: &key}, echo)
		defer b2.Close()
		n.setCut(false)

		start := time.Now()
		for c.Err() == nil {
			_ = l.SendFrame(1, &wire.Ping{})
			select {
			case <-c.Done():
			case <-time.After(5 * time.Second):
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("noticed %v after the first ping", took)
		}
		wantCode(t, "reset by a restarted broker", c.Err(), code.Unavailable)
		_ = l.Close()
	})
}

// TestWritesHaveADeadline: a peer that stops reading costs the writer its lane, not its time.
func TestWritesHaveADeadline(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, _ *network, server, client net.PacketConn) {
		result := make(chan error, 2)
		b := listenOn(t, server, Config{WriteTimeout: 10 * time.Second}, func(_ Conn, l *Lane) {
			h, err := l.ReadHeader()
			if err != nil {
				t.Error(err)
			}
			start := time.Now()
			if h.Corr == 1 {
				err = l.Write(make([]byte, 4<<20))
			} else {
				_ = l.Send(make([]byte, 4<<20))
				err = l.Close()
			}
			if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
				t.Errorf("gave up after %v", took)
			}
			result <- err
			_ = l.Close()
		})
		defer b.Close()
		c := dialBubble(t, b, client, Config{})
		defer func() { _ = c.Close(0, "") }()
		for corr := uint64(1); corr <= 2; corr++ {
			l := open(t, c)
			if err := l.SendFrame(corr, &wire.Ping{}); err != nil {
				t.Fatal(err)
			}
			wantCode(t, "write to a peer that does not read", <-result, code.Timeout)
			_ = l.Close()
		}
	})
}

// TestBodiesHaveADeadline: whoever begins a frame must go on with it; between frames there is no limit.
func TestBodiesHaveADeadline(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, _ *network, server, client net.PacketConn) {
		result := make(chan error, 1)
		b := listenOn(t, server, Config{ReadTimeout: 10 * time.Second}, func(_ Conn, l *Lane) {
			defer func() { _ = l.Close() }()
			if _, err := l.ReadHeader(); err == nil {
				_, err = l.AppendBody(nil)
				result <- err
			} else {
				result <- err
			}
		})
		defer b.Close()
		c := dialBubble(t, b, client, Config{})
		defer func() { _ = c.Close(0, "") }()
		whole := wire.AppendFrame(nil, 1, &wire.Auth{Token: string(make([]byte, 30_000))})
		for _, sent := range []int{1, wire.HeaderSize, wire.HeaderSize + 1, len(whole) - 1} {
			l := open(t, c)
			time.Sleep(time.Minute) // nothing has begun yet
			if err := l.Write(whole[:sent]); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			wantCode(t, "silence inside a frame", <-result, code.Timeout)
			if took := time.Since(start); took > 11*time.Second {
				t.Errorf("%d bytes: gave up after %v", sent, took)
			}
			_ = l.Close()
		}
		// A frame that trickles in, but keeps coming, is read.
		l := open(t, c)
		for i := 0; i < len(whole); i += 3000 {
			if err := l.Write(whole[i:min(i+3000, len(whole))]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
		}
		if err := <-result; err != nil {
			t.Errorf("a slow frame: %v", err)
		}
		_ = l.Close()
	})
}

// TestSlowReaderIsNoNarrowPath: a write that waits for a peer to read is left alone, whether the
// connection is otherwise silent or busy.
func TestSlowReaderIsNoNarrowPath(t *testing.T) {
	inBubble(t, 13, func(t *testing.T, _ *network, server, client net.PacketConn) {
		b := listenOn(t, server, Config{}, func(c Conn, l *Lane) {
			h, err := l.ReadHeader()
			if err == nil && h.Type == wire.TypePublish {
				time.Sleep(20 * time.Second)
			}
			if l.Skip(h.Size) == nil {
				_ = l.SendFrame(h.Corr, &wire.Pong{})
			}
			echo(c, l)
		})
		defer b.Close()
		c := dialBubble(t, b, client, Config{})
		defer func() { _ = c.Close(0, "") }()
		other := open(t, c)
		if err := other.SendFrame(1, &wire.Ping{}); err != nil {
			t.Fatal(err)
		}
		if _, err := other.ReadHeader(); err != nil {
			t.Fatal(err)
		}
		for _, busy := range []bool{false, true} {
			l := open(t, c)
			written := make(chan error, 1)
			go func() {
				frame := wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: 60_000})
				many := make([]byte, 60_000)
				err := l.Write(frame, many)
				for range 40 { // more than the window
					frame := wire.AppendHeader(nil, wire.Header{Type: wire.TypePing, Size: 60_000})
					if err == nil {
						err = l.Write(frame, many)
					}
				}
				written <- err
			}()
			go func() {
				for {
					if _, err := l.ReadHeader(); err != nil {
						return
					}
				}
			}()
			for waiting := true; waiting; {
				select {
				case err := <-written:
					if err != nil {
						t.Errorf("busy %v: %v", busy, err)
					}
					waiting = false
				case <-time.After(100 * time.Millisecond):
					if busy {
						if _, _, err := ask(other, 1, make([]byte, 3000)); err != nil {
							t.Fatalf("another lane: %v", err)
						}
					}
				}
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
