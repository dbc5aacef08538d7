// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"margay.dev/cluster/history/queue"
)

// model is a queue that keeps every promise, and breaks one when it is told to.
type model struct {
	*story
	rng   *rand.Rand
	all   []*item
	hands uint64
	fault queue.Kind
	did   bool // the fault
}

type item struct {
	offset  uint64
	key     string
	attempt uint32
	due     int64
	claim   queue.ClaimID
	out     bool
	waits   bool // for its next attempt
	end     queue.Op
	reason  queue.Reason
	gone    bool // lost by the fault
}

func (m *model) held(x *item) bool {
	return x.key != "" && slices.ContainsFunc(m.all, func(y *item) bool {
		return y != x && y.key == x.key && (y.out || y.waits || y.end == 0 && y.offset < x.offset)
	})
}

// strikes says whether the fault is to be done now.
func (m *model) strikes(k queue.Kind) bool {
	if m.did || m.fault != k || m.rng.IntN(3) != 0 {
		return false
	}
	m.did = true
	return true
}

func (m *model) step() {
	x := m.all[m.rng.IntN(len(m.all))]
	switch {
	case m.rng.IntN(40) == 0:
		m.gen++
		m.hands = 0
		for _, y := range m.all {
			if y.out {
				y.out, y.waits = false, y.attempt > 1
			}
		}
		m.LeaderEnds(0)
	case x.out && m.rng.IntN(2) == 0:
		m.settle(x)
	case x.out:
		if m.strikes(queue.Overlap) {
			m.handOut(x)
		}
	case x.end == queue.Ack:
		if m.strikes(queue.Undone) {
			m.handOut(x)
		}
	case x.end != 0:
	case x.due > m.now:
		if x.due > m.now+2*second && m.strikes(queue.Early) {
			m.handOut(x)
		}
	case m.held(x):
		if m.strikes(queue.KeyOrder) {
			m.handOut(x)
		}
	default:
		if x.attempt > 1 && m.strikes(queue.Forgotten) {
			x.attempt--
		}
		m.handOut(x)
	}
}

func (m *model) handOut(x *item) {
	m.hands++
	x.out, x.waits = true, false
	x.claim = m.story.handOut(queue.Claim{
		Consumer: "c", Message: msg(x.offset), HandOut: m.hands, Attempt: x.attempt, Key: x.key,
	})
}

func (m *model) settle(x *item) {
	x.out = false
	switch m.rng.IntN(5) {
	case 0:
		m.settles(x.claim, queue.Reject)
		x.end, x.reason = queue.Reject, queue.Rejected
		if m.strikes(queue.Lost) {
			x.gone = true
		}
	case 1, 2:
		m.settles(x.claim, queue.Nack)
		wait := second
		if x.attempt > 1 {
			wait = 60 * second
		}
		x.due = m.now + wait
		if x.attempt++; x.attempt > 3 {
			x.end, x.reason = queue.Nack, queue.Attempts
			x.attempt--
			return
		}
		x.waits = true
	case 3:
		m.settles(x.claim, queue.Release)
		x.waits = x.attempt > 1
	default:
		m.settles(x.claim, queue.Ack)
		x.end = queue.Ack
	}
}

func (m *model) finish() {
	a := queue.Audit{Group: "g", To: uint64(len(m.all)), NotAfter: m.tick()}
	for _, x := range m.all {
		switch {
		case x.gone:
		case x.reason != 0:
			a.Dead = append(a.Dead, queue.DeadLetter{Message: msg(x.offset), Attempts: x.attempt, Reason: x.reason})
		case x.end == 0:
			a.Open = append(a.Open, msg(x.offset))
		}
	}
	m.Audit(a)
}

func life(t *testing.T, seed uint64, fault queue.Kind) *model {
	m := &model{story: tell(t), rng: rand.New(rand.NewPCG(seed, uint64(fault))), fault: fault}
	for o := range uint64(8) {
		x := &item{offset: o, attempt: 1}
		p := queue.Push{}
		if m.rng.IntN(2) == 0 {
			x.key = string(rune('a' + m.rng.IntN(2)))
			p.Key = x.key
		}
		if m.rng.IntN(4) == 0 && x.key == "" {
			p.Delay = time.Duration(m.rng.IntN(20)) * time.Second
		}
		m.push(o, p)
		x.due = m.now + p.Delay.Microseconds()
		m.all = append(m.all, x)
	}
	for range 150 {
		m.step()
	}
	m.finish()
	return m
}

func TestRandomHistories(t *testing.T) {
	for seed := range uint64(500) {
		m := life(t, seed, 0)
		if found := m.Check(); len(found) > 0 {
			t.Fatalf("seed %d: %v", seed, found)
		}
		if pushed, handed, settled := m.Counts(); pushed != 8 || handed == 0 || settled[queue.Ack] == 0 && settled[queue.Reject] == 0 && settled[queue.Nack] == 0 {
			t.Fatalf("seed %d: %d pushed, %d handed out, %v", seed, pushed, handed, settled)
		}
	}
}

// A history in which a promise is broken once shows that one.
func TestRandomHistoriesWithAFault(t *testing.T) {
	for _, fault := range []queue.Kind{queue.Overlap, queue.Undone, queue.Lost, queue.Early, queue.KeyOrder, queue.Forgotten} {
		t.Run(fault.String(), func(t *testing.T) {
			struck, shown := 0, 0
			for seed := range uint64(300) {
				m := life(t, seed, fault)
				if !m.did {
					continue
				}
				struck++
				if slices.ContainsFunc(m.Check(), func(v queue.Violation) bool { return v.Kind == fault }) {
					shown++
				} else if fault != queue.Forgotten && fault != queue.KeyOrder {
					t.Errorf("seed %d: %v", seed, m.Check())
				}
			}
			// An attempt may be of those that nobody acknowledged; and the earlier message of a key may never have come.
			if struck < 20 || shown < struck*3/4 {
				t.Errorf("%d of %d are shown", shown, struck)
			}
		})
	}
}
