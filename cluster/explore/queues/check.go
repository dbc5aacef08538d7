// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"errors"
	"fmt"
	"math"

	"margay.dev/broker/group"
	"margay.dev/broker/shard"
)

// Check holds the core to what the log says, and to handing out what may be handed out.
func (w *World) Check() error {
	if err := w.idle(); err != nil {
		return err
	}
	return w.look(w.agrees)
}

// idle says that somebody could be handed a message, and is not. The core may need to read the log first.
func (w *World) idle() error {
	if len(w.scans) > 0 || w.ledger.paused || w.ledger.dead() >= int(w.setup.Settings.MaxDead) {
		return nil
	}
	for i, c := range w.consumers {
		if c.is == nil || c.credit.out >= c.credit.most {
			continue
		}
		for o, m := range w.ledger.messages {
			if m.sequence >= uint64(w.flushed) || m.told.fate != outstanding || m.dueAt() > w.now || m.expired(w.now) {
				continue
			}
			if _, held := w.keyHeld(uint64(o), true); held || w.holder(uint64(o)) != nil || m.key != "" && m.told.at >= uint64(w.flushed) {
				continue
			}
			return fmt.Errorf("message %d could be handed to %s, and is not", o, w.consumers[i].name)
		}
	}
	return nil
}

func (l *ledger) dead() (n int) {
	for _, m := range l.messages {
		if m.told.fate == dead {
			n++
		}
	}
	return n
}

// look has something read of the groups.
func (w *World) look(f func(*group.View) error) (err error) {
	looked := false
	var eff shard.Effects
	w.core.Step(w.now, &shard.Inspect{Look: func(v *group.View) { looked, err = true, f(v) }}, &eff)
	switch {
	case err != nil:
		return err
	case !looked:
		return errors.New("the groups cannot be looked at")
	case len(eff.Append)+len(eff.Hands)+len(eff.Scans) > 0:
		return fmt.Errorf("looking at the groups leads to %+v", eff)
	}
	return nil
}

func (w *World) agrees(v *group.View) error {
	info, ok := v.Info(groupName)
	if !ok {
		return errors.New("the group is gone")
	}
	var open, inFlight uint64
	for o := range w.committed() {
		m := w.ledger.messages[o]
		s, ok := v.StateOf(groupName, o)
		if !ok {
			return fmt.Errorf("nothing is known of message %d", o)
		}
		if err := w.same(o, m, s); err != nil {
			return fmt.Errorf("message %d: %w: the log says that it is %s after %d attempts, the core: %+v", o, err, m.told.fate, m.told.attempts, s)
		}
		if m.told.fate == outstanding {
			open++
			if w.holder(o) != nil {
				inFlight++
			}
		}
	}
	if got := info.Ready + info.InFlight + info.Delayed; got != open || info.InFlight != inFlight || info.Dead != uint64(w.ledger.dead()) {
		return fmt.Errorf("the core counts %+v, and %d are outstanding, %d in flight, %d dead", info, open, inFlight, w.ledger.dead())
	}
	return w.addsUp(info, open)
}

var errDiffers = errors.New("core and log differ (S8, S9)")

func (w *World) same(offset uint64, m message, s group.MessageState) error {
	switch m.told.fate {
	case outstanding:
		h := w.holder(offset)
		switch {
		case (h != nil) != (s.State == group.StateInFlight):
			return errDiffers
		case s.State == group.StateSettled || s.State == group.StateDead:
			return errDiffers
		case h == nil && s.Attempts != m.told.attempts || h != nil && s.Attempts != h.attempt-1:
			return errDiffers
		case h != nil && s.Deadline != h.deadline:
			return fmt.Errorf("its claim ends at %d: %w", h.deadline, errDiffers)
		}
	case dead:
		if s.State != group.StateDead || s.Attempts != m.told.attempts {
			return errDiffers
		}
	default:
		if s.State != group.StateSettled {
			return errDiffers
		}
	}
	return nil
}

// addsUp holds the group's totals to what has become of each message. Those that were dead when the group began again are
// not counted a second time.
func (w *World) addsUp(info group.Info, open uint64) error {
	t := info.Totals
	of := map[fate]uint64{}
	for o := range w.committed() {
		m := w.ledger.messages[o]
		if o < t.Base {
			if m.told.fate == dead || m.told.fate == outstanding {
				return nil
			}
			continue
		}
		of[m.told.fate]++
	}
	if w.ledger.late {
		return nil
	}
	if t.Acked != of[acked] || t.Expired != of[expired] || t.Cancelled != of[cancelled] || t.Lost != of[lost] || t.Discarded != of[discarded] ||
		t.Acked+t.Expired+t.Cancelled+t.Lost+t.Discarded+open+info.Dead+t.Base != w.committed() {
		return fmt.Errorf("totals %+v of %d messages, %d of them outstanding and %d dead; by the log: %v", t, w.committed(), open, info.Dead, of)
	}
	return nil
}

// Finish lets all go well, and wants every message to come to an end.
func (w *World) Finish() error {
	for range 1000 {
		switch {
		case len(w.unwritten) > 0:
			if err := w.write(); err != nil {
				return err
			}
		case w.flushed < len(w.file):
			if err := w.flush(); err != nil {
				return err
			}
		case len(w.scans) > 0:
			if err := w.scan(); err != nil {
				return err
			}
		case w.ledger.paused:
			if err := w.command(Action{Kind: doResume}); err != nil {
				return err
			}
		case w.ledger.dead() >= int(w.setup.Settings.MaxDead): // the group stands still until there is room
			if err := w.command(Action{Kind: doDiscard}); err != nil {
				return err
			}
		case w.consumers[0].is == nil:
			if err := w.join(0); err != nil {
				return err
			}
		default:
			if done, err := w.goOn(); done || err != nil {
				return err
			}
		}
		if err := w.Check(); err != nil {
			return err
		}
	}
	return fmt.Errorf("messages are left: %+v", w.ledger)
}

// goOn acknowledges what is out, or lets time pass.
func (w *World) goOn() (done bool, err error) {
	for i := range w.hands {
		if w.hands[i].live {
			return false, w.handAction(Action{Kind: doAck, N: uint8(i)})
		}
	}
	if !w.ledger.some(outstanding) {
		return true, nil
	}
	at, _ := w.due()
	if wake := w.core.Next(); wake != 0 {
		at = min(at, max(wake, w.now))
	}
	if at == math.MaxInt64 {
		return false, fmt.Errorf("nothing will happen any more, and messages are left: %+v", w.ledger)
	}
	return false, w.until(at)
}
