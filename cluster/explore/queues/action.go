// SPDX-License-Identifier: Apache-2.0

package queues

import "fmt"

// Kind is what happens.
type Kind uint8

// The kinds of actions.
const (
	doPublish Kind = iota
	doWrite
	doFlush
	doScan // what the core asked to have read is handed to it
	doJoin // n: consumer
	doAck  // n: hand, by its place among the hands that are known
	doNack
	doReject
	doExtend
	doPair       // ack and publish
	doForge      // ack hand n with the next hand-out number, or of the next message
	doLeave      // n: consumer
	doDie        // n: consumer, how: what it was sent and had begun
	doWait       // until something is due
	doCrash      // how: whether what was not flushed stays
	doWriteFails //
	doPause
	doResume
	doSeek // how: earliest, latest
	doReset
	doRedrive
	doDiscard
	doCancel     // n: message
	doReschedule // n: message
	doRoll
	doTrim
	doRelease
)

// How something happens, where there are several ways.
const (
	plainly uint8 = iota

	dieUnsent // nothing was sent to it
	dieSent   // all was, and nothing begun that it said
	dieBegun  // all was, and begun

	crashLoses
	crashKeeps

	toEarliest
	toLatest

	forgeNumber
	forgeOffset
	forgeGeneration
	forgeResets
)

// Action is one thing that happens.
type Action struct {
	Kind Kind
	N    uint8
	How  uint8
}

var kindNames = map[Kind]string{
	doPublish: "publish", doWrite: "write", doFlush: "flush", doScan: "hand over what was scanned", doJoin: "join",
	doAck: "ack", doNack: "nack", doReject: "reject", doExtend: "extend", doPair: "ack and publish", doForge: "forge", doLeave: "leave",
	doDie: "die", doWait: "wait", doCrash: "crash", doWriteFails: "the write fails", doPause: "pause", doResume: "resume",
	doSeek: "seek", doReset: "reset", doRedrive: "redrive", doDiscard: "discard", doCancel: "cancel", doReschedule: "reschedule",
	doRoll: "roll a segment", doTrim: "trim", doRelease: "release",
}

var howNames = map[uint8]string{
	dieUnsent: "nothing sent", dieSent: "all sent", dieBegun: "all begun", crashLoses: "unflushed lost", crashKeeps: "unflushed kept",
	toEarliest: "earliest", toLatest: "latest", forgeNumber: "next number", forgeOffset: "next offset",
	forgeGeneration: "next generation", forgeResets: "other resets",
}

func (a Action) String() string {
	s := kindNames[a.Kind]
	switch a.Kind {
	case doJoin, doLeave, doDie:
		s += fmt.Sprintf(" %c", 'A'+a.N)
	case doAck, doNack, doReject, doExtend, doPair, doForge, doRelease:
		s += fmt.Sprintf(" hand %d", a.N)
	case doCancel, doReschedule:
		s += fmt.Sprintf(" message %d", a.N)
	default:
	}
	if a.How != plainly {
		s += ", " + howNames[a.How]
	}
	return s
}

// Actions lists what may happen. Deeds that only matter when all is not well have to be in the setup's budget.
func (w *World) Actions(to []Action) []Action {
	if w.sent < len(w.setup.Messages) {
		to = append(to, Action{Kind: doPublish})
	}
	if len(w.unwritten) > 0 {
		to = append(to, Action{Kind: doWrite})
		if w.left[WriteFails] > 0 {
			to = append(to, Action{Kind: doWriteFails})
		}
	}
	if w.flushed < len(w.file) {
		to = append(to, Action{Kind: doFlush})
	}
	if len(w.scans) > 0 {
		to = append(to, Action{Kind: doScan})
	}
	to = w.consumerActions(to)
	to = w.handActions(to)
	if w.mayWait() {
		to = append(to, Action{Kind: doWait})
	}
	if w.left[Crash] > 0 {
		to = append(to, Action{Kind: doCrash, How: crashLoses})
		if w.flushed < len(w.file) {
			to = append(to, Action{Kind: doCrash, How: crashKeeps})
		}
	}
	if w.left[Roll] > 0 && len(w.file) > 0 {
		to = append(to, Action{Kind: doRoll})
	}
	if w.left[Trim] > 0 && w.ledger.start < w.committed() {
		to = append(to, Action{Kind: doTrim})
	}
	return w.commandActions(to)
}

func (w *World) consumerActions(to []Action) []Action {
	for i, c := range w.consumers {
		n := uint8(i)
		if c.is == nil {
			to = append(to, Action{Kind: doJoin, N: n})
			continue
		}
		if w.left[Leave] > 0 {
			to = append(to, Action{Kind: doLeave, N: n})
		}
		if w.left[Die] > 0 {
			to = append(to, Action{Kind: doDie, N: n, How: dieSent})
			if c.credit.out > 0 {
				to = append(to, Action{Kind: doDie, N: n, How: dieUnsent})
			}
			if c.credit.out > 1 {
				to = append(to, Action{Kind: doDie, N: n, How: dieBegun})
			}
		}
	}
	return to
}

func (w *World) handActions(to []Action) []Action {
	for i, h := range w.hands {
		n := uint8(i)
		if !h.live {
			if w.left[Late] > 0 {
				to = append(to, Action{Kind: doAck, N: n}, Action{Kind: doNack, N: n})
				if w.left[Extend] > 0 {
					to = append(to, Action{Kind: doExtend, N: n})
				}
				if w.left[Pair] > 0 {
					to = append(to, Action{Kind: doPair, N: n})
				}
			}
			continue
		}
		to = append(to, Action{Kind: doAck, N: n})
		for _, x := range [...]struct {
			f Fault
			k Kind
		}{{Nack, doNack}, {Reject, doReject}, {Extend, doExtend}, {Pair, doPair}, {Leave, doRelease}} {
			if w.left[x.f] > 0 {
				to = append(to, Action{Kind: x.k, N: n})
			}
		}
		if w.left[Late] > 0 {
			for how := forgeNumber; how <= forgeResets; how++ {
				to = append(to, Action{Kind: doForge, N: n, How: how})
			}
		}
	}
	return to
}

func (w *World) commandActions(to []Action) []Action {
	if w.left[Pause] > 0 && !w.ledger.paused {
		to = append(to, Action{Kind: doPause})
	}
	if w.ledger.paused {
		to = append(to, Action{Kind: doResume})
	}
	if w.left[Seek] > 0 {
		to = append(to, Action{Kind: doSeek, How: toEarliest}, Action{Kind: doSeek, How: toLatest})
	}
	if w.left[Reset] > 0 {
		to = append(to, Action{Kind: doReset})
	}
	some := w.ledger.some(dead)
	if w.left[Redrive] > 0 && some {
		to = append(to, Action{Kind: doRedrive})
	}
	if w.left[Discard] > 0 && some {
		to = append(to, Action{Kind: doDiscard})
	}
	for o := range w.ledger.messages {
		if w.left[Cancel] > 0 {
			to = append(to, Action{Kind: doCancel, N: uint8(o)})
		}
		if w.left[Reschedule] > 0 {
			to = append(to, Action{Kind: doReschedule, N: uint8(o)})
		}
	}
	return to
}

// some says whether a message has this fate.
func (l *ledger) some(f fate) bool {
	for _, m := range l.messages {
		if m.told.fate == f {
			return true
		}
	}
	return false
}
