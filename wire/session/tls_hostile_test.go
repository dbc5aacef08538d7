// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"margay.dev/wire"
	"margay.dev/wire/code"
)

// bare is a TLS connection without a session on it, as a foreign client makes one.
func (b *broker) bare(t *testing.T) *tls.Conn {
	t.Helper()
	conf := b.Client.Clone()
	conf.NextProtos = []string{ALPN}
	conf.MinVersion = tls.VersionTLS13
	nc, err := net.Dial("tcp", b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	c := tls.Client(nc, conf)
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// greet sends a preface and returns its answer.
func greet(t *testing.T, c *tls.Conn, p preface) message {
	t.Helper()
	if _, err := c.Write(p.append(nil)); err != nil {
		t.Fatal(err)
	}
	m, err := readMessage(c)
	if err != nil {
		t.Fatalf("no answer to %+v: %v", p, err)
	}
	return m
}

func wantRefused(t *testing.T, what string, m message, want code.Code) {
	t.Helper()
	if m.kind != msgRefused || m.code != want || m.text == "" {
		t.Errorf("%s: answered with %+v, want a refusal with %v", what, m, want)
	}
}

// TestHostilePrefaces: whatever a connection begins with, it is refused by an answer, and an honest one is served.
func TestHostilePrefaces(t *testing.T) {
	b := overTLS.listen(t, Config{}, echo)
	good := preface{kind: prefaceNew, id: sessionID{1}}
	for what, change := range map[string]func(b []byte){
		"wrong magic":      func(b []byte) { b[0]++ },
		"reserved":         func(b []byte) { b[6] = 1 },
		"kind 0":           func(b []byte) { b[5] = 0 },
		"kind 3":           func(b []byte) { b[5] = 3 },
		"a link's lane":    func(b []byte) { b[40] = 1 },
		"a join to lane 0": func(b []byte) { b[5] = byte(prefaceJoin) },
		"no id":            func(b []byte) { clear(b[8:40]) },
	} {
		raw := good.append(nil)
		change(raw)
		c := b.bare(t)
		_, _ = c.Write(append(raw, make([]byte, 100<<10)...)) // and it does not stop there
		if m, err := readMessage(c); err == nil {
			wantRefused(t, what, m, code.Protocol)
		} // otherwise the rest of it has met a closed connection before the answer was read
		_, err := io.Copy(io.Discard, c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection lives on", what)
		}
	}
	newer := good.append(nil)
	newer[4] = 2
	c := b.bare(t)
	_, _ = c.Write(newer)
	m, err := readMessage(c)
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "a newer version", m, code.Unsupported)
	wantRefused(t, "a join of no session", greet(t, b.bare(t), preface{kind: prefaceJoin, id: sessionID{9}, lane: 1}), code.Unavailable)
	honest(t, b)
}

func honest(t *testing.T, b *broker) {
	t.Helper()
	c := b.connect(Config{})
	l := open(t, c)
	if _, _, err := ask(l, 1, make([]byte, 100)); err != nil {
		t.Errorf("an honest client: %v", err)
	}
	_ = l.Close()
	_ = c.Close(0, "")
}

// TestOnlyTLS13: what does not speak TLS 1.3 and margay/1 gets nowhere, and the listener lives on.
func TestOnlyTLS13(t *testing.T) {
	b := overTLS.listen(t, Config{}, echo)
	addr := b.Listener.Addr().String()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _ = nc.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	_ = nc.SetDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("plain TCP: the connection lives on")
	}
	for what, change := range map[string]func(c *tls.Config){
		"TLS 1.2":          func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
		"another protocol": func(c *tls.Config) { c.NextProtos = []string{"h2"} },
		"no protocol":      func(c *tls.Config) { c.NextProtos = nil },
	} {
		conf := b.Client.Clone()
		conf.NextProtos = []string{ALPN}
		change(conf)
		c, err := (&tls.Dialer{Config: conf}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write((&preface{kind: prefaceNew, id: sessionID{1}}).append(nil))
		if n, err := io.Copy(io.Discard, c); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %d bytes of an answer, %v", what, n, err)
		}
		_ = c.Close()
	}
	// And a client is not fooled by a server that speaks no TLS.
	ln := tcp(t)
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-OpenSSH\r\n"))
			_ = c.Close()
		}
	}()
	_, err = overTLS.dial(t.Context(), ln.Addr().String(), b.Client, Config{})
	if err == nil || !errors.Is(err, code.Protocol) && !errors.Is(err, code.Unavailable) {
		t.Errorf("a server without TLS: %v", err)
	}
	honest(t, b)
}

// TestSlowPreface: a connection that does not say what it is within the handshake timeout is closed.
func TestSlowPreface(t *testing.T) {
	b := overTLS.listen(t, Config{HandshakeTimeout: 300 * time.Millisecond}, echo)
	silent, err := net.Dial("tcp", b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	slow := b.bare(t)
	_, _ = slow.Write(make([]byte, 1))
	_ = silent.SetDeadline(time.Now().Add(patience))
	for what, c := range map[string]net.Conn{"nothing said": silent, "a byte of a preface": slow} {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection lives on", what)
		}
	}
}

// TestJoins: a lane number is used once at a time, and a session that is closed takes no more lanes.
func TestJoins(t *testing.T) {
	b := overTLS.listen(t, Config{MaxLanes: 2}, echo)
	c := b.connect(Config{}).(*tlsConn)
	l := open(t, c)
	join := preface{kind: prefaceJoin, id: c.id, lane: 1}
	wantRefused(t, "a replayed join", greet(t, b.bare(t), join), code.Protocol)
	join.lane = 70
	if m := greet(t, b.bare(t), join); m.kind != msgAccepted {
		t.Errorf("a second lane: %+v", m)
	}
	join.lane = 71
	wantRefused(t, "a third of two lanes", greet(t, b.bare(t), join), code.TooMany)
	wantRefused(t, "the session's id again", greet(t, b.bare(t), preface{kind: prefaceNew, id: c.id}), code.Protocol)
	if _, _, err := ask(l, 1, nil); err != nil {
		t.Errorf("the lane that is there: %v", err)
	}
	_ = l.Close()
	_ = c.Close(0, "")
	eventually(t, "the session to be gone", func() bool {
		return greet(t, b.bare(t), join).code == code.Unavailable
	})
	if _, err := c.OpenLane(t.Context()); !errors.Is(err, code.Closed) {
		t.Errorf("a lane of a closed connection: %v", err)
	}
}

// TestHostileLink: what breaks the form of the link ends the session with a protocol error; messages about lanes that
// are not there are passed over.
func TestHostileLink(t *testing.T) {
	b := overTLS.listen(t, Config{}, echo)
	for i, bad := range [][]byte{
		(&message{kind: msgDone, lane: 1}).append(nil),
		(&message{kind: msgAccepted}).append(nil),
		(&message{kind: msgReset}).append(nil),
		bytes.Repeat([]byte{0xff}, messageSize),
		binary.LittleEndian.AppendUint32(append([]byte{byte(msgClose), 0}, 0, 0), 0xffffffff),
	} {
		c := b.bare(t)
		if m := greet(t, c, preface{kind: prefaceNew, id: sessionID{byte(i + 1)}}); m.kind != msgAccepted || m.lane == 0 {
			t.Fatalf("a session: %+v", m)
		}
		harmless := (&message{kind: msgStop, lane: 5}).append(nil)
		harmless = (&message{kind: msgReset, lane: 6, code: code.Cancelled}).append(harmless)
		_, _ = c.Write(append(append(harmless, bad...), make([]byte, messageSize)...))
		if m, err := readMessage(c); err != nil || m.kind != msgDone || m.lane != 6 {
			t.Errorf("%d: a lane that never came: %+v, %v", i, m, err)
		}
		if m, err := readMessage(c); err != nil || m.kind != msgClose || m.code != code.Protocol {
			t.Errorf("%d: %+v, %v; want a close for a broken protocol", i, m, err)
		}
	}
	honest(t, b)
}

// TestTruncationIsNoEnd: a TCP connection that ends without a word of TLS is an error, between two frames too, whoever
// ended it; the session lives on.
func TestTruncationIsNoEnd(t *testing.T) {
	got := make(chan error, 1)
	b := overTLS.listen(t, Config{}, func(_ Conn, l *Lane) {
		defer func() { _ = l.Close() }()
		for {
			if _, err := l.ReadHeader(); err != nil {
				got <- err
				return
			}
		}
	})
	c := b.connect(Config{})
	for what, cut := range map[string]func(r *rawConn){
		"FIN": func(r *rawConn) { _ = r.Close() },
		"RST": (*rawConn).kill,
	} {
		l := open(t, c)
		if err := l.Write(wire.AppendFrame(nil, 1, &wire.Ping{})); err != nil {
			t.Fatal(err)
		}
		cut(l.stream.(*tlsStream).raw)
		err := <-got
		if errors.Is(err, io.EOF) {
			t.Errorf("%s is taken for an end", what)
		}
		wantCode(t, what, err, code.Unavailable)
		_ = l.Close()
	}
	if c.Err() != nil {
		t.Errorf("the session: %v", c.Err())
	}
	l := open(t, c)
	_ = l.Close()
	if err := <-got; !errors.Is(err, io.EOF) {
		t.Errorf("an end in order: %v", err)
	}
}

// TestDeadPeer: a peer that says nothing any more is given up after Idle, on both sides.
func TestDeadPeer(t *testing.T) {
	b := overTLS.listen(t, Config{KeepAlive: 100 * time.Millisecond, Idle: time.Second}, echo)
	c := b.bare(t)
	if m := greet(t, c, preface{kind: prefaceNew, id: sessionID{1}}); m.kind != msgAccepted {
		t.Fatal(m)
	}
	began := time.Now()
	asked := 0
	for {
		m, err := readMessage(c)
		if err != nil {
			break
		}
		if m.kind == msgAlive && m.code == 1 {
			asked++
		}
	}
	if took := time.Since(began); asked == 0 || took < time.Second {
		t.Errorf("given up after %v, asked %d times for a sign of life", took, asked)
	}
	// One that lives is kept, however long it has nothing to say.
	quiet := b.connect(Config{KeepAlive: time.Hour, Idle: time.Hour})
	select {
	case <-quiet.Done():
		t.Errorf("a quiet client was given up: %v", quiet.Err())
	case <-time.After(3 * time.Second):
	}
}

// TestSocketsAreBounded: beyond MaxSockets a lane is refused with a reason, those that are there live on, and there is
// room again when some end.
func TestSocketsAreBounded(t *testing.T) {
	var stats Stats
	b := overTLS.listen(t, Config{MaxSockets: 16, Stats: &stats}, echo)
	c := b.connect(Config{})
	var lanes []*Lane
	for {
		l, err := c.OpenLane(t.Context())
		if err != nil {
			wantCode(t, "a lane too many", err, code.TooMany)
			break
		}
		if lanes = append(lanes, l); len(lanes) > 16 {
			t.Fatal("there is no bound")
		}
	}
	if len(lanes) < 12 || stats.RefusedConns.Load() == 0 {
		t.Errorf("%d lanes of 16 connections, %d refused", len(lanes), stats.RefusedConns.Load())
	}
	if _, err := b.dial(t.Context(), Config{}); err == nil {
		t.Error("another connection was taken")
	}
	for _, l := range lanes {
		if _, _, err := ask(l, 1, nil); err != nil {
			t.Errorf("a lane that is there: %v", err)
		}
		_ = l.Close()
	}
	eventually(t, "room again", func() bool {
		l, err := c.OpenLane(t.Context())
		if err == nil {
			_ = l.Close()
		}
		return err == nil
	})
}

// FuzzPreface: the bytes of a connection's beginning are refused or mean one thing.
func FuzzPreface(f *testing.F) {
	f.Add((&preface{kind: prefaceNew, id: sessionID{1}}).append(nil))
	f.Add((&preface{kind: prefaceJoin, id: sessionID{1}, lane: 7}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != prefaceSize {
			return
		}
		p, err := parsePreface([prefaceSize]byte(b))
		if err == nil && !bytes.Equal(p.append(nil), b) {
			t.Errorf("%x is read as %+v", b, p)
		}
	})
}

// FuzzMessage: messages of a link are refused or mean one thing, and hold no more than they may.
func FuzzMessage(f *testing.F) {
	for _, m := range []message{
		{kind: msgAccepted, lane: 4096},
		{kind: msgRefused, code: code.TooMany, text: "full"},
		{kind: msgAlive, code: 1},
		{kind: msgReset, code: code.Cancelled, lane: 3},
		{kind: msgStop, lane: 4},
		{kind: msgDone, lane: 5},
		{kind: msgClose, text: "bye"},
	} {
		f.Add(m.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		m, err := readMessage(r)
		if err == nil && !bytes.Equal(m.append(nil), b[:len(b)-r.Len()]) {
			t.Errorf("%x is read as %+v", b, m)
		}
	})
}
