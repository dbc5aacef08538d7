// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

func TestEcho(t *testing.T) { both(t, testEcho) }

func testEcho(t *testing.T, tr transport) {
	b := tr.listen(t, Config{}, echo)
	c := b.connect(Config{})
	c.SetMaxFrame(wire.MaxFrame)
	l := open(t, c)
	for i, size := range []int{0, 1, 100, smallBuffer - 16, smallBuffer, 5000, bigBuffer, 300_000, 9 << 20, wire.MaxFrame, 7} {
		body := bytes.Repeat([]byte{byte(i + 1)}, size)
		if i == 0 {
			size = 100 // the server raises its limit at the first lane: begin small
		}
		h, got, err := ask(l, uint64(i), body)
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if h.Corr != uint64(i) || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes: answer %+v differs", size, h)
		}
	}
	if err := l.CloseWrite(); err != nil {
		t.Error(err)
	}
	wantEOF(t, l)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestManySenders: frames of many goroutines, by Send and by Write, arrive whole, each goroutine's in order.
func TestManySenders(t *testing.T) { both(t, testManySenders) }

func testManySenders(t *testing.T, tr transport) {
	const senders, each = 16, 500
	type arrival struct{ sender, n uint32 }
	arrived := make(chan arrival, senders*each)
	b := tr.listen(t, Config{OutboundBytes: 8 << 20}, func(_ Conn, l *Lane) {
		defer func() { _ = l.Close() }()
		for {
			h, err := l.ReadHeader()
			if err != nil {
				close(arrived)
				return
			}
			body, err := l.AppendBody(nil)
			want := bytes.Repeat([]byte{byte(h.Corr)}, int(h.Size))
			if err != nil || !bytes.Equal(body, want) {
				t.Errorf("frame %+v is torn: %v", h, err)
			}
			arrived <- arrival{uint32(h.Corr >> 32), uint32(h.Corr)}
		}
	})
	l := open(t, b.connect(Config{OutboundBytes: 8 << 20}))
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for n := range each {
				size := (s*7 + n*13) % 700
				head := wire.AppendHeader(nil, wire.Header{Type: wire.TypePing, Size: uint32(size), Corr: uint64(s)<<32 | uint64(n)})
				body := bytes.Repeat([]byte{byte(n)}, size)
				send := l.Send
				if s%2 == 0 {
					send = l.Write
				}
				if err := send(head, body); err != nil {
					t.Errorf("sender %d frame %d: %v", s, n, err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	next := [senders]uint32{}
	count := 0
	for a := range arrived {
		count++
		if a.n != next[a.sender] {
			t.Errorf("sender %d: frame %d, want %d", a.sender, a.n, next[a.sender])
		}
		next[a.sender] = a.n + 1
	}
	if count != senders*each {
		t.Errorf("%d frames arrived, want %d", count, senders*each)
	}
}

func TestCloseDeliversWhatWasQueued(t *testing.T) { both(t, testCloseDeliversWhatWasQueued) }

func testCloseDeliversWhatWasQueued(t *testing.T, tr transport) {
	got := make(chan int, 1)
	b := tr.listen(t, Config{}, func(_ Conn, l *Lane) {
		n := 0
		for {
			if _, err := l.ReadHeader(); err != nil {
				break
			}
			n++
		}
		_ = l.Close()
		got <- n
	})
	l := open(t, b.connect(Config{}))
	for i := range 1000 {
		if err := l.SendFrame(uint64(i), &wire.Ping{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n != 1000 {
		t.Errorf("%d of 1000 frames arrived", n)
	}
	wantCode(t, "send after close", l.SendFrame(1, &wire.Ping{}), code.Closed)
	wantCode(t, "write after close", l.Write([]byte{1}), code.Closed)
}

func TestLaneFull(t *testing.T) { both(t, testLaneFull) }

func testLaneFull(t *testing.T, tr transport) {
	release := make(chan struct{})
	b := tr.listen(t, Config{LaneWindow: 1024, MaxLaneWindow: 1024}, func(_ Conn, l *Lane) {
		<-release
		_ = l.Close()
	})
	var stats Stats
	c := b.connect(Config{OutboundBytes: 100_000, Stats: &stats})
	l := open(t, c)
	frame := wire.AppendFrame(nil, 1, &wire.Auth{Token: string(make([]byte, 1000))})
	accepted := 0
	for {
		err := l.Send(frame)
		if errors.Is(err, ErrLaneFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if accepted += len(frame); accepted > 1<<20 {
			t.Fatal("the queue has no end")
		}
	}
	if accepted < 90_000 {
		t.Errorf("full after %d bytes", accepted)
	}
	if n := stats.Outbound.Load(); n < 50_000 || n > 110_000 {
		t.Errorf("the gauge says that %d bytes wait", n)
	}
	l.Reset(code.SlowConsumer)
	if n := stats.Outbound.Load(); n != 0 {
		t.Errorf("the gauge says that %d bytes wait on a lane that is gone", n)
	}
	close(release)
	wantCode(t, "send after reset", l.Send(frame), code.Closed)
}

// A single frame larger than the bound passes on an empty queue: a record may be larger than what is
// worth queueing.
func TestLargeFrameOnEmptyQueue(t *testing.T) { both(t, testLargeFrameOnEmptyQueue) }

func testLargeFrameOnEmptyQueue(t *testing.T, tr transport) {
	b := tr.listen(t, Config{}, echo)
	c := b.connect(Config{OutboundBytes: 1000})
	c.SetMaxFrame(wire.MaxFrame)
	l := open(t, c)
	if _, _, err := ask(l, 1, nil); err != nil { // the server has raised its limit now
		t.Fatal(err)
	}
	if _, got, err := ask(l, 2, make([]byte, 2<<20)); err != nil || len(got) != 2<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = l.Close()
}

func TestResetCarriesItsCode(t *testing.T) { both(t, testResetCarriesItsCode) }

func testResetCarriesItsCode(t *testing.T, tr transport) {
	told := make(chan error, 2)
	b := tr.listen(t, Config{}, func(_ Conn, l *Lane) {
		defer func() { _ = l.Close() }()
		for {
			h, err := l.ReadHeader()
			if err != nil {
				told <- err
				<-l.Done()
				told <- l.Write([]byte{1})
				return
			}
			_ = l.SendFrame(h.Corr, &wire.Pong{})
		}
	})
	c := b.connect(Config{})
	l, other := open(t, c), open(t, c)
	if _, _, err := ask(l, 1, nil); err != nil {
		t.Fatal(err)
	}
	l.Reset(code.SlowConsumer)
	<-l.Done()
	wantCode(t, "read by the peer", <-told, code.SlowConsumer)
	wantCode(t, "write by the peer", <-told, code.SlowConsumer)
	if _, _, err := ask(other, 1, nil); err != nil {
		t.Errorf("another lane: %v", err)
	}
	_ = other.Close()
}

func TestConnCloseCarriesCodeAndMessage(t *testing.T) { both(t, testConnCloseCarriesCodeAndMessage) }

func testConnCloseCarriesCodeAndMessage(t *testing.T, tr transport) {
	conns := make(chan Conn, 1)
	b := tr.listen(t, Config{}, func(c Conn, l *Lane) {
		conns <- c
		_, _ = l.ReadHeader()
		_, _ = l.ReadHeader()
		_ = l.Close()
	})
	c := b.connect(Config{})
	if c.Err() != nil {
		t.Error("a live connection has an error")
	}
	l := open(t, c)
	if err := l.SendFrame(1, &wire.Ping{}); err != nil {
		t.Fatal(err)
	}
	server := <-conns
	if err := server.Close(code.Unauthenticated, "token has expired"); err != nil {
		t.Error(err)
	}
	wantCode(t, "closed here", server.Err(), code.Unauthenticated)
	<-c.Done()
	err := c.Err()
	wantCode(t, "closed by the peer", err, code.Unauthenticated)
	if e := code.From(err); e.Class != code.ClassFatal || !bytes.Contains([]byte(e.Message), []byte("token has expired")) {
		t.Errorf("class %v, message %q", e.Class, e.Message)
	}
	_, err = l.ReadHeader()
	wantCode(t, "read on a closed connection", err, code.Unauthenticated)
	<-l.Done()
	wantCode(t, "write on a closed connection", l.Write([]byte{0}), code.Unauthenticated)
	_, err = c.OpenLane(t.Context())
	wantCode(t, "open on a closed connection", err, code.Unauthenticated)
	_ = l.Close()
}

func TestPlainCloseIsUnavailableToThePeer(t *testing.T) {
	both(t, testPlainCloseIsUnavailableToThePeer)
}

func testPlainCloseIsUnavailableToThePeer(t *testing.T, tr transport) {
	b := tr.listen(t, Config{}, echo)
	c := b.connect(Config{})
	l := open(t, c)
	if _, _, err := ask(l, 1, nil); err != nil {
		t.Fatal(err)
	}
	b.Close()
	<-c.Done()
	wantCode(t, "listener closed", c.Err(), code.ShuttingDown)

	b = tr.listen(t, Config{}, func(c Conn, l *Lane) {
		_, _ = l.ReadHeader()
		_ = l.Close()
		_ = c.Close(0, "")
	})
	c = b.connect(Config{})
	l = open(t, c)
	_ = l.SendFrame(1, &wire.Ping{})
	<-c.Done()
	wantCode(t, "closed without a reason", c.Err(), code.Unavailable)
	_ = l.Close()
	_ = c.Close(0, "")
	_ = c.Close(0, "") // idempotent
}

func TestStats(t *testing.T) { both(t, testStats) }

func testStats(t *testing.T, tr transport) {
	var server, client Stats
	b := tr.listen(t, Config{Stats: &server}, echo)
	c := b.connect(Config{Stats: &client})
	for range 3 {
		l := open(t, c)
		if _, _, err := ask(l, 1, make([]byte, 84)); err != nil {
			t.Fatal(err)
		}
		if client.OpenLanes.Load() != 1 {
			t.Errorf("%d lanes open, want 1", client.OpenLanes.Load())
		}
		_ = l.Close()
	}
	if in, out := client.BytesIn.Load(), client.BytesOut.Load(); in != 300 || out != 300 {
		t.Errorf("client counted %d in, %d out", in, out)
	}
	_ = c.Close(0, "")
	eventually(t, "gauges at zero", func() bool {
		return server.OpenConns.Load()+server.OpenLanes.Load()+client.OpenConns.Load()+client.OpenLanes.Load() == 0
	})
}

func TestDialErrors(t *testing.T) { both(t, testDialErrors) }

func testDialErrors(t *testing.T, tr transport) {
	b := tr.listen(t, Config{}, echo)
	for _, tc := range []struct {
		name  string
		dial  func(ctx context.Context) error
		code  code.Code
		class code.Class
	}{
		{"no port", func(ctx context.Context) error {
			_, err := tr.dial(ctx, "127.0.0.1", b.Client, Config{})
			return err
		}, code.BadRequest, code.ClassFatal},
		{"no certificate", func(ctx context.Context) error {
			_, other := identity(t)
			_, err := tr.dial(ctx, b.Listener.Addr().String(), other, Config{})
			return err
		}, code.Unauthenticated, code.ClassFatal},
		{"no such protocol", func(ctx context.Context) error {
			_, err := b.dial(ctx, Config{ALPN: "other/1"})
			return err
		}, code.Unsupported, code.ClassFatal},
		{"nobody there", func(ctx context.Context) error {
			pc, ln := udp(t), tcp(t) // bound, and nobody answers
			defer func() { _, _ = pc.Close(), ln.Close() }()
			addr := pc.LocalAddr()
			if tr.name == overTLS.name {
				addr = ln.Addr()
			}
			_, err := tr.dial(ctx, addr.String(), b.Client, Config{HandshakeTimeout: 200_000_000})
			return err
		}, code.Unavailable, code.ClassRefused},
		{"cancelled", func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := b.dial(ctx, Config{})
			return err
		}, code.Cancelled, code.ClassRefused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := tc.dial(ctx)
			wantCode(t, "dial", err, tc.code)
			if e := code.From(err); e.Class != tc.class {
				t.Errorf("class %v, want %v", e.Class, tc.class)
			}
		})
	}
}

func TestConnectionLimits(t *testing.T) { both(t, testConnectionLimits) }

func testConnectionLimits(t *testing.T, tr transport) {
	var stats Stats
	b := tr.listen(t, Config{MaxConns: 3, MaxConnsPerAddress: 2, Stats: &stats}, echo)
	first := b.connect(Config{})
	b.connect(Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := b.dial(ctx, Config{})
	wantCode(t, "third from one address", err, code.Unavailable)
	if stats.RefusedConns.Load() == 0 {
		t.Error("the refusal is not counted")
	}
	_ = first.Close(0, "")
	eventually(t, "room again", func() bool {
		c, err := b.dial(ctx, Config{})
		if err == nil {
			_ = c.Close(0, "")
		}
		return err == nil
	})
}

// TestRefuseUnsupported: a frame of an unknown type and one with an unknown flag are answered with
// "unsupported" under their own correlation id, whatever their body; the lane and others live on.
func TestRefuseUnsupported(t *testing.T) { both(t, testRefuseUnsupported) }

func testRefuseUnsupported(t *testing.T, tr transport) {
	serve := func(_ Conn, l *Lane) {
		defer func() { _ = l.Close() }()
		for {
			h, err := l.ReadSupported()
			if err != nil {
				return
			}
			if err := l.SendFrame(h.Corr, &wire.Pong{}); err != nil {
				return
			}
		}
	}
	b := tr.listen(t, Config{}, serve)
	c := b.connect(Config{})
	other := open(t, c)
	l := open(t, c)
	for i, h := range []wire.Header{
		{Type: 0x7f, Size: 0},
		{Type: 0x7f, Size: 40_000},
		{Type: 0xff, Flags: 0xff, Size: 5},
		{Type: wire.TypePing, Flags: 0x80, Size: 3},
		{Type: 0, Size: 1},
	} {
		h.Corr = uint64(100 + i)
		if err := l.Send(wire.AppendHeader(nil, h), make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
		got, err := l.ReadHeader()
		if err != nil {
			t.Fatal(err)
		}
		body, err := l.AppendBody(nil)
		var f wire.Error
		if err != nil || got.Type != wire.TypeError || got.Corr != h.Corr || f.Parse(body) != nil || f.Code != code.Unsupported {
			t.Fatalf("answer to %+v: %+v %+v, %v", h, got, f, err)
		}
		for _, lane := range []*Lane{l, other} {
			if err := lane.SendFrame(uint64(i), &wire.Ping{}); err != nil {
				t.Fatal(err)
			}
			if got, err := lane.ReadHeader(); err != nil || got.Type != wire.TypePong || got.Corr != uint64(i) {
				t.Fatalf("after %+v: %+v, %v", h, got, err)
			}
		}
	}
	_ = l.Close()
	_ = other.Close()
}
