// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"margay.dev/broker/group"
	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
)

var errNone = errors.New("there is no such action")

// Apply lets an action happen.
func (w *World) Apply(a Action) error {
	if w.base != nil {
		w.since = append(slices.Clip(w.since), a)
	}
	if err := w.apply(a); err != nil {
		return err
	}
	w.forget()
	return nil
}

func (w *World) apply(a Action) error {
	switch a.Kind {
	case doPublish:
		return w.publish()
	case doWrite:
		return w.write()
	case doFlush:
		return w.flush()
	case doScan:
		return w.scan()
	case doJoin:
		return w.join(int(a.N))
	case doLeave:
		w.left[Leave]--
		return w.leave(int(a.N))
	case doDie:
		w.left[Die]--
		return w.die(int(a.N), a.How)
	case doWait:
		return w.wait()
	case doCrash:
		w.left[Crash]--
		return w.crash(a.How == crashKeeps)
	case doWriteFails:
		w.left[WriteFails]--
		return w.writeFails()
	case doRoll:
		w.left[Roll]--
		return w.roll()
	case doTrim:
		w.left[Trim]--
		return w.trim()
	case doAck, doNack, doReject, doExtend, doPair, doForge, doRelease:
		return w.handAction(a)
	default:
		return w.command(a)
	}
}

// forget drops what nobody can use any more, so that worlds that differ by it are one.
func (w *World) forget() {
	if w.left[Late] > 0 {
		return
	}
	rest := make([]hand, 0, len(w.hands))
	for _, h := range w.hands {
		if h.live || h.generation == w.cfg.Generation && h.endedAt > uint64(w.flushed) {
			rest = append(rest, h)
		}
	}
	w.hands = rest
}

func (w *World) join(i int) error {
	c := w.consumers[i]
	c.is = &group.Consumer{Name: c.name, Concurrency: 1, Credit: c.credit}
	return w.step(&shard.JoinGroup{Group: groupName, Consumer: c.is, To: w.ask(asked{what: doJoin})}, permits{})
}

func (w *World) leave(i int) error {
	c := w.consumers[i]
	is := c.is
	for j := range w.hands {
		if h := &w.hands[j]; h.live && int(h.to) == i {
			w.ended(h)
		}
	}
	c.is = nil
	return w.step(&shard.LeaveGroup{Consumer: is, Orderly: true, To: w.ask(asked{what: doLeave})}, permits{})
}

// die loses a consumer's connection. Counted are the attempts that it may have been at: those that it said it had begun, and
// besides as many as it works on at a time, of those that were sent to it.
func (w *World) die(i int, how uint8) error {
	c := w.consumers[i]
	is := c.is
	var delivered, begun uint64
	if how != dieUnsent {
		delivered = w.highest
	}
	if how == dieBegun {
		begun = w.highest
	}
	may := permits{}
	working := 0
	for j := range w.hands {
		h := &w.hands[j]
		if !h.live || int(h.to) != i {
			continue
		}
		w.ended(h)
		if h.handOut <= delivered && (h.handOut <= begun || working < is.Concurrency) {
			working++
			may.ends = append(may.ends, ending{offset: h.offset, attempt: h.attempt})
			h.entry = true
		}
	}
	c.is = nil
	return w.step(&shard.LeaveGroup{Consumer: is, Delivered: delivered, Begun: begun, To: w.ask(asked{what: doDie})}, may)
}

// ended ends a claim. Whether that is committed is known by how long the log is then.
func (w *World) ended(h *hand) { h.live, h.entry, h.returns, h.endedAt = false, false, false, justNow }

// justNow stands for the end of the step under way.
const justNow = math.MaxUint64

// due is the next time at which something may happen, and what it costs to let it come.
func (w *World) due() (at int64, needs Budget) {
	at = math.MaxInt64
	see := func(t int64, f Fault) {
		switch {
		case t <= w.now || t > at:
		case t < at:
			at, needs = t, Budget{}
			fallthrough
		default:
			if f < faults {
				needs[f] = 1
			}
		}
	}
	for _, h := range w.hands {
		if h.live {
			see(h.deadline, Timeout)
		}
	}
	for _, m := range w.ledger.messages {
		if m.told.fate == outstanding {
			see(m.dueAt(), faults)
			see(m.expiresAt(), Expire)
		}
	}
	return at, needs
}

func (w *World) mayWait() bool {
	at, needs := w.due()
	if at == math.MaxInt64 {
		return false
	}
	for f, n := range needs {
		if w.left[f] < n {
			return false
		}
	}
	return true
}

func (w *World) wait() error {
	at, needs := w.due()
	if at == math.MaxInt64 {
		return errNone
	}
	for f, n := range needs {
		w.left[f] -= n
	}
	return w.until(at)
}

// until lets time pass, and the core has its say whenever it wanted to: that it wants to in time is for it to see to.
func (w *World) until(at int64) error {
	for n := 0; ; n++ {
		wake := w.core.Next()
		if wake == 0 || wake > at {
			break
		}
		if n > 100 {
			return fmt.Errorf("the core wants to be stepped again and again, at %d", wake)
		}
		w.now = max(w.now, wake)
		if err := w.once(shard.Time{}, permits{ends: w.timedOut()}); err != nil {
			return err
		}
	}
	w.now = at
	return nil
}

// timedOut are the claims that have ended by now.
func (w *World) timedOut() (ends []ending) {
	for i := range w.hands {
		if h := &w.hands[i]; h.live && h.deadline <= w.now {
			ends = append(ends, ending{offset: h.offset, attempt: h.attempt, due: w.now})
			w.ended(h)
			h.entry, h.returns = true, true
		}
	}
	return ends
}

// trim gives up the first message of the log.
func (w *World) trim() error {
	offset := w.ledger.start + 1
	sequence := uint64(len(w.file))
	if offset < uint64(len(w.ledger.messages)) {
		sequence = w.ledger.messages[offset].sequence
	}
	for i := range w.hands {
		if h := &w.hands[i]; h.live && h.offset < offset {
			w.ended(h)
		}
	}
	return w.step(&shard.Trim{Offset: offset, Sequence: sequence, To: w.ask(asked{what: doTrim})}, permits{below: offset})
}

func (w *World) handAction(a Action) error {
	h := &w.hands[a.N]
	t := group.Token{HandOut: h.handOut, Offset: h.offset}
	x := group.Settlement{Group: groupID, Resets: h.resets, Generation: h.generation}
	live := h.live
	if !live {
		w.left[Late]--
	}
	switch a.Kind {
	case doExtend:
		return w.extend(h, x, t)
	case doPair:
		w.left[Pair]--
		return w.pair(h)
	case doForge:
		return w.forge(a.How, x, t)
	default:
	}
	may := permits{}
	asks := asked{what: a.Kind}
	switch a.Kind {
	case doAck:
		t.Op = group.Ack
		if !live && !w.stillTakes(h) {
			asks.fails = true
			break
		}
		may.acks = []uint64{h.offset}
	case doNack, doReject:
		t.Op, t.After, t.Reason = group.Nack, 0, "no"
		if a.Kind == doReject {
			t.Op = group.Reject
		}
		if asks.fails = !live; live {
			w.left[map[Kind]Fault{doNack: Nack, doReject: Reject}[a.Kind]]--
			due := w.now + w.backoff(h.attempt)
			may.ends = []ending{{offset: h.offset, attempt: h.attempt, reject: a.Kind == doReject, due: due}}
		}
	default: // release
		t.Op = group.Release
		if asks.fails = !live; live {
			w.left[Leave]--
		}
	}
	if !asks.fails {
		w.ended(h)
		h.entry = a.Kind != doRelease
		h.returns = h.entry
	}
	x.Tokens = []group.Token{t}
	return w.settle(x, asks, may)
}

// stillTakes says whether an ack counts though its claim has ended: it is of an earlier generation, and nobody else was handed
// the message in this one.
func (w *World) stillTakes(h *hand) bool {
	if h.generation == w.cfg.Generation || h.resets != w.ledger.resets || w.ledger.messages[h.offset].told.fate != outstanding {
		return false
	}
	for _, x := range w.hands {
		if x.offset == h.offset && x.generation == w.cfg.Generation {
			return false
		}
	}
	return true
}

func (w *World) backoff(attempts uint32) int64 {
	b := w.setup.Settings.Backoff
	if len(b) == 0 {
		return 0
	}
	return int64(b[min(int(attempts), len(b))-1])
}

func (w *World) settle(x group.Settlement, asks asked, may permits) error {
	x.To = w.ask(asks)
	return w.step(&shard.Settle{List: []*group.Settlement{&x}}, may)
}

// forge uses a token that was never given.
func (w *World) forge(how uint8, x group.Settlement, t group.Token) error {
	w.left[Late]--
	t.Op = group.Ack
	switch how {
	case forgeNumber:
		t.HandOut++
	case forgeOffset:
		t.Offset++
	case forgeGeneration:
		x.Generation++
	case forgeResets:
		x.Resets++
	}
	x.Tokens = []group.Token{t}
	return w.settle(x, asked{what: doForge, fails: true}, permits{})
}

func (w *World) extend(h *hand, x group.Settlement, t group.Token) error {
	w.left[Extend]--
	asks := asked{what: doExtend, fails: !h.live}
	if h.live {
		h.deadline = w.now + 2*int64(w.setup.Settings.AckWait)
	}
	return w.step(&shard.ExtendClaims{
		Extension: group.Extension{
			Group: x.Group, Resets: x.Resets, Generation: x.Generation, For: 2 * int64(w.setup.Settings.AckWait), Tokens: []group.Token{t},
		},
		To: w.ask(asks),
	}, permits{})
}

// pair acknowledges a message in the batch that it publishes.
func (w *World) pair(h *hand) error {
	b, err := w.next(&batch.Settlement{
		Group: groupID, Resets: h.resets, Generation: h.generation, Tokens: []batch.SettledToken{{HandOut: h.handOut, Offset: h.offset}},
	})
	if err != nil {
		return err
	}
	may := permits{records: h.live}
	if h.live {
		may.acks = []uint64{h.offset}
		w.sent++
	}
	asks := asked{what: doPair, fails: !h.live}
	if h.live {
		w.ended(h)
		h.entry, h.returns = true, true
	}
	return w.step(&shard.Publish{Batch: b, To: w.ask(asks)}, may)
}
