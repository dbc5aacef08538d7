// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/code"
)

// Waiter is answered what an event asked for. The shard's goroutine calls it, once, so it must not wait.
type Waiter interface {
	Answered(a shard.Answer)
}

// posted is an event on its way to the core, and who waits for it.
type posted struct {
	event shard.Event
	to    Waiter
}

// Func is a Waiter that is a function.
type Func func(shard.Answer)

// Answered calls the function.
func (f Func) Answered(a shard.Answer) { f(a) }

// Post queues an event of the core whose To is to; nil for one that nobody waits for. It never waits: a full inbox refuses.
// Events that are queued together are written and flushed together, behind the publishes beside them.
func (s *Shard) Post(event shard.Event, to Waiter) *code.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return s.closed
	}
	n := sizeOfEvent(event)
	if len(s.events) >= maxInbox || n > 0 && s.bytes > 0 && s.bytes+n > maxInboxBytes {
		return code.New(code.Overloaded, "shard %d has %d requests that wait", s.Ref.Shard, len(s.events)).Retry(50 * time.Millisecond)
	}
	s.events = append(s.events, posted{event, to})
	s.bytes += n
	s.kick()
	return nil
}

// waiting is a Waiter that one goroutine waits on.
type waiting chan shard.Answer

// Answered hands the answer over.
func (w waiting) Answered(a shard.Answer) { w <- a }

// Do gives the core an event and waits for its answer. What ctx ends goes on all the same: the event is queued.
func (s *Shard) Do(ctx context.Context, event func(to any) shard.Event) (shard.Answer, error) {
	w := make(waiting, 1)
	if err := s.Post(event(w), w); err != nil {
		return shard.Answer{}, err
	}
	select {
	case a := <-w:
		if a.Err != nil {
			return shard.Answer{}, a.Err
		}
		return a, nil
	case <-ctx.Done():
		return shard.Answer{}, code.From(ctx.Err()).WithClass(code.ClassUnknown)
	}
}

// sizeOfEvent is what an event holds in the inbox, of those that hold much.
func sizeOfEvent(e shard.Event) int {
	if e, ok := e.(*shard.SetLast); ok {
		return len(e.Batch)
	}
	return 0
}

// stepEvents feeds the core what was posted, and then what time has brought about. Commits of cursors that follow each
// other are one event, and so one batch; so are settlements.
func (s *Shard) stepEvents(now int64) {
	var (
		commits shard.CommitCursors
		settles shard.Settle
	)
	join := func() {
		if len(commits.List) > 0 {
			s.core.Step(now, &commits, &s.eff)
			commits.List = nil
		}
		if len(settles.List) > 0 {
			s.core.Step(now, &settles, &s.eff)
			settles.List = nil
		}
	}
	for i := range s.took {
		switch e := s.took[i].event.(type) {
		case *shard.CommitCursors:
			commits.List = append(commits.List, e.List...)
		case *shard.Settle:
			settles.List = append(settles.List, e.List...)
		default:
			join()
			s.core.Step(now, e, &s.eff)
		}
	}
	join()
	clear(s.took)
	s.took = s.took[:0]
	if at := s.core.Next(); at != 0 && at <= now {
		s.core.Step(now, shard.Time{}, &s.eff)
	}
}

// refuseEvents tells those whose events the core will not see.
func (s *Shard) refuseEvents(why *code.Error) {
	for i := range s.took {
		if to := s.took[i].to; to != nil {
			to.Answered(shard.Answer{To: to, Err: why})
		}
	}
	clear(s.took)
	s.took = s.took[:0]
}
