// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/process"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/session/sessiontest"
)

// SIGTERM with a hundred subscribers attached ends a node in order: exit code 0 inside its own bound of 3 s (it says so
// when it does not), each subscriber told why, and every one of them goes on behind its last record once the node is back
// (ID-12; R1). The bound is the node's to keep and to report; the test only waits for its exit.
func TestStoppedInOrderWithSubscribersAttached(t *testing.T) {
	t.Parallel()
	const clients, each = 10, 10
	p := process.Start(t, process.Config{})
	create(t, p, control.StreamSpec{Name: "tail"})
	pub := p.Connect().Publisher("tail")
	publish(t, pub, "k", "zero")

	var tails []*tail
	for range clients {
		c := p.Connect()
		for range each {
			tails = append(tails, follow(t, c, "tail"))
		}
	}
	raw := rawSubscriber(t, p, "tail")
	for _, s := range tails {
		eventually(t, "every subscriber to have the first record", func() bool { return s.next() == 1 })
	}

	p.Terminate()
	end := raw.end(t)
	if !errors.Is(end.Code, code.ShuttingDown) || len(end.Resume) != 1 || end.Resume[0].Offset != 1 || end.Resume[0].Generation == 0 {
		t.Errorf("the subscriber was told %+v, want that the node shuts down, and to resume at 1 and a generation", end)
	}
	exit := p.Wait()
	if exit.Code != 0 || strings.Contains(exit.Stderr, "did not stop") {
		t.Errorf("SIGTERM: %v\n%s", exit, exit.Stderr)
	}
	for _, s := range tails {
		eventually(t, "every subscriber to know of the end", func() bool { return s.lost() != nil })
		if err := s.lost(); !errors.Is(err, code.ShuttingDown) {
			t.Errorf("a subscriber was told %v, want that the node shuts down", err)
		}
	}

	p.Start()
	publish(t, pub, "k", "one")
	for _, s := range tails {
		eventually(t, "every subscriber to go on", func() bool { return s.next() == 2 })
	}
}

// tail follows a stream of one shard, and fails the test when it is led past a record or given one again.
type tail struct {
	mu       sync.Mutex
	expected uint64
	firstErr error
}

func follow(t *testing.T, c *client.Client, stream string) *tail {
	t.Helper()
	f := &tail{}
	s, err := c.Subscribe(within(t), stream, client.FromEarliest(), client.OnStatus(f.status))
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for rec, err := range s.Records(ctx) {
			if err != nil {
				return
			}
			f.mu.Lock()
			if rec.Offset != f.expected || rec.Gap != nil {
				t.Errorf("a subscriber got offset %d (gap %v), want %d", rec.Offset, rec.Gap, f.expected)
			}
			f.expected = rec.Offset + 1
			f.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		s.Close()
	})
	return f
}

func (f *tail) status(s client.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !s.Connected && f.firstErr == nil {
		f.firstErr = s.Err
	}
}

func (f *tail) next() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.expected
}

func (f *tail) lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.firstErr
}

// raw is a subscription without the client library: what the node says, word for word.
type raw struct{ lane *session.Lane }

func rawSubscriber(t *testing.T, p *process.Process, stream string) *raw {
	t.Helper()
	conn := rawConn(t, p)
	authenticate(t, p, conn)
	cc := p.Context()
	var info wire.LogInfo
	ask(t, openLane(t, conn), &wire.Lookup{Name: control.FullName(cc.Tenant, cc.Namespace, stream)}, &info)
	r := &raw{lane: openLane(t, conn)}
	ask(t, r.lane, &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{Kind: wire.StartEarliest}}}, &wire.Subscribed{})
	return r
}

// rawConn is a connection that has said nothing yet.
func rawConn(t *testing.T, p *process.Process) session.Conn {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(p.Context().CA))
	conn, err := sessiontest.Dial(within(t), p.Address(), &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: "127.0.0.1",
	}, session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(0, "done") })
	return conn
}

// authenticate says hello and shows a token, on a lane that is returned.
func authenticate(t *testing.T, p *process.Process, conn session.Conn) *session.Lane {
	t.Helper()
	tok, err := p.Control().Token(within(t))
	if err != nil {
		t.Fatal(err)
	}
	first := openLane(t, conn)
	ask(t, first, &wire.Hello{VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.AllFeatures, Client: "e2e"}, &wire.HelloOk{})
	ask(t, first, &wire.Auth{Token: tok.Token}, &wire.AuthOk{})
	conn.SetMaxFrame(wire.MaxFrame)
	return first
}

func openLane(t *testing.T, conn session.Conn) *session.Lane {
	t.Helper()
	l, err := conn.OpenLane(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask sends a frame and reads the answer, which must be of the kind of the one given.
func ask(t *testing.T, l *session.Lane, request, answer wire.Frame) {
	t.Helper()
	if err := l.SendFrame(1, request); err != nil {
		t.Fatal(err)
	}
	h, body := readFrame(t, l)
	if h.Type != answer.Type() {
		t.Fatalf("asked %s, answered %s: %q", request.Type(), h.Type, body)
	}
	if err := wire.ParseFrame(h, answer, body); err != nil {
		t.Fatal(err)
	}
}

func readFrame(t *testing.T, l *session.Lane) (wire.Header, []byte) {
	t.Helper()
	h, err := l.ReadHeader()
	body := make([]byte, h.Size)
	if err == nil {
		err = l.ReadBody(body)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h, body
}

// end reads until the node ends the subscription.
func (r *raw) end(t *testing.T) *wire.End {
	t.Helper()
	for {
		if h, body := readFrame(t, r.lane); h.Type == wire.TypeEnd {
			end := &wire.End{}
			if err := end.Parse(body); err != nil {
				t.Fatal(err)
			}
			return end
		}
	}
}
