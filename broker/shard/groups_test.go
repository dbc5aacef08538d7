// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"

	"margay.dev/broker/group"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// unlimited is the credit of a consumer that may have anything.
type unlimited struct{ out int }

func (u *unlimited) Take(n int) int { u.out += n; return n }
func (u *unlimited) Give(n int)     { u.out -= n }

// groupRig drives a core as a shell does: what is appended is written and flushed at once, and kept for a restart.
type groupRig struct {
	t     *testing.T
	c     *Core
	cfg   Config
	log   []batch.Batch
	now   int64
	eff   Effects
	hands map[*group.Consumer][]group.Handed
	got   map[any]Answer
	next  byte

	slow    bool // scans wait in waiting
	waiting []group.Scan
}

func newGroupRig(t *testing.T, cfg Config) *groupRig {
	r := &groupRig{t: t, cfg: cfg, now: 1_000_000, hands: map[*group.Consumer][]group.Handed{}, got: map[any]Answer{}}
	r.cfg.Node = "n"
	r.open()
	return r
}

func (r *groupRig) open() {
	r.cfg.Generation++
	r.c = New(r.cfg)
	for _, b := range r.log {
		if err := r.c.Replay(b); err != nil {
			r.t.Fatal(err)
		}
	}
	if n := len(r.log); n > 0 {
		r.c.Recovered(r.log[n-1].Sequence()+1, r.log[n-1].NextOffset(), false)
	}
	r.hands = map[*group.Consumer][]group.Handed{}
}

func (r *groupRig) step(ev Event) {
	r.t.Helper()
	r.c.Step(r.now, ev, &r.eff)
	r.perform()
	for i := 0; ; i++ {
		if at := r.c.Next(); at == 0 || at > r.now {
			return
		}
		if i > 100 {
			r.t.Fatal("the core does not come to rest")
		}
		r.c.Step(r.now, Time{}, &r.eff)
		r.perform()
	}
}

func (r *groupRig) perform() {
	for _, b := range r.eff.Append {
		r.log = append(r.log, append(batch.Batch(nil), b...))
	}
	if n := len(r.log); n > 0 {
		r.c.Step(r.now, Flushed{Length: r.log[n-1].Sequence() + 1}, &r.eff)
	}
	for _, a := range r.eff.Answers {
		if a.To != nil {
			r.got[a.To] = a
		}
	}
	for _, h := range r.eff.Hands {
		r.hands[h.To] = append(r.hands[h.To], h.Items...)
	}
	scans, places, head, drop := r.eff.Scans, r.eff.Places, r.eff.Reclaim, r.eff.Drop
	r.eff.Scans = nil
	r.eff.Reset()
	r.carry(head)
	for drop > 0 && r.log[0].Sequence() < drop {
		r.log = r.log[1:]
	}
	if places != nil {
		for _, b := range r.log {
			if err := places.Add(b); err != nil {
				r.t.Fatal(err)
			}
		}
		r.c.Step(r.now, PlacesBuilt{Build: places}, &r.eff)
		r.perform()
	}
	if r.slow {
		r.waiting = append(r.waiting, scans...)
		return
	}
	for _, x := range scans {
		ev := &GroupsScanned{group.Scanned{Scan: x, Next: x.From}}
		for _, b := range r.log {
			if b.HasOffsets() && b.NextOffset() > x.From {
				ev.Batches = append(ev.Batches, b)
				ev.Next = b.NextOffset()
			}
		}
		r.c.Step(r.now, ev, &r.eff)
		r.perform()
	}
}

// carry does with a head what the host does.
func (r *groupRig) carry(head *ReclaimHead) {
	if head == nil {
		return
	}
	live := r.c.LiveMessages(*head)
	ev := &Carry{To: "carry"}
	for _, b := range r.log {
		if b.Sequence() >= head.To.Sequence || b.IsControl() {
			continue
		}
		for records := b.Records(); ; {
			var rec batch.Record
			ok, err := records.Next(&rec)
			if err != nil {
				r.t.Fatal(err)
			}
			if !ok {
				break
			}
			if !live.Has(records.Offset(), b.Sequence(), b.IsCarried()) {
				continue
			}
			ev.Records = append(ev.Records, batch.Carried{
				Record: rec.Clone(), Offset: records.Offset(), Generation: records.Generation(), AppendTime: records.AppendTime(),
			})
			ev.Sequence = append(ev.Sequence, b.Sequence())
		}
	}
	r.c.Step(r.now, ev, &r.eff)
	r.perform()
	r.c.Step(r.now, Carried{Head: *head}, &r.eff)
	r.perform()
}

func (r *groupRig) push(records ...batch.Record) {
	r.t.Helper()
	b := batch.NewBuilder(batch.Limits{})
	for _, rec := range records {
		if rec.Value == nil {
			rec.Value = []byte("v")
		}
		if err := b.Add(rec); err != nil {
			r.t.Fatal(err)
		}
	}
	built, err := b.Build(0, 0, batch.None)
	if err != nil {
		r.t.Fatal(err)
	}
	r.step(&Publish{Batch: built, To: "push"})
	if a := r.got["push"]; a.Err != nil {
		r.t.Fatal(a.Err)
	}
}

func (r *groupRig) command(x group.Command) *group.Done {
	r.t.Helper()
	if x.ID == [16]byte{} {
		r.next++
		x.ID[0] = r.next
	}
	x.To = "command"
	r.step(&GroupCommand{x})
	a := r.got["command"]
	if a.Err != nil {
		r.t.Fatal(a.Err)
	}
	return a.Done
}

func (r *groupRig) create(change func(*batch.GroupSettings)) {
	r.t.Helper()
	s := batch.DefaultGroupSettings()
	if change != nil {
		change(&s)
	}
	r.command(group.Command{Op: group.Create, Name: "g", Group: 7, Settings: &s})
}

func (r *groupRig) join() *group.Consumer {
	r.t.Helper()
	c := &group.Consumer{Credit: &unlimited{}, Concurrency: 1}
	r.step(&JoinGroup{Group: "g", Consumer: c, To: c})
	if a := r.got[c]; a.Err != nil {
		r.t.Fatal(a.Err)
	}
	return c
}

// take returns what a consumer was handed since it was last asked, as offsets.
func (r *groupRig) take(c *group.Consumer) []group.Handed {
	h := r.hands[c]
	r.hands[c] = nil
	return h
}

func (r *groupRig) settle(op group.Op, h group.Handed) []group.Failed {
	r.t.Helper()
	return r.settleAt(r.cfg.Generation, op, h)
}

func (r *groupRig) settleAt(generation uint64, op group.Op, h group.Handed) []group.Failed {
	r.t.Helper()
	r.step(&Settle{List: []*group.Settlement{{
		Group: 7, Generation: generation, Tokens: []group.Token{{Op: op, HandOut: h.HandOut, Offset: h.Offset}}, To: "settle",
	}}})
	a := r.got["settle"]
	if a.Err != nil {
		r.t.Fatal(a.Err)
	}
	return a.Failed
}

func (r *groupRig) info() (i group.Info) {
	r.t.Helper()
	r.step(&Inspect{Look: func(v *group.View) { i, _ = v.Info("g") }, To: "info"})
	return i
}

func (r *groupRig) wantOffsets(c *group.Consumer, want ...uint64) []group.Handed {
	r.t.Helper()
	got := r.take(c)
	if len(got) != len(want) {
		r.t.Fatalf("handed %v, want offsets %v", got, want)
	}
	for i := range got {
		if got[i].Offset != want[i] {
			r.t.Fatalf("handed %v, want offsets %v", got, want)
		}
	}
	return got
}

func TestGroupHandsOutAndSettles(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	r.push(batch.Record{}, batch.Record{}, batch.Record{})
	c := r.join()
	h := r.wantOffsets(c, 0, 1, 2)
	if f := r.settle(group.Ack, h[1]); f != nil {
		t.Fatal(f)
	}
	if f := r.settle(group.Ack, h[1]); len(f) != 1 || f[0].Code != code.NoLongerOwner {
		t.Fatal("an ack that comes twice is not refused")
	}
	r.settle(group.Nack, h[0])
	if i := r.info(); i.Delayed != 1 || i.InFlight != 1 || i.Totals.Acked != 1 || i.Totals.Attempts != 1 || i.Ready != 0 {
		t.Fatalf("%+v", i)
	}
	r.wantOffsets(c)
	r.now += 100_000
	r.step(Time{})
	if h := r.wantOffsets(c, 0); h[0].Attempt != 2 {
		t.Fatalf("attempt %d, want 2", h[0].Attempt)
	}
	r.open()
	c = r.join()
	if h := r.wantOffsets(c, 0, 2); h[0].Attempt != 2 || h[1].Attempt != 1 {
		t.Fatalf("%v", h)
	}
}

func TestAckOfAnEarlierGeneration(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	r.push(batch.Record{}, batch.Record{})
	c := r.join()
	h := r.wantOffsets(c, 0, 1)
	r.open()
	if f := r.settleAt(1, group.Nack, h[0]); f == nil {
		t.Fatal("a nack of an earlier generation counts")
	}
	if f := r.settleAt(1, group.Ack, h[0]); f != nil {
		t.Fatal(f)
	}
	c = r.join()
	r.wantOffsets(c, 1)
	if f := r.settleAt(1, group.Ack, h[1]); f == nil {
		t.Fatal("an ack counts though the message was handed out again")
	}
}

func TestDeadLettersAndRedrive(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(func(s *batch.GroupSettings) { s.MaxAttempts = 2; s.Backoff = nil })
	r.push(batch.Record{}, batch.Record{})
	c := r.join()
	h := r.wantOffsets(c, 0, 1)
	r.settle(group.Ack, h[1])
	r.settle(group.Nack, h[0])
	h = r.wantOffsets(c, 0)
	r.settle(group.Nack, h[0])
	if i := r.info(); i.Dead != 1 || i.Next != 2 || i.Totals.Dead != 1 || i.Totals.Attempts != 2 {
		t.Fatalf("%+v", i)
	}
	r.open()
	if i := r.info(); i.Dead != 1 || i.Totals.Dead != 1 {
		t.Fatalf("%+v", i)
	}
	c = r.join()
	r.wantOffsets(c)
	id := [16]byte{9}
	if d := r.command(group.Command{ID: id, Op: group.Redrive, Name: "g"}); d.Count != 1 || d.Again {
		t.Fatalf("%+v", d)
	}
	h = r.wantOffsets(c, 0)
	if h[0].Attempt != 1 {
		t.Fatal(h)
	}
	if d := r.command(group.Command{ID: id, Op: group.Redrive, Name: "g"}); !d.Again || d.Count != 1 {
		t.Fatalf("%+v", d)
	}
	r.settle(group.Ack, h[0])
	if i := r.info(); i.Dead+i.Ready+i.InFlight+i.Delayed != 0 || i.Totals.Acked != 2 {
		t.Fatalf("%+v", i)
	}
}

func TestOrderByKey(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(func(s *batch.GroupSettings) { s.OrderByKey = true })
	k := func(k string) batch.Record { return batch.Record{Key: []byte(k)} }
	r.push(k("a"), k("a"), k("b"), k("a"))
	c := r.join()
	h := r.wantOffsets(c, 0, 2)
	r.settle(group.Nack, h[0])
	r.wantOffsets(c)
	d := r.join()
	r.now += 100_000
	r.step(Time{})
	got := append(r.take(c), r.take(d)...)
	if len(got) != 1 || got[0].Offset != 0 {
		t.Fatal(got)
	}
	r.settle(group.Ack, got[0])
	got = append(r.take(c), r.take(d)...)
	if len(got) != 1 || got[0].Offset != 1 {
		t.Fatal(got)
	}
}

// A batch that is committed while the groups last looked at an earlier time is taken in whole.
func TestBatchesAreTakenInWhole(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	c := r.join()
	r.now += 1_000_000
	r.push(batch.Record{}, batch.Record{}, batch.Record{})
	r.wantOffsets(c, 0, 1, 2)
}

// What could not be written has not happened: the holder has its claim as before, and may settle it again.
func TestClaimIsThereAgainWhenItsSettlementIsCutOff(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	r.push(batch.Record{}, batch.Record{}, batch.Record{})
	c := r.join()
	h := r.wantOffsets(c, 0, 1, 2)
	for i, op := range []group.Op{group.Ack, group.Nack, group.Reject} {
		r.c.Step(r.now, &Settle{List: []*group.Settlement{{
			Group: 7, Generation: 1, Tokens: []group.Token{{Op: op, HandOut: h[i].HandOut, Offset: h[i].Offset}}, To: "settle",
		}}}, &r.eff)
		r.eff.Append = nil
		r.c.Step(r.now, WriteFailed{Err: code.New(code.StorageFull, "full")}, &r.eff)
		r.perform()
		if a := r.got["settle"]; a.Err == nil {
			t.Fatal("what was not written is not refused")
		}
	}
	if i := r.info(); i.InFlight != 3 || i.Totals.Acked+i.Totals.Attempts+i.Totals.Dead != 0 || c.Credit.(*unlimited).out != 3 {
		t.Fatalf("%+v, credit %d", i, c.Credit.(*unlimited).out)
	}
	r.wantOffsets(c)
	for i, op := range []group.Op{group.Ack, group.Nack, group.Reject} {
		if f := r.settle(op, h[i]); f != nil {
			t.Fatal(op, f)
		}
	}
	if i := r.info(); i.InFlight != 0 || i.Totals.Acked != 1 || i.Dead != 1 || i.Delayed != 1 {
		t.Fatalf("%+v", i)
	}
}

// A queue's disk is bounded by what is not settled: one stuck message is carried, and found again after a restart, by the
// groups that there are and by one that comes later.
func TestOneStuckMessageIsCarried(t *testing.T) {
	r := newGroupRig(t, Config{KeepUnsettled: true, SegmentBytes: 1 << 10})
	r.create(nil)
	c := r.join()
	for range 100 {
		r.push(batch.Record{Value: make([]byte, 200)})
	}
	h := r.take(c)
	if len(h) != 100 {
		t.Fatal(len(h))
	}
	for _, x := range h[1:] {
		r.settle(group.Ack, x)
	}
	r.push(batch.Record{})
	for range 100 {
		r.step(Tick{Segments: r.segments()})
	}
	if n := len(r.segments()); n > 4 {
		t.Fatalf("%d segments are kept for one message", n)
	}
	r.open()
	if i := r.info(); i.Next != 0 || i.Ready != 2 {
		t.Fatalf("%+v", i)
	}
	c = r.join()
	h = r.wantOffsets(c, 0, 100)
	if h[0].Sequence == 0 {
		t.Fatal("it is not said where the message was carried to")
	}
	r.command(group.Command{Op: group.Create, Name: "h", Group: 8})
	d := &group.Consumer{Credit: &unlimited{}}
	r.step(&JoinGroup{Group: "h", Consumer: d, To: d})
	r.wantOffsets(d, 0, 100)
}

// What is carried before a group has read it is not passed over: the log begins behind it by then, and reading on from there
// would leave it waiting for ever.
func TestCarriedBeforeItWasRead(t *testing.T) {
	r := newGroupRig(t, Config{KeepUnsettled: true, SegmentBytes: 1 << 10})
	r.create(nil)
	c := r.join()
	for range 100 {
		r.push(batch.Record{Value: make([]byte, 200)})
	}
	for _, x := range r.take(c)[1:] {
		r.settle(group.Ack, x)
	}
	r.push(batch.Record{})
	r.open()
	r.slow = true
	c = r.join()
	for range 100 {
		r.step(Tick{Segments: r.segments()})
	}
	if r.c.View().Start.Offset == 0 {
		t.Fatal("nothing was reclaimed")
	}
	r.slow = false
	for _, x := range r.waiting {
		ev := &GroupsScanned{group.Scanned{Scan: x, Next: x.From}}
		for _, b := range r.log {
			if b.HasOffsets() {
				ev.Batches, ev.Next = append(ev.Batches, b), b.NextOffset()
			}
		}
		r.c.Step(r.now, ev, &r.eff)
		r.perform()
	}
	r.wantOffsets(c, 0, 100)
}

// segments is what the log holds, as the host would tell it.
func (r *groupRig) segments() (list []Segment) {
	for _, b := range r.log {
		if b.IsCheckpointStart() {
			list = append(list, Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
		}
		s := &list[len(list)-1]
		s.Bytes += int64(b.Size())
		s.LastAppendTime = b.AppendTime()
	}
	return list
}

// A group whose creation could not be written hands out nothing any more, whoever has joined it meanwhile: with the one that is
// created then, under the same id, there would be two.
func TestGroupIsGoneWhenItsCreationIsCutOff(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.push(batch.Record{}, batch.Record{})
	create := &GroupCommand{group.Command{ID: [16]byte{1}, Op: group.Create, Name: "g", Group: 7, To: "create"}}
	early := &group.Consumer{Credit: &unlimited{}}
	r.c.Step(r.now, create, &r.eff)
	r.c.Step(r.now, &JoinGroup{Group: "g", Consumer: early, To: early}, &r.eff)
	r.eff.Append = nil
	r.c.Step(r.now, WriteFailed{Err: code.New(code.StorageFull, "full")}, &r.eff)
	r.perform()
	if r.got["create"].Err == nil || r.got[early].Err == nil {
		t.Fatal("what was not written is not refused")
	}
	r.take(early)
	r.step(create)
	c := r.join()
	r.push(batch.Record{})
	r.wantOffsets(early)
	r.wantOffsets(c, 0, 1, 2)
	if out := early.Credit.(*unlimited).out; out != 0 {
		t.Errorf("a consumer of what is gone has %d messages", out)
	}
}

// What is lost holds its key no more: the messages behind it would wait for ever.
func TestLostMessageFreesItsKey(t *testing.T) {
	for name, lose := range map[string]func(r *groupRig, h group.Handed){
		"claimed": func(*groupRig, group.Handed) {},
		"waiting": func(r *groupRig, h group.Handed) {
			if f := r.settle(group.Nack, h); f != nil {
				r.t.Fatal(f)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGroupRig(t, Config{})
			r.create(func(s *batch.GroupSettings) { s.OrderByKey = true })
			r.push(batch.Record{Key: []byte("k")})
			r.push(batch.Record{Key: []byte("k")})
			c := r.join()
			lose(r, r.wantOffsets(c, 0)[0])
			last := r.log[len(r.log)-1]
			for _, b := range r.log {
				if b.HasOffsets() && b.BaseOffset() == 1 {
					last = b
				}
			}
			r.step(&Trim{Offset: 1, Sequence: last.Sequence(), To: "trim"})
			if a := r.got["trim"]; a.Err != nil {
				t.Fatal(a.Err)
			}
			r.wantOffsets(c, 1)
		})
	}
}

// Many commands lock nobody out for longer than a minute: the oldest are forgotten then, and not before.
func TestManyCommands(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	id := func(n int) (id [16]byte) {
		id[0], id[14], id[15] = 77, byte(n>>8), byte(n)
		return id
	}
	for n := range group.MaxCommands - 1 {
		r.command(group.Command{ID: id(n), Op: group.Pause, Name: "g"})
	}
	more := func() *code.Error {
		r.step(&GroupCommand{group.Command{ID: id(20_000), Op: group.Resume, Name: "g", To: "more"}})
		return r.got["more"].Err
	}
	if err := more(); err == nil || err.Code != code.TooMany {
		t.Fatalf("beyond the bound: %v", err)
	}
	if d := r.command(group.Command{ID: id(0), Op: group.Pause, Name: "g"}); !d.Again {
		t.Fatal("a command was forgotten within a minute")
	}
	r.now += 61_000_000
	if err := more(); err != nil {
		t.Fatal(err)
	}
}
