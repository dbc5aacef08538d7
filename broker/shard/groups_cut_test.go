// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"

	"margay.dev/broker/group"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// What exhaustive search found (cluster/explore/queues), each as the shortest way that led there.

// few is the credit of a consumer that may have so much.
type few struct{ most, out int }

func (f *few) Take(n int) int {
	n = max(min(n, f.most-f.out), 0)
	f.out += n
	return n
}

func (f *few) Give(n int) { f.out -= n }

func (r *groupRig) joinFew(most int) *group.Consumer {
	r.t.Helper()
	c := &group.Consumer{Credit: &few{most: most}, Concurrency: 1}
	r.step(&JoinGroup{Group: "g", Consumer: c, To: c})
	if a := r.got[c]; a.Err != nil {
		r.t.Fatal(a.Err)
	}
	return c
}

// fail takes what was stepped and not written for what cannot be written.
func (r *groupRig) fail() {
	r.eff.Append = nil
	r.c.Step(r.now, WriteFailed{Err: code.New(code.StorageFull, "full")}, &r.eff)
	r.perform()
}

// written has what was stepped be in the file, and not flushed.
func (r *groupRig) written() {
	r.log = append(r.log, r.eff.Append...)
	r.eff.Append = nil
	r.c.Step(r.now, Written{Length: r.log[len(r.log)-1].Sequence() + 1}, &r.eff)
}

func (r *groupRig) settling(op group.Op, resets uint32, h group.Handed) *Settle {
	return &Settle{List: []*group.Settlement{{
		Group: 7, Generation: r.cfg.Generation, Resets: resets, To: "settle",
		Tokens: []group.Token{{Op: op, HandOut: h.HandOut, Offset: h.Offset, After: 1_000_000}},
	}}}
}

func (r *groupRig) trim(offset uint64) *Trim {
	ev := &Trim{Offset: offset, Sequence: r.log[len(r.log)-1].Sequence(), To: "trim"}
	for _, b := range r.log {
		if b.HasOffsets() && b.BaseOffset() <= offset && offset < b.NextOffset() {
			ev.Sequence = b.Sequence()
		}
	}
	return ev
}

func keyed(k string) batch.Record { return batch.Record{Key: []byte(k)} }

func ordered(s *batch.GroupSettings) { s.OrderByKey = true }

// The key of a message that the log gave up while it was out, or waited for its next attempt, is free.
func TestKeyOfWhatIsLostIsFree(t *testing.T) {
	for _, retry := range []bool{false, true} {
		r := newGroupRig(t, Config{})
		r.create(ordered)
		r.push(keyed("k"), keyed("k"))
		c := r.join()
		h := r.wantOffsets(c, 0)
		if retry {
			r.step(r.settling(group.Nack, 0, h[0]))
		}
		r.step(r.trim(1))
		r.wantOffsets(c, 1)
	}
}

// QU-19: what is lost is not counted as delayed, too.
func TestWhatIsLostIsNotDelayed(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	r.push(batch.Record{Delay: 1_000_000_000}, batch.Record{})
	c := r.join()
	r.wantOffsets(c, 1)
	if i := r.info(); i.Delayed != 1 || i.Ready != 0 {
		t.Fatalf("%+v", i)
	}
	r.step(r.trim(1))
	if i := r.info(); i.Delayed != 0 || i.InFlight != 1 || i.Totals.Lost != 1 {
		t.Fatalf("%+v", i)
	}
}

// The append time that is remembered of a message is the record's, whatever it has waited for.
func TestDelayDoesNotChangeTheAppendTime(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	at := r.now
	r.push(batch.Record{Delay: 1_000_000_000})
	c := r.join()
	for _, op := range []group.Op{group.Nack, group.Reject} {
		r.now += 2_000_000
		r.step(Time{})
		r.step(r.settling(op, 0, r.wantOffsets(c, 0)[0]))
	}
	var dead []batch.Dead
	r.step(&Inspect{Look: func(v *group.View) { dead = v.Dead("g", 0, 10) }})
	if len(dead) != 1 || dead[0].AppendTime != at {
		t.Fatalf("%+v, and it was appended at %d", dead, at)
	}
}

// What a group hands out that is to begin again, and does not, nobody gets: it could not be settled.
func TestClaimsOfAResetThatIsCutOff(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	r.push(batch.Record{})
	c := r.joinFew(1)
	r.wantOffsets(c, 0)
	r.c.Step(r.now, &GroupCommand{group.Command{ID: [16]byte{99}, Op: group.Reset, Name: "g", To: "reset"}}, &r.eff)
	scans := r.eff.Scans
	r.eff.Scans = nil
	for _, x := range scans {
		r.c.Step(r.now, &GroupsScanned{group.Scanned{Scan: x, Batches: r.log[len(r.log)-1:], Next: 1}}, &r.eff)
	}
	if len(r.eff.Hands) != 1 || r.eff.Hands[0].Resets != 1 {
		t.Fatalf("handed %+v", r.eff.Hands)
	}
	r.fail()
	if f := r.settle(group.Ack, r.wantOffsets(c, 0)[0]); f != nil {
		t.Fatal(f)
	}
	if out := c.Credit.(*few).out; out != 0 {
		t.Fatalf("%d are still out", out)
	}
}

// A group that begins anew, or for the first time, while the log gives up its head does not wait for that.
func TestBeginningBehindWhatIsGivenUp(t *testing.T) {
	for _, op := range []group.CommandOp{group.Reset, group.Create} {
		r := newGroupRig(t, Config{})
		if op == group.Reset {
			r.create(nil)
		}
		r.push(batch.Record{}, batch.Record{})
		settings := batch.DefaultGroupSettings()
		r.c.Step(r.now, r.trim(1), &r.eff)
		r.c.Step(r.now, &GroupCommand{group.Command{ID: [16]byte{99}, Op: op, Name: "g", Group: 7, Settings: &settings}}, &r.eff)
		r.perform()
		if i := r.info(); i.Ready != 1 || i.Next != 1 {
			t.Errorf("%v: %+v", op, i)
		}
		r.wantOffsets(r.join(), 1)
	}
}

// A key is not free before the settlement is committed, also when a seek came between and could not be written.
func TestKeyIsHeldAfterASeekThatIsCutOff(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(ordered)
	r.push(keyed("k"), keyed("k"))
	c := r.join()
	h := r.wantOffsets(c, 0)
	r.c.Step(r.now, r.settling(group.Ack, 0, h[0]), &r.eff)
	r.written()
	r.c.Step(r.now, &GroupCommand{group.Command{ID: [16]byte{99}, Op: group.Seek, Name: "g", Cursor: group.CursorEnd}}, &r.eff)
	r.eff.Append, r.eff.Scans = nil, nil
	r.c.Step(r.now, WriteFailed{Err: code.New(code.StorageFull, "full")}, &r.eff)
	for _, x := range r.eff.Scans {
		r.c.Step(r.now, &GroupsScanned{group.Scanned{Scan: x, Batches: r.log, Next: 2}}, &r.eff)
	}
	r.eff.Scans = nil
	if len(r.eff.Hands) != 0 {
		t.Fatalf("handed %+v before the ack is committed", r.eff.Hands)
	}
	r.perform()
	r.wantOffsets(c, 1)
}

// S8: a claim whose end is cut off is there again, and what was handed out because of that end nobody has got.
func TestOneHolderAfterATimeoutThatIsCutOff(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	a, b := r.joinFew(1), r.joinFew(1)
	r.push(batch.Record{})
	if len(r.hands[a]) == 0 {
		a, b = b, a
	}
	h := r.wantOffsets(a, 0)
	r.now += 30_000_000
	r.c.Step(r.now, Time{}, &r.eff) // the claim ends, and the message is b's
	r.fail()
	if a.Credit.(*few).out != 1 || b.Credit.(*few).out != 0 {
		t.Fatalf("%+v has it, and %+v", a.Credit, b.Credit)
	}
	r.wantOffsets(b)
	r.step(Time{}) // it ends again
	if got := append(r.take(a), r.take(b)...); len(got) != 1 || got[0].Attempt != 2 || a.Credit.(*few).out+b.Credit.(*few).out != 1 {
		t.Fatalf("%+v is handed out; %+v has it, and %+v", got, a.Credit, b.Credit)
	}
	if f := r.settle(group.Ack, h[0]); len(f) != 1 {
		t.Fatal("the first holder can still settle it")
	}
}

// An ack of an earlier generation that could not be written counts when it comes again.
func TestEarlierAckThatIsCutOff(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	r.push(batch.Record{})
	ack := r.settling(group.Ack, 0, r.wantOffsets(r.join(), 0)[0])
	r.open()
	r.c.Step(r.now, ack, &r.eff)
	r.fail()
	if a := r.got["settle"]; a.Err == nil {
		t.Fatalf("what was not written is not refused: %+v", a)
	}
	r.step(ack)
	if a := r.got["settle"]; a.Err != nil || a.Failed != nil {
		t.Fatalf("%+v", a)
	}
}

// The message of a claim whose entry was cut off is handed out again when it is given back, and with the attempt that the log
// knows of.
func TestWhatWasParkedByWhatIsCutOff(t *testing.T) {
	r := newGroupRig(t, Config{})
	r.create(nil)
	a, b := r.joinFew(1), r.joinFew(1)
	r.push(batch.Record{})
	if len(r.hands[a]) == 0 {
		a, b = b, a
	}
	r.c.Step(r.now, &LeaveGroup{Consumer: a, Delivered: 1}, &r.eff) // its attempt ends, and the message is b's
	r.fail()
	if h := r.wantOffsets(b, 0); h[0].Attempt != 1 { // that it was tried is not in the log
		t.Fatalf("%+v", h)
	}
	r.step(&LeaveGroup{Consumer: b, Orderly: true})
	if h := r.wantOffsets(r.join(), 0); h[0].Attempt != 1 {
		t.Fatalf("%+v", h)
	}
}
