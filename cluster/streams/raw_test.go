// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
	"margay.dev/wire/session/sessiontest"
)

// raw speaks frames to a node without the client library, as a hostile or a newer peer would.
type raw struct {
	t    *testing.T
	conn session.Conn
	ctl  *session.Lane
}

func dial(t *testing.T, n *margaytest.Node) *raw {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(n.Context().CA)) {
		t.Fatal("the context holds no CA")
	}
	c, err := sessiontest.Dial(within(t), n.Address(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, session.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(0, "") })
	r := &raw{t: t, conn: c}
	r.ctl = r.lane()
	return r
}

func (r *raw) lane() *session.Lane {
	r.t.Helper()
	l, err := r.conn.OpenLane(within(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// authenticate says hello and shows a token.
func (r *raw) authenticate(n *margaytest.Node) *raw {
	r.t.Helper()
	return r.authenticateWith(n, func(hello *wire.HelloOk) {
		if hello.Limits.MaxBatch != batch.MaxBatch || !hello.Features.Has(wire.FeatureStreams) {
			r.t.Errorf("hello: %+v", hello)
		}
	})
}

func (r *raw) authenticateWith(n *margaytest.Node, check func(*wire.HelloOk)) *raw {
	r.t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		r.t.Fatal(err)
	}
	defer api.Close()
	tok, err := api.Token(within(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	var hello wire.HelloOk
	r.want(r.ctl, &wire.Hello{VersionMin: 1, VersionMax: 1, Features: wire.AllFeatures, Client: "test"}, &hello)
	check(&hello)
	r.want(r.ctl, &wire.Auth{Token: tok.Token}, &wire.AuthOk{})
	r.conn.SetMaxFrame(wire.MaxFrame)
	return r
}

// ask sends a frame and returns what answers it.
func (r *raw) ask(l *session.Lane, f wire.Frame) (wire.Header, []byte) {
	r.t.Helper()
	return r.send(l, wire.AppendFrame(nil, 77, f))
}

func (r *raw) send(l *session.Lane, b []byte) (wire.Header, []byte) {
	r.t.Helper()
	if err := l.Write(b); err != nil {
		r.t.Fatal(err)
	}
	h, err := l.ReadHeader()
	if err != nil {
		r.t.Fatal(err)
	}
	body := make([]byte, h.Size)
	if err := l.ReadBody(body); err != nil {
		r.t.Fatal(err)
	}
	if h.Corr != 77 {
		r.t.Fatalf("the answer %v has correlation id %d", h.Type, h.Corr)
	}
	return h, body
}

func (r *raw) want(l *session.Lane, f, answer wire.Frame) {
	r.t.Helper()
	h, body := r.ask(l, f)
	if h.Type != answer.Type() {
		var e wire.Error
		_ = e.Parse(body)
		r.t.Fatalf("%v was answered with %v %+v", f.Type(), h.Type, e)
	}
	if err := wire.ParseFrame(h, answer, body); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) wantError(l *session.Lane, b []byte, c code.Code) {
	r.t.Helper()
	h, body := r.send(l, b)
	var e wire.Error
	if h.Type != wire.TypeError || e.Parse(body) != nil || e.Code != c {
		r.t.Fatalf("answered with %v %+v, want %v", h.Type, e, c)
	}
	if e.Class != c.Class() {
		r.t.Errorf("%v came with class %v", c, e.Class)
	}
}

// alive demands that the connection still serves.
func (r *raw) alive(l *session.Lane) {
	r.t.Helper()
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &wire.LogInfo{})
}

// WR-12: a feature, a type and a flag that a newer peer knows, and a frame that is no request, are answered, and the
// connection and its other lanes live on.
func TestUnknownFrames(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	const newer = wire.Features(1 << 62)
	r := dial(t, n)
	var hello wire.HelloOk
	r.want(r.ctl, &wire.Hello{VersionMin: 1, VersionMax: 7, Features: wire.AllFeatures | newer, Client: "newer"}, &hello)
	if hello.Features.Has(newer) || hello.Version != wire.Version {
		t.Errorf("a newer client is told of version %d and features %#x", hello.Version, hello.Features)
	}
	r.authenticate(n)
	l, other := r.lane(), r.lane()
	r.alive(other)
	for _, h := range []wire.Header{
		{Type: 0x7f, Size: 5000, Corr: 77},
		{Type: wire.TypeLookup, Flags: 0x80, Size: 17, Corr: 77},
		{Type: wire.TypePublish, Flags: 0x80, Size: 100_000, Corr: 77},
		{Type: wire.TypePublished, Size: 9, Corr: 77},
	} {
		r.wantError(l, append(wire.AppendHeader(nil, h), make([]byte, h.Size)...), code.Unsupported)
		r.alive(l)
	}
	r.wantError(r.ctl, append(wire.AppendHeader(nil, wire.Header{Type: 0x7f, Size: 5000, Corr: 77}), make([]byte, 5000)...), code.Unsupported)
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.Hello{VersionMin: 1, VersionMax: 1}), code.BadRequest) // belongs on the control lane
	r.wantError(r.ctl, wire.AppendFrame(nil, 77, &wire.Hello{VersionMin: 9, VersionMax: 12}), code.Unsupported)
	r.alive(l)
	r.alive(other)
}

// Before authentication nothing is served, and nobody gets memory for a large frame (WR-10).
func TestBeforeAuthentication(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	r := dial(t, n)
	l := r.ctl
	r.want(l, &wire.Hello{VersionMin: 1, VersionMax: 1}, &wire.HelloOk{})
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.Lookup{Name: "default/default/s"}), code.Unauthenticated)
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.Publish{Batch: one(t)}), code.Unauthenticated)
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.Subscribe{Shards: []wire.Start{{}}}), code.Unauthenticated)
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.Auth{Token: "x.y.z"}), code.Unauthenticated)
	// A second lane is not held for who has shown nothing.
	second := r.lane()
	if err := second.SendFrame(77, &wire.Ping{}); err != nil {
		t.Fatal(err)
	}
	if _, err := second.ReadHeader(); !errors.Is(err, code.Unauthenticated) {
		t.Errorf("a second lane before authentication: %v", err)
	}
	if err := l.Write(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: wire.MaxFrameBeforeAuth + 1})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection to be closed", func() bool { return r.conn.Err() != nil })
	if !errors.Is(r.conn.Err(), code.Protocol) {
		t.Errorf("the connection ended with %v", r.conn.Err())
	}
}

// WR-10: hostile sizes close the connection, cost no memory, and concern nobody else.
func TestHostileSizes(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	bystander := n.Connect()
	for _, size := range []uint32{wire.MaxFrame + 1, 0x7fffffff, 0xffffffff} {
		r := dial(t, n).authenticate(n)
		h := wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish})
		binary.LittleEndian.PutUint32(h[4:], size)
		if err := r.lane().Write(h); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the connection to be closed", func() bool { return r.conn.Err() != nil })
		if !errors.Is(r.conn.Err(), code.Protocol) {
			t.Errorf("size %#x: the connection ended with %v", size, r.conn.Err())
		}
	}
	r := dial(t, n).authenticate(n)
	if err := r.lane().Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the connection to be closed", func() bool { return r.conn.Err() != nil })
	if _, err := bystander.Publisher("s").Publish(within(t), client.Record{Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
}

func one(t *testing.T) batch.Batch {
	t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	if err := bl.Add(batch.Record{Value: []byte("v"), Timestamp: 1}); err != nil {
		t.Fatal(err)
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// One bad publish fails only itself, whatever is wrong with it.
func TestBadPublishFailsAlone(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s", Shards: new(2)})
	r := dial(t, n).authenticate(n)
	l := r.lane()
	var info wire.LogInfo
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	publish := func(edit func(p *wire.Publish)) []byte {
		p := &wire.Publish{Log: info.Log, Batch: one(t)}
		edit(p)
		return wire.AppendFrame(nil, 77, p)
	}
	flip := func(at int, bits byte) func(*wire.Publish) {
		return func(p *wire.Publish) { p.Batch[at] ^= bits }
	}
	for name, bad := range map[string]struct {
		frame []byte
		c     code.Code
	}{
		"unknown log":       {publish(func(p *wire.Publish) { p.Log[0] ^= 1 }), code.NotFound},
		"unknown shard":     {publish(func(p *wire.Publish) { p.Shard = 2 }), code.NotFound},
		"flipped value bit": {publish(func(p *wire.Publish) { p.Batch[len(p.Batch)-1] ^= 1 }), code.CorruptBatch},
		"flipped size":      {publish(flip(52, 1)), code.CorruptBatch},
		"unknown version":   {publish(flip(56, 2)), code.Unsupported},
		"unknown attribute": {publish(func(p *wire.Publish) {
			p.Batch[59] |= 0x80
			binary.LittleEndian.PutUint32(p.Batch[48:], crc32.Checksum(p.Batch[52:], crc32.MakeTable(crc32.Castagnoli)))
		}), code.Unsupported},
		"control batch":      {publish(func(p *wire.Publish) { p.Batch = batch.BuildControl(batch.LogStart{Sequence: 9}) }), code.Unsupported},
		"assigned by itself": {publish(func(p *wire.Publish) { p.Batch.Assign(batch.Assigned{Sequence: 7}) }), code.BadRequest},
		"no batch":           {publish(func(p *wire.Publish) { p.Batch = nil }), code.BadRequest},
		"two batches":        {publish(func(p *wire.Publish) { p.Batch = append(p.Batch, one(t)...) }), code.CorruptBatch},
		"short frame":        {append(wire.AppendHeader(nil, wire.Header{Type: wire.TypePublish, Size: 3, Corr: 77}), 1, 2, 3), code.BadRequest},
	} {
		h, body := r.send(l, bad.frame)
		var e wire.Error
		if h.Type != wire.TypeError || e.Parse(body) != nil {
			t.Errorf("%s: answered with %v", name, h.Type)
			continue
		}
		if e.Code != bad.c || e.Class != code.ClassFatal {
			t.Errorf("%s: %v (class %v) %s, want %v", name, e.Code, e.Class, e.Message, bad.c)
		}
	}
	var ok wire.Published
	r.want(l, &wire.Publish{Log: info.Log, Batch: one(t)}, &ok)
	if ok.BaseOffset != 0 {
		t.Errorf("the first good publish got offset %d", ok.BaseOffset)
	}
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{Shard: 0}, {Shard: 0}}}), code.BadRequest)
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.Offsets{Log: info.Log, Shard: 9}), code.NotFound)
}

// S7: a batch that is sent again, on another connection or to a restarted broker, is answered with the place of
// the first and stored once; one that skips is told what the last was.
func TestRetryOverConnectionsAndRestarts(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	var info wire.LogInfo
	send := func(seq, previous uint64) (wire.Header, []byte) {
		r := dial(t, n).authenticate(n)
		defer func() { _ = r.conn.Close(0, "") }()
		l := r.lane()
		r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
		bl := batch.NewBuilder(batch.Limits{})
		if err := bl.Add(batch.Record{Value: []byte("v"), Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
		b, err := bl.Build(42, seq, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		return r.ask(l, &wire.Publish{Log: info.Log, Previous: previous, Batch: b})
	}
	stored := func(seq, previous, offset uint64, again bool) {
		t.Helper()
		h, body := send(seq, previous)
		var ok wire.Published
		if h.Type != wire.TypePublished || ok.Parse(body) != nil || ok.BaseOffset != offset || ok.Reached.Has(wire.ReachedDuplicate) != again {
			t.Fatalf("sequence %d: %v %+v, want offset %d, again %v", seq, h.Type, ok, offset, again)
		}
	}
	stored(1, 0, 0, false)
	stored(2, 1, 1, false)
	for range 2 {
		stored(2, 1, 1, true)
		stored(1, 0, 0, true)
		n.Restart()
	}
	h, body := send(5, 4)
	var e wire.Error
	if h.Type != wire.TypeError || e.Parse(body) != nil || e.Code != code.OutOfOrder || e.Details.LastSequence != 2 {
		t.Fatalf("a sequence that skips: %v %+v", h.Type, e)
	}
	stored(3, 2, 2, false)
}

// R4: the records of one PublishBatch call for a shard are one batch: stored whole or not at all.
func TestPublishBatchIsOneBatch(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "s"})
	recs := make([]client.Record, 1000)
	for i := range recs {
		recs[i].Value = make([]byte, 2000) // beyond what a batch grows to by itself
	}
	if _, err := n.Connect().Publisher("s").PublishBatch(within(t), recs...); err != nil {
		t.Fatal(err)
	}
	r := dial(t, n).authenticate(n)
	l := r.lane()
	var info wire.LogInfo
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	r.want(l, &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{Kind: wire.StartEarliest}}, UntilMark: true}, &wire.Subscribed{})
	var counts []int
	for {
		h, err := l.ReadHeader()
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, h.Size)
		if err := l.ReadBody(body); err != nil {
			t.Fatal(err)
		}
		if h.Type == wire.TypeEnd {
			break
		}
		var d wire.Deliver
		if err := d.Parse(body); err != nil {
			t.Fatal(err)
		}
		for rest := d.Batch; len(rest) > 0; rest = rest[rest.Size():] {
			counts = append(counts, rest.Count())
		}
	}
	if len(counts) != 1 || counts[0] != 1000 {
		t.Errorf("1000 records are stored as batches of %v", counts)
	}
}

// WR-01: requests that are answered, given up or refused use up none of the lanes that a connection may have at once.
func TestManyLanes(t *testing.T) {
	const window = 64
	requests := 3000
	if !testing.Short() {
		requests = 12_000
	}
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) { c.Session.MaxLanes = window }))
	create(t, n, control.StreamSpec{Name: "s"})
	r := dial(t, n).authenticate(n)
	var info wire.LogInfo
	l := r.lane()
	r.want(l, &wire.Lookup{Name: "default/default/s"}, &info)
	before := number(t, n, transport("margay_transport_lanes"))
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range requests {
		l := r.lane() // a lane that stays would leave none for this one, sooner or later
		switch i % 12 {
		default:
			r.want(l, &wire.Offsets{Log: info.Log}, &wire.OffsetsOk{})
		case 3:
			r.want(l, &wire.Subscribe{Log: info.Log, Shards: []wire.Start{{}}}, &wire.Subscribed{})
		case 6:
			r.wantError(l, wire.AppendFrame(nil, 77, &wire.Offsets{Log: info.Log, Shard: 5}), code.NotFound)
		case 9: // given up: before, while, or after it is served
			_ = l.SendFrame(77, &wire.Offsets{Log: info.Log})
			for range rng.IntN(1000) {
				runtime.Gosched()
			}
			l.Reset(code.Cancelled)
			continue
		}
		_ = l.Close()
	}
	r.alive(l)
	eventually(t, "the subscriptions to end", func() bool { return metric(t, n, "margay_subscriptions") == "0" })
	eventually(t, "the lanes to be as many as before", func() bool { return number(t, n, transport("margay_transport_lanes")) <= before })
}

// transport is the name of a metric of the transport that is tested.
func transport(name string) string { return name + `{transport="` + sessiontest.Transport() + `"}` }

// metric reads one metric of the node.
func metric(t *testing.T, n *margaytest.Node, name string) string {
	t.Helper()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	tok, err := api.Token(within(t))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(within(t), http.MethodGet, n.HTTP()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+tok.Token)
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var b strings.Builder
	buf := make([]byte, 32<<10)
	for {
		k, err := res.Body.Read(buf)
		b.Write(buf[:k])
		if err != nil {
			break
		}
	}
	for line := range strings.Lines(b.String()) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("there is no metric %s (status %d)", name, res.StatusCode)
	return ""
}

// Probes need no credential, everything else does.
func TestOpenRoutes(t *testing.T) {
	n := margaytest.Start(t)
	tr := &http.Transport{DisableKeepAlives: true}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 401, "/v1/tenants/default/namespaces/default/streams": 401} {
		req, err := http.NewRequestWithContext(within(t), http.MethodGet, n.HTTP()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("GET %s: %d, want %d", path, res.StatusCode, want)
		}
	}
}
