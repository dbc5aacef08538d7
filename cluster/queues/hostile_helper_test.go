// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/session/sessiontest"
)

// hostileQueue makes a queue.
func hostileQueue(t testing.TB, n *margaytest.Node, spec control.QueueSpec) {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.CreateQueue(await.Within(t), cc.Tenant, cc.Namespace, spec); err != nil {
		t.Fatal(err)
	}
}

// hostileStream makes a stream.
func hostileStream(t testing.TB, n *margaytest.Node, spec control.StreamSpec) {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.CreateStream(await.Within(t), cc.Tenant, cc.Namespace, spec); err != nil {
		t.Fatal(err)
	}
}

// peer is a connection that says what a test wants it to say.
type peer struct {
	t    testing.TB
	n    *margaytest.Node
	conn session.Conn
	log  wire.LogInfo
}

func newPeer(t testing.TB, n *margaytest.Node, log, tok string) *peer {
	t.Helper()
	pool := x509.NewCertPool()
	cc := n.Context()
	pool.AppendCertsFromPEM([]byte(cc.CA))
	conn, err := sessiontest.Dial(await.Within(t), n.Address(), &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: "127.0.0.1",
	}, session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(0, "done") })
	p := &peer{t: t, n: n, conn: conn}
	if tok == "" {
		api, err := control.NewClient(cc.Client())
		if err != nil {
			t.Fatal(err)
		}
		defer api.Close()
		got, err := api.Token(await.Within(t))
		if err != nil {
			t.Fatal(err)
		}
		tok = got.Token
	}
	first := p.lane()
	p.want(first, &wire.Hello{VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.AllFeatures, Client: "peer"}, &wire.HelloOk{})
	p.want(first, &wire.Auth{Token: tok}, &wire.AuthOk{})
	conn.SetMaxFrame(wire.MaxFrame)
	p.want(first, &wire.Lookup{Name: control.FullName(cc.Tenant, cc.Namespace, log)}, &p.log)
	return p
}

func (p *peer) lane() *session.Lane {
	p.t.Helper()
	l, err := p.conn.OpenLane(await.Within(p.t))
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// answer reads the next frame that is no message and no progress.
func (p *peer) answer(l *session.Lane) (wire.Header, []byte) {
	p.t.Helper()
	stop := context.AfterFunc(await.Within(p.t), func() { l.Reset(code.Timeout) })
	defer stop()
	for {
		h, err := l.ReadHeader()
		if err != nil {
			p.t.Fatal(err)
		}
		body, err := l.AppendBody(nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if h.Type != wire.TypeMessages && h.Type != wire.TypeProgress {
			return h, body
		}
	}
}

// ask sends a frame and takes its answer; an Error is returned as one.
func (p *peer) ask(l *session.Lane, f, into wire.Frame) *code.Error {
	p.t.Helper()
	if err := l.SendFrame(7, f); err != nil {
		p.t.Fatal(err)
	}
	h, body := p.answer(l)
	if h.Type == wire.TypeError {
		var e wire.Error
		if err := wire.ParseFrame(h, &e, body); err != nil {
			p.t.Fatal(err)
		}
		return e.Err()
	}
	if h.Type != into.Type() {
		p.t.Fatalf("%T was answered with %v", f, h.Type)
	}
	if err := wire.ParseFrame(h, into, body); err != nil {
		p.t.Fatal(err)
	}
	return nil
}

func (p *peer) want(l *session.Lane, f, into wire.Frame) {
	p.t.Helper()
	if err := p.ask(l, f, into); err != nil {
		p.t.Fatalf("%T: %v", f, err)
	}
}

// messages reads frames until so many messages have come; what else comes is an error.
func (p *peer) messages(l *session.Lane) wire.Messages {
	p.t.Helper()
	stop := context.AfterFunc(await.Within(p.t), func() { l.Reset(code.Timeout) })
	defer stop()
	for {
		h, err := l.ReadHeader()
		if err != nil {
			p.t.Fatal(err)
		}
		body, err := l.AppendBody(nil)
		if err != nil {
			p.t.Fatal(err)
		}
		switch h.Type {
		case wire.TypeMessages:
			var f wire.Messages
			if err := wire.ParseFrame(h, &f, body); err != nil {
				p.t.Fatal(err)
			}
			return f
		case wire.TypeProgress:
		default:
			p.t.Fatalf("%v came for messages", h.Type)
		}
	}
}

func randomID() (id [16]byte) {
	_, _ = rand.Read(id[:])
	return id
}

// hostilePush pushes values "0" up to n, each with a key of so many.
func hostilePush(t testing.TB, q *client.Queue, n, keys int) {
	t.Helper()
	ctx := await.Within(t)
	for i := range n {
		rec := client.Record{Value: fmt.Append(nil, i)}
		if keys > 0 {
			rec.Key = fmt.Append(nil, "k", i%keys)
		}
		q.PushAsync(ctx, rec)
	}
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// adds checks that what was published is what is somewhere.
func adds(t testing.TB, g *client.Group, published uint64) *client.GroupInfo {
	t.Helper()
	info, err := g.Info(await.Within(t), client.Counted())
	if err != nil {
		t.Fatal(err)
	}
	tot := &info.Totals
	sum := info.Ready + info.Delayed + info.InFlight + info.Dead + tot.Acked + tot.Expired + tot.Cancelled + tot.Lost + tot.Discarded
	if sum != published || !info.Exact {
		t.Errorf("of %d messages %d are somewhere: %+v", published, sum, *info)
	}
	return info
}

func codeOf(err error) code.Code {
	if e, ok := errors.AsType[*code.Error](err); ok {
		return e.Code
	}
	return 0
}
