// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"margay.dev/broker/group"
	"margay.dev/broker/shard"
)

// command has a group told something.
func (w *World) command(a Action) error {
	c := group.Command{ID: [16]byte{byte(a.Kind), byte(w.ledger.commands), byte(w.cfg.Generation)}, Name: groupName}
	may := permits{command: a.Kind, offset: uint64(a.N)}
	fails := false
	switch a.Kind {
	case doPause:
		c.Op = group.Pause
		w.left[Pause]--
	case doResume:
		c.Op = group.Resume
	case doSeek:
		w.left[Seek]--
		c.Op = group.Seek
		if a.How == toLatest {
			c.Cursor = w.committed()
		}
		w.endAll()
	case doReset:
		w.left[Reset]--
		c.Op = group.Reset
		w.endAll()
	case doRedrive:
		w.left[Redrive]--
		c.Op = group.Redrive
	case doDiscard:
		w.left[Discard]--
		c.Op = group.Discard
	case doCancel:
		w.left[Cancel]--
		c.Op, c.Offsets = group.Cancel, []uint64{uint64(a.N)}
		fails = !w.open(uint64(a.N))
	case doReschedule:
		w.left[Reschedule]--
		o := uint64(a.N)
		m := w.ledger.messages[o]
		c.Op, c.At = group.Reschedule, w.now+1500
		c.Messages = []group.Message{{
			Offset: o, AppendTime: m.appendTime, Due: m.due, Expires: m.expires, Key: hashKey(m.key), Priority: m.priority,
		}}
		fails = !w.open(o) || m.expires != 0 && m.expires <= c.At
	default:
		return errNone
	}
	c.To = w.ask(asked{what: a.Kind, refused: fails})
	return w.step(&shard.GroupCommand{Command: c}, may)
}

func hashKey(key string) uint64 {
	if key == "" {
		return 0
	}
	return group.HashKey([]byte(key))
}

// open says whether a message is outstanding, and nobody works on it.
func (w *World) open(offset uint64) bool {
	return offset < w.committed() && w.ledger.messages[offset].told.fate == outstanding && w.holder(offset) == nil
}

// committed is how many messages are.
func (w *World) committed() (n uint64) {
	for _, m := range w.ledger.messages {
		if m.sequence < uint64(w.flushed) {
			n++
		}
	}
	return n
}

func (w *World) endAll() {
	for i := range w.hands {
		if w.hands[i].live {
			w.ended(&w.hands[i])
		}
	}
}

// prelude makes the group, and what the setup begins with.
func (w *World) prelude() {
	c := group.Command{ID: [16]byte{1}, Op: group.Create, Name: groupName, Group: groupID, Settings: &w.setup.Settings}
	c.To = w.ask(asked{what: doPause})
	must(w.step(&shard.GroupCommand{Command: c}, permits{command: doPause}))
	w.settleDown()
	if !w.setup.Ready {
		return
	}
	for range w.setup.Messages {
		must(w.publish())
	}
	w.settleDown()
	must(w.join(0))
	w.settleDown()
}

// settleDown writes, flushes and reads until there is nothing of that to be done.
func (w *World) settleDown() {
	for {
		switch {
		case len(w.unwritten) > 0:
			must(w.write())
		case w.flushed < len(w.file):
			must(w.flush())
		case len(w.scans) > 0:
			must(w.scan())
		default:
			return
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
