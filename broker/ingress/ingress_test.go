// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"testing"
	"time"

	"margay.dev/broker/ingress"
	"margay.dev/broker/internal/hosttest"
	"margay.dev/storage/vfs/faultfs"
	"margay.dev/storage/vfs/memfs"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

// front is an ingress on a loopback socket before a host on a disk in memory.
type front struct {
	t      testing.TB
	rig    *hosttest.Rig
	fs     *faultfs.FS
	server *ingress.Server
	log    control.Log
	addr   string
	tls    *tls.Config
	stop   func() // begins the end; it is over when ended is closed
	ended  chan struct{}
}

// anybody verifies every token: what it may do is not what these tests are about.
type anybody struct{}

func (anybody) Verify(tok string) (*token.Claims, error) {
	if tok == "" {
		return nil, code.New(code.Unauthenticated, "no token")
	}
	return &token.Claims{
		Subject: "test", Tenant: "default", ExpiresAt: time.Now().Add(time.Hour),
		Grants: []token.Grant{{Actions: []token.Action{token.Any}, Resource: "*"}},
	}, nil
}

func start(t testing.TB, edit func(*ingress.Config)) *front {
	t.Helper()
	return startWith(t, hosttest.Log(nil), edit)
}

// startWith is start with a log of other settings.
func startWith(t testing.TB, log control.Log, edit func(*ingress.Config)) *front {
	t.Helper()
	f := &front{t: t, fs: faultfs.Wrap(memfs.New(mathrand.New(mathrand.NewPCG(1, 1)))), ended: make(chan struct{})}
	f.log = log
	f.log.Tenant, f.log.Namespace = "default", "default"
	f.rig = hosttest.Start(t, f.fs, hosttest.NewPlane(f.log))
	f.rig.Shard(f.log.ID, 0)
	cfg := ingress.Config{Node: "n1", Cluster: "c1", Table: f.rig.Table, Verifier: anybody{}, Registerer: f.rig.Registry}
	if edit != nil {
		edit(&cfg)
	}
	f.server = ingress.New(cfg)
	server, client := identity(t)
	f.tls = client
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := session.ListenQUIC(pc, server, session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	go func() {
		defer close(f.ended)
		if err := f.server.Serve(ctx, []session.Listener{ln}, time.Second, f.rig.Stop); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		stop()
		<-f.ended
		_ = ln.Close()
		_ = pc.Close()
	})
	return f
}

// identity is a certificate for the loopback.
func identity(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, priv)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: priv}}}, &tls.Config{RootCAs: roots}
}

func (f *front) dial() session.Conn {
	f.t.Helper()
	c, err := session.DialQUIC(hosttest.Within(f.t), nil, f.addr, f.tls, session.Config{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close(0, "") })
	return c
}

func (f *front) lane(c session.Conn) *session.Lane {
	f.t.Helper()
	l, err := c.OpenLane(hosttest.Within(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// client is a connection that has shown a token, and its control lane.
func (f *front) client() (session.Conn, *session.Lane) {
	f.t.Helper()
	c := f.dial()
	l := f.lane(c)
	f.want(l, &wire.Hello{VersionMin: wire.Version, VersionMax: wire.Version, Features: wire.AllFeatures}, &wire.HelloOk{})
	f.want(l, &wire.Auth{Token: "good"}, &wire.AuthOk{})
	c.SetMaxFrame(wire.MaxFrame)
	return c, l
}

func (f *front) want(l *session.Lane, request, answer wire.Frame) {
	f.t.Helper()
	if err := l.SendFrame(7, request); err != nil {
		f.t.Fatal(err)
	}
	f.next(l, answer)
}

// next reads a frame, which must be of the kind given.
func (f *front) next(l *session.Lane, answer wire.Frame) {
	f.t.Helper()
	h, err := l.ReadHeader()
	if err != nil {
		f.t.Fatal(err)
	}
	body, err := l.AppendBody(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if h.Type != answer.Type() {
		var e wire.Error
		_ = e.Parse(body)
		f.t.Fatalf("got %v %+v, want %v", h.Type, e, answer.Type())
	}
	if err := wire.ParseFrame(h, answer, body); err != nil {
		f.t.Fatal(err)
	}
}

func (f *front) gauge(name string) float64 {
	f.t.Helper()
	families, err := f.rig.Registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, x := range families {
		if x.GetName() == name {
			return x.GetMetric()[0].GetGauge().GetValue()
		}
	}
	f.t.Fatalf("there is no metric %s", name)
	return 0
}

func one(t *testing.T, size int) batch.Batch {
	t.Helper()
	return hosttest.Request(t, hosttest.NewAnswers(), 1, make([]byte, size)).Publish.Batch
}

// O1: a connection beyond a limit is told which, those that are there go on, and one that goes makes room.
func TestAdmission(t *testing.T) {
	for name, edit := range map[string]func(*ingress.Config){
		"in all":           func(c *ingress.Config) { c.MaxConnections = 2 },
		"from one address": func(c *ingress.Config) { c.MaxPerAddress = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, edit)
			first, lane := f.client()
			f.client()
			beyond := f.dial()
			hosttest.Eventually(t, "the third to be refused", func() bool { return beyond.Err() != nil })
			if !errors.Is(beyond.Err(), code.TooMany) {
				t.Errorf("the third connection ended with %v", beyond.Err())
			}
			f.want(lane, &wire.Ping{}, &wire.Pong{})
			_ = first.Close(0, "")
			hosttest.Eventually(t, "the first to be forgotten", func() bool { return f.server.Connections() == 1 })
			f.client()
		})
	}
}

// O1: what a publish takes of the broker's room is given back, whether it was stored, refused, cut short or given up.
func TestRoomIsGivenBack(t *testing.T) {
	f := start(t, func(c *ingress.Config) { c.InFlightBroker, c.InFlightConnection = 1<<20, 1<<20 })
	c, _ := f.client()
	good := wire.Publish{Log: f.log.ID, Batch: one(t, 100_000)}
	unknown := good
	unknown.Log[0] ^= 1
	frame := wire.AppendFrame(nil, 7, &good)
	for i := range 30 { // three times what there is room for, if it were kept
		l := f.lane(c)
		switch i % 3 {
		case 0:
			f.want(l, &good, &wire.Published{})
		case 1:
			var e wire.Error
			if f.want(l, &unknown, &e); e.Code != code.NotFound {
				t.Errorf("a publish to no log: %+v", e)
			}
		case 2:
			if err := l.Write(frame[:len(frame)/2]); err != nil {
				t.Fatal(err)
			}
			l.Reset(code.Cancelled)
		}
		_ = l.Close()
	}
	hosttest.Eventually(t, "nothing to be in flight", func() bool { return f.gauge("margay_inflight_bytes") == 0 })
}

// What was taken is answered before an orderly end closes its connection, and the client is told that there is one.
func TestTheEndAnswersWhatWasTaken(t *testing.T) {
	f := start(t, nil)
	c, control := f.client()
	l := f.lane(c)
	f.want(l, &wire.Publish{Log: f.log.ID, Batch: one(t, 10)}, &wire.Published{})
	entered, release := make(chan struct{}), make(chan struct{})
	f.fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Max: 1, Hook: func(faultfs.Call) { close(entered); <-release }})
	if err := l.SendFrame(7, &wire.Publish{Log: f.log.ID, Batch: one(t, 10)}); err != nil {
		t.Fatal(err)
	}
	<-entered
	f.stop()
	var bye wire.Goodbye
	if f.next(control, &bye); bye.Code != code.ShuttingDown {
		t.Errorf("goodbye: %+v", bye)
	}
	close(release)
	var ok wire.Published
	if f.next(l, &ok); ok.BaseOffset != 1 {
		t.Errorf("the publish under way is answered with %+v", ok)
	}
	<-f.ended
}

// A publish that is answered on a lane whose client has gone is nobody's: the others go on.
func TestAnswersToTheGone(t *testing.T) {
	f := start(t, nil)
	stays, _ := f.client()
	l := f.lane(stays)
	f.want(l, &wire.Publish{Log: f.log.ID, Batch: one(t, 10)}, &wire.Published{})
	entered, release := make(chan struct{}), make(chan struct{})
	f.fs.Add(&faultfs.Rule{Ops: []faultfs.Op{faultfs.Sync}, Max: 1, Hook: func(faultfs.Call) { close(entered); <-release }})
	goes, _ := f.client()
	if err := f.lane(goes).SendFrame(7, &wire.Publish{Log: f.log.ID, Batch: one(t, 10)}); err != nil {
		t.Fatal(err)
	}
	<-entered
	_ = goes.Close(0, "")
	hosttest.Eventually(t, "the connection to be forgotten, or to wait for its answer", func() bool { return goes.Err() != nil })
	close(release)
	var ok wire.Published
	if f.want(l, &wire.Publish{Log: f.log.ID, Batch: one(t, 10)}, &ok); ok.BaseOffset != 2 {
		t.Errorf("the next publish got %+v", ok)
	}
	hosttest.Eventually(t, "one connection to be left", func() bool { return f.server.Connections() == 1 })
	hosttest.Eventually(t, "nothing to be in flight", func() bool { return f.gauge("margay_inflight_bytes") == 0 })
}
