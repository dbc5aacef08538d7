// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/queue"
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	groupID    = 77
	generation = 5
	resets     = 2
)

// fake is a shard with one group, which hands out what is ready in order and knows little else. Its goroutine is the
// shard's.
type fake struct {
	t    testing.TB
	id   uint32
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	events  []posted
	ended   *code.Error
	ends    []func(*code.Error)
	busy    int // so many of the next events are refused
	batches map[uint64]batch.Batch
	place   map[uint64]uint64 // the sequence of an offset
	gone    map[uint64]bool   // sequences that retention took
	broken  error             // what reading says
	next    position
	hidden  bool // the core names no sequences

	// Of the shard's goroutine, but for the test that waits until it is idle.
	ready     []uint64
	attempts  map[uint64]uint32
	claims    map[uint64]claim // by hand-out
	handOut   uint64
	consumers []*group.Consumer
	turn      int
	settled   map[uint64]group.Op
	left      []shard.LeaveGroup
	most      int // claims at a time, of all consumers
	starved   map[*group.Consumer]bool
	refuse    *code.Error // who joins
	stalled   bool        // it hands out nothing, and answers nothing
}

type claim struct {
	to     *group.Consumer
	offset uint64
}

type posted struct {
	event shard.Event
	to    host.Waiter
}

func newFake(t testing.TB, id uint32) *fake {
	s := &fake{
		t: t, id: id, wake: make(chan struct{}, 1), done: make(chan struct{}), batches: map[uint64]batch.Batch{}, place: map[uint64]uint64{},
		gone: map[uint64]bool{}, attempts: map[uint64]uint32{}, claims: map[uint64]claim{}, settled: map[uint64]group.Op{}, starved: map[*group.Consumer]bool{},
		next: position{Sequence: 1},
	}
	stop := make(chan struct{})
	go s.run(stop)
	t.Cleanup(func() {
		close(stop)
		<-s.done
	})
	return s
}

func (s *fake) run(stop chan struct{}) {
	defer close(s.done)
	for {
		select {
		case <-s.wake:
		case <-stop:
			return
		}
		s.mu.Lock()
		events, ended := s.events, s.ended
		if s.stalled {
			events = nil
		} else {
			s.events = nil
		}
		stalled := s.stalled
		s.mu.Unlock()
		for _, e := range events {
			a := shard.Answer{To: e.to}
			if ended != nil {
				a.Err = ended
			} else {
				s.event(e.event, &a)
				s.dispatch()
			}
			if e.to != nil {
				e.to.Answered(a)
			}
		}
		if !stalled && ended == nil {
			s.dispatch()
		}
	}
}

func (s *fake) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *fake) event(e shard.Event, a *shard.Answer) {
	switch e := e.(type) {
	case *shard.JoinGroup:
		if a.Err = s.refuse; a.Err == nil {
			a.Joined = &group.Joined{ID: groupID, Resets: resets, AckWait: 30e6}
			s.consumers = append(s.consumers, e.Consumer)
		}
	case *shard.LeaveGroup:
		s.leave(e)
	case shard.CreditBack:
		delete(s.starved, e.Consumer)
	case *shard.Settle:
		for _, st := range e.List {
			a.Failed = s.settle(st)
		}
	case *shard.ExtendClaims:
		for i := range e.Tokens {
			tok := &e.Tokens[i]
			if c, ok := s.claims[tok.HandOut]; !ok || c.offset != tok.Offset {
				a.Failed = append(a.Failed, group.Failed{Index: i, Code: code.NoLongerOwner})
			}
		}
	}
}

func (s *fake) leave(e *shard.LeaveGroup) {
	s.left = append(s.left, *e)
	s.consumers = slices.DeleteFunc(s.consumers, func(c *group.Consumer) bool { return c == e.Consumer })
	for h, c := range s.claims {
		if c.to == e.Consumer {
			delete(s.claims, h)
			s.ready = append(s.ready, c.offset)
			c.to.Credit.Give(1)
		}
	}
	slices.Sort(s.ready)
}

func (s *fake) settle(st *group.Settlement) (failed []group.Failed) {
	if st.Group != groupID || st.Resets != resets || st.Generation != generation {
		s.t.Errorf("a settlement of group %d, %d, generation %d", st.Group, st.Resets, st.Generation)
	}
	for i := range st.Tokens {
		tok := &st.Tokens[i]
		for sub := range max(uint64(tok.Count), 1) {
			c, ok := s.claims[tok.HandOut+sub]
			if !ok || c.offset != tok.Offset+sub {
				failed = append(failed, group.Failed{Index: i, Sub: int(sub), Code: code.NoLongerOwner})
				continue
			}
			delete(s.claims, tok.HandOut+sub)
			delete(s.starved, c.to)
			c.to.Credit.Give(1)
			switch tok.Op {
			case group.Nack:
				s.attempts[c.offset]++
				s.ready = append(s.ready, c.offset)
			case group.Release:
				s.ready = append(s.ready, c.offset)
			default:
				s.settled[c.offset] = tok.Op
			}
		}
	}
	return failed
}

// dispatch hands out what is ready to who has credit, one after the other.
func (s *fake) dispatch() {
	for dry := 0; dry < len(s.consumers) && len(s.ready) > 0; {
		c := s.consumers[s.turn%len(s.consumers)]
		s.turn++
		n := 0
		if !s.starved[c] {
			n = c.Credit.Take(len(s.ready))
			s.starved[c] = n == 0 // until it is told that there is credit again, or gives some back here
		}
		if n == 0 {
			dry++
			continue
		}
		h := group.Hand{To: c, Group: groupID, Resets: resets}
		for _, offset := range s.ready[:n] {
			s.handOut++
			s.claims[s.handOut] = claim{c, offset}
			x := group.Handed{HandOut: s.handOut, Offset: offset, Sequence: s.at(offset), Attempt: s.attempts[offset] + 1}
			h.Items = append(h.Items, x)
		}
		s.ready = slices.Clone(s.ready[n:])
		s.most = max(s.most, len(s.claims))
		c.Lane.(host.Taker).Take(nil, &h)
	}
}

// at is where the core says that a message lies.
func (s *fake) at(offset uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hidden {
		return 0
	}
	return s.place[offset]
}

// put stores records as one batch and makes them ready.
func (s *fake) put(records ...batch.Record) (first uint64) {
	s.t.Helper()
	bl := batch.NewBuilder(batch.Limits{})
	for _, r := range records {
		if err := bl.Add(r); err != nil {
			s.t.Fatal(err)
		}
	}
	b, err := bl.Build(0, 0, batch.None)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.store(b)
}

func (s *fake) store(b batch.Batch) (first uint64) {
	s.mu.Lock()
	first = s.next.Offset
	b.Assign(batch.Assigned{Sequence: s.next.Sequence, BaseOffset: first, Generation: generation, AppendTime: 1})
	s.batches[s.next.Sequence] = b
	offsets := make([]uint64, 0, b.Count())
	for o := first; o < b.NextOffset(); o++ {
		s.place[o] = s.next.Sequence
		offsets = append(offsets, o)
	}
	s.next = position{Sequence: s.next.Sequence + 1, Offset: b.NextOffset()}
	s.mu.Unlock()
	s.do(func() { s.ready = append(s.ready, offsets...) })
	return first
}

// do runs f on the shard's goroutine, soon.
func (s *fake) do(f func()) {
	to := host.Func(func(shard.Answer) { f() })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, posted{&shard.Inspect{}, to})
	s.kick()
}

// values stores so many messages, each in a batch of its own.
func (s *fake) values(n int) {
	for range n {
		s.put(batch.Record{Value: fmt.Appendf(nil, "%d/%d", s.id, s.next.Offset), Timestamp: 1})
	}
}

// end closes the shard.
func (s *fake) end(why *code.Error) {
	s.mu.Lock()
	s.ended = why
	told := s.ends
	s.ends = nil
	s.kick()
	s.mu.Unlock()
	for _, f := range told {
		f(why)
	}
}

func (s *fake) Post(e shard.Event, to host.Waiter) *code.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	if s.busy > 0 {
		s.busy--
		return code.New(code.Overloaded, "busy")
	}
	s.events = append(s.events, posted{e, to})
	s.kick()
	return nil
}

func (s *fake) Find(offset uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq, ok := s.place[offset]
	if !ok || s.gone[seq] {
		return 0, storage.ErrDropped
	}
	return seq, nil
}

func (s *fake) SharedBatch(seq uint64) (*host.Shared, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batches[seq]
	switch {
	case s.broken != nil:
		return nil, s.broken
	case b == nil || s.gone[seq]:
		return nil, storage.ErrDropped
	}
	return &host.Shared{Batch: b}, nil
}

func (s *fake) KeptBatch(seq uint64) *host.Shared {
	if x, err := s.SharedBatch(seq); err == nil && seq%2 == 0 { // not everything is
		return x
	}
	return nil
}

func (s *fake) Now() int64 { return 1 }

func (s *fake) View() shard.View { return shard.View{Generation: generation} }

func (s *fake) OnEnd(f func(*code.Error)) func() {
	s.mu.Lock()
	if s.ended != nil {
		defer s.mu.Unlock()
		f(s.ended)
		return func() {}
	}
	defer s.mu.Unlock()
	s.ends = append(s.ends, f)
	return func() {}
}

var _ queue.Shard = (*fake)(nil)

type position struct{ Sequence, Offset uint64 }

// with changes what others look at meanwhile.
func (s *fake) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.kick()
}
