// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session/sessiontest"
)

func TestConnectFailsEarlyAndSaysWhy(t *testing.T) {
	b := fakebroker.New(t)
	ctx := within(t)
	_, err := client.Connect(ctx, b.Address()) // the system's CAs do not know the test's
	wantError(t, err, client.ErrUnauthenticated, client.Fatal)

	b.Script(func(s *fakebroker.Script) {
		s.Auth = func(string) (time.Time, error) { return time.Time{}, code.New(code.Unauthenticated, "who are you") }
	})
	_, err = client.Connect(ctx, b.Address(), client.WithCA(b.CA), client.WithToken("wrong"))
	wantError(t, err, client.ErrUnauthenticated, client.Fatal)

	b.Stop()
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = client.Connect(short, b.Address(), client.WithCA(b.CA))
	wantError(t, err, client.ErrUnavailable, client.Refused)
	if !strings.Contains(err.Error(), b.Address()) {
		t.Errorf("the error does not name the address: %v", err)
	}
}

func TestConnectChecksItsOptions(t *testing.T) {
	for name, opts := range map[string][]client.Option{
		"CA":       {client.WithCA([]byte("nothing"))},
		"buffer":   {client.WithBufferBytes(0)},
		"delivery": {client.WithDeliveryTimeout(time.Hour)},
		"ack":      {client.WithAck(9)},
	} {
		if _, err := client.Connect(within(t), "127.0.0.1", opts...); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for address, want := range map[string]error{
		"":                     client.ErrBadRequest,
		"http://x:1":           client.ErrBadRequest,
		"margay://":            client.ErrBadRequest,
		"margay://a:b":         client.ErrBadRequest,
		"margay://a:0":         client.ErrBadRequest,
		"margay://a,,b":        client.ErrBadRequest,
		"margay://user@a:1":    client.ErrBadRequest,
		"margay+tls://a:0":     client.ErrBadRequest,
		"margay+quic://a:7420": client.ErrBadRequest,
		"a:1,http://b:2":       client.ErrBadRequest,
		"margay://x:70000":     client.ErrBadRequest,
		"margay://a:1:2:zz,b":  client.ErrBadRequest,
		"margay://a/b/c":       client.ErrBadRequest,
		"margay://127.0.0.1:a": client.ErrBadRequest,
	} {
		if _, err := client.Connect(within(t), address); !errors.Is(err, want) {
			t.Errorf("address %q: %v", address, err)
		}
	}
}

// Where nothing takes TLS connections, the error says so, and not only that the time ran out.
func TestRefusedTCPIsSaid(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = client.Connect(ctx, "margay+tls://"+ln.Addr().String())
	if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "nothing takes TLS connections") {
		t.Errorf("got %v", err)
	}
}

func TestSecondSeedIsTried(t *testing.T) {
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	b := fakebroker.New(t)
	c, err := client.Connect(within(t), "margay://"+dead.LocalAddr().String()+","+b.Address(), client.WithCA(b.CA))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// AU-06: a token that is renewed in band interrupts nothing.
func TestTokenIsRenewedInBand(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	b.Script(func(s *fakebroker.Script) {
		s.Auth = func(string) (time.Time, error) { return time.Now().Add(7 * time.Second), nil }
	})
	var n atomic.Int64
	source := func(context.Context) (string, time.Time, error) {
		return "token" + string('a'+rune(n.Add(1)-1)), time.Now().Add(6200 * time.Millisecond), nil
	}
	c := connect(t, b, client.WithTokenSource(source))
	if _, err := c.Publisher("orders").Publish(within(t), client.Record{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both connections to show a second token", func() bool { return len(b.Tokens()) >= 4 })
	if got := b.Connections(); got != 2 {
		t.Errorf("%d connections were made, want 2", got)
	}
	if got := b.Tokens(); got[0] != "tokena" || got[1] != "tokena" || got[2] != "tokenb" {
		t.Errorf("tokens %v", got)
	}
}

func TestStaleTokenIsReplacedAtOnce(t *testing.T) {
	b := fakebroker.New(t)
	b.Script(func(s *fakebroker.Script) {
		s.Auth = func(token string) (time.Time, error) {
			if token == "old" {
				return time.Time{}, code.New(code.Unauthenticated, "key is gone")
			}
			return time.Now().Add(time.Hour), nil
		}
	})
	tokens := []string{"old", "new"}
	source := func(context.Context) (string, time.Time, error) {
		next := tokens[0]
		tokens = tokens[1:]
		return next, time.Now().Add(time.Hour), nil
	}
	connect(t, b, client.WithTokenSource(source))
}

func TestPublishOutlivesItsToken(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	var valid atomic.Value
	valid.Store("t1")
	b.Script(func(s *fakebroker.Script) {
		s.Publish = func(fakebroker.Publish) fakebroker.Verdict {
			tokens := b.Tokens()
			if tokens[len(tokens)-1] != valid.Load().(string) {
				return fakebroker.Verdict{Err: code.New(code.Unauthenticated, "the token has ended")}
			}
			return fakebroker.Verdict{}
		}
	})
	n := 0
	source := func(context.Context) (string, time.Time, error) {
		n++
		return "t" + string('0'+rune(n)), time.Time{}, nil
	}
	p := connect(t, b, client.WithTokenSource(source)).Publisher("orders")
	for i := range 2 {
		if _, err := p.Publish(within(t), client.Record{Value: []byte(value(i))}); err != nil {
			t.Fatal(err)
		}
		valid.Store("t2")
	}
	wantValues(t, b.Values(l, 0), 2)
}

// A broker that drains: what is under way is finished, and what comes goes over a new connection. Nobody hears of it.
func TestGoodbye(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	c := connect(t, b)
	ask := func() string {
		if _, err := c.Info(within(t), "orders"); err != nil {
			t.Fatal(err)
		}
		return b.LastAsker()
	}
	before := ask()
	b.Goodbye()
	eventually(t, "a lookup to go over a new connection", func() bool { return ask() != before })
}

func TestGoodbyeToPublishers(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 1)
	// Without idempotence a batch that a lost connection owes an answer for is lost with it.
	p := connect(t, b).Publisher("orders", client.WithoutIdempotence())
	release := holdAll(b)
	defer release()
	fs := publishAsync(t, p, 0, 1)
	eventually(t, "a publish to be under way", func() bool { return len(b.Publishes()) == 1 })
	b.Goodbye()
	b.Script(func(s *fakebroker.Script) { s.Publish = nil })
	before := b.Publishes()[0].From
	release()
	n := 1
	eventually(t, "a publish to go over a new connection", func() bool {
		fs = append(fs, publishAsync(t, p, n, n+1)...)
		n++
		waitAll(t, fs[n-1:])
		got := b.Publishes()
		return got[len(got)-1].From != before
	})
	waitAll(t, fs)
	wantValues(t, b.Values(l, 0), n)
}

func TestInfoAndOffsets(t *testing.T) {
	b := fakebroker.New(t)
	l := b.AddLog(stream, 2)
	b.Feed(l, 1, "a", "b")
	c := connect(t, b)
	info, err := c.Info(within(t), "orders")
	if err != nil || info.Shards != 2 || info.ID != l.ID || info.Name != stream {
		t.Fatalf("info %+v, %v", info, err)
	}
	offs, err := c.Offsets(within(t), "default/orders")
	if err != nil || len(offs) != 2 || offs[0].Latest != 0 || offs[1].Latest != 2 {
		t.Fatalf("offsets %+v, %v", offs, err)
	}
	_, err = c.Info(within(t), "nothing")
	wantError(t, err, client.ErrNotFound, client.Fatal)
	for _, name := range []string{"", "../x", "a/b/c/d", "UPPER", "a//b", strings.Repeat("x", 65)} {
		_, err = c.Info(within(t), name)
		wantError(t, err, client.ErrBadRequest, client.Fatal)
	}
}

// WR-01: many requests, some of them given up, do not use up anything.
func TestManyRequests(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog(stream, 1)
	c := connect(t, b)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 250 {
				ctx, cancel := context.WithTimeout(within(t), time.Duration(rng.IntN(2000))*time.Microsecond)
				_, _ = c.Info(ctx, "orders")
				cancel()
				if _, err := c.Info(within(t), "orders"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestConnectNamed(t *testing.T) {
	b := fakebroker.New(t)
	b.AddLog("acme/shop/orders", 1)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	path := filepath.Join(dir, "margay", "contexts", "dev.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	k := &control.Context{Name: "dev", Addresses: []string{b.Address()}, CA: string(b.CA), Tenant: "acme", Namespace: "shop"}
	k.HTTP, k.APIKey = "http://127.0.0.1:1", "mgk_unused" // the token given below comes on top of it
	if err := control.SaveContext(path, k); err != nil {
		t.Fatal(err)
	}
	c, err := client.ConnectNamed(within(t), "dev", client.WithToken("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Info(within(t), "orders"); err != nil {
		t.Error(err)
	}
	_, err = client.ConnectNamed(within(t), "none")
	wantError(t, err, client.ErrNotFound, client.Fatal)
	_, err = client.ConnectNamed(within(t), "../dev")
	wantError(t, err, client.ErrBadRequest, client.Fatal)
}

func TestOwnSocketIsClosed(t *testing.T) {
	b := fakebroker.New(t)
	var mu sync.Mutex
	var sockets []interface{ SetDeadline(t time.Time) error }
	c := connect(t, b, client.WithPacketConn(func(context.Context, string) (net.PacketConn, error) {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		mu.Lock()
		defer mu.Unlock()
		sockets = append(sockets, pc)
		return pc, err
	}), client.WithTCPConn(func(_ context.Context, addr string) (net.Conn, error) {
		nc, err := net.Dial("tcp", addr)
		mu.Lock()
		defer mu.Unlock()
		sockets = append(sockets, nc)
		return nc, err
	}))
	c.Close()
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{"quic": 1, "tls": 2} // there, a link and a lane
	if len(sockets) != want[sessiontest.Transport()] {
		t.Fatalf("%d sockets were made", len(sockets))
	}
	for _, s := range sockets {
		if err := s.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the socket is still open: %v", err)
		}
	}
}
