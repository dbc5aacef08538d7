// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"fmt"
	"slices"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// step lets the core take an event, and holds what follows to the rules. A timer that is due then comes before all else.
func (w *World) step(ev shard.Event, may permits) error {
	if err := w.once(ev, may); err != nil {
		return err
	}
	return w.until(w.now)
}

// once is a step of the core. What it appends is not written yet.
func (w *World) once(ev shard.Event, may permits) error {
	before := len(w.eff.Append)
	w.core.Step(w.now, ev, &w.eff)
	appended := w.eff.Append[before:]
	err := w.effects(may, appended)
	w.eff.Reset()
	return err
}

// effects are held to the rules in the order in which they count: what is appended, who was handed what, who is answered.
func (w *World) effects(may permits, appended []batch.Batch) error {
	rests := may.some()
	for _, b := range appended {
		if err := w.permitted(&may, b); err != nil {
			return err
		}
		if err := w.ledger.take(b); err != nil {
			return err
		}
	}
	w.unwritten = append(w.unwritten, appended...)
	if err := may.missing(); err != nil {
		return err
	}
	w.behind(rests)
	for _, h := range w.eff.Hands {
		if err := w.take(h); err != nil {
			return err
		}
	}
	if !may.cut { // the core has gone on since
		if err := w.credits(); err != nil {
			return err
		}
	}
	w.scans = append(w.scans, w.eff.Scans...)
	for _, a := range w.eff.Answers {
		if err := w.answered(a, may.cut); err != nil {
			return err
		}
	}
	for _, c := range w.eff.Committed {
		if c.Batch.Sequence() >= uint64(w.flushed) {
			return fmt.Errorf("batch %d is shown as committed, and %d are flushed (S4)", c.Batch.Sequence(), w.flushed)
		}
	}
	return nil
}

// behind notes what this step's request rests on, and what ended with it: all that is appended by now.
func (w *World) behind(rests bool) {
	length := uint64(len(w.file) + len(w.unwritten))
	for i := range w.asked {
		if x := &w.asked[i]; x.fresh {
			x.fresh = false
			if rests {
				x.behind = length
			}
		}
	}
	for i := range w.hands {
		if h := &w.hands[i]; h.endedAt == justNow {
			h.endedAt = length
		}
	}
}

func (w *World) publish() error {
	b, err := w.next(nil)
	if err != nil {
		return err
	}
	w.sent++
	return w.step(&shard.Publish{Batch: b, To: w.ask(asked{what: doPublish})}, permits{records: true})
}

// next is the batch of the message that is published next.
func (w *World) next(settles *batch.Settlement) (batch.Batch, error) {
	m := w.setup.Messages[w.sent%len(w.setup.Messages)]
	bl := batch.NewBuilder(batch.Limits{})
	if settles != nil {
		if err := bl.SetSettlement(*settles); err != nil {
			return nil, err
		}
	}
	r := batch.Record{
		Value: []byte{'m', byte('0' + w.sent)}, Timestamp: 1, Priority: m.Priority,
		Delay: time.Duration(m.Delay) * time.Microsecond, TTL: time.Duration(m.TTL) * time.Microsecond,
	}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	if err := bl.Add(r); err != nil {
		return nil, err
	}
	return bl.Build(0, 0, batch.None)
}

func (w *World) write() error {
	w.file = append(w.file, w.unwritten...)
	w.unwritten = nil
	return w.step(shard.Written{Length: uint64(len(w.file))}, permits{})
}

func (w *World) flush() error {
	w.flushed = len(w.file)
	return w.step(shard.Flushed{Length: uint64(w.flushed)}, permits{})
}

// writeFails takes back what was not written.
func (w *World) writeFails() error {
	w.unwritten = nil
	if err := w.reread(); err != nil {
		return err
	}
	for i := range w.hands { // what was handed out by what never happened is nobody's
		h := &w.hands[i]
		if h.resets != w.ledger.resets || h.moved >= uint64(len(w.file)) || w.ledger.messages[h.offset].told.fate != outstanding {
			h.live, h.returns = false, false
		}
	}
	w.core.Step(w.now, shard.WriteFailed{Err: code.New(code.StorageFull, "full")}, &w.eff)
	var next shard.Effects
	w.core.Step(w.now, &shard.Inspect{Look: w.restored}, &next)
	if err := w.effects(permits{cut: true}, w.eff.Append); err != nil {
		return err
	}
	w.eff = next
	if err := w.effects(permits{ends: w.timedOut()}, w.eff.Append); err != nil {
		return err
	}
	w.eff.Reset()
	return w.until(w.now)
}

// restored learns which claims are there again because what ended them was cut off: as many as their consumers, should those
// be there, have credit for. A message that was handed to somebody else meanwhile is his.
func (w *World) restored(v *group.View) {
	for i := range w.hands {
		h := &w.hands[i]
		if h.live || h.endedAt <= uint64(len(w.file)) {
			continue
		}
		s, _ := v.StateOf(groupName, h.offset)
		handed := slices.ContainsFunc(w.eff.Hands, func(x group.Hand) bool {
			return slices.ContainsFunc(x.Items, func(it group.Handed) bool { return it.Offset == h.offset })
		})
		h.live = h.returns && s.State == group.StateInFlight && s.Deadline == h.deadline && !handed && w.holder(h.offset) == nil
		h.endedAt = 0
	}
}

// reread makes the ledger say what the log says after something was cut off.
func (w *World) reread() (err error) {
	w.ledger, err = ledgerOf(w.file)
	return err
}

// crash ends the core, and opens what is left of the log at the next generation: the newest segment is read, and no other.
func (w *World) crash(keeps bool) error {
	if !keeps {
		w.file = slices.Clip(w.file[:w.flushed])
	}
	w.flushed, w.unwritten, w.scans, w.asked = len(w.file), nil, nil, nil
	if err := w.reread(); err != nil {
		return err
	}
	for _, c := range w.consumers {
		c.is, c.credit = nil, &credit{most: w.setup.Credit}
	}
	for i := range w.hands {
		h := &w.hands[i]
		h.live, h.entry, h.returns, h.endedAt = false, false, false, 0
	}
	w.highest = 0
	w.cfg.Generation++
	w.core = shard.New(w.cfg)
	from := 0
	for i, b := range w.file {
		if b.IsCheckpointStart() {
			from = i
		}
	}
	for _, b := range w.file[from:] {
		if err := w.core.Replay(b); err != nil {
			return fmt.Errorf("a log is not read that was written: %w", err)
		}
	}
	if n := len(w.file); n > 0 {
		w.core.Recovered(uint64(n), w.file[n-1].NextOffset(), false)
	}
	return w.step(shard.Time{}, permits{ends: w.timedOut()})
}

// roll begins a segment.
func (w *World) roll() error {
	var segments []shard.Segment
	for _, b := range w.file {
		if b.IsCheckpointStart() {
			segments = append(segments, shard.Segment{BaseSequence: b.Sequence(), BaseOffset: b.BaseOffset()})
		}
		last := &segments[len(segments)-1]
		last.Bytes += int64(b.Size())
		last.LastAppendTime = b.AppendTime()
	}
	return w.step(shard.Tick{Segments: segments}, permits{})
}

// scan hands over what the core asked to have read: all that is committed now.
func (w *World) scan() error {
	s := w.scans[0]
	w.scans = slices.Clone(w.scans[1:])
	x := group.Scanned{Scan: s, Next: s.From}
	for _, b := range w.file[:w.flushed] {
		if b.HasOffsets() && b.NextOffset() > s.From {
			x.Batches = append(x.Batches, b)
			x.Next = b.NextOffset()
		}
	}
	return w.step(&shard.GroupsScanned{Scanned: x}, permits{})
}

// ask notes a request, and returns its id: the lowest that is free, so that worlds differ by what is asked only.
func (w *World) ask(a asked) int {
	a.fresh = true
	a.id = 1
	for slices.ContainsFunc(w.asked, func(x asked) bool { return x.id == a.id }) {
		a.id++
	}
	w.asked = append(w.asked, a)
	return a.id
}
