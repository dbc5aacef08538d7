// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"slices"

	"margay.dev/cluster/history"
)

// checkAudit holds what is there in the end to all that was told: each message is there, or has come to one end.
func (c *checker) checkAudit(a *Audit) {
	g, ok := c.groups[a.Group]
	if !ok {
		c.report(Unusable, a.Group, Message{}, "nobody declared the group")
		return
	}
	dead := map[Message]DeadLetter{}
	for _, d := range a.Dead {
		dead[d.Message] = d
		c.checkListed(a, d.Message, "a dead letter")
	}
	open := map[Message]bool{}
	for _, m := range a.Open {
		open[m] = true
		c.checkListed(a, m, "there")
	}
	var all []Message
	for m := range c.wrote {
		if m.Shard == a.Shard && m.Offset >= a.From && m.Offset < a.To {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(x, y Message) int { return cmp.Compare(x.Offset, y.Offset) })
	for _, m := range all {
		e := c.endsOf(a, m)
		d, isDead := dead[m]
		e.judge(c, a, isDead, open[m])
		if isDead {
			c.checkDead(g, e, a, d)
		}
	}
	for m, p := range c.wrote {
		if m.Shard == a.Shard && m.Offset >= a.To && (p.Outcome == history.Acked || c.lines[lineKey{a.Group, m}] != nil) {
			c.report(Lost, a.Group, m, "%s, and the shard ends at %d", p, a.To)
		}
	}
}

// checkListed demands that what is listed was pushed.
func (c *checker) checkListed(a *Audit, m Message, as string) {
	if c.wrote[m] != nil {
		return
	}
	for i := range c.pushes {
		if c.pushes[i].Outcome == history.Unknown {
			return // it may be that one
		}
	}
	c.report(Phantom, a.Group, m, "is %s, and nobody pushed it", as)
}

// ends is what was told of a message.
type ends struct {
	push  *push
	line  *line // nil when it was never handed out
	acked *settlement
	// rejected is acknowledged, and nothing is known to have made it a message again.
	rejected *settlement
	// canceled and discarded are orders that were acknowledged.
	canceled, discarded bool
	// may says that it may have come to an end that nobody was told of.
	may       bool
	rejecting bool // somebody tried
}

func (c *checker) endsOf(a *Audit, m Message) *ends {
	e := &ends{push: c.wrote[m], line: c.lines[lineKey{a.Group, m}]}
	if p := e.push; p.TTL != 0 {
		lives := max(p.AppendTime, p.NotBefore) + p.TTL.Microseconds()
		e.may = a.NotAfter == 0 || lives <= a.NotAfter+c.skew
	}
	e.may = e.may || a.Fresh && c.restarted(a.Group, e.push.began)
	for i := range c.commands {
		o := &c.commands[i]
		if o.denied() || !o.covers(a.Group, m) {
			continue
		}
		switch o.Order {
		case Cancel:
			e.may = true
			e.canceled = e.canceled || o.whole() && !c.restarted(a.Group, o.began)
		case Discard:
			e.may = true
			e.discarded = e.discarded || o.whole() && !c.restarted(a.Group, o.began)
		default:
		}
	}
	if e.line == nil {
		return e
	}
	for _, x := range e.line.claims {
		if x.Resets != a.Resets {
			continue
		}
		for _, s := range x.settles {
			switch {
			case e.line.denied(s):
			case s.Op == Ack && s.Outcome == history.Acked:
				if e.acked != nil && e.acked.Claim != s.Claim {
					c.report(TwoEnds, a.Group, m, "%s by hand-out %d and by hand-out %d", s, c.claims[e.acked.Claim].HandOut, x.HandOut)
				}
				e.acked = s
			case s.Op == Ack:
				e.may = true // it may have been done
			case s.Op == Reject:
				e.rejecting = true
				if s.Outcome == history.Acked && !e.line.redriven(x.moment, int(^uint(0)>>1)) {
					e.rejected = s
				}
			default:
			}
		}
	}
	return e
}

// restarted says whether a group may have begun again after a moment.
func (c *checker) restarted(group string, after int) bool {
	return slices.ContainsFunc(c.commands, func(o command) bool {
		return o.Order == Restart && o.covers(group, Message{}) && (o.ended == 0 || o.ended > after) && !o.denied()
	})
}

// whole says that it was done of every message that it names.
func (x *command) whole() bool {
	return x.outcome == history.Acked && x.Group != "" && x.Messages != nil && x.count == len(x.Messages)
}

// judge holds what was told of a message to where it is in the end.
func (e *ends) judge(c *checker, a *Audit, dead, open bool) {
	m := e.push.Message
	switch {
	case dead && open:
		c.report(TwoEnds, a.Group, m, "is there and a dead letter")
	case e.acked != nil && open:
		c.report(Undone, a.Group, m, "is there, and %s", e.acked)
	case e.acked != nil && dead:
		c.report(TwoEnds, a.Group, m, "is a dead letter, and %s", e.acked)
	case e.acked != nil && e.rejected != nil:
		c.report(TwoEnds, a.Group, m, "%s, and %s", e.acked, e.rejected)
	case e.rejected != nil && open:
		c.report(Undone, a.Group, m, "is there, and %s", e.rejected)
	case e.canceled && (open || dead):
		c.report(Undone, a.Group, m, "is there, and was canceled")
	case e.canceled && e.acked != nil:
		c.report(TwoEnds, a.Group, m, "was canceled, and %s", e.acked)
	case e.discarded && dead:
		c.report(Undone, a.Group, m, "is a dead letter, and was discarded")
	case e.acked != nil || dead || open:
	case e.rejected != nil && !e.discarded && !e.may:
		c.report(Lost, a.Group, m, "is no dead letter, and %s", e.rejected)
	case e.may || e.rejected != nil:
	case e.push.Outcome != history.Acked && e.line == nil: // nobody was told that it is there
	default:
		c.report(Lost, a.Group, m, "%s; it is not there, and nothing ended it", e.push)
	}
}

// checkDead demands that a dead letter has the reason that it tells.
func (c *checker) checkDead(g Group, e *ends, a *Audit, d DeadLetter) {
	switch d.Reason {
	case Rejected:
		if !e.rejecting {
			c.report(Dead, a.Group, d.Message, "is rejected, and nobody did that")
		}
	case Attempts:
		if g.MaxAttempts == 0 || d.Attempts < g.MaxAttempts {
			c.report(Dead, a.Group, d.Message, "had %d attempts of %d", d.Attempts, g.MaxAttempts)
		}
	case Expired:
		if e.push.TTL == 0 {
			c.report(Dead, a.Group, d.Message, "has expired, and lives for ever")
		}
	default:
		c.report(Dead, a.Group, d.Message, "has reason %d", d.Reason)
	}
	if e.line == nil || !g.Exact || d.Reason == Expired {
		return
	}
	if n := len(e.line.claims); n > 0 {
		if last := e.line.claims[n-1]; last.Resets == a.Resets && d.Attempts != last.Attempt {
			c.report(Dead, a.Group, d.Message, "had %d attempts, and %s", d.Attempts, last)
		}
	}
}
