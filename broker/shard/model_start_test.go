// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"pgregory.net/rapid"

	"margay.dev/broker/shard"
)

// trimmed is whom a trim of the model answers.
type trimmed struct{ offset uint64 }

// trimSomewhere asks for a start below, inside or beyond what is there.
func (w *world) trimSomewhere() {
	v := w.core.View()
	at := rapid.Uint64Range(0, v.NextOffset+2).Draw(w.t, "trim before")
	w.step(&shard.Trim{Offset: at, Sequence: w.sequenceOf(at), To: trimmed{at}})
}

// look is retention's look at what the log holds.
func (w *world) look() {
	if segs := w.segments(); len(segs) > 0 {
		w.step(shard.Tick{Segments: segs})
	}
}

// fill makes the disk so full that some bytes are missing.
func (w *world) fill() {
	w.step(shard.Reclaim{Segments: w.segments(), Bytes: rapid.Int64Range(1, 20<<10).Draw(w.t, "bytes missing")})
}

// checkStart holds the log's start to its promises: it never moves back, never passes what is committed, a
// trim that was answered has happened, and nothing that readers may see was dropped.
func (w *world) checkStart() {
	v := w.core.View()
	if v.Start.Offset < w.start.Offset || v.Start.Sequence < w.start.Sequence {
		w.t.Fatalf("the start moved back from %+v to %+v", w.start, v.Start)
	}
	w.start = v.Start
	if v.Start.Offset > v.Ceiling || v.Start.Sequence > v.Mark {
		w.t.Fatalf("the log begins at %+v, and committed are sequences below %d, offsets below %d", v.Start, v.Mark, v.Ceiling)
	}
	for _, a := range w.answers {
		if to, ok := a.To.(trimmed); ok && a.Err == nil && (a.Ack.BaseOffset < to.offset || a.Ack.BaseOffset > v.Start.Offset) {
			w.t.Fatalf("a trim before %d was answered with start %d, and it is %d", to.offset, a.Ack.BaseOffset, v.Start.Offset)
		}
	}
	for _, m := range w.moves {
		if m.To.Offset < m.From.Offset || m.To.Sequence < m.From.Sequence {
			w.t.Fatalf("move %+v", m)
		}
	}
	for _, below := range w.drops {
		if below > v.Start.Sequence {
			w.t.Fatalf("what is below %d was dropped, and the log begins at %+v", below, v.Start)
		}
	}
	for _, b := range w.batches { // the start's sequence is that of the batch which holds its offset, or before it
		if !b.IsControl() && b.NextOffset() > v.Start.Offset && b.Sequence() < v.Start.Sequence {
			w.t.Fatalf("record %d is kept and lies in batch %d, below the start %+v", v.Start.Offset, b.Sequence(), v.Start)
		}
	}
}
