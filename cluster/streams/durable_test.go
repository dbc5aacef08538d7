// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	"margay.dev/wire/session"
	"margay.dev/wire/token"
)

func values(recs []client.Record) string {
	out := make([]string, len(recs))
	for i := range recs {
		out[i] = string(recs[i].Value)
	}
	return strings.Join(out, " ")
}

func run(from, to int) string {
	out := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("v%d", i))
	}
	return strings.Join(out, " ")
}

func wantValues(t *testing.T, what string, recs []client.Record, want string) {
	t.Helper()
	if got := values(recs); got != want {
		t.Fatalf("%s: got %s, want %s", what, got, want)
	}
}

func read(l *session.Lane) (wire.Header, []byte, error) {
	h, err := l.ReadHeader()
	if err != nil {
		return h, nil, err
	}
	body, err := l.AppendBody(nil)
	return h, body, err
}

func cursors(t *testing.T, c *client.Client, stream string) []client.Cursor {
	t.Helper()
	all, err := c.Cursors(within(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A durable subscription goes on where its reader was, whoever opens it and whatever was restarted meanwhile; what is new
// begins where it says.
func TestDurableGoesOn(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders"})
	fill(t, n.Connect(), "orders", 0, 10)

	c := n.Connect()
	s := subscribe(t, c, "orders", client.Durable("ears"), client.FromOffset(0, 4))
	if s.Resumed() {
		t.Error("a new one says that it resumed")
	}
	wantValues(t, "new, from an offset", take(t, s, 3), run(4, 7))
	s.Close() // v6 was the last given, and nobody has asked for more: it counts as not read
	eventually(t, "the cursor to be free", func() bool { return !cursors(t, c, "orders")[0].Held })
	if all := cursors(t, c, "orders"); len(all) != 1 || all[0].Name != "ears" || all[0].Offset != 6 || all[0].Generation == 0 {
		t.Fatalf("cursors %+v", all)
	}

	fill(t, n.Connect(), "orders", 10, 12)
	n.Restart()
	s = subscribe(t, n.Connect(), "orders", client.Durable("ears"), client.FromLatest())
	if !s.Resumed() {
		t.Error("it does not say that it resumed")
	}
	wantValues(t, "resumed", take(t, s, 6), run(6, 12))
	if err := s.Commit(within(t)); err != nil {
		t.Fatal(err)
	}
	s.Close()

	s = subscribe(t, n.Connect(), "orders", client.Durable("ears"), client.UntilMark())
	for rec, err := range s.Records(within(t)) {
		t.Errorf("behind what was committed came %s, %v", rec.Value, err)
	}
	if fresh := subscribe(t, c, "orders", client.Durable("eyes"), client.FromEarliest()); fresh.Resumed() || values(take(t, fresh, 1)) != "v0" {
		t.Error("another name shares the place")
	}
}

// What was read is stored each second, so a crash costs no more than that.
func TestPositionsAreStoredByThemselves(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders"})
	fill(t, n.Connect(), "orders", 0, 10)
	c := n.Connect()
	s := subscribe(t, c, "orders", client.Durable("ears"), client.FromEarliest())
	take(t, s, 5)
	eventually(t, "the position to be stored", func() bool { all := cursors(t, c, "orders"); return len(all) == 1 && all[0].Offset == 4 })

	manual := subscribe(t, c, "orders", client.Durable("eyes"), client.FromEarliest(), client.ManualCommit())
	take(t, manual, 5)
	manual.Close()
	for _, x := range cursors(t, c, "orders") {
		if x.Name == "eyes" && x.Offset != 0 {
			t.Errorf("with ManualCommit the position was stored by itself: %+v", x)
		}
	}
	if err := subscribe(t, c, "orders").Commit(within(t)); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("commit of a subscription without a name: %v", err)
	}
}

// A subscription that has come to the end it was asked for can still be committed, also by who reads it later.
func TestCommitBehindTheEnd(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", Shards: new(4)})
	fill(t, n.Connect(), "orders", 0, 40)
	c := n.Connect()
	for round := range 3 {
		s := subscribe(t, c, "orders", client.Durable("ears"), client.FromEarliest(), client.UntilMark())
		count := 0
		for _, err := range s.Records(within(t)) {
			if err != nil {
				t.Fatal(err)
			}
			count++
		}
		if want := 40 * (1 - min(round, 1)); count != want {
			t.Fatalf("round %d: %d records, want %d", round, count, want)
		}
		s.Close()
	}
}

// A commit returns also to a reader whose receive buffer is full: its answer stands behind what nobody reads.
func TestCommitBehindAFullBuffer(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders"})
	c := n.Connect()
	p := c.Publisher("orders")
	for range 64 {
		p.PublishAsync(within(t), client.Record{Value: make([]byte, 64<<10)})
	}
	if err := p.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	s := subscribe(t, c, "orders", client.Durable("ears"), client.FromEarliest(), client.ReceiveBuffer(1), client.ManualCommit())
	for i := range 64 {
		take(t, s, 1)
		if err := s.Commit(within(t)); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
	}
	if all := cursors(t, c, "orders"); all[0].Offset != 64 {
		t.Errorf("cursors %+v", all)
	}
}

// One subscription holds a name. A newer one takes it over with every shard, the older one hears of it, and what it still
// commits changes nothing.
func TestTakeover(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", Shards: new(3)})
	fill(t, n.Connect(), "orders", 0, 30)
	first := subscribe(t, n.Connect(), "orders", client.Durable("ears"), client.FromEarliest())
	take(t, first, 10)
	if err := first.Commit(within(t)); err != nil {
		t.Fatal(err)
	}
	second := subscribe(t, n.Connect(), "orders", client.Durable("ears"))
	if !second.Resumed() {
		t.Error("the second one is new")
	}
	var err error
	for _, e := range first.Records(within(t)) {
		if err = e; err != nil {
			break
		}
	}
	if !errors.Is(err, client.ErrTakenOver) {
		t.Fatalf("the first ended with %v", err)
	}
	if err := first.Commit(within(t)); !errors.Is(err, client.ErrTakenOver) {
		t.Errorf("it committed: %v", err)
	}
	first.Close()
	take(t, second, 20)
	if err := second.Commit(within(t)); err != nil {
		t.Errorf("the second cannot commit: %v", err)
	}
}

// ID-07: the commit of an older holder that was under way, on a lane that is still there, is refused.
func TestLateCommitIsRefused(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders"})
	c := n.Connect()
	fill(t, c, "orders", 0, 20)
	info, err := c.Info(within(t), "orders")
	if err != nil {
		t.Fatal(err)
	}
	r := dial(t, n).authenticate(n)
	open := &wire.Subscribe{Log: info.ID, Shards: []wire.Start{{Kind: wire.StartLatest}}, Durable: "ears"}
	old, newer := r.lane(), r.lane()
	if h, _ := r.ask(old, open); h.Type != wire.TypeSubscribed || h.Flags&wire.FlagDurable == 0 {
		t.Fatalf("answered by %v, flags %x", h.Type, h.Flags)
	}
	r.ask(newer, open)
	if h, body := r.ask(newer, &wire.Commit{Shards: []wire.Committing{{Offset: 20}}}); h.Type != wire.TypeCommitted {
		t.Fatalf("the newer holder's commit: %v %x", h.Type, body)
	}
	// The old holder's commit meets its end, or is refused; it is never taken.
	_ = old.Write(wire.AppendFrame(nil, 78, &wire.Commit{Shards: []wire.Committing{{Offset: 5}}}))
	var told []wire.Type
	for {
		h, body, err := read(old)
		if err != nil {
			break
		}
		told = append(told, h.Type)
		var end wire.End
		if h.Type == wire.TypeEnd && (end.Parse(body) != nil || end.Code != code.TakenOver) {
			t.Errorf("the old holder was ended with %+v", end)
		}
	}
	if len(told) == 0 || told[len(told)-1] != wire.TypeEnd || slices.Contains(told, wire.TypeCommitted) {
		t.Errorf("the old holder was told %v", told)
	}
	for _, bad := range []*wire.Commit{{Shards: []wire.Committing{{Shard: 1, Offset: 3}}}, {Shards: []wire.Committing{{Offset: 21}}}} {
		if h, _ := r.ask(newer, bad); h.Type != wire.TypeError {
			t.Errorf("a commit of %+v was answered by %v", bad.Shards, h.Type)
		}
	}
	if all := cursors(t, c, "orders"); all[0].Offset != 20 || !all[0].Held {
		t.Errorf("cursors %+v", all)
	}
	plain := r.lane()
	r.ask(plain, &wire.Subscribe{Log: info.ID, Shards: []wire.Start{{Kind: wire.StartLatest}}})
	if h, _ := r.ask(plain, &wire.Commit{Shards: []wire.Committing{{Offset: 3}}}); h.Type != wire.TypeError {
		t.Errorf("a commit without a name was answered by %v", h.Type)
	}
}

// Whoever opens a name of several shards at the same time as others: one of them holds all of it in the end.
func TestTakeoversAtTheSameTime(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", Shards: new(4)})
	c := n.Connect()
	const many = 12
	subs := make([]*client.Subscription, many)
	var all sync.WaitGroup
	for i := range subs {
		all.Go(func() {
			s, err := c.Subscribe(within(t), "orders", client.Durable("ears"))
			if errors.Is(err, client.ErrTakenOver) { // before it was ready
				return
			}
			if err != nil {
				t.Error(err)
			}
			subs[i] = s
		})
	}
	all.Wait()
	ctx, cancel := context.WithCancel(within(t))
	var over, alive atomic.Int32
	for _, s := range subs {
		if s == nil {
			over.Add(1)
			continue
		}
		defer s.Close()
		all.Go(func() {
			for _, err := range s.Records(ctx) {
				if errors.Is(err, client.ErrTakenOver) {
					over.Add(1)
				} else if err != nil {
					alive.Add(1)
				}
			}
		})
	}
	eventually(t, "all but one to be taken over", func() bool { return over.Load() == many-1 })
	if held := cursors(t, c, "orders"); len(held) != 4 || !held[0].Held || !held[3].Held {
		t.Errorf("cursors %+v", held)
	}
	cancel()
	all.Wait()
	if alive.Load() != 1 {
		t.Errorf("%d are alive", alive.Load())
	}
}

// Two who name the shards in opposite orders do not take them from each other and both end: one opens after the other.
func TestTakeoversInOppositeOrders(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", Shards: new(8)})
	id := idOf(t, n.Connect(), "orders")
	starts := make([]wire.Start, 8)
	for i := range starts {
		starts[i].Shard = uint32(i)
	}
	peers := []*raw{dial(t, n).authenticate(n), dial(t, n).authenticate(n)}
	for range 10 {
		over := make(chan int, 2)
		lanes := make([]*session.Lane, 2)
		told := make([]chan wire.Type, 2)
		for i, r := range peers {
			slices.Reverse(starts)
			lanes[i], told[i] = r.lane(), make(chan wire.Type, 16)
			ask := wire.AppendFrame(nil, 77, &wire.Subscribe{Log: id, Shards: slices.Clone(starts), Durable: "ears"})
			go func() {
				_ = lanes[i].Write(ask)
				for {
					h, _, err := read(lanes[i])
					if err != nil || h.Type == wire.TypeEnd || h.Type == wire.TypeError {
						over <- i
						return
					}
					if h.Corr == 78 {
						told[i] <- h.Type
					}
				}
			}()
		}
		loser := <-over
		_ = lanes[1-loser].Write(wire.AppendFrame(nil, 78, &wire.Commit{Shards: []wire.Committing{{Shard: 0}, {Shard: 7}}}))
		select {
		case got := <-told[1-loser]:
			if got != wire.TypeCommitted {
				t.Fatalf("the winner's commit was answered by %v", got)
			}
		case <-over:
			t.Fatal("both were taken over")
		case <-within(t).Done():
			t.Fatal("the winner's commit was not answered")
		}
		lanes[1-loser].Reset(code.Cancelled)
		<-over
	}
}

// A holder that loses its connection, or its broker, keeps the name, and its reader neither misses nor repeats anything.
func TestDurableOverLostConnections(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders"})
	c := n.Connect()
	s := subscribe(t, c, "orders", client.Durable("ears"), client.FromEarliest())
	for round := range 3 {
		fill(t, n.Connect(), "orders", round*10, round*10+6)
		wantValues(t, "before the restart", take(t, s, 3), run(round*10, round*10+3))
		n.Restart()
		fill(t, n.Connect(), "orders", round*10+6, round*10+10)
		wantValues(t, "behind the restart", take(t, s, 7), run(round*10+3, round*10+10))
		if err := s.Commit(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCursorsAreDeleted(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", Shards: new(2)})
	c := n.Connect()
	fill(t, c, "orders", 0, 10)
	s := subscribe(t, c, "orders", client.Durable("ears"), client.FromEarliest())
	take(t, s, 10)
	if err := c.DeleteCursor(within(t), "orders", "ears"); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Records(within(t)) {
		if !errors.Is(err, client.ErrDeleted) {
			t.Fatalf("the holder ended with %v", err)
		}
	}
	if all := cursors(t, c, "orders"); len(all) != 0 {
		t.Errorf("left are %+v", all)
	}
	if err := c.DeleteCursor(within(t), "orders", "ears"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("deleted again: %v", err)
	}
	if s := subscribe(t, c, "orders", client.Durable("ears"), client.FromEarliest()); s.Resumed() || len(take(t, s, 10)) != 10 {
		t.Error("made anew, it is not new")
	}
	if _, err := c.Subscribe(within(t), "orders", client.Durable("Not A Name")); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("a bad name: %v", err)
	}
}

// SB-06: a cursor that retention has passed is told so and goes on at the earliest record; nothing jumps silently.
func TestRetentionPassesACursor(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", SegmentBytes: new(int64(4 << 10))})
	c := n.Connect()
	p := c.Publisher("orders")
	for range 50 { // a record a batch, so that the cursor's segment is gone altogether
		if _, err := p.Publish(within(t), client.Record{Value: make([]byte, 1<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	subscribe(t, c, "orders", client.Durable("ears"), client.FromOffset(0, 3)).Close()
	if _, err := c.Trim(within(t), "orders", client.TrimBeforeOffset(0, 30)); err != nil {
		t.Fatal(err)
	}
	s := subscribe(t, c, "orders", client.Durable("ears"))
	rec := take(t, s, 1)[0]
	if rec.Gap == nil || rec.Gap.From != 3 || rec.Gap.To != 30 || rec.Gap.Reason != client.GapRetention || rec.Offset != 30 {
		t.Fatalf("got offset %d with gap %+v", rec.Offset, rec.Gap)
	}
}

// Cancelling a subscription, or losing its client, gives back all that the broker kept for it at once: on a quiet machine
// within a second, and on any long before the silence of its connection would tell.
func TestDurableIsReleased(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders", Shards: new(2)})
	c, other := n.Connect(), n.Connect()
	subscribe(t, other, "orders", client.Durable("ears"), client.Shards(1)) // the other shard's holder stays
	for _, end := range []func(s *client.Subscription){
		func(s *client.Subscription) { s.Close() },
		func(*client.Subscription) { c.Close() },
	} {
		s := subscribe(t, c, "orders", client.Durable("ears"), client.Shards(0))
		eventually(t, "the cursor to be held", func() bool { return cursors(t, other, "orders")[0].Held })
		began := time.Now()
		end(s)
		eventually(t, "the cursor to be free", func() bool { return !cursors(t, other, "orders")[0].Held })
		eventually(t, "the subscription to be gone", func() bool { return metric(t, n, "margay_subscriptions") == "1" })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// A cursor that nobody uses for 30 days of the log's time goes. When a clock that jumps takes it from its holder, that one
// makes it anew where he stands.
func TestCursorsExpire(t *testing.T) {
	var ahead atomic.Int64
	n := margaytest.Start(t, margaytest.With(func(c *node.Config) {
		c.Wall = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}))
	create(t, n, control.StreamSpec{Name: "orders"})
	c := n.Connect()
	fill(t, c, "orders", 0, 1)
	subscribe(t, c, "orders", client.Durable("ears")).Close()
	held := subscribe(t, c, "orders", client.Durable("eyes"), client.FromEarliest())
	ahead.Store(int64(31 * 24 * time.Hour))
	later := n.Connect()
	fill(t, later, "orders", 1, 2)
	eventually(t, "the cursors to be forgotten", func() bool { return metric(t, n, "margay_cursors_expired_total") == "2" })
	took := 0
	for _, err := range held.Records(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if took++; took < 2 {
			continue
		}
		fill(t, later, "orders", took, took+1) // so that there is something to store each second
		if all := cursors(t, later, "orders"); len(all) == 1 && all[0].Name == "eyes" && all[0].Held && all[0].Offset > 2 {
			break
		}
	}
}

// Whoever may not subscribe sees no cursor and deletes none.
func TestCursorsNeedTheGrant(t *testing.T) {
	n := margaytest.Start(t)
	create(t, n, control.StreamSpec{Name: "orders"})
	subscribe(t, n.Connect(), "orders", client.Durable("ears"))
	c := n.Connect(client.WithToken(n.Token("default", time.Hour, token.Grant{Actions: []token.Action{token.Publish}, Resource: "default/default/orders"})))
	if _, err := c.Cursors(within(t), "orders"); !errors.Is(err, client.ErrPermissionDenied) {
		t.Errorf("list: %v", err)
	}
	if err := c.DeleteCursor(within(t), "orders", "ears"); !errors.Is(err, client.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	r := dial(t, n).authenticate(n)
	l := r.lane()
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.CursorList{Log: batch.NewLogID()}), code.NotFound)
	r.wantError(l, wire.AppendFrame(nil, 77, &wire.CursorDelete{Log: batch.NewLogID(), Name: "ears"}), code.NotFound)
}
