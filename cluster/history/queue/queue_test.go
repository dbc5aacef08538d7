// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"margay.dev/cluster/history"
	"margay.dev/cluster/history/queue"
)

const second = int64(time.Second / time.Microsecond)

// story is a history in which a second passes with each thing that is told, from 1 on. Messages lie in shard 0.
type story struct {
	*queue.Recorder

	t   *testing.T
	now int64
	gen uint64
}

func tell(t *testing.T) *story {
	s := &story{Recorder: &queue.Recorder{}, t: t, gen: 1}
	s.Group("g", queue.Group{AckWait: time.Hour, MaxAttempts: 3, Backoff: []time.Duration{time.Second, time.Minute}, ByKey: true, Exact: true})
	return s
}

func (s *story) tick() int64 {
	s.now += second
	return s.now
}

func msg(offset uint64) queue.Message { return queue.Message{Offset: offset} }

func body(offset uint64) string { return fmt.Sprintf("m%d", offset) }

func (s *story) pushes(offsets ...uint64) {
	for _, o := range offsets {
		s.push(o, queue.Push{})
	}
}

func (s *story) push(offset uint64, p queue.Push) {
	p.Client, p.Body, p.NotBefore = "p", body(offset), s.tick()
	s.Pushed(s.Push(p), queue.PushAnswer{Outcome: history.Acked, Message: msg(offset), AppendTime: s.now})
}

// gets hands a message to a consumer.
func (s *story) gets(consumer string, offset, handOut uint64, attempt uint32) queue.ClaimID {
	return s.handOut(queue.Claim{Consumer: consumer, Message: msg(offset), HandOut: handOut, Attempt: attempt})
}

func (s *story) handOut(c queue.Claim) queue.ClaimID {
	if c.Generation == 0 {
		c.Generation = s.gen
	}
	if c.Body == "" {
		c.Body = body(c.Offset)
	}
	c.Group, c.NotBefore = "g", s.tick()
	c.NotAfter = s.now
	return s.HandOut(c)
}

func (s *story) settles(id queue.ClaimID, op queue.Op) {
	s.answered(queue.Settlement{Claim: id, Op: op}, queue.SettleAnswer{})
}

func (s *story) answered(x queue.Settlement, a queue.SettleAnswer) {
	x.NotBefore = s.tick()
	if a.Outcome == history.Unknown {
		a.Outcome = history.Acked
	}
	a.NotAfter = s.tick()
	s.Settled(s.Settle(x), a)
}

func (s *story) unanswered(id queue.ClaimID, op queue.Op) {
	s.Settle(queue.Settlement{Claim: id, Op: op, NotBefore: s.tick()})
}

func (s *story) refused(id queue.ClaimID, op queue.Op) {
	s.answered(queue.Settlement{Claim: id, Op: op}, queue.SettleAnswer{Outcome: history.Refused, Ended: true})
}

func (s *story) orders(o queue.Order, offsets ...uint64) {
	x := queue.Command{Group: "g", Order: o}
	for _, offset := range offsets {
		x.Messages = append(x.Messages, msg(offset))
	}
	s.Commanded(s.Command(x), history.Acked, len(offsets))
}

func (s *story) ends(open []uint64, dead ...queue.DeadLetter) {
	a := queue.Audit{Group: "g", To: 100, Dead: dead, NotAfter: s.tick()}
	for _, o := range open {
		a.Open = append(a.Open, msg(o))
	}
	s.Audit(a)
}

func (s *story) wants(want ...queue.Kind) {
	s.t.Helper()
	var got []queue.Kind
	found := s.Check()
	for _, v := range found {
		if !slices.Contains(got, v.Kind) {
			got = append(got, v.Kind)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("%v, want %v: %v", got, want, found)
	}
}

type told struct {
	tell func(s *story)
	want []queue.Kind
}

func each(t *testing.T, all map[string]told) {
	for name, x := range all {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := tell(t)
			x.tell(s)
			s.wants(x.want...)
			if again := s.Check(); len(again) != len(s.Check()) {
				t.Error("two checks of one history differ")
			}
		})
	}
}

func broken(k ...queue.Kind) []queue.Kind { return k }

func TestClaims(t *testing.T) {
	each(t, map[string]told{
		"one after the other": {func(s *story) {
			s.pushes(0, 1, 2)
			a, b := s.gets("a", 0, 1, 1), s.gets("b", 1, 2, 1)
			s.settles(b, queue.Ack)
			s.settles(a, queue.Nack)
			s.settles(s.gets("b", 0, 3, 2), queue.Ack)
			s.ends([]uint64{2})
		}, nil},
		"overlap": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.gets("b", 0, 2, 1)
		}, broken(queue.Overlap)},
		"overlap in what was extended": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.answered(queue.Settlement{Claim: a, Op: queue.Extend, For: 3 * time.Hour}, queue.SettleAnswer{})
			s.now += 2 * 3600 * second
			s.gets("b", 0, 2, 2)
		}, broken(queue.Overlap)},
		"behind what was extended": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.answered(queue.Settlement{Claim: a, Op: queue.Extend, For: time.Minute}, queue.SettleAnswer{})
			s.now += 60 * second
			s.gets("b", 0, 2, 2)
		}, nil},
		"extended, and nobody said so": {func(s *story) {
			s.pushes(0)
			s.Settle(queue.Settlement{Claim: s.gets("a", 0, 1, 1), Op: queue.Extend, For: time.Minute, NotBefore: s.now})
			s.now += 60 * second
			s.gets("b", 0, 2, 2)
		}, nil},
		"behind its deadline": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.now += 3600 * second
			s.gets("b", 0, 2, 2)
		}, nil},
		"the consumer is gone": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.Gone("g", "a", false)
			s.gets("b", 0, 2, 2)
		}, nil},
		"another consumer is gone": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.Gone("g", "b", false)
			s.gets("c", 0, 2, 1)
		}, broken(queue.Overlap)},
		"given back in vain": {func(s *story) {
			s.pushes(0)
			s.refused(s.gets("a", 0, 1, 1), queue.Nack)
			s.gets("b", 0, 2, 1)
		}, broken(queue.Overlap, queue.Denied)},
		"another leader": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.gen = 2
			s.settles(s.gets("b", 0, 1, 1), queue.Ack)
			s.ends(nil)
		}, nil},
		"an ack to another leader": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.LeaderEnds(0)
			s.settles(a, queue.Ack)
			s.ends(nil)
		}, nil},
		"a late ack counts": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.now += 3600 * second
			b := s.gets("b", 0, 2, 2)
			s.settles(a, queue.Ack)
			s.refused(b, queue.Ack)
		}, broken(queue.Stolen)},
		"a late ack counts over a restart": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.gen = 2
			s.gets("b", 0, 1, 1)
			s.settles(a, queue.Ack)
		}, broken(queue.Stolen)},
		"a late nack counts": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.now += 3600 * second
			s.gets("b", 0, 2, 2)
			s.settles(a, queue.Nack)
		}, broken(queue.Stolen)},
		"refused for nothing": {func(s *story) {
			s.pushes(0)
			s.refused(s.gets("a", 0, 1, 1), queue.Ack)
		}, broken(queue.Denied)},
		"refused behind its deadline": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.now += 3600 * second
			s.refused(a, queue.Ack)
		}, nil},
		"refused the second time": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.settles(a, queue.Ack)
			s.refused(a, queue.Ack)
			s.ends(nil)
		}, nil},
		"a number twice": {func(s *story) {
			s.pushes(0, 1)
			s.gets("a", 0, 1, 1)
			s.gets("b", 1, 1, 1)
		}, broken(queue.Repeated)},
		"a number that falls": {func(s *story) {
			s.pushes(0, 1)
			s.gets("a", 0, 2, 1)
			s.gets("b", 1, 1, 1)
		}, broken(queue.Repeated)},
		"more than it wants": {func(s *story) {
			s.pushes(0, 1, 2)
			s.Credit("g", "a", 2)
			a := s.gets("a", 0, 1, 1)
			s.gets("a", 1, 2, 1)
			s.unanswered(a, queue.Ack)
			s.gets("a", 2, 3, 1)
			s.Credit("g", "a", 3)
			s.pushes(3, 4)
			s.gets("a", 3, 4, 1)
			s.wants()
			s.gets("a", 4, 5, 1)
		}, broken(queue.Overfull)},
		"while it pauses": {func(s *story) {
			s.pushes(0, 1)
			s.orders(queue.Pause)
			s.orders(queue.Resume)
			s.gets("a", 0, 1, 1)
			s.wants()
			s.orders(queue.Pause)
			s.gets("a", 1, 2, 1)
		}, broken(queue.Paused)},
		"a group that nobody declared": {func(s *story) {
			s.pushes(0)
			s.HandOut(queue.Claim{Group: "h", Body: body(0)})
		}, broken(queue.Unusable)},
	})
}

func TestEnds(t *testing.T) {
	rejected := queue.DeadLetter{Message: msg(0), Attempts: 1, Reason: queue.Rejected}
	each(t, map[string]told{
		"handed out behind its ack": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Ack)
			s.gen = 2
			s.gets("a", 0, 1, 1)
		}, broken(queue.Undone)},
		"there behind its ack": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Ack)
			s.ends([]uint64{0})
		}, broken(queue.Undone)},
		"there behind an ack without an answer": {func(s *story) {
			s.pushes(0)
			s.unanswered(s.gets("a", 0, 1, 1), queue.Ack)
			s.ends([]uint64{0})
		}, nil},
		"gone behind an ack without an answer": {func(s *story) {
			s.pushes(0)
			s.unanswered(s.gets("a", 0, 1, 1), queue.Ack)
			s.ends(nil)
		}, nil},
		"a dead letter behind its ack": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Ack)
			s.ends(nil, rejected)
		}, broken(queue.TwoEnds, queue.Dead)},
		"handed out behind its rejection": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Reject)
			s.gets("a", 0, 2, 2)
		}, broken(queue.Undone, queue.Miscounted)},
		"redriven": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Reject)
			s.orders(queue.Redrive, 0)
			s.settles(s.gets("a", 0, 2, 1), queue.Ack)
			s.ends(nil)
		}, nil},
		"both there and a dead letter": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Reject)
			s.ends([]uint64{0}, rejected)
		}, broken(queue.TwoEnds)},
		"a rejection that is nowhere": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Reject)
			s.ends(nil)
		}, broken(queue.Lost)},
		"discarded": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Reject)
			s.orders(queue.Discard, 0)
			s.ends(nil)
		}, nil},
		"discarded and still there": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Reject)
			s.orders(queue.Discard, 0)
			s.ends(nil, rejected)
		}, broken(queue.Undone)},
		"canceled": {func(s *story) {
			s.pushes(0)
			s.orders(queue.Cancel, 0)
			s.ends(nil)
		}, nil},
		"canceled and still there": {func(s *story) {
			s.pushes(0)
			s.orders(queue.Cancel, 0)
			s.ends([]uint64{0})
		}, broken(queue.Undone)},
		"canceled and acknowledged": {func(s *story) {
			s.pushes(0)
			a := s.gets("a", 0, 1, 1)
			s.orders(queue.Cancel, 0)
			s.settles(a, queue.Ack)
			s.ends(nil)
		}, broken(queue.TwoEnds)},
		"rejected by nobody": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.ends(nil, rejected)
		}, broken(queue.Dead)},
		"dead too soon": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Nack)
			s.ends(nil, queue.DeadLetter{Message: msg(0), Attempts: 1, Reason: queue.Attempts})
		}, broken(queue.Dead)},
		"expired for no reason": {func(s *story) {
			s.pushes(0)
			s.ends(nil, queue.DeadLetter{Message: msg(0), Reason: queue.Expired})
		}, broken(queue.Dead)},
		"expired": {func(s *story) {
			s.push(0, queue.Push{TTL: time.Second})
			s.ends(nil)
		}, nil},
		"gone before it expires": {func(s *story) {
			s.push(0, queue.Push{TTL: time.Hour})
			s.ends(nil)
		}, broken(queue.Lost)},
		"lost": {func(s *story) {
			s.pushes(0, 1)
			s.ends([]uint64{1})
		}, broken(queue.Lost)},
		"lost, though it was handed out": {func(s *story) {
			s.Push(queue.Push{Client: "p", Body: body(0)})
			s.gets("a", 0, 1, 1)
			s.ends(nil)
		}, broken(queue.Lost)},
		"gone when its group was made": {func(s *story) {
			s.pushes(0)
			s.orders(queue.Restart)
			s.pushes(1)
			s.Audit(queue.Audit{Group: "g", To: 100, Fresh: true})
		}, broken(queue.Lost)},
		"a push without an answer is nowhere": {func(s *story) {
			s.Push(queue.Push{Client: "p", Body: body(0)})
			s.ends(nil)
		}, nil},
		"beyond the end": {func(s *story) {
			s.pushes(100)
			s.ends(nil)
		}, broken(queue.Lost)},
		"of before the last reset": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Ack)
			s.orders(queue.Restart)
			s.handOut(queue.Claim{Consumer: "a", Message: msg(0), HandOut: 1, Attempt: 1, Resets: 1})
			s.Audit(queue.Audit{Group: "g", Resets: 1, To: 100, Open: []queue.Message{msg(0)}})
		}, nil},
	})
}

func TestAttempts(t *testing.T) {
	each(t, map[string]told{
		"to the last": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Nack)
			s.gen = 2
			s.now += second
			s.settles(s.gets("a", 0, 1, 2), queue.Nack)
			s.now += 60 * second
			s.settles(s.gets("a", 0, 2, 3), queue.Nack)
			s.ends(nil, queue.DeadLetter{Message: msg(0), Attempts: 3, Reason: queue.Attempts})
		}, nil},
		"forgotten over a restart": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Nack)
			s.gen = 2
			s.gets("a", 0, 1, 1)
		}, broken(queue.Forgotten)},
		"forgotten over two restarts": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Nack)
			s.gen = 2
			s.gets("a", 0, 1, 2)
			s.gen = 3
			s.gets("a", 0, 1, 1)
		}, broken(queue.Forgotten)},
		"not acknowledged, and forgotten by a restart": {func(s *story) {
			s.pushes(0)
			s.unanswered(s.gets("a", 0, 1, 1), queue.Nack)
			s.now += 60 * second
			s.gets("a", 0, 2, 2)
			s.gen = 2
			s.gets("a", 0, 1, 1)
		}, nil},
		"falls": {func(s *story) {
			s.pushes(0)
			s.unanswered(s.gets("a", 0, 1, 1), queue.Nack)
			s.unanswered(s.gets("a", 0, 2, 2), queue.Nack)
			s.gets("a", 0, 3, 1)
		}, broken(queue.Forgotten)},
		"the deadline does not count": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.now += 3600 * second
			s.gets("b", 0, 2, 1)
		}, broken(queue.Forgotten)},
		"what was released counts": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Release)
			s.gets("b", 0, 2, 2)
		}, broken(queue.Miscounted)},
		"leaving counts": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.Gone("g", "a", true)
			s.gets("b", 0, 2, 2)
		}, broken(queue.Miscounted)},
		"a restart counts": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.gen = 2
			s.gets("b", 0, 1, 2)
		}, broken(queue.Miscounted)},
		"counted twice": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Nack)
			s.gets("b", 0, 2, 3)
		}, broken(queue.Miscounted)},
		"begins with the second": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 2)
		}, broken(queue.Miscounted)},
		"one too many": {func(s *story) {
			s.pushes(0)
			for i := range uint32(4) {
				s.settles(s.gets("a", 0, uint64(i+1), i+1), queue.Nack)
				s.now += 60 * second
			}
		}, broken(queue.Beyond)},
	})
}

func TestTimes(t *testing.T) {
	each(t, map[string]told{
		"in time": {func(s *story) {
			s.push(0, queue.Push{Delay: time.Second, TTL: 3 * time.Second})
			s.gets("a", 0, 1, 1)
		}, nil},
		"before its delay is over": {func(s *story) {
			s.push(0, queue.Push{Delay: time.Minute})
			s.gets("a", 0, 1, 1)
		}, broken(queue.Early)},
		"before its delay is over, by another clock": {func(s *story) {
			s.Skew = time.Minute
			s.push(0, queue.Push{Delay: time.Minute})
			s.gets("a", 0, 1, 1)
		}, nil},
		"rescheduled": {func(s *story) {
			s.push(0, queue.Push{Delay: time.Minute})
			s.Commanded(s.Command(queue.Command{Group: "g", Order: queue.Reschedule, Messages: []queue.Message{msg(0)}}), history.Acked, 1)
			s.gets("a", 0, 1, 1)
		}, nil},
		"given back, and comes too soon": {func(s *story) {
			s.pushes(0)
			s.answered(queue.Settlement{Claim: s.gets("a", 0, 1, 1), Op: queue.Nack, For: time.Minute}, queue.SettleAnswer{})
			s.gets("a", 0, 2, 2)
		}, broken(queue.Early)},
		"sooner than the backoff": {func(s *story) {
			s.pushes(0)
			s.settles(s.gets("a", 0, 1, 1), queue.Nack)
			s.settles(s.gets("a", 0, 2, 2), queue.Nack)
			s.gets("a", 0, 3, 3)
		}, broken(queue.Early)},
		"too late": {func(s *story) {
			s.push(0, queue.Push{TTL: time.Minute})
			s.now += 60 * second
			s.gets("a", 0, 1, 1)
		}, broken(queue.Late)},
	})
}

func TestKeys(t *testing.T) {
	push := func(s *story, offsets ...uint64) {
		for _, o := range offsets {
			s.push(o, queue.Push{Key: "k"})
		}
	}
	gets := func(s *story, offset, handOut uint64, attempt uint32) queue.ClaimID {
		return s.handOut(queue.Claim{Consumer: "a", Message: msg(offset), HandOut: handOut, Attempt: attempt, Key: "k"})
	}
	each(t, map[string]told{
		"one after the other": {func(s *story) {
			push(s, 0, 1)
			s.settles(gets(s, 0, 1, 1), queue.Nack)
			s.settles(gets(s, 0, 2, 2), queue.Ack)
			s.settles(gets(s, 1, 3, 1), queue.Ack)
		}, nil},
		"both are out": {func(s *story) {
			push(s, 0, 1)
			gets(s, 0, 1, 1)
			gets(s, 1, 2, 1)
		}, broken(queue.KeyOrder)},
		"one waits": {func(s *story) {
			push(s, 0, 1)
			s.settles(gets(s, 0, 1, 1), queue.Nack)
			gets(s, 1, 2, 1)
		}, broken(queue.KeyOrder)},
		"one waits over a restart": {func(s *story) {
			push(s, 0, 1)
			s.settles(gets(s, 0, 1, 1), queue.Nack)
			s.gen = 2
			gets(s, 1, 1, 1)
		}, broken(queue.KeyOrder)},
		"it is a dead letter": {func(s *story) {
			push(s, 0, 1)
			for i := range uint32(3) {
				s.settles(gets(s, 0, uint64(i+1), i+1), queue.Nack)
				s.now += 60 * second
			}
			gets(s, 1, 4, 1)
		}, nil},
		"released": {func(s *story) {
			push(s, 0, 1)
			s.settles(gets(s, 0, 1, 1), queue.Release)
			s.settles(gets(s, 0, 2, 1), queue.Ack)
			gets(s, 1, 3, 1)
		}, nil},
		"the later first": {func(s *story) {
			push(s, 0, 1)
			s.settles(gets(s, 1, 1, 1), queue.Ack)
			gets(s, 0, 2, 1)
		}, broken(queue.KeyOrder)},
		"the later first, of more priority": {func(s *story) {
			push(s, 0)
			s.push(1, queue.Push{Key: "k", Priority: 1})
			s.settles(gets(s, 1, 1, 1), queue.Ack)
			gets(s, 0, 2, 1)
		}, nil},
		"other keys": {func(s *story) {
			push(s, 0)
			s.pushes(1)
			gets(s, 0, 1, 1)
			s.gets("b", 1, 2, 1)
		}, nil},
	})
}

func TestPushes(t *testing.T) {
	each(t, map[string]told{
		"refused and there": {func(s *story) {
			s.Pushed(s.Push(queue.Push{Client: "p", Body: body(0)}), queue.PushAnswer{Outcome: history.Refused})
			s.gets("a", 0, 1, 1)
		}, broken(queue.Stored)},
		"pushed by nobody": {func(s *story) {
			s.gets("a", 0, 1, 1)
		}, broken(queue.Phantom)},
		"listed, and pushed by nobody": {func(s *story) {
			s.ends([]uint64{7})
		}, broken(queue.Phantom)},
		"another body": {func(s *story) {
			s.pushes(0, 1)
			s.handOut(queue.Claim{Consumer: "a", Message: msg(0), Body: body(1), HandOut: 1, Attempt: 1})
		}, broken(queue.Altered)},
		"another key": {func(s *story) {
			s.pushes(0)
			s.handOut(queue.Claim{Consumer: "a", Message: msg(0), Key: "k", HandOut: 1, Attempt: 1})
		}, broken(queue.Altered)},
		"twice": {func(s *story) {
			s.pushes(0)
			s.gets("a", 0, 1, 1)
			s.handOut(queue.Claim{Consumer: "a", Message: msg(1), Body: body(0), HandOut: 2, Attempt: 1})
		}, broken(queue.Twice)},
		"twice, of a push without an answer": {func(s *story) {
			s.Push(queue.Push{Client: "p", Body: body(0)})
			s.gets("a", 0, 1, 1)
			s.handOut(queue.Claim{Consumer: "a", Message: msg(1), Body: body(0), HandOut: 2, Attempt: 1})
		}, broken(queue.Twice)},
		"two in one place": {func(s *story) {
			s.pushes(0)
			s.Pushed(s.Push(queue.Push{Client: "p", Body: "other"}), queue.PushAnswer{Outcome: history.Acked})
		}, broken(queue.Clash)},
		"one body": {func(s *story) {
			s.pushes(0)
			s.Push(queue.Push{Client: "p", Body: body(0)})
		}, broken(queue.Unusable)},
	})
}

func TestKindsAreNamed(t *testing.T) {
	for k := queue.Overlap; k <= queue.Unusable; k++ {
		if k.String() == "" || k.String() == "invalid" || (k.Guarantee() == "") != (k == queue.Unusable) {
			t.Errorf("kind %d: %q, %q", k, k, k.Guarantee())
		}
	}
}
