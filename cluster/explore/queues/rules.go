// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"errors"
	"fmt"
	"slices"

	"margay.dev/broker/group"
	"margay.dev/broker/shard"
	"margay.dev/wire/batch"
)

// permits is what a step may append, and has to.
type permits struct {
	records bool
	acks    []uint64 // offsets that are acknowledged
	ends    []ending // attempts that end
	command Kind     // that is carried out; 0: none
	offset  uint64   // that it names
	below   uint64   // what is lost
	cut     bool     // what is pending is lost, and whoever waits for it is told so
}

// some says whether something is to be appended.
func (p *permits) some() bool {
	return p.records || len(p.acks)+len(p.ends) > 0 || p.command != 0 || p.below > 0
}

// ending is an attempt that ends.
type ending struct {
	offset  uint64
	attempt uint32
	reject  bool
	due     int64 // at the earliest
	done    bool
}

// permitted holds what is appended to what the step may do, and to what the log says already.
func (w *World) permitted(may *permits, b batch.Batch) error {
	if want := uint64(len(w.file) + len(w.unwritten)); b.Sequence() < want {
		return fmt.Errorf("batch %d is appended, and there are %d", b.Sequence(), want)
	}
	if b.IsCheckpoint() {
		return nil
	}
	if b.HasOffsets() {
		if !may.records {
			return errors.New("records are appended that nobody published")
		}
		x, ok, err := b.Settlement()
		if err != nil || !ok {
			return err
		}
		for _, t := range x.Tokens {
			if err := w.settles(may, t.Offset); err != nil {
				return err
			}
		}
		return nil
	}
	entries, err := b.Entries()
	if err != nil {
		return err
	}
	l := w.ledger // as it is while the batch is gone through
	l.messages = slices.Clone(l.messages)
	for _, e := range entries {
		if err := w.entry(may, &l, e); err != nil {
			return fmt.Errorf("%+v: %w", e, err)
		}
		l.entry(b.Sequence(), e)
	}
	return nil
}

// settles takes note of an ack.
func (w *World) settles(may *permits, offset uint64) error {
	i := slices.Index(may.acks, offset)
	if i < 0 {
		return fmt.Errorf("message %d is settled, and nobody acknowledged it (S8)", offset)
	}
	may.acks = slices.Delete(slices.Clone(may.acks), i, i+1)
	return nil
}

func (w *World) entry(may *permits, l *ledger, e batch.Entry) error {
	switch e := e.(type) {
	case batch.Settled:
		for _, r := range e.Ranges {
			for o := r.From; o < r.To; o++ {
				if err := w.settled(may, l, e.How, o); err != nil {
					return err
				}
			}
		}
	case batch.Attempt:
		return w.attempt(may, l, e)
	case batch.Dead:
		return w.dead(may, l, e)
	case batch.Group, batch.Command:
		if may.command == 0 {
			return errors.New("nobody asked for it")
		}
	}
	return nil
}

func (w *World) settled(may *permits, l *ledger, how batch.How, offset uint64) error {
	m := l.messages[offset]
	if m.told.fate != outstanding {
		return fmt.Errorf("message %d is %s already (S8)", offset, m.told.fate)
	}
	switch how {
	case batch.SettledAcked:
		return w.settles(may, offset)
	case batch.SettledExpired:
		if !m.expired(w.now) {
			return fmt.Errorf("message %d has not expired", offset)
		}
		if w.holder(offset) != nil {
			return fmt.Errorf("message %d expires while somebody works on it", offset)
		}
	case batch.SettledCancelled:
		if may.command != doCancel || offset != may.offset {
			return fmt.Errorf("nobody canceled message %d", offset)
		}
	case batch.SettledLost:
		if offset >= max(l.start, may.below) {
			return fmt.Errorf("message %d is lost, and the log begins at %d", offset, l.start)
		}
	case batch.SettledState:
		return errors.New("a state outside of a checkpoint")
	}
	return nil
}

func (w *World) attempt(may *permits, l *ledger, e batch.Attempt) error {
	m := l.messages[e.Offset]
	if e.AppendTime > m.appendTime { // one that stood in a range of messages may have that of the first
		return fmt.Errorf("the append time of message %d is %d", e.Offset, m.appendTime)
	}
	if (may.command == doRedrive || may.command == doReschedule) && e.Attempts <= m.told.attempts {
		if may.command == doReschedule && (e.Attempts != m.told.attempts || e.Offset != may.offset || m.told.fate != outstanding) {
			return fmt.Errorf("message %d, which is %s after %d attempts, is not to be rescheduled", e.Offset, m.told.fate, m.told.attempts)
		}
		return nil
	}
	if m.told.fate != outstanding {
		return fmt.Errorf("message %d is %s already (S9)", e.Offset, m.told.fate)
	}
	x, err := w.ends(may, e.Offset)
	if err != nil {
		return err
	}
	if e.Attempts != x.attempt {
		return fmt.Errorf("it was attempt %d", x.attempt)
	}
	if limit := w.setup.Settings.MaxAttempts; x.reject || limit > 0 && e.Attempts >= limit {
		return fmt.Errorf("message %d is to be a dead letter", e.Offset)
	}
	if e.Due < x.due {
		return fmt.Errorf("it is due at %d, before %d", e.Due, x.due)
	}
	if e.Expires != m.expiresAt() {
		return fmt.Errorf("message %d expires at %d", e.Offset, m.expiresAt())
	}
	return nil
}

// ends takes note of an attempt that ends.
func (w *World) ends(may *permits, offset uint64) (ending, error) {
	for i, x := range may.ends {
		if x.offset == offset && !x.done {
			may.ends = slices.Clone(may.ends)
			may.ends[i].done = true
			return x, nil
		}
	}
	return ending{}, fmt.Errorf("no attempt of message %d ended (S8)", offset)
}

func (w *World) dead(may *permits, l *ledger, e batch.Dead) error {
	m := l.messages[e.Offset]
	if e.Removed != batch.DeadKept {
		if m.told.fate != dead {
			return fmt.Errorf("message %d is no dead letter: it is %s", e.Offset, m.told.fate)
		}
		want := map[Kind]batch.DeadRemoved{doRedrive: batch.DeadRedriven, doDiscard: batch.DeadDiscarded, doReset: batch.DeadDiscarded}
		if e.Removed == batch.DeadLost && e.Offset < max(l.start, may.below) {
			return nil
		}
		if want[may.command] != e.Removed {
			return fmt.Errorf("nobody asked for dead letter %d to go", e.Offset)
		}
		return nil
	}
	if m.told.fate != outstanding {
		return fmt.Errorf("message %d is %s already (S8)", e.Offset, m.told.fate)
	}
	if e.Reason == batch.DeadExpired {
		if !w.setup.Settings.DeadExpired || !m.expired(w.now) || w.holder(e.Offset) != nil {
			return fmt.Errorf("message %d has not expired, or is not to be kept", e.Offset)
		}
		return nil
	}
	x, err := w.ends(may, e.Offset)
	if err != nil {
		return err
	}
	if e.Attempts != x.attempt {
		return fmt.Errorf("it was attempt %d", x.attempt)
	}
	limit := w.setup.Settings.MaxAttempts
	if !x.reject && (limit == 0 || e.Attempts < limit) || x.reject != (e.Reason == batch.DeadRejected) {
		return fmt.Errorf("it is dead after %d attempts of %d, rejected: %v", e.Attempts, limit, x.reject)
	}
	return nil
}

// missing says what a step had to append and did not.
func (p *permits) missing() error {
	if len(p.acks) > 0 {
		return fmt.Errorf("messages %d were acknowledged, and that is not appended (S9)", p.acks)
	}
	for _, x := range p.ends {
		if !x.done {
			return fmt.Errorf("an attempt of message %d ended, and that is not appended: it is not counted", x.offset)
		}
	}
	return nil
}

// holder is the live claim of a message.
func (w *World) holder(offset uint64) *hand {
	for i := range w.hands {
		if h := &w.hands[i]; h.live && h.offset == offset {
			return h
		}
	}
	return nil
}

// take is what a consumer does with what it is handed: it looks whether it may be.
func (w *World) take(h group.Hand) error {
	to := w.consumerOf(h.To)
	if to < 0 {
		return errors.New("a message is handed to a consumer that is gone")
	}
	for _, it := range h.Items {
		if err := w.mayHave(h, it); err != nil {
			return fmt.Errorf("hand-out %d of message %d to %s: %w", it.HandOut, it.Offset, w.consumers[to].name, err)
		}
		w.highest = it.HandOut
		w.hands = append(w.hands, hand{
			generation: w.cfg.Generation, resets: h.Resets, handOut: it.HandOut, offset: it.Offset, attempt: it.Attempt, to: uint8(to), live: true,
			moved:    w.ledger.messages[it.Offset].told.moved,
			deadline: w.now + int64(w.setup.Settings.AckWait),
		})
	}
	return nil
}

// credits hold consumers to what they may have, and the core to giving back what it took.
func (w *World) credits() error {
	for i, c := range w.consumers {
		if has := w.liveOf(i); has > c.credit.most || c.credit.out != has {
			return fmt.Errorf("%s may have %d, has %d, and took credit for %d", c.name, c.credit.most, has, c.credit.out)
		}
	}
	return nil
}

func (w *World) liveOf(consumer int) (n int) {
	for _, h := range w.hands {
		if h.live && int(h.to) == consumer {
			n++
		}
	}
	return n
}

func (w *World) mayHave(h group.Hand, it group.Handed) error {
	if it.Offset >= uint64(len(w.ledger.messages)) {
		return errors.New("there is no such message")
	}
	m := w.ledger.messages[it.Offset]
	switch {
	case m.sequence >= uint64(w.flushed):
		return errors.New("it is not committed (S4)")
	case it.HandOut <= w.highest:
		return fmt.Errorf("number %d was given before (S8)", w.highest)
	case h.Group != w.ledger.group || h.Resets != w.ledger.resets:
		return fmt.Errorf("of group %d after %d resets, which is %d after %d", h.Group, h.Resets, w.ledger.group, w.ledger.resets)
	case w.ledger.paused:
		return errors.New("the group is paused")
	case m.told.fate != outstanding:
		return fmt.Errorf("it is %s (S9)", m.told.fate)
	case m.dueAt() > w.now:
		return fmt.Errorf("it is due in %d us", m.dueAt()-w.now)
	case m.expired(w.now):
		return errors.New("it has expired")
	case it.Attempt != m.told.attempts+1:
		return fmt.Errorf("it is called attempt %d after %d have ended", it.Attempt, m.told.attempts)
	}
	if x := w.holder(it.Offset); x != nil {
		return fmt.Errorf("%s holds it (S8)", w.consumers[x.to].name)
	}
	if by, held := w.keyHeld(it.Offset, false); held {
		return fmt.Errorf("message %d of its key is not done", by)
	}
	return nil
}

// dueAt is when a message may be handed out.
func (m *message) dueAt() int64 {
	if m.told.due != 0 || m.told.attempts > 0 {
		return m.told.due
	}
	return m.due
}

// keyHeld says whether another message of its key is out, waits for its next attempt, or has an end that is not committed;
// or may be held to be so.
func (w *World) keyHeld(offset uint64, maybe bool) (by uint64, held bool) {
	key := w.ledger.messages[offset].key
	if key == "" || !w.setup.Settings.OrderByKey {
		return 0, false
	}
	for o, m := range w.ledger.messages {
		if uint64(o) == offset || m.key != key {
			continue
		}
		if w.holder(uint64(o)) != nil || m.told.fate == outstanding && m.told.retry {
			return uint64(o), true
		}
		// What has expired is not handed out after a crash either: its key may be free, or not yet.
		if w.endsUncommitted(uint64(o)) && !m.expired(w.now) || maybe && m.told.at >= uint64(w.flushed) {
			return uint64(o), true
		}
	}
	return 0, false
}

// endsUncommitted says whether a message that was handed out in this generation has an end that may still be lost.
func (w *World) endsUncommitted(offset uint64) bool {
	return slices.ContainsFunc(w.hands, func(h hand) bool {
		return h.offset == offset && h.generation == w.cfg.Generation && h.resets == w.ledger.resets && h.entry && h.endedAt > uint64(w.flushed)
	})
}

// answered holds an answer to what was asked.
func (w *World) answered(a shard.Answer, cut bool) error {
	if a.To == nil { // of a look
		return nil
	}
	id, ok := a.To.(int)
	i := slices.IndexFunc(w.asked, func(x asked) bool { return x.id == id })
	if !ok || i < 0 {
		return fmt.Errorf("an answer to nobody, or a second one: %+v", a)
	}
	x := w.asked[i]
	w.asked = slices.Delete(slices.Clone(w.asked), i, i+1)
	if a.Err != nil {
		if cut || x.refused || x.fails && x.what == doPair {
			return nil
		}
		return fmt.Errorf("%s is refused: %w", kindNames[x.what], a.Err)
	}
	if x.refused {
		return fmt.Errorf("%s is taken, and should be refused", kindNames[x.what])
	}
	if x.behind > uint64(w.flushed) {
		return fmt.Errorf("%s is answered, and rests on what is not flushed (S9)", kindNames[x.what])
	}
	if (len(a.Failed) > 0) != x.fails {
		return fmt.Errorf("%s: refused are %v, and it should be: %v", kindNames[x.what], a.Failed, x.fails)
	}
	return nil
}
