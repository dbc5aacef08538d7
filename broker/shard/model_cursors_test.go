// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"margay.dev/broker/shard"
)

// doomed marks an epoch whose cursor may be gone.
const doomed = 1 << 63

// cursorModel is what must be true of cursors whatever happens.
type cursorModel struct {
	floor map[string]uint64 // where a name stood for good; nothing moves it back but deleting it
	epoch map[string]uint64 // of the newest opening that was answered
	old   map[string][]uint64
}

type cursorOp struct {
	kind, name string
	epoch      uint64
	offset     uint64
	late       bool // a newer opening was answered before this commit was sent
}

func (m *cursorModel) act(w *world) {
	if m.floor == nil {
		*m = cursorModel{floor: map[string]uint64{}, epoch: map[string]uint64{}, old: map[string][]uint64{}}
	}
	op := &cursorOp{name: fmt.Sprintf("c%d", rapid.IntRange(1, 3).Draw(w.t, "cursor"))}
	switch rapid.IntRange(0, 9).Draw(w.t, "what becomes of it") {
	case 0:
		op.kind = "delete"
		m.epoch[op.name] |= doomed // until it is opened anew, anything may be found
		m.floor[op.name] = 0
		w.step(&shard.DeleteCursor{Name: op.name, To: op})
	case 1, 2, 3:
		op.kind = "open"
		start := rapid.Uint64Range(0, w.core.View().NextOffset).Draw(w.t, "start")
		w.step(&shard.OpenCursor{Name: op.name, Start: start, Create: rapid.Bool().Draw(w.t, "create"), To: op})
	default:
		var list []shard.CursorCommit
		for range rapid.IntRange(1, 4).Draw(w.t, "commits in the round") {
			op = &cursorOp{kind: "commit", name: op.name, epoch: m.epoch[op.name] &^ doomed}
			if old := m.old[op.name]; len(old) > 0 && rapid.IntRange(0, 3).Draw(w.t, "late") == 0 {
				op.epoch = rapid.SampledFrom(old).Draw(w.t, "epoch")
			}
			op.late = op.epoch < m.epoch[op.name]&^doomed
			op.offset = rapid.Uint64Range(0, w.core.View().Ceiling).Draw(w.t, "offset")
			list = append(list, shard.CursorCommit{Name: op.name, Epoch: op.epoch, Offset: op.offset, To: op})
		}
		w.step(&shard.CommitCursors{List: list})
	}
}

func (m *cursorModel) answered(w *world, op *cursorOp, a shard.Answer) {
	if a.Err != nil {
		return
	}
	switch op.kind {
	case "open":
		if e := m.epoch[op.name] &^ doomed; a.Cursor.Epoch <= e {
			w.t.Fatalf("cursor %s was opened at epoch %d after %d", op.name, a.Cursor.Epoch, e)
		}
		if !a.Cursor.Resumed {
			m.floor[op.name] = 0
		}
		if a.Cursor.Offset < m.floor[op.name] {
			w.t.Fatalf("cursor %s was opened at %d and had been at %d", op.name, a.Cursor.Offset, m.floor[op.name])
		}
		m.old[op.name] = append(m.old[op.name], m.epoch[op.name]&^doomed)
		m.epoch[op.name] = a.Cursor.Epoch
	case "commit":
		if op.late {
			w.t.Fatalf("cursor %s: a commit of epoch %d was taken, epoch %d holds it", op.name, op.epoch, m.epoch[op.name])
		}
		for _, c := range w.core.Cursors() {
			if c.Name == op.name && c.Offset < op.offset && c.Epoch == op.epoch {
				w.t.Fatalf("cursor %s was committed at %d and stands at %d", op.name, op.offset, c.Offset)
			}
		}
	}
}

// check holds every committed cursor to where it once stood (ID-07).
func (m *cursorModel) check(w *world) {
	at := map[string]shard.Cursor{}
	for _, c := range w.core.Cursors() {
		at[c.Name] = c
	}
	for name, floor := range m.floor {
		c, ok := at[name]
		if floor > 0 && (!ok || c.Offset < floor) {
			w.t.Fatalf("cursor %s stood at %d for good; now there is %+v (%v)", name, floor, c, ok)
		}
		if ok && c.Epoch == m.epoch[name] { // of an older life otherwise: its removal is not answered yet
			m.floor[name] = max(floor, c.Offset)
		}
	}
	for name, c := range at {
		if c.Offset > w.core.View().NextOffset {
			w.t.Fatalf("cursor %s stands at %d, behind the end", name, c.Offset)
		}
	}
}

const modelGrace = time.Minute

// lastModel is what must be true of last records: each is stored once if its session was lost, and never if it was not.
type lastModel struct{ all []*lastOp }

type lastOp struct {
	id            uint64
	acked         bool // set, for good
	lost, cleared bool
}

func (m *lastModel) act(w *world) {
	if len(m.all) == 0 || rapid.Bool().Draw(w.t, "another session") {
		op := &lastOp{id: uint64(1000 + len(m.all))}
		m.all = append(m.all, op)
		w.step(&shard.SetLast{ID: op.id, Grace: modelGrace, Batch: records(w.log.t, op.id, 1, 1), To: op})
		return
	}
	op := rapid.SampledFrom(m.all).Draw(w.t, "session")
	switch {
	case op.lost || op.cleared: // it has ended
	case rapid.IntRange(0, 3).Draw(w.t, "it closes") == 0:
		op.cleared = true
		w.step(&shard.ClearLast{ID: op.id})
	default:
		op.lost = true
		w.step(shard.ConnectionLost{ID: op.id})
	}
}

// reopened tells a fresh core which sessions are there still.
func (m *lastModel) reopened(w *world) {
	for _, op := range m.all {
		if !op.lost && !op.cleared {
			w.step(shard.LastAlive{ID: op.id})
		}
	}
}

// settle lets every grace pass, and demands that each session's record is where it must be.
func (m *lastModel) settle(w *world) {
	for range 2 {
		w.now += modelGrace.Microseconds()
		if at := w.core.Next(); at > 0 && at <= w.now {
			w.step(shard.Time{})
		}
		w.flushOut()
	}
	w.check()
	stored := map[uint64]int{}
	for _, b := range w.batches {
		if !b.IsControl() {
			stored[b.ProducerID()]++
		}
	}
	for _, op := range m.all {
		switch n := stored[op.id]; {
		case n > 1:
			w.t.Fatalf("the last record of session %d is stored %d times", op.id, n)
		case op.lost && op.acked && n == 0:
			w.t.Fatalf("session %d was lost and its record is not stored", op.id)
		case !op.lost && !op.cleared && n > 0:
			w.t.Fatalf("session %d is there and its record was published", op.id)
		}
	}
}
