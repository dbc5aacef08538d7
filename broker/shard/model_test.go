// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// world drives a core through anything that may happen to it, and keeps by itself what must then be true.
type world struct {
	*log
	t *rapid.T

	durable int                 // batches that a power cut leaves
	next    map[uint64]uint64   // producer: its next sequence
	last    map[uint64]uint64   // producer: the last sequence it stands by
	sent    map[uint64][]uint64 // producer: sequences sent so far
	redo    map[uint64][]uint64 // producer: sequences that were refused, to be sent again
	acked   map[string]uint64   // "producer/sequence" to base offset
	shown   []uint64            // offsets that readers saw
	cursors cursorModel
	lasts   lastModel
	start   shard.LogStart // as last seen
}

func (w *world) publishNew() {
	p := uint64(rapid.IntRange(1, 3).Draw(w.t, "producer"))
	if r := w.redo[p]; len(r) > 0 {
		w.redo[p] = r[1:]
		w.send(p, r[0], w.last[p])
		w.last[p] = r[0]
		w.sent[p] = append(w.sent[p], r[0])
		return
	}
	w.next[p]++
	if rapid.IntRange(0, 9).Draw(w.t, "given up before it was sent") == 0 {
		w.next[p]++ // its successor leaves it out
	}
	seq := w.next[p]
	w.send(p, seq, w.last[p])
	w.last[p] = seq
	w.sent[p] = append(w.sent[p], seq)
}

// burst fills a segment, so that what a checkpoint holds is what a restart finds.
func (w *world) burst() {
	for range 40 {
		w.publishNew()
		w.write()
	}
	w.flushOut()
}

func (w *world) publishAgain() {
	p := uint64(rapid.IntRange(1, 3).Draw(w.t, "producer"))
	if len(w.sent[p]) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.sent[p])-1).Draw(w.t, "which")
	var previous uint64
	if i > 0 {
		previous = w.sent[p][i-1]
	}
	w.send(p, w.sent[p][i], previous)
}

func (w *world) send(p, seq, previous uint64) {
	n := rapid.IntRange(1, 4).Draw(w.t, "records")
	w.step(&shard.Publish{Batch: records(w.log.t, p, seq, n), Previous: previous, To: fmt.Sprintf("%d/%d", p, seq)})
}

func (w *world) writeOut() { w.write() }

func (w *world) flushOut() {
	w.flush()
	w.durable = len(w.batches)
}

func (w *world) failWrite() {
	if len(w.eff.Append) == 0 {
		return
	}
	w.eff.Append = w.eff.Append[:0]
	w.step(shard.WriteFailed{Err: code.New(code.StorageFull, "full")})
	w.collect()
	w.forgetUnacked()
}

// cutPower loses a part of what was not flushed, and opens the rest at the next generation.
func (w *world) cutPower() {
	w.eff.Reset()
	keep := rapid.IntRange(w.durable, len(w.batches)).Draw(w.t, "batches that reached the disk")
	for keep < len(w.batches) && keep > 0 && w.batches[keep-1].IsCheckpoint() && !w.lastPart(w.batches[keep-1]) {
		keep-- // storage drops a checkpoint that is not whole
	}
	w.batches = w.batches[:keep]
	w.durable = keep
	w.reopen()
	w.forgetUnacked()
	w.lasts.reopened(w)
}

func (w *world) lastPart(b batch.Batch) bool {
	entries, err := b.Entries()
	if err != nil {
		w.t.Fatal(err)
	}
	part, ok := entries[0].(batch.CheckpointPart)
	return !ok || part.Last()
}

// forgetUnacked is what clients do after a failure: they go on from what was stored, as the answers say, and
// send again what was not, under the same sequences.
func (w *world) forgetUnacked() {
	for p := range w.sent {
		var kept, lost []uint64
		for _, seq := range w.sent[p] {
			if w.has(p, seq) {
				kept = append(kept, seq)
			} else {
				lost = append(lost, seq)
			}
		}
		w.sent[p] = kept
		w.redo[p] = append(lost, w.redo[p]...)
		w.last[p] = 0
		if len(kept) > 0 {
			w.last[p] = kept[len(kept)-1]
		}
	}
}

func (w *world) has(p, seq uint64) bool {
	for _, b := range w.batches {
		if b.ProducerID() == p && b.ProducerSequence() == seq {
			return true
		}
	}
	return false
}

// check holds the log to its promises after every step.
func (w *world) check() {
	w.checkStart()
	var offset uint64
	stored := map[string]uint64{}
	for i, b := range w.batches {
		if b.Sequence() != uint64(i) || b.BaseOffset() != offset {
			w.t.Fatalf("batch %d has sequence %d and base offset %d, want offset %d", i, b.Sequence(), b.BaseOffset(), offset)
		}
		offset = b.NextOffset()
		if b.IsControl() {
			continue
		}
		id := fmt.Sprintf("%d/%d", b.ProducerID(), b.ProducerSequence())
		if _, twice := stored[id]; twice {
			w.t.Fatalf("%s is stored twice (S7)", id)
		}
		stored[id] = b.BaseOffset()
	}
	for _, a := range w.answers {
		switch to := a.To.(type) {
		case *cursorOp:
			w.cursors.answered(w, to, a)
			continue
		case *lastOp:
			to.acked = to.acked || a.Err == nil
			continue
		case trimmed: // checkStart has looked
			continue
		case nil: // a last record's batch: nobody has asked
			continue
		}
		if a.Err != nil {
			continue
		}
		id := a.To.(string)
		if was, seen := w.acked[id]; seen && was != a.Ack.BaseOffset {
			w.t.Fatalf("%s was acknowledged at %d and at %d", id, was, a.Ack.BaseOffset)
		}
		w.acked[id] = a.Ack.BaseOffset
	}
	w.answers = nil
	for id, at := range w.acked {
		if got, ok := stored[id]; !ok || got != at {
			w.t.Fatalf("%s was acknowledged at %d; the log has it: %v, at %d (S2)", id, at, ok, got)
		}
	}
	w.shown = append(w.shown, w.seen...)
	w.seen = nil
	byOffset := map[uint64]bool{}
	for _, at := range stored {
		byOffset[at] = true
	}
	for _, at := range w.shown {
		if !byOffset[at] {
			w.t.Fatalf("a reader saw offset %d, which is lost (S4)", at)
		}
	}
	w.cursors.check(w)
}

// Whatever happens in whatever order: acknowledged batches stay where they were said to be, retries are
// stored once, no reader sees what is lost, sequences and offsets have no gap.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{
			log: newLog(t, shard.Config{SegmentBytes: 4 << 10, MaxBytes: 40 << 10, DropOldest: true}), t: rt,
			next: map[uint64]uint64{}, last: map[uint64]uint64{}, sent: map[uint64][]uint64{}, redo: map[uint64][]uint64{}, acked: map[string]uint64{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish":     func(*rapid.T) { w.publishNew() },
			"burst":       func(*rapid.T) { w.burst() },
			"more":        func(*rapid.T) { w.publishNew() },
			"again":       func(*rapid.T) { w.publishAgain() },
			"write":       func(*rapid.T) { w.writeOut() },
			"flush":       func(*rapid.T) { w.flushOut() },
			"write fails": func(*rapid.T) { w.failWrite() },
			"trim":        func(*rapid.T) { w.trimSomewhere() },
			"retain":      func(*rapid.T) { w.look() },
			"disk full":   func(*rapid.T) { w.fill() },
			"power cut":   func(*rapid.T) { w.cutPower() },
			"cursor":      func(*rapid.T) { w.cursors.act(w) },
			"last record": func(*rapid.T) { w.lasts.act(w) },
			"settle":      func(*rapid.T) { w.lasts.settle(w) },
			"":            func(*rapid.T) { w.check() },
		})
	})
}
