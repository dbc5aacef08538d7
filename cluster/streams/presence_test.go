// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/cluster/margaytest"
	"margay.dev/cluster/node"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/token"
)

// setLast is the frame that leaves a record with the broker.
func setLast(t *testing.T, log batch.LogID, id uint64, grace time.Duration, values ...string) *wire.SetLast {
	t.Helper()
	return setLastOf(t, batch.NewBuilder(batch.Limits{}), log, id, grace, values...)
}

func setLastOf(t *testing.T, b *batch.Builder, log batch.LogID, id uint64, grace time.Duration, values ...string) *wire.SetLast {
	t.Helper()
	for _, v := range values {
		if err := b.Add(batch.Record{Value: []byte(v), Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
	}
	built, err := b.Build(id, 1, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	return &wire.SetLast{Log: log, ID: id, GraceMs: uint32(grace.Milliseconds()), Batch: built}
}

func idOf(t *testing.T, c *client.Client, stream string) batch.LogID {
	t.Helper()
	info, err := c.Info(within(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// A last record is published when its connection breaks, and not when that is closed in order, taken back, or has moved
// to another connection.
func TestLastRecordIsPublishedWhenTheConnectionIsLost(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "presence"})
	c := n.Connect()
	id := idOf(t, c, "presence")
	fill(t, c, "presence", 0, 1)
	s := subscribe(t, c, "presence")
	other := dial(t, n).authenticate(n)
	there := other.lane()
	connections := metric(t, n, "margay_connections")

	for i, end := range []struct {
		value     string
		how       func(r *raw)
		published bool
	}{
		{"crashed", func(r *raw) { _ = r.conn.Close(code.Internal, "crash") }, true},
		{"closed", func(r *raw) { _ = r.conn.Close(0, "") }, false},
		{"closed by name", func(r *raw) { _ = r.conn.Close(code.Closed, "done") }, false},
		{"taken back", func(r *raw) {
			r.want(r.lane(), &wire.ClearLast{Log: id, ID: 104}, &wire.Done{})
			_ = r.conn.Close(code.Internal, "crash")
		}, false},
		{"moved", func(r *raw) {
			other.want(there, setLast(t, id, 105, time.Minute, "moved"), &wire.Done{})
			_ = r.conn.Close(code.Internal, "crash")
		}, false},
	} {
		r := dial(t, n).authenticate(n)
		l := r.lane()
		r.want(l, setLast(t, id, uint64(101+i), time.Minute, "replaced"), &wire.Done{})
		r.want(l, setLast(t, id, uint64(101+i), time.Minute, end.value), &wire.Done{})
		end.how(r)
		eventually(t, "the connection to end", func() bool { return metric(t, n, "margay_connections") == connections })
		fill(t, c, "presence", i, i+1) // behind it, whatever was published is there
		if end.published {
			wantValues(t, end.value, take(t, s, 1), end.value)
		}
		wantValues(t, "behind "+end.value, take(t, s, 1), run(i, i+1))
	}
	if got := metric(t, n, "margay_last_records_published_total"); got != "1" {
		t.Errorf("%s are counted as published", got)
	}
}

// sockets are those of a client whose process can die: they are gone at once, and nobody makes others.
type sockets struct {
	mu   sync.Mutex
	gone bool
	all  []io.Closer
}

func (s *sockets) options() []client.Option {
	return []client.Option{
		client.WithPacketConn(func(context.Context, string) (net.PacketConn, error) {
			return add(s, func() (net.PacketConn, error) { return net.ListenPacket("udp", "127.0.0.1:0") })
		}),
		client.WithTCPConn(func(_ context.Context, addr string) (net.Conn, error) {
			return add(s, func() (net.Conn, error) { return net.Dial("tcp", addr) })
		}),
	}
}

func add[C io.Closer](s *sockets, open func() (C, error)) (c C, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return c, errors.New("the process is dead")
	}
	if c, err = open(); err == nil {
		s.all = append(s.all, c)
	}
	return c, err
}

func (s *sockets) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	for _, c := range s.all {
		_ = c.Close()
	}
}

// The same through the library; its process dies when its sockets do.
func TestLastRecordOfAClient(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "presence", Shards: new(4)})
	s := subscribe(t, n.Connect(), "presence", client.FromEarliest())
	record := func(value string) client.Record { return client.Record{Key: []byte(value), Value: []byte(value)} }

	closed := n.Connect()
	if _, err := closed.LastRecord(within(t), "presence", record("closed"), time.Minute); err != nil {
		t.Fatal(err)
	}
	closed.Close()
	cleared := n.Connect()
	last, err := cleared.LastRecord(within(t), "presence", record("cleared"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Clear(within(t)); err != nil {
		t.Fatal(err)
	}

	var process sockets
	dead := n.Connect(process.options()...)
	for _, v := range []string{"dead", "dead too"} {
		if _, err := dead.LastRecord(within(t), "presence", record(v), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	process.die()
	got := map[string]bool{}
	for _, rec := range take(t, s, 2) {
		got[string(rec.Value)] = true
	}
	if !got["dead"] || !got["dead too"] {
		t.Errorf("published were %v", got)
	}
}

// After a restart a session has its grace. One that shows itself within it is not published, and hears that it was away;
// one that does not is.
func TestLastRecordsAfterARestartOfTheBroker(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "presence"})
	alive := n.Connect()
	id := idOf(t, alive, "presence")
	returned := make(chan struct{}, 10)
	if _, err := alive.LastRecord(within(t), "presence", client.Record{Value: []byte("alive")}, 5*time.Second,
		client.OnReturn(func() { returned <- struct{}{} })); err != nil {
		t.Fatal(err)
	}
	lost := dial(t, n).authenticate(n)
	lost.want(lost.lane(), setLast(t, id, 7, 6*time.Second, "lost"), &wire.Done{})

	began := time.Now()
	n.Restart()
	s := subscribe(t, alive, "presence", client.FromEarliest())
	wantValues(t, "behind the restart", take(t, s, 1), "lost")
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("published %v after the restart began, within its grace", took)
	}
	select {
	case <-returned:
	case <-within(t).Done():
		t.Error("the client did not hear that it was away")
	}
	fill(t, alive, "presence", 0, 1)
	wantValues(t, "behind that", take(t, s, 1), "v0")
}

// A shard that is opened anew under its clients knows who is there: they notice nothing, and are not published as lost.
func TestLastRecordsWhenAShardIsOpenedAnew(t *testing.T) {
	var ahead atomic.Int64
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) {
		c.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}))
	create(t, n, control.StreamSpec{Name: "presence"})
	c := n.Connect()
	if _, err := c.LastRecord(within(t), "presence", client.Record{Value: []byte("alive")}, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	generation := func() uint64 {
		o, err := c.Offsets(within(t), "presence")
		if err != nil {
			t.Fatal(err)
		}
		return o[0].Generation
	}
	was := generation()
	cc := n.Context()
	api, err := control.NewClient(cc.Client())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	age := control.Duration(time.Hour)
	if _, err := api.UpdateStream(within(t), cc.Tenant, cc.Namespace, "presence", 0, control.StreamPatch{MaxAge: &age}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the shard to be opened anew", func() bool { return generation() > was })
	s := subscribe(t, c, "presence", client.FromEarliest())
	for i := range 3 { // the grace begins, passes, and what it brings about is written before the last
		fill(t, c, "presence", i, i+1)
		ahead.Add(int64(10 * time.Second))
	}
	wantValues(t, "behind the grace", take(t, s, 3), run(0, 3))
}

// What could not be published now is refused now: later there is nobody to tell.
func TestLastRecordsAreChecked(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "presence"})
	c := n.Connect()
	id := idOf(t, c, "presence")
	r := dial(t, n).authenticate(n)
	l := r.lane()
	two := setLast(t, id, 7, 0, "a", "b")
	foreign := setLast(t, id, 7, 0, "a")
	foreign.ID = 8
	corrupt := setLast(t, id, 7, 0, "a")
	corrupt.Batch[len(corrupt.Batch)-1] ^= 1
	settling := batch.NewBuilder(batch.Limits{})
	if err := settling.SetSettlement(batch.Settlement{Group: 1, Tokens: []batch.SettledToken{{HandOut: 1}}}); err != nil {
		t.Fatal(err)
	}
	settle := setLastOf(t, settling, id, 7, 0, "a")
	nowhere := setLast(t, id, 7, 0, "a")
	nowhere.Shard = 9
	for want, frames := range map[code.Code][]*wire.SetLast{
		code.BadRequest: {two, foreign, settle}, code.CorruptBatch: {corrupt}, code.NotFound: {nowhere, setLast(t, batch.NewLogID(), 7, 0, "a")},
	} {
		for _, f := range frames {
			r.wantError(l, wire.AppendFrame(nil, 77, f), want)
		}
	}
	if _, err := c.LastRecord(within(t), "presence", client.Record{Value: make([]byte, batch.MaxLast)}, 0); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("a large one: %v", err)
	}
	if _, err := c.LastRecord(within(t), "presence", client.Record{DedupID: "x"}, 0); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("one with a dedup id: %v", err)
	}
	limited := n.Connect(client.WithToken(n.Token("default", time.Hour, token.Grant{
		Actions: []token.Action{token.Publish}, Resource: "default/default/presence", Keys: []string{"mine/#"},
	})))
	if _, err := limited.LastRecord(within(t), "presence", client.Record{Key: []byte("yours/1")}, 0); !errors.Is(err, client.ErrPermissionDenied) {
		t.Errorf("a key that the token does not grant: %v", err)
	}
	if _, err := limited.LastRecord(within(t), "presence", client.Record{Key: []byte("mine/1")}, 0); err != nil {
		t.Error(err)
	}
}
