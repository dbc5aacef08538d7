// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"crypto/tls"
	"runtime"
	"sync"
	"testing"

	"github.com/quic-go/quic-go"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// hostileSizes are what a header may claim about a body that never comes.
var hostileSizes = []uint32{0, 1, wire.MaxFrameBeforeAuth, wire.MaxFrameBeforeAuth + 1, wire.MaxFrame, wire.MaxFrame + 1, 0x7fffffff, 0xffffffff}

// TestHostileLengths: 200 connections claim every size and then say nothing. Those beyond the limit of
// the moment are closed with a protocol error; the others are granted memory for what arrived, not for
// what they claim; an honest client is served meanwhile.
func TestHostileLengths(t *testing.T) { both(t, testHostileLengths) }

func testHostileLengths(t *testing.T, tr transport) {
	for _, tc := range []struct {
		name  string
		limit uint32
	}{{"before auth", wire.MaxFrameBeforeAuth}, {"after auth", wire.MaxFrame}} {
		t.Run(tc.name, func(t *testing.T) {
			b := tr.listen(t, Config{}, func(c Conn, l *Lane) {
				c.SetMaxFrame(tc.limit)
				defer func() { _ = l.Close() }()
				for {
					h, err := l.ReadHeader()
					if err != nil {
						return
					}
					if _, err := l.AppendBody(nil); err != nil {
						return
					}
					if err := l.SendFrame(h.Corr, &wire.Pong{}); err != nil {
						return
					}
				}
			})
			honest := open(t, b.connect(Config{}))
			conns := make([]Conn, 200)
			for i := range conns {
				conns[i] = b.connect(Config{})
			}
			before := heap()
			var all sync.WaitGroup
			for i, c := range conns {
				all.Go(func() { claim(t, c, hostileSizes[i%len(hostileSizes)], tc.limit) })
			}
			all.Wait()
			if _, _, err := ask(honest, 1, make([]byte, 5000)); err != nil {
				t.Errorf("an honest client: %v", err)
			}
			if after := heap(); after > before+20<<20 {
				t.Errorf("heap grew from %d to %d MiB", before>>20, after>>20)
			} else {
				t.Logf("heap %d KiB, then %d KiB", before>>10, after>>10)
			}
		})
	}
}

func claim(t *testing.T, c Conn, size, limit uint32) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := c.OpenLane(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	if err := l.Write(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: size, Corr: 1})); err != nil {
		t.Error(err)
		return
	}
	if size > limit {
		select {
		case <-c.Done():
			wantCode(t, "claim beyond the limit", c.Err(), code.Protocol)
		case <-ctx.Done():
			t.Errorf("size %d: the connection lives on", size)
		}
	} else if size > 0 {
		_ = l.Write([]byte{0})
	}
	if c.Err() != nil && size <= limit {
		t.Errorf("size %d: %v", size, c.Err())
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestHostileServer: the same guard stands in the client, whose limit starts as low.
func TestHostileServer(t *testing.T) { both(t, testHostileServer) }

func testHostileServer(t *testing.T, tr transport) {
	b := tr.listen(t, Config{}, func(_ Conn, l *Lane) {
		h, err := l.ReadHeader()
		if err == nil {
			_ = l.Write(wire.AppendHeader(nil, wire.Header{Type: wire.TypeHelloOk, Size: uint32(h.Corr)}))
		}
		_, _ = l.ReadHeader()
		_ = l.Close()
	})
	for _, size := range []uint64{wire.MaxFrameBeforeAuth + 1, wire.MaxFrame + 1, 0xffffffff} {
		c := b.connect(Config{})
		l := open(t, c)
		if err := l.SendFrame(size, &wire.Ping{}); err != nil {
			t.Fatal(err)
		}
		_, err := l.ReadHeader()
		wantCode(t, "answer beyond the limit", err, code.Protocol)
		<-c.Done()
		wantCode(t, "connection", c.Err(), code.Protocol)
		_ = l.Close()
	}
}

func TestWrongMagic(t *testing.T) { both(t, testWrongMagic) }

func testWrongMagic(t *testing.T, tr transport) {
	b := tr.listen(t, Config{}, echo)
	c := b.connect(Config{})
	l := open(t, c)
	if err := l.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	wantCode(t, "another protocol", c.Err(), code.Protocol)
	_ = l.Close()
}

func TestEndInsideFrame(t *testing.T) { both(t, testEndInsideFrame) }

func testEndInsideFrame(t *testing.T, tr transport) {
	result := make(chan error, 1)
	b := tr.listen(t, Config{}, func(_ Conn, l *Lane) {
		_, err := l.ReadHeader()
		if err == nil {
			err = l.ReadBody(make([]byte, 10))
		}
		result <- err
		_ = l.Close()
	})
	whole := wire.AppendFrame(nil, 1, &wire.Lookup{Name: "123456789"})
	for _, n := range []int{1, wire.HeaderSize - 1, wire.HeaderSize, len(whole) - 1} {
		l := open(t, b.connect(Config{}))
		if err := l.Write(whole[:n]); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		wantCode(t, "end inside a frame", <-result, code.Protocol)
	}
}

// TestNoEarlyData: neither a client of ours that resumes its session nor a foreign one that insists gets
// to send anything before the handshake is complete.
func TestNoEarlyData(t *testing.T) {
	b := overQUIC.listen(t, Config{}, echo)
	b.Client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for range 3 {
		c := b.connect(Config{})
		l := open(t, c)
		if _, _, err := ask(l, 1, nil); err != nil { // the session ticket arrives before the answer
			t.Fatal(err)
		}
		if c.(*quicConn).conn.ConnectionState().Used0RTT {
			t.Error("our client sent early data")
		}
		_ = l.Close()
		_ = c.Close(0, "")
	}
	pc := udp(t)
	defer func() { _ = pc.Close() }()
	tr := &quic.Transport{Conn: pc}
	defer func() { _ = tr.Close() }()
	conf := b.Client.Clone()
	conf.NextProtos = []string{ALPN}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		qc, err := tr.DialEarly(ctx, b.Listener.Addr(), conf, &quic.Config{})
		if err != nil {
			t.Fatal(err)
		}
		<-qc.HandshakeComplete()
		if qc.ConnectionState().Used0RTT {
			t.Error("a foreign client sent early data")
		}
		_ = qc.CloseWithError(0, "")
	}
}
