// SPDX-License-Identifier: Apache-2.0

package ingress_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"margay.dev/broker/internal/hosttest"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
	"margay.dev/wire/session"
)

var everyKey = wire.Filter{Kind: wire.FilterAll}

// queued is a front of a queue with a group, and a lane to ask on.
func queued(t *testing.T) (*front, session.Conn, *session.Lane) {
	t.Helper()
	f := startWith(t, hosttest.Log(func(l *control.Log) { l.Keep = control.KeepUnsettled }), nil)
	c, l := f.client()
	done := &wire.GroupDone{}
	f.want(l, &wire.GroupCommand{ID: [16]byte{1}, Log: f.log.ID, Op: wire.GroupCreate, Group: "workers"}, done)
	if done.GroupID == 0 || !done.Created {
		t.Fatalf("created %+v", done)
	}
	return f, c, l
}

// push publishes messages as one batch.
func (f *front) push(l *session.Lane, recs ...batch.Record) *wire.Published {
	f.t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	for _, r := range recs {
		if err := bl.Add(r); err != nil {
			f.t.Fatal(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		f.t.Fatal(err)
	}
	out := &wire.Published{}
	f.want(l, &wire.Publish{Log: f.log.ID, Batch: b}, out)
	return out
}

func values(n int) []batch.Record {
	out := make([]batch.Record, n)
	for i := range out {
		out[i] = batch.Record{Value: fmt.Appendf(nil, "v%d", i), Key: fmt.Appendf(nil, "k%d", i%3), Timestamp: 1, Headers: []batch.Header{{Key: "n", Value: []byte{byte('0' + i%10)}}}}
	}
	return out
}

// handed is a message that came on a lane.
type handed struct {
	handOut, offset uint64
	attempt         uint32
	value           string
}

// consumer is a lane of a group.
type consumer struct {
	*front
	lane *session.Lane
	ok   wire.Consumed
	got  []handed
	ends []wire.ConsumeEnd
}

func (f *front) consume(c session.Conn, inFlight uint32) *consumer {
	f.t.Helper()
	x := &consumer{front: f, lane: f.lane(c)}
	f.want(x.lane, &wire.Consume{Log: f.log.ID, Group: "workers", Consumer: "c", MaxInFlight: inFlight, Concurrency: 2, Shards: []uint32{0}}, &x.ok)
	return x
}

// read reads frames until one comes that is no message, progress or end of a shard, or until enough says so.
func (x *consumer) read(enough func() bool) (wire.Header, []byte) {
	x.t.Helper()
	for !enough() {
		h, err := x.lane.ReadHeader()
		if err != nil {
			x.t.Fatal(err)
		}
		body, err := x.lane.AppendBody(nil)
		if err != nil {
			x.t.Fatal(err)
		}
		switch h.Type {
		case wire.TypeMessages:
			x.messages(h, body)
		case wire.TypeProgress:
		case wire.TypeConsumeEnd:
			var e wire.ConsumeEnd
			if err := wire.ParseFrame(h, &e, body); err != nil {
				x.t.Fatal(err)
			}
			x.ends = append(x.ends, e)
		default:
			return h, body
		}
	}
	return wire.Header{}, nil
}

func (x *consumer) messages(h wire.Header, body []byte) {
	var f wire.Messages
	if err := wire.ParseFrame(h, &f, body); err != nil {
		x.t.Fatal(err)
	}
	var records interface {
		Next(r *batch.Record) (bool, error)
		Offset() uint64
	}
	if f.Slice {
		s, err := batch.CheckSlice(f.Batch)
		if err != nil {
			x.t.Fatal(err)
		}
		records = s.Records()
	} else {
		b, err := batch.CheckStored(f.Batch)
		if err != nil {
			x.t.Fatal(err)
		}
		records = b.Records()
	}
	attempts := map[uint32]uint32{}
	for _, a := range f.Attempts {
		attempts[a.Index] = a.Attempt
	}
	var rec batch.Record
	for i := uint32(0); ; i++ {
		ok, err := records.Next(&rec)
		if err != nil {
			x.t.Fatal(err)
		}
		if !ok {
			return
		}
		x.got = append(x.got, handed{f.HandOut + uint64(i), records.Offset(), max(1, attempts[i]), string(rec.Value)})
	}
}

// take reads until so many messages have come, and hands them over.
func (x *consumer) take(n int) []handed {
	x.t.Helper()
	x.read(func() bool { return len(x.got) >= n })
	got := x.got
	x.got = nil
	return got
}

// settle settles messages, and waits for the answer.
func (x *consumer) settle(op wire.SettleOp, ms ...handed) *wire.Settled {
	x.t.Helper()
	f := &wire.Settle{GroupID: x.ok.GroupID, Resets: x.ok.Shards[0].Resets, Generation: x.ok.Shards[0].Generation}
	for _, m := range ms {
		f.Runs = append(f.Runs, wire.SettleRun{Op: op, HandOut: m.handOut, Offset: m.offset, Count: 1, AfterUs: 1000, Reason: "why"})
	}
	if err := x.lane.SendFrame(3, f); err != nil {
		x.t.Fatal(err)
	}
	h, body := x.read(func() bool { return false })
	out := &wire.Settled{}
	if err := wire.ParseFrame(h, out, body); err != nil || h.Corr != 3 {
		x.t.Fatalf("%v: %v", h, err)
	}
	return out
}

func (f *front) info(l *session.Lane) wire.GroupInfo {
	f.t.Helper()
	out := &wire.GroupInfos{}
	f.want(l, &wire.GroupQuery{Log: f.log.ID, Group: "workers", Limit: 1, Look: true}, out)
	return out.Infos[0]
}

// TestMessagesOverALane: what is pushed is handed out, acked, tried again and rejected, over a real lane and on a real log.
func TestMessagesOverALane(t *testing.T) {
	f, c, l := queued(t)
	x := f.consume(c, 4)
	if x.ok.AckWaitUs != 30e6 || len(x.ok.Shards) != 1 || x.ok.Shards[0].Generation == 0 {
		t.Fatalf("consumed %+v", x.ok)
	}
	f.push(l, values(6)...)
	got := x.take(4)
	for i, m := range got {
		if want := (handed{uint64(i + 1), uint64(i), 1, fmt.Sprintf("v%d", i)}); m != want {
			t.Fatalf("got %v, want %v", m, want)
		}
	}
	if in := f.info(l); in.InFlight != 4 || in.Ready != 2 || in.Next != 0 || in.End != 6 || len(in.Consumers) != 1 || in.OldestAppend == 0 {
		t.Errorf("the group stands at %+v", in)
	}
	if done := x.settle(wire.SettleAck, got[0], got[2]); len(done.Failed) != 0 {
		t.Fatalf("acks: %+v", done)
	}
	more := x.take(2)
	if more[0].value != "v4" || more[1].value != "v5" {
		t.Fatalf("got %v", more)
	}
	if done := x.settle(wire.SettleAck, got[0], got[1]); len(done.Failed) != 1 || done.Failed[0].Run != 0 || done.Failed[0].Code != code.NoLongerOwner {
		t.Fatalf("an ack again: %+v", done)
	}
	x.settle(wire.SettleNack, got[3])
	again := x.take(1)
	if again[0].value != "v3" || again[0].attempt != 2 {
		t.Fatalf("after a nack: %v", again)
	}
	x.settle(wire.SettleReject, again[0])
	x.settle(wire.SettleAck, more...)
	if in := f.info(l); in.InFlight != 0 || in.Ready != 0 || in.Dead != 1 || in.Totals.Acked != 5 || in.Next != 6 || in.OldestAppend != 0 {
		t.Errorf("at the end the group stands at %+v", in)
	}
	dead := &wire.Browsed{}
	f.want(l, &wire.Browse{Log: f.log.ID, Group: "workers", States: wire.MessageDead, Limit: 10, Filter: everyKey}, dead)
	if len(dead.Messages) != 1 || string(dead.Messages[0].Value) != "v3" || dead.Messages[0].Reason != batch.DeadRejected || dead.Messages[0].Error != "why" || dead.Messages[0].Attempts != 2 {
		t.Errorf("dead letters %+v", dead)
	}
	done := &wire.GroupDone{}
	f.want(l, &wire.GroupCommand{ID: [16]byte{2}, Log: f.log.ID, Op: wire.GroupRedrive, Group: "workers"}, done)
	if m := x.take(1); done.Count != 1 || m[0].value != "v3" || m[0].attempt != 1 {
		t.Errorf("redriven %+v, got %v", done, m)
	}
}

// TestLeavingAndDying: who leaves in order has tried nothing; of who is gone the attempts count that he was at.
func TestLeavingAndDying(t *testing.T) {
	f, c, l := queued(t)
	x := f.consume(c, 10)
	f.push(l, values(5)...)
	x.take(5)
	if err := x.lane.SendFrame(0, &wire.Leave{}); err != nil {
		t.Fatal(err)
	}
	x.read(func() bool { return len(x.ends) > 0 })
	if e := x.ends[0]; e.Shard != wire.AllShards || e.Code != 0 {
		t.Fatalf("the end %+v", e)
	}
	c2, _ := f.client()
	y := f.consume(c2, 10)
	got := y.take(5)
	if slices.ContainsFunc(got, func(m handed) bool { return m.attempt != 1 }) {
		t.Fatalf("after leaving in order: %v", got)
	}
	y.settle(wire.SettleAck, got[0])
	if err := c2.Close(0, ""); err != nil {
		t.Fatal(err)
	}
	z := f.consume(c, 10)
	again := z.take(4)
	attempts := map[string]uint32{}
	for _, m := range again {
		attempts[m.value] = m.attempt
	}
	if attempts["v1"] != 2 || attempts["v2"] != 2 || attempts["v3"] != 1 || attempts["v4"] != 1 {
		t.Fatalf("after dying: %v", again)
	}
}

// TestExtendedClaimsLast: a claim ends in time, unless more is asked for.
func TestExtendedClaimsLast(t *testing.T) {
	f, c, l := queued(t)
	settings := batch.DefaultGroupSettings()
	settings.AckWait, settings.Backoff = uint64(300*time.Millisecond/time.Microsecond), nil
	f.want(l, &wire.GroupCommand{ID: [16]byte{3}, Log: f.log.ID, Op: wire.GroupUpdate, Group: "workers", HasSettings: true, Settings: settings}, &wire.GroupDone{})
	x := f.consume(c, 10)
	f.push(l, values(2)...)
	got := x.take(2)
	if err := x.lane.SendFrame(4, &wire.Extend{
		GroupID: x.ok.GroupID, Resets: x.ok.Shards[0].Resets, Generation: x.ok.Shards[0].Generation, ForUs: 3600e6,
		Tokens: []batch.SettledToken{{HandOut: got[0].handOut, Offset: got[0].offset}, {HandOut: 99, Offset: 0}},
	}); err != nil {
		t.Fatal(err)
	}
	h, body := x.read(func() bool { return false })
	var ext wire.Extended
	if err := wire.ParseFrame(h, &ext, body); err != nil || len(ext.Failed) != 1 || ext.Failed[0].Index != 1 {
		t.Fatalf("%+v, %v", ext, err)
	}
	if again := x.take(1); again[0].value != "v1" || again[0].attempt != 2 {
		t.Fatalf("after the claim's end: %v", again)
	}
	if done := x.settle(wire.SettleAck, got...); len(done.Failed) != 1 || done.Failed[0].Run != 1 {
		t.Fatalf("acks: %+v", done)
	}
}

// TestGroupsAreAskedAndChanged: the requests about groups, and what is refused.
func TestGroupsAreAskedAndChanged(t *testing.T) {
	f, c, l := queued(t)
	f.push(l, values(6)...)
	again := &wire.GroupDone{}
	f.want(l, &wire.GroupCommand{ID: [16]byte{1}, Log: f.log.ID, Op: wire.GroupCreate, Group: "workers"}, again)
	if !again.Again {
		t.Errorf("a command again: %+v", again)
	}
	refused := func(what string, want code.Code, request wire.Frame) {
		t.Helper()
		var e wire.Error
		f.want(l, request, &e)
		if e.Code != want {
			t.Errorf("%s: %+v", what, e)
		}
	}
	refused("a group that is not there", code.NotFound, &wire.GroupCommand{ID: [16]byte{9}, Log: f.log.ID, Op: wire.GroupPause, Group: "none"})
	refused("a query of it", code.NotFound, &wire.GroupQuery{Log: f.log.ID, Group: "none", Limit: 1})
	refused("its messages", code.NotFound, &wire.Browse{Log: f.log.ID, Group: "none", States: wire.MessageReady, Limit: 1, Filter: everyKey})
	refused("its consumer", code.NotFound, &wire.Consume{Log: f.log.ID, Group: "none", MaxInFlight: 1, Concurrency: 1, Shards: []uint32{0}})
	refused("a shard twice", code.BadRequest, &wire.Consume{Log: f.log.ID, Group: "workers", MaxInFlight: 1, Concurrency: 1, Shards: []uint32{0, 0}})
	refused("another log", code.NotFound, &wire.Consume{Log: batch.NewLogID(), Group: "workers", MaxInFlight: 1, Concurrency: 1, Shards: []uint32{0}})
	refused("a command without id", code.BadRequest, &wire.GroupCommand{Log: f.log.ID, Op: wire.GroupPause, Group: "workers"})
	refused("seek nowhere", code.BadRequest, &wire.GroupCommand{ID: [16]byte{8}, Log: f.log.ID, Op: wire.GroupSeek, Group: "workers"})
	refused("seek too far", code.OutOfRange, &wire.GroupCommand{ID: [16]byte{8}, Log: f.log.ID, Op: wire.GroupSeek, Group: "workers", Position: wire.Position{Kind: wire.PositionOffset, Offset: 99}})
	refused("a settlement on another lane", code.Unsupported, &wire.Settle{GroupID: 1, Runs: []wire.SettleRun{{Op: wire.SettleAck, Count: 1}}})

	command := func(id byte, x wire.GroupCommand) *wire.GroupDone {
		t.Helper()
		x.ID, x.Log, x.Group = [16]byte{id}, f.log.ID, "workers"
		done := &wire.GroupDone{}
		f.want(l, &x, done)
		return done
	}
	command(10, wire.GroupCommand{Op: wire.GroupCancel, Offsets: []uint64{1, 2}})
	later := time.Now().Add(time.Hour)
	command(11, wire.GroupCommand{Op: wire.GroupReschedule, Offsets: []uint64{3}, AtUs: later.UnixMicro()})
	browse := func(x wire.Browse) (out []uint64, f2 *wire.Browsed) {
		t.Helper()
		x.Log = f.log.ID
		if x.Filter.Kind == 0 {
			x.Filter = everyKey
		}
		got := &wire.Browsed{}
		f.want(l, &x, got)
		for i := range got.Messages {
			out = append(out, got.Messages[i].Offset)
		}
		return out, got
	}
	if got, _ := browse(wire.Browse{Group: "workers", States: wire.MessageReady, Limit: 100}); !slices.Equal(got, []uint64{0, 4, 5}) {
		t.Errorf("ready: %v", got)
	}
	if got, all := browse(wire.Browse{Group: "workers", States: wire.MessageDelayed, Limit: 100}); !slices.Equal(got, []uint64{3}) || all.Messages[0].Due != later.UnixMicro() {
		t.Errorf("delayed: %+v", all)
	}
	if got, all := browse(wire.Browse{Group: "workers", States: wire.MessageReady | wire.MessageDelayed, Limit: 2}); !slices.Equal(got, []uint64{0, 3}) || !all.More || all.Next != 3 {
		t.Errorf("the first two: %+v", all)
	}
	if got, _ := browse(wire.Browse{Group: "workers", States: wire.MessageReady, HasAfter: true, After: 3, Limit: 2, Filter: wire.Filter{Kind: wire.FilterExact, Value: "k2"}}); !slices.Equal(got, []uint64{5}) {
		t.Errorf("of a key: %v", got)
	}
	if got, _ := browse(wire.Browse{States: wire.MessageRecord, Limit: 9, HasHeader: true, Header: "n", HeaderValue: []byte("2")}); !slices.Equal(got, []uint64{2}) {
		t.Errorf("with a header: %v", got)
	}
	if got, all := browse(wire.Browse{States: wire.MessageRecord, Limit: 4, HasAfter: true, After: 0}); !slices.Equal(got, []uint64{1, 2, 3, 4}) || !all.More || all.Next != 4 {
		t.Errorf("records: %+v", all)
	}
	x := f.consume(c, 10)
	x.take(3)
	command(12, wire.GroupCommand{Op: wire.GroupSeek, Position: wire.Position{Kind: wire.PositionEarliest}})
	if got := x.take(6); got[0].handOut != 4 {
		t.Errorf("after seek: %v", got)
	}
	list := &wire.GroupInfos{}
	f.want(l, &wire.GroupQuery{Log: f.log.ID, Limit: 10}, list)
	if len(list.Infos) != 1 || list.More || list.Infos[0].Name != "workers" || list.Infos[0].Resets != 1 {
		t.Errorf("the groups: %+v", list)
	}
	command(13, wire.GroupCommand{Op: wire.GroupDelete})
	x.read(func() bool { return len(x.ends) > 0 })
	if e := x.ends[0]; e.Shard != 0 || e.Code != code.Deleted {
		t.Errorf("the end of a deleted group's consumer: %+v", e)
	}
}

// TestALogInMemoryHasNoGroups: what they have settled would be gone with it.
func TestALogInMemoryHasNoGroups(t *testing.T) {
	f := startWith(t, hosttest.Log(func(l *control.Log) {
		l.Storage, l.Fsync, l.Ack, l.MinAck = control.StorageMemory, control.FsyncNever, control.AckNone, control.AckNone
	}), nil)
	_, l := f.client()
	for _, request := range []wire.Frame{
		&wire.Consume{Log: f.log.ID, Group: "workers", MaxInFlight: 1, Concurrency: 1, Shards: []uint32{0}},
		&wire.GroupCommand{ID: [16]byte{1}, Log: f.log.ID, Op: wire.GroupCreate, Group: "workers"},
		&wire.GroupQuery{Log: f.log.ID, Limit: 1},
		&wire.Browse{Log: f.log.ID, States: wire.MessageRecord, Limit: 1, Filter: everyKey},
	} {
		var e wire.Error
		f.want(l, request, &e)
		if e.Code != code.BadRequest {
			t.Errorf("%v: %+v", request.Type(), e)
		}
	}
}

// TestAConsumerIsToldThatTheNodeGoes: in the end everything is back, and nobody's attempt.
func TestAConsumerIsToldThatTheNodeGoes(t *testing.T) {
	f, c, l := queued(t)
	x := f.consume(c, 10)
	f.push(l, values(3)...)
	x.take(3)
	f.stop()
	x.read(func() bool { return len(x.ends) > 0 && x.ends[len(x.ends)-1].Shard == wire.AllShards })
	if e := x.ends[len(x.ends)-1]; !errors.Is(e.Code, code.ShuttingDown) {
		t.Errorf("the end: %+v", e)
	}
}
