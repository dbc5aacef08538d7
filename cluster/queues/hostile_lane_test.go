// SPDX-License-Identifier: Apache-2.0

package queues_test

import (
	"math"
	"testing"

	"margay.dev/client"
	"margay.dev/cluster/internal/await"
	"margay.dev/cluster/margaytest"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
	"margay.dev/wire/control"
)

// A lane answers whatever it is told, refuses what cannot be meant, and goes on: what is absurd ends nobody's claim.
func TestALaneSurvivesWhatItIsTold(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	hostileQueue(t, n, control.QueueSpec{Name: "q", Shards: new(2)})
	q := n.Connect().Queue("q")
	if err := q.Group("g").Ensure(await.Within(t), client.GroupConfig{}); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if _, err := q.Push(await.Within(t), client.Record{Value: []byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	p := newPeer(t, n, "q", "")
	l := p.lane()
	refused := func(what string, f, into wire.Frame, want code.Code) {
		t.Helper()
		err := p.ask(l, f, into)
		if err == nil || err.Code != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	ok := &wire.Consumed{}
	consume := func(change func(*wire.Consume)) *wire.Consume {
		f := &wire.Consume{Log: p.log.Log, Group: "g", Consumer: "c", MaxInFlight: 10, Concurrency: 1, Shards: []uint32{0, 1}}
		change(f)
		return f
	}
	settle := func(change func(*wire.Settle)) *wire.Settle {
		f := &wire.Settle{GroupID: 1, Generation: 1, Runs: []wire.SettleRun{{Op: wire.SettleAck, HandOut: 1, Count: 1}}}
		change(f)
		return f
	}
	refused("settle before consume", settle(func(*wire.Settle) {}), &wire.Settled{}, code.Unsupported)
	refused("leave before consume", &wire.Leave{}, &wire.ConsumeEnd{}, code.Unsupported)
	refused("max in flight 2^32-1", consume(func(f *wire.Consume) { f.MaxInFlight = math.MaxUint32 }), ok, code.BadRequest)
	refused("concurrency 0", consume(func(f *wire.Consume) { f.Concurrency = 0 }), ok, code.BadRequest)
	refused("no shards", consume(func(f *wire.Consume) { f.Shards = nil }), ok, code.BadRequest)
	refused("a shard twice", consume(func(f *wire.Consume) { f.Shards = []uint32{1, 1} }), ok, code.BadRequest)
	refused("no such group", consume(func(f *wire.Consume) { f.Group = "h" }), ok, code.NotFound)
	refused("no group", consume(func(f *wire.Consume) { f.Group = "" }), ok, code.BadRequest)
	refused("an unknown shard", consume(func(f *wire.Consume) { f.Shards = []uint32{0, 9} }), ok, code.NotFound)
	p.want(l, consume(func(f *wire.Consume) { f.Concurrency = math.MaxUint32 }), ok)
	got := map[uint32]wire.Messages{}
	count := 0
	for count < 4 {
		m := p.messages(l)
		count += tokensOf(t, &m)
		if _, twice := got[m.Shard]; !twice {
			got[m.Shard] = m
		}
	}
	var first wire.Messages
	for _, m := range got {
		first = m
	}
	offset := firstOffset(t, &first)
	sound := settle(func(f *wire.Settle) {
		f.GroupID, f.Shard, f.Generation, f.Resets = ok.GroupID, first.Shard, first.Generation, first.Resets
		f.Runs[0].HandOut, f.Runs[0].Offset = first.HandOut, offset
	})
	refused("consume twice", consume(func(*wire.Consume) {}), ok, code.BadRequest)
	refused("a publish", &wire.Publish{Log: p.log.Log}, &wire.Published{}, code.BadRequest)
	with := func(change func(*wire.Settle)) *wire.Settle {
		f := *sound
		f.Runs = []wire.SettleRun{sound.Runs[0]}
		change(&f)
		return &f
	}
	refused("count 0", with(func(f *wire.Settle) { f.Runs[0].Count = 0 }), &wire.Settled{}, code.BadRequest)
	refused("count 2^32-1", with(func(f *wire.Settle) { f.Runs[0].Count = math.MaxUint32 }), &wire.Settled{}, code.BadRequest)
	refused("after max", with(func(f *wire.Settle) { f.Runs[0].Op, f.Runs[0].AfterUs = wire.SettleNack, math.MaxUint64 }), &wire.Settled{}, code.BadRequest)
	refused("op 9", with(func(f *wire.Settle) { f.Runs[0].Op = 9 }), &wire.Settled{}, code.BadRequest)
	refused("no runs", with(func(f *wire.Settle) { f.Runs = nil }), &wire.Settled{}, code.BadRequest)
	refused("shard 77", with(func(f *wire.Settle) { f.Shard = 77 }), &wire.Settled{}, code.BadRequest)
	refused("group 1", with(func(f *wire.Settle) { f.GroupID = 1 }), &wire.Settled{}, code.NotFound)
	for what, f := range map[string]*wire.Settle{
		"beyond the end":         with(func(f *wire.Settle) { f.Runs[0].Offset = 1 << 60 }),
		"the last offset":        with(func(f *wire.Settle) { f.Runs[0].Offset = math.MaxUint64 }),
		"another hand-out":       with(func(f *wire.Settle) { f.Runs[0].HandOut = math.MaxUint64 }),
		"a generation to come":   with(func(f *wire.Settle) { f.Generation++ }),
		"the last generation":    with(func(f *wire.Settle) { f.Generation = math.MaxUint64 }),
		"an earlier generation":  with(func(f *wire.Settle) { f.Generation = 0 }),
		"a reset to come":        with(func(f *wire.Settle) { f.Resets = math.MaxUint32 }),
		"nack of an earlier one": with(func(f *wire.Settle) { f.Generation = 0; f.Runs[0].Op = wire.SettleNack }),
	} {
		var out wire.Settled
		p.want(l, f, &out)
		if len(out.Failed) != 1 || out.Failed[0].Code != code.NoLongerOwner {
			t.Errorf("%s: %+v", what, out)
		}
	}
	var out wire.Settled
	p.want(l, with(func(f *wire.Settle) { f.Runs[0].HandOut, f.Runs[0].Count = first.HandOut+1000, wire.MaxSettleTokens }), &out)
	if len(out.Failed) != wire.MaxSettleTokens {
		t.Errorf("of %d tokens of nothing %d failed", wire.MaxSettleTokens, len(out.Failed))
	}
	var ext wire.Extended
	many := make([]batch.SettledToken, wire.MaxSettleTokens)
	for i := range many {
		many[i] = batch.SettledToken{HandOut: uint64(i) + 1<<40, Offset: uint64(i)}
	}
	p.want(l, &wire.Extend{GroupID: ok.GroupID, Shard: first.Shard, Generation: first.Generation, Tokens: many}, &ext)
	if len(ext.Failed) != len(many) {
		t.Errorf("of %d tokens of nothing %d were extended", len(many), len(many)-len(ext.Failed))
	}
	refused("extend for ever", &wire.Extend{GroupID: ok.GroupID, ForUs: math.MaxUint64, Tokens: many[:1]}, &ext, code.BadRequest)
	// The same twice in one frame: the first counts.
	twice := with(func(f *wire.Settle) { f.Runs = append(f.Runs, f.Runs[0]); f.Runs[0].Op = wire.SettleNack })
	p.want(l, twice, &out)
	if len(out.Failed) != 1 || out.Failed[0].Run != 1 {
		t.Errorf("nack and ack of one: %+v", out)
	}
	var end wire.ConsumeEnd
	p.want(l, &wire.Leave{}, &end)
	if end.Code != 0 || end.Shard != wire.AllShards {
		t.Errorf("left with %+v", end)
	}
	adds(t, q.Group("g"), 4)
}

// A group's commands refuse what cannot be, by name.
func TestCommandsRefuseTheAbsurd(t *testing.T) {
	t.Parallel()
	n := margaytest.Start(t)
	hostileQueue(t, n, control.QueueSpec{Name: "q"})
	p := newPeer(t, n, "q", "")
	l := p.lane()
	var done wire.GroupDone
	id := randomID()
	create := &wire.GroupCommand{ID: id, Log: p.log.Log, Op: wire.GroupCreate, Group: "g"}
	p.want(l, create, &done)
	was := done
	p.want(l, create, &done)
	if !done.Again || done.GroupID != was.GroupID {
		t.Errorf("created again: %+v, first %+v", done, was)
	}
	n.Restart()
	p = newPeer(t, n, "q", "")
	l = p.lane()
	p.want(l, create, &done)
	if !done.Again || done.GroupID != was.GroupID {
		t.Errorf("created again after a restart: %+v, first %+v", done, was)
	}
	far := make([]uint64, wire.MaxCommandOffsets)
	for i := range far {
		far[i] = math.MaxUint64 - uint64(i)
	}
	settings := batch.DefaultGroupSettings()
	settings.AckWait, settings.MaxDead, settings.Backoff = math.MaxUint64, math.MaxUint32, []uint64{0, math.MaxUint64}
	for what, x := range map[string]struct {
		f    wire.GroupCommand
		want code.Code
	}{
		"no id":                   {wire.GroupCommand{Op: wire.GroupPause, Group: "g"}, code.BadRequest},
		"unknown":                 {wire.GroupCommand{ID: randomID(), Op: 99, Group: "g"}, code.BadRequest},
		"no group":                {wire.GroupCommand{ID: randomID(), Op: wire.GroupPause, Group: "other"}, code.NotFound},
		"another id":              {wire.GroupCommand{ID: randomID(), Op: wire.GroupPause, Group: "g", GroupID: 1}, code.Conflict},
		"seek nowhere":            {wire.GroupCommand{ID: randomID(), Op: wire.GroupSeek, Group: "g"}, code.BadRequest},
		"seek beyond":             {wire.GroupCommand{ID: randomID(), Op: wire.GroupSeek, Group: "g", Position: wire.Position{Kind: wire.PositionOffset, Offset: 1 << 62}}, code.OutOfRange},
		"seek to the last":        {wire.GroupCommand{ID: randomID(), Op: wire.GroupSeek, Group: "g", Position: wire.Position{Kind: wire.PositionOffset, Offset: math.MaxUint64}}, code.OutOfRange},
		"seek before time":        {wire.GroupCommand{ID: randomID(), Op: wire.GroupSeek, Group: "g", Position: wire.Position{Kind: wire.PositionTime, Time: math.MinInt64}}, code.BadRequest},
		"seek after time":         {wire.GroupCommand{ID: randomID(), Op: wire.GroupSeek, Group: "g", Position: wire.Position{Kind: wire.PositionTime, Time: math.MaxInt64}}, code.BadRequest},
		"cancel of far ones":      {wire.GroupCommand{ID: randomID(), Op: wire.GroupCancel, Group: "g", Offsets: far}, code.NotFound},
		"cancel of nothing":       {wire.GroupCommand{ID: randomID(), Op: wire.GroupCancel, Group: "g"}, code.BadRequest},
		"reschedule of far ones":  {wire.GroupCommand{ID: randomID(), Op: wire.GroupReschedule, Group: "g", Offsets: far, AtUs: 1}, code.NotFound},
		"reschedule to never":     {wire.GroupCommand{ID: randomID(), Op: wire.GroupReschedule, Group: "g", Offsets: far[:1], AtUs: math.MinInt64}, code.BadRequest},
		"discard of far ones":     {wire.GroupCommand{ID: randomID(), Op: wire.GroupDiscard, Group: "g", Offsets: far}, code.NotFound},
		"settings beyond reason":  {wire.GroupCommand{ID: randomID(), Op: wire.GroupUpdate, Group: "g", HasSettings: true, Settings: settings}, code.BadRequest},
		"update to nothing":       {wire.GroupCommand{ID: randomID(), Op: wire.GroupUpdate, Group: "g"}, code.BadRequest},
		"a shard that is not":     {wire.GroupCommand{ID: randomID(), Op: wire.GroupPause, Group: "g", Shard: 1 << 31}, code.NotFound},
		"pause with a position":   {wire.GroupCommand{ID: randomID(), Op: wire.GroupPause, Group: "g", Position: wire.Position{Kind: wire.PositionLatest}}, code.BadRequest},
		"create with the same id": {wire.GroupCommand{ID: randomID(), Op: wire.GroupCreate, Group: "h", GroupID: was.GroupID}, code.BadRequest},
	} {
		x.f.Log = p.log.Log
		if err := p.ask(l, &x.f, &done); err == nil || err.Code != x.want {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
	}
	for what, f := range map[string]*wire.GroupQuery{
		"no limit": {Log: p.log.Log}, "a limit of 2^32-1": {Log: p.log.Log, Limit: math.MaxUint32},
	} {
		if err := p.ask(l, f, &wire.GroupInfos{}); err == nil || err.Code != code.BadRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, f := range map[string]*wire.Browse{
		"no limit":      {Log: p.log.Log, Group: "g", States: wire.MessageReady},
		"no states":     {Log: p.log.Log, Group: "g", Limit: 1},
		"all and none":  {Log: p.log.Log, Group: "g", Limit: 1, States: 255},
		"another group": {Log: p.log.Log, Group: "other", Limit: 1, States: wire.MessageReady},
	} {
		f.Filter = wire.Filter{Kind: wire.FilterAll}
		if err := p.ask(l, f, &wire.Browsed{}); err == nil {
			t.Errorf("browse, %s: no error", what)
		}
	}
	var browsed wire.Browsed
	p.want(l, &wire.Browse{Log: p.log.Log, Group: "g", Limit: 1, States: wire.MessageReady, HasAfter: true, After: math.MaxUint64, Filter: wire.Filter{Kind: wire.FilterAll}}, &browsed)
	p.want(l, &wire.Browse{Log: p.log.Log, Group: "g", Limit: 1, States: wire.MessageReady, HasAfter: true, After: math.MaxUint64 - 1, Filter: wire.Filter{Kind: wire.FilterAll}}, &browsed)
	p.want(l, &wire.Browse{Log: p.log.Log, Limit: 1, States: wire.MessageRecord, HasAfter: true, After: 1 << 62, Filter: wire.Filter{Kind: wire.FilterAll}}, &browsed)
}

// tokensOf counts the messages of a frame.
func tokensOf(t *testing.T, m *wire.Messages) int {
	t.Helper()
	if m.Slice {
		s, err := batch.CheckSlice(m.Batch)
		if err != nil {
			t.Fatal(err)
		}
		return s.Count()
	}
	b, err := batch.CheckStored(m.Batch)
	if err != nil {
		t.Fatal(err)
	}
	return b.Count()
}

func firstOffset(t *testing.T, m *wire.Messages) uint64 {
	t.Helper()
	if !m.Slice {
		return batch.Batch(m.Batch).BaseOffset()
	}
	s, err := batch.CheckSlice(m.Batch)
	if err != nil {
		t.Fatal(err)
	}
	rs := s.Records()
	var r batch.Record
	if ok, err := rs.Next(&r); !ok || err != nil {
		t.Fatal(err)
	}
	return rs.Offset()
}
