// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
	"margay.dev/wire/code"
)

// member is the lane's consumer in one shard.
type member struct {
	lane       *Lane
	id         uint32
	shard      Shard
	generation uint64
	seat       *seat
	consumer   group.Consumer
	forget     func() // the shard's end

	answered chan struct{} // closed when the shard has answered, then the next three stand
	joined   *group.Joined
	refused  *code.Error

	last last // owned by Serve

	// With the lane's lock.
	in        bool // the core has the consumer
	left      bool // it has been told that it leaves, or is gone
	over      bool // what is handed out is not written any more
	asked     bool // a progress note is on its way
	ended     bool // its shard's messages are no longer this lane's
	staying   bool // the consumer's leaving waits for it
	delivered uint64
	begun     uint64
}

// hand is what a shard handed out at once, and how much of it is written.
type hand struct {
	m *member
	group.Hand
}

func newMember(l *Lane, p Part, f *wire.Consume) *member {
	m := &member{lane: l, id: p.ID, shard: p.Shard, generation: p.Shard.View().Generation, answered: make(chan struct{}), forget: func() {}}
	m.seat = l.pool.sit(m.creditBack)
	m.consumer = group.Consumer{Name: f.Consumer, Concurrency: int(f.Concurrency), Credit: m.seat, Lane: m}
	return m
}

// named says which shard an error is of. Others may have been given the error too.
func (m *member) named(err *code.Error) *code.Error {
	e := *err
	return e.With(code.DetailShard, uint64(m.id))
}

func (m *member) join(name string) *code.Error {
	to := host.Func(m.joinAnswered)
	return m.shard.Post(&shard.JoinGroup{Group: name, Consumer: &m.consumer, To: to}, to)
}

// joinAnswered is called by the shard's goroutine. Messages may be handed out from then on.
func (m *member) joinAnswered(a shard.Answer) {
	defer close(m.answered)
	m.joined, m.refused = a.Joined, a.Err
	if a.Err == nil && a.Joined == nil {
		m.refused = code.New(code.Internal, "the shard let nobody in")
	}
	if m.refused != nil {
		// It may be in all the same: the answer rests on what else was pending, and that could not be written.
		_ = m.shard.Post(&shard.LeaveGroup{Consumer: &m.consumer, Orderly: true}, nil)
		return
	}
	forget := m.shard.OnEnd(m.closed)
	l := m.lane
	l.mu.Lock()
	m.in, m.forget = true, forget
	late := l.closed
	l.mu.Unlock()
	if late {
		m.leave(true, nil) // who opened it has gone
	}
}

// Take takes what the shard hands out. The shard's goroutine calls it.
func (m *member) Take(_ *host.Shard, h *group.Hand) {
	l := m.lane
	l.pool.handed(len(h.Items))
	l.mu.Lock()
	kept := !m.over && !l.closed
	if kept {
		l.cfg.Stats.handed(&l.samples, m.id, h, m.shard.Now())
		l.hands = append(l.hands, &hand{m, *h})
	}
	l.mu.Unlock()
	if !kept { // the core gives it to others as soon as it hears
		l.pool.handed(-len(h.Items))
		return
	}
	l.signal()
}

// Gone is called when the group is deleted: it has no consumers any more.
func (m *member) Gone(*host.Shard, *group.Consumer) {
	m.closed(code.New(code.Deleted, "the group %q was deleted", m.lane.group))
}

var _ host.Taker = (*member)(nil)

// creditBack tells the core that there is credit again, and then whoever promised it that the core has had its turn: its
// inbox is in order, and a claim of nothing is answered when everything before it was done.
func (m *member) creditBack(over func()) *code.Error {
	if refused := m.shard.Post(shard.CreditBack{Consumer: &m.consumer}, nil); refused != nil {
		return refused
	}
	m.lane.mu.Lock()
	joined := m.in
	m.lane.mu.Unlock()
	if !joined {
		over()
		return nil
	}
	to := host.Func(func(shard.Answer) { over() })
	nothing := group.Extension{Group: m.joined.ID, Resets: m.joined.Resets, Generation: m.generation}
	if m.shard.Post(&shard.ExtendClaims{Extension: nothing, To: to}, to) != nil {
		over()
	}
	return nil
}

// closed is called when the shard is: claims end with it.
func (m *member) closed(why *code.Error) {
	forget, first := m.stop(why)
	if !first {
		return
	}
	forget()
	m.seat.leave()
	m.lane.cfg.Ended(m.id, why)
	m.lane.signal()
}

// stop writes nothing more of the shard but why; with nil not even that.
func (m *member) stop(why *code.Error) (forget func(), first bool) {
	l := m.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.ended {
		return nil, false
	}
	m.ended, m.over, m.left = true, true, true
	m.gone()
	if why != nil && !l.closed {
		l.ends = append(l.ends, wire.ConsumeEnd{Shard: m.id, Code: why.Code, Message: why.Message})
	}
	return m.forget, true
}

// gone counts a member that the consumer's leaving waited for. Called with the lane's lock.
func (m *member) gone() {
	if m.staying {
		m.staying = false
		m.lane.staying--
	}
}

// leave tells the core that the consumer is gone, and says whether it need not be told again. Done is called when it has
// heard; only if it was told here.
func (m *member) leave(orderly bool, done func()) bool {
	l := m.lane
	l.mu.Lock()
	if !m.in || m.left { // one that comes in later leaves then
		l.mu.Unlock()
		return true
	}
	m.left = true
	ev := &shard.LeaveGroup{Consumer: &m.consumer, Orderly: orderly, Delivered: m.delivered, Begun: m.begun}
	l.mu.Unlock()
	var to host.Waiter
	if done != nil {
		to = host.Func(func(shard.Answer) { done() })
		ev.To = to
	}
	refused := m.shard.Post(ev, to)
	switch {
	case refused == nil:
		m.forget()
		return true
	case errors.Is(refused, code.Overloaded):
		l.mu.Lock()
		m.left = false
		l.mu.Unlock()
		return false
	}
	if done != nil { // it is closed, and all claims with it
		done()
	}
	return true
}
