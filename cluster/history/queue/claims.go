// SPDX-License-Identifier: Apache-2.0

package queue

import "margay.dev/cluster/history"

// reason is a set of what may have ended a claim.
type reason uint16

const (
	byAck reason = 1 << iota
	byNack
	byReject
	byRelease
	byTime
	byLeaving // in order
	byDeath   // of the consumer
	byLeader
	byCommand
)

// reasons returns all that may have ended a claim before a moment, at which a time had not passed.
func (c *checker) reasons(l *line, x *claim, before int, notAfter int64) (why reason) {
	for _, s := range x.settles {
		if s.began > before || l.kept(s) {
			continue
		}
		switch s.Op {
		case Ack:
			why |= byAck
		case Nack:
			why |= byNack
		case Reject:
			why |= byReject
		case Release:
			why |= byRelease
		default:
		}
	}
	for _, g := range c.left[consumerKey{x.Group, x.Consumer}] {
		switch {
		case g.moment > before:
		case g.orderly:
			why |= byLeaving
		default:
			why |= byDeath
		}
	}
	if l.Loses {
		why |= byCommand
	}
	for _, o := range l.commands {
		if o.began < before && (o.ended == 0 || o.ended > x.moment) && o.Order <= Restart && (o.Order != Redrive || l.WritesFail) {
			why |= byCommand
		}
	}
	if d := c.deadline(l, x, before); notAfter == 0 || d <= notAfter+c.skew {
		why |= byTime
	}
	return why
}

// denied says that nothing of it was done. Of one that is told that its claim has ended, an earlier try may have done that.
func (l *line) denied(s *settlement) bool {
	return (s.Outcome == history.Refused || s.Outcome == history.Fatal) && (l.Exact || !s.Ended)
}

// kept says that a claim outlives a settlement: one that could not be written may have ended it all the same.
func (l *line) kept(s *settlement) bool { return l.denied(s) && (s.Ended || !l.WritesFail) }

// deadline is the earliest at which a claim may end by itself, as far as is known before a moment.
func (c *checker) deadline(l *line, x *claim, before int) int64 {
	handed := x.NotBefore
	if l.push != nil {
		handed = max(handed, l.push.NotBefore, l.push.AppendTime)
	}
	d := handed + l.AckWait.Microseconds()
	for _, s := range x.settles {
		if s.Op != Extend || s.began > before || s.Outcome == history.Refused || s.Outcome == history.Fatal {
			continue
		}
		wait := s.For
		if wait == 0 {
			wait = l.AckWait
		}
		next := s.Settlement.NotBefore + wait.Microseconds()
		if s.Outcome == history.Acked && s.ended < before {
			d = next
		} else {
			d = min(d, next)
		}
	}
	return d
}

func (c *checker) leaderEnded(shard uint32, after, before int) bool {
	for _, e := range c.ends {
		if e.shard == shard && e.moment > after && e.moment < before {
			return true
		}
	}
	return false
}

// accepted returns a settlement of a kind that was acknowledged, nil for none.
func (x *claim) accepted(ops ...Op) *settlement {
	for _, s := range x.settles {
		for _, op := range ops {
			if s.Op == op && s.Outcome == history.Acked {
				return s
			}
		}
	}
	return nil
}

// redriven says whether a message may have become one again between two moments.
func (l *line) redriven(after, before int) bool {
	for _, o := range l.commands {
		if o.Order == Redrive && o.began < before && (o.ended == 0 || o.outcome == history.Unknown || o.ended > after) {
			return true
		}
	}
	return false
}

func (c *checker) checkLine(l *line) {
	floor := uint32(1) // of the next attempt, by what was acknowledged
	for i, x := range l.claims {
		if i > 0 && l.claims[i-1].Resets != x.Resets {
			floor = 1
		}
		if i > 0 && l.claims[i-1].Resets == x.Resets {
			before := l.claims[i-1]
			if l.redriven(before.moment, x.moment) {
				floor = 1
			} else {
				c.checkAttempt(l, before, x)
			}
			c.checkPair(l, before, x)
		} else if l.Exact && x.Attempt != 1 {
			c.report(Miscounted, l.group, l.Message, "%s, and it is the first", x)
		}
		if x.Attempt < floor {
			c.report(Forgotten, l.group, l.Message, "%s, and attempt %d was acknowledged as ended", x, floor-1)
		}
		if s := x.accepted(Nack); s != nil {
			floor = max(floor, x.Attempt+1)
		}
		if l.MaxAttempts > 0 && x.Attempt > l.MaxAttempts {
			c.report(Beyond, l.group, l.Message, "%s of %d", x, l.MaxAttempts)
		}
		c.checkTime(l, x)
		c.checkDenied(l, i)
	}
}

// checkPair holds two claims of a message, one behind the other, to what becomes of the first. A leader does not know who was
// handed what by those before it: until it hands out a message, whoever had that may acknowledge it.
func (c *checker) checkPair(l *line, a, b *claim) {
	if s := a.accepted(Ack, Nack, Reject, Release); s != nil && s.began > b.moment {
		if s.Op != Ack || !c.leaderEnded(b.Shard, b.moment, s.ended) {
			c.report(Stolen, l.group, l.Message, "%s; then %s, and of the first %s", a, b, s)
		}
		return
	}
	if s := a.accepted(Ack); s != nil && !c.leaderEnded(b.Shard, b.moment, s.ended) ||
		a.accepted(Reject) != nil && !l.redriven(a.moment, b.moment) {
		c.report(Undone, l.group, l.Message, "%s, and %s; then %s", a, a.accepted(Ack, Reject), b)
		return
	}
	if a.Generation == b.Generation && c.reasons(l, a, b.moment, b.NotAfter) == 0 {
		c.report(Overlap, l.group, l.Message, "%s; then %s", a, b)
	}
}

// checkAttempt holds the numbers of two claims to what may have ended the first.
func (c *checker) checkAttempt(l *line, a, b *claim) {
	why := c.reasons(l, a, b.moment, b.NotAfter)
	if a.Generation != b.Generation {
		why |= byLeader
	}
	counts := byNack | byTime | byDeath // and byReject, byAck, behind which none comes
	kept := a.Generation == b.Generation && !l.WritesFail
	switch {
	case kept && b.Attempt < a.Attempt, kept && b.Attempt == a.Attempt && why != 0 && why&^(byNack|byTime) == 0:
		c.report(Forgotten, l.group, l.Message, "%s; then %s", a, b)
	case why != 0 && why&counts == 0 && b.Attempt > a.Attempt, l.Exact && b.Attempt > a.Attempt+1:
		c.report(Miscounted, l.group, l.Message, "%s; then %s", a, b)
	}
	// What was acknowledged is what ended the claim, and holds over the end of a leader.
	if s := a.accepted(Nack); s != nil && s.began < b.moment && why&byCommand == 0 && b.NotAfter != 0 && s.Settlement.NotBefore != 0 {
		if due := s.Settlement.NotBefore + l.waits(a, s); b.NotAfter+c.skew < due {
			c.report(Early, l.group, l.Message, "%s, given back to wait until %d; then, by %d, %s", a, due, b.NotAfter, b)
		}
	}
}

// waits is how long a message is to wait behind a nack, in microseconds.
func (l *line) waits(x *claim, s *settlement) int64 {
	if s.For != 0 || len(l.Backoff) == 0 {
		return s.For.Microseconds()
	}
	return l.Backoff[min(int(x.Attempt), len(l.Backoff))-1].Microseconds()
}

// checkTime demands that a message comes neither before its delay has passed nor after its time to live, which a dead letter
// that is redriven has not.
func (c *checker) checkTime(l *line, x *claim) {
	p := l.push
	if p == nil {
		return
	}
	stored := max(p.AppendTime, p.NotBefore)
	due := stored + p.Delay.Microseconds()
	for _, o := range l.commands {
		if o.Order == Reschedule && o.began < x.moment {
			due = min(due, o.Due)
		}
	}
	if x.NotAfter != 0 && x.NotAfter+c.skew < due {
		c.report(Early, l.group, l.Message, "%s, by %d, and it is due at %d", x, x.NotAfter, due)
	}
	if p.TTL != 0 && p.AppendTime != 0 && !l.redriven(0, x.moment) && x.NotBefore-c.skew > p.AppendTime+p.TTL.Microseconds() {
		c.report(Late, l.group, l.Message, "%s, behind %d, and it lives until %d", x, x.NotBefore, p.AppendTime+p.TTL.Microseconds())
	}
}

// settledBy says whether another claim may have been acknowledged before a moment.
func (l *line) settledBy(x *claim, before int) bool {
	for _, other := range l.claims {
		for _, s := range other.settles {
			if other != x && s.Op == Ack && s.began < before && !l.denied(s) {
				return true
			}
		}
	}
	return false
}

// checkDenied demands that a claim that was refused as ended had something that ended it. A claim of a leader that has
// ended can still be acknowledged until the message is handed out again.
func (c *checker) checkDenied(l *line, i int) {
	x := l.claims[i]
	if !l.Exact {
		return
	}
	for _, s := range x.settles {
		if s.Outcome != history.Refused || !s.Ended || s.ended == 0 {
			continue
		}
		if c.leaderEnded(x.Shard, x.moment, s.ended) && (s.Op != Ack || l.WritesFail || l.push != nil && l.push.TTL != 0) {
			continue
		}
		if i+1 < len(l.claims) && l.claims[i+1].moment < s.ended || l.settledBy(x, s.ended) {
			continue
		}
		if c.reasons(l, x, s.ended, s.NotAfter) == 0 {
			c.report(Denied, l.group, l.Message, "%s, and %s", x, s)
		}
	}
}
