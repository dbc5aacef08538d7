// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"margay.dev/client"
	"margay.dev/client/internal/fakebroker"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

func TestEnsureMakesOrChecks(t *testing.T) {
	b, _, q := queued(t, 3)
	g := q.Group("workers")
	cfg := client.GroupConfig{AckWait: time.Minute, MaxAttempts: client.Unlimited, Backoff: []time.Duration{time.Second}, OrderByKey: true}
	if err := g.Ensure(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	if err := g.Ensure(within(t), cfg); err != nil {
		t.Fatal(err)
	}
	wantError(t, g.Ensure(within(t), client.GroupConfig{}), client.ErrConflict, client.Fatal)
	info, err := g.Info(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Config; c.AckWait != time.Minute || c.MaxAttempts != client.Unlimited || !c.OrderByKey || c.PriorityAge != time.Minute || c.MaxDeadLetters != 10_000 {
		t.Fatalf("config %+v", c)
	}
	if len(info.Shards) != 3 || info.Name != "workers" || info.ID == 0 {
		t.Fatalf("info %+v", info)
	}
	for i, c := range b.Commands()[1:3] {
		if c.GroupID != info.ID {
			t.Errorf("command %d names group %d, want %d", i+1, c.GroupID, info.ID)
		}
	}
	if err := g.Update(within(t), client.GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	if err := g.Ensure(within(t), client.GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []client.GroupConfig{
		{AckWait: -1},
		{AckWait: time.Millisecond},
		{MaxAttempts: -2},
		{MaxDeadLetters: -1},
		{MaxDeadLetters: 100_001},
		{Backoff: make([]time.Duration, 17)},
		{Backoff: []time.Duration{-1}},
		{PriorityAge: 25 * time.Hour},
	} {
		wantError(t, g.Ensure(within(t), bad), client.ErrBadRequest, client.Fatal)
	}
	wantError(t, q.Group("none").Pause(within(t)), client.ErrNotFound, client.Fatal)
	_, err = q.Group("none").Info(within(t))
	wantError(t, err, client.ErrNotFound, client.Fatal)
	_, err = q.Group("").Info(within(t))
	wantError(t, err, client.ErrBadRequest, client.Fatal)
}

// A command keeps its id over its tries, and goes to each shard.
func TestCommandKeepsItsID(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Group(l, "workers")
	var tries atomic.Int32
	b.Script(func(s *fakebroker.Script) {
		s.Command = func(c *wire.GroupCommand) error {
			if c.Shard == 1 {
				if tries.Add(1) < 3 {
					return code.New(code.Opening, "not now")
				}
			}
			return nil
		}
	})
	if err := q.Group("workers").Pause(within(t)); err != nil {
		t.Fatal(err)
	}
	cs := b.Commands()
	if len(cs) != 4 {
		t.Fatalf("%d commands", len(cs))
	}
	for _, c := range cs {
		if c.ID != cs[0].ID || c.ID == [16]byte{} {
			t.Fatalf("ids differ: %+v", cs)
		}
	}
	if err := q.Group("workers").Pause(within(t)); err != nil {
		t.Fatal(err)
	}
	if cs = b.Commands(); cs[len(cs)-1].ID == cs[0].ID {
		t.Fatal("another call has the same id")
	}
	info, err := q.Group("workers").Info(within(t))
	if err != nil || !info.Paused {
		t.Fatalf("info %+v, %v", info, err)
	}
	if err := q.Group("workers").Resume(within(t)); err != nil {
		t.Fatal(err)
	}
}

func TestDeadLettersRedriveAndDiscard(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 0, "a", "b")
	b.Feed(l, 1, "c", "d")
	g := consume(t, q)
	for _, m := range messages(t, g, 4) {
		if err := m.Reject(within(t), "no"); err != nil {
			t.Fatal(err)
		}
	}
	group := q.Group("workers")
	var ids []client.MessageID
	for m, err := range group.DeadLetters(within(t)) {
		if err != nil || m.Error != "no" {
			t.Fatalf("%+v, %v", m, err)
		}
		ids = append(ids, m.ID())
	}
	if want := []client.MessageID{{0, 0}, {0, 1}, {1, 0}, {1, 1}}; !slices.Equal(ids, want) {
		t.Fatalf("dead letters %v", ids)
	}
	n, err := group.Redrive(within(t), client.RedriveOptions{Messages: ids[1:3], Rate: 10})
	if err != nil || n != 2 {
		t.Fatalf("redriven %d, %v", n, err)
	}
	if got := valuesOf(messages(t, g, 2)); !slices.Equal(got, []string{"b", "c"}) {
		t.Fatalf("got %q", got)
	}
	if n, err := group.Discard(within(t)); err != nil || n != 2 {
		t.Fatalf("discarded %d, %v", n, err)
	}
	if n, err := group.Redrive(within(t), client.RedriveOptions{}); err != nil || n != 0 {
		t.Fatalf("redriven %d, %v", n, err)
	}
	cs := b.Commands()
	if last := cs[len(cs)-5]; last.Op != wire.GroupRedrive || last.Rate != 5 {
		t.Fatalf("redrive %+v", last)
	}
	_, err = group.Redrive(within(t), client.RedriveOptions{Rate: -1})
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	_, err = group.Discard(within(t), client.MessageID{Shard: 7})
	wantError(t, err, client.ErrNotFound, client.Fatal)
}

func TestFindPeekCancelReschedule(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Script(func(s *fakebroker.Script) { s.MaxEntries = 2 }) // pages
	for i := range 10 {
		rec := client.Record{Key: []byte("k/" + value(i)), Value: []byte(value(i)), Headers: []client.Header{{Key: "n", Value: []byte{byte('0' + i%2)}}}}
		if _, err := q.Push(within(t), rec); err != nil {
			t.Fatal(err)
		}
	}
	b.Group(l, "workers")
	find := func(opts ...client.FindOption) (out []*client.QueueRecord) {
		t.Helper()
		for m, err := range q.Find(within(t), opts...) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, m)
		}
		return out
	}
	if got := find(); len(got) != 10 || got[0].State != client.Stored || len(got[0].Headers) != 1 {
		t.Fatalf("found %d: %+v", len(got), got[0])
	}
	if got := find(client.WithHeader("n", []byte("1")), client.OfGroup("workers")); len(got) != 5 || got[0].State != client.Ready {
		t.Fatalf("found %d", len(got))
	}
	one := find(client.Key("k/"+value(3)), client.OfGroup("workers"))
	if len(one) != 1 || string(one[0].Value) != value(3) {
		t.Fatalf("found %+v", one)
	}
	if got := find(client.Prefix("k/v00000")); len(got) != 10 {
		t.Fatalf("found %d", len(got))
	}
	if n, err := q.Reschedule(within(t), time.Now().Add(time.Hour), one[0].ID()); err != nil || n != 1 {
		t.Fatalf("rescheduled %d, %v", n, err)
	}
	if got := find(client.OfGroup("workers"), client.InState(client.Delayed)); len(got) != 1 || got[0].ID() != one[0].ID() {
		t.Fatalf("delayed %+v", got)
	}
	if n, err := q.Group("workers").Cancel(within(t), one[0].ID()); err != nil || n != 1 {
		t.Fatalf("cancelled %d, %v", n, err)
	}
	if got := find(client.OfGroup("workers")); len(got) != 9 {
		t.Fatalf("found %d", len(got))
	}
	if got, err := q.Peek(within(t), 3, client.OfGroup("workers")); err != nil || len(got) != 3 {
		t.Fatalf("peeked %d, %v", len(got), err)
	}
	for _, bad := range [][]client.FindOption{
		{client.InState(client.Dead)}, {client.OfGroup("A")}, {client.Key("a"), client.Prefix("b")}, {client.OfGroup("workers"), client.InState(client.Stored)},
	} {
		for _, err := range q.Find(within(t), bad...) {
			wantError(t, err, client.ErrBadRequest, client.Fatal)
		}
	}
	_, err := q.Peek(within(t), 0)
	wantError(t, err, client.ErrBadRequest, client.Fatal)
	_, err = q.Cancel(within(t))
	wantError(t, err, client.ErrBadRequest, client.Fatal)
}

func TestGroupsAreListedByPages(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Script(func(s *fakebroker.Script) { s.MaxEntries = 2 })
	var want []string
	for i := range 5 {
		want = append(want, value(i))
		b.Group(l, value(i))
	}
	b.Feed(l, 0, "a", "b")
	b.Feed(l, 1, "c")
	all, err := q.Groups(within(t), client.Counted())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range all {
		got = append(got, g.Name)
		if g.Ready != 3 || len(g.Shards) != 2 || g.Shards[1].End != 1 || !g.Exact {
			t.Fatalf("group %+v", g)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("groups %q", got)
	}
}

func TestSeekAndReset(t *testing.T) {
	b, l, q := queued(t, 2)
	b.Feed(l, 0, "a", "b", "c")
	b.Feed(l, 1, "d")
	g := consume(t, q)
	ack(t, messages(t, g, 4)...)
	group := q.Group("workers")
	if err := group.Seek(within(t), client.PlaceOffset(0, 1)); err != nil {
		t.Fatal(err)
	}
	ms := messages(t, g, 2)
	if got := valuesOf(ms); !slices.Equal(got, []string{"b", "c"}) {
		t.Fatalf("got %q", got)
	}
	ack(t, ms...)
	if err := group.Reset(within(t)); err != nil {
		t.Fatal(err)
	}
	ack(t, messages(t, g, 4)...)
	wantError(t, group.Seek(within(t), client.Place{}), client.ErrBadRequest, client.Fatal)
	wantError(t, group.Seek(within(t), client.PlaceOffset(2, 1)), client.ErrNotFound, client.Fatal)
	if err := q.Group("late").Ensure(within(t), client.GroupConfig{From: client.PlaceLatest()}); err != nil {
		t.Fatal(err)
	}
	wantError(t, q.Group("other").Ensure(within(t), client.GroupConfig{From: client.PlaceOffset(0, 1)}), client.ErrBadRequest, client.Fatal)
	late, err := q.Consume(within(t), "late")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	b.Feed(l, 0, "new")
	if m := messages(t, late, 1)[0]; string(m.Value) != "new" {
		t.Fatalf("got %q", m.Value)
	}
}

func TestMessageID(t *testing.T) {
	for s, want := range map[string]client.MessageID{"3/17": {3, 17}, "17": {0, 17}, "0/0": {}} {
		if id, err := client.ParseMessageID(s); err != nil || id != want {
			t.Errorf("%q is %v, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "/", "1/", "/1", "-1", "1/2/3", "4294967296/0", "x", "1/18446744073709551616"} {
		_, err := client.ParseMessageID(s)
		wantError(t, err, client.ErrBadRequest, client.Fatal)
	}
	if s := (client.MessageID{Shard: 3, Offset: 17}).String(); s != "3/17" {
		t.Errorf("got %q", s)
	}
}

func TestPushRefusesOddSchedules(t *testing.T) {
	_, _, q := queued(t, 1)
	for name, opts := range map[string][]client.RecordOption{
		"negative delay": {client.Delay(-1)}, "endless delay": {client.Delay(1<<63 - 1)}, "no life": {client.TTL(0)},
		"negative life": {client.TTL(-time.Second)}, "over before it is due": {client.Delay(time.Hour), client.TTL(time.Hour)},
		"priority 10": {client.Priority(10)}, "priority -1": {client.Priority(-1)},
	} {
		_, err := q.Push(within(t), client.Record{Value: []byte("x")}, opts...)
		if e := client.AsError(err); e == nil || e.Code != client.ErrBadRequest || e.Class != client.Fatal {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := q.Push(within(t), client.Record{Value: []byte("x")}, client.Delay(time.Hour), client.TTL(2*time.Hour), client.Priority(9), client.NoTTL()); err != nil {
		t.Error(err)
	}
}
