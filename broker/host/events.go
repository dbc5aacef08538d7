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

// Post queues an event of the core whose To is to. It never waits: a full inbox refuses. Events that are queued
// together are written and flushed together, behind the publishes beside them.
func (s *Shard) Post(event shard.Event, to Waiter) *code.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return s.closed
	}
	if len(s.events) >= maxInbox {
		return code.New(code.Overloaded, "shard %d has %d requests that wait", s.Ref.Shard, len(s.events)).Retry(50 * time.Millisecond)
	}
	s.events = append(s.events, posted{event, to})
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

// stepEvents feeds the core what was posted.
func (s *Shard) stepEvents(now int64) {
	for i := range s.took {
		s.core.Step(now, s.took[i].event, &s.eff)
	}
	clear(s.took)
	s.took = s.took[:0]
}

// refuseEvents tells those whose events the core will not see.
func (s *Shard) refuseEvents(why *code.Error) {
	for i := range s.took {
		s.took[i].to.Answered(shard.Answer{To: s.took[i].to, Err: why})
	}
	clear(s.took)
	s.took = s.took[:0]
}
