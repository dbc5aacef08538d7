// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"fmt"
	"slices"

	"margay.dev/cluster/history"
)

// checker holds one history and what was gathered from it. Each check is one promise.
type checker struct {
	groups   map[string]Group
	pushes   []push
	claims   []claim
	settles  []settlement
	commands []command
	gone     []gone
	credits  []credit
	ends     []leaderEnd
	audits   []Audit
	skew     int64

	writer map[string]*push // by body
	wrote  map[Message]*push
	lines  map[lineKey]*line
	order  []lineKey // of lines, as they came: reports must not depend on the order of a map
	left   map[consumerKey][]gone
	found  []Violation
}

type lineKey struct {
	group string
	Message
}

type consumerKey struct{ group, consumer string }

// line is all that happened to a message in a group.
type line struct {
	lineKey
	Group
	push     *push    // nil when nobody knows who pushed it
	claims   []*claim // in the order in which they were handed out
	commands []*command
}

func (c *checker) report(k Kind, group string, m Message, format string, args ...any) {
	c.found = append(c.found, Violation{Kind: k, Group: group, Message: m, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) check() []Violation {
	c.gatherPushes()
	c.gatherClaims()
	c.gatherCommands()
	c.checkHandOuts()
	for _, at := range c.order {
		if _, ok := c.groups[at.group]; ok {
			c.checkLine(c.lines[at])
		}
	}
	c.checkKeys()
	c.checkCredit()
	for i := range c.audits {
		c.checkAudit(&c.audits[i])
	}
	return c.found
}

func (c *checker) gatherPushes() {
	c.writer, c.wrote = map[string]*push{}, map[Message]*push{}
	for i := range c.pushes {
		p := &c.pushes[i]
		if other, ok := c.writer[p.Body]; ok {
			c.report(Unusable, "", p.Message, "%s and %s", other, p)
			continue
		}
		c.writer[p.Body] = p
		if p.Outcome != history.Acked {
			continue
		}
		if other, ok := c.wrote[p.Message]; ok {
			c.report(Clash, "", p.Message, "%s and %s", other, p)
			continue
		}
		c.wrote[p.Message], p.placed = p, true
	}
}

func (c *checker) gatherClaims() {
	c.lines = map[lineKey]*line{}
	for i := range c.claims {
		x := &c.claims[i]
		c.sight(x)
		at := lineKey{x.Group, x.Message}
		l := c.lines[at]
		if l == nil {
			g, ok := c.groups[x.Group]
			if !ok {
				c.report(Unusable, x.Group, x.Message, "nobody declared the group")
			}
			l = &line{lineKey: at, Group: g, push: c.wrote[x.Message]}
			c.lines[at] = l
			c.order = append(c.order, at)
		}
		l.claims = append(l.claims, x)
	}
	for i := range c.settles {
		s := &c.settles[i]
		if int(s.Claim) < 0 || int(s.Claim) >= len(c.claims) {
			c.report(Unusable, "", Message{}, "%s of a claim that is not in the history", s)
			continue
		}
		x := &c.claims[s.Claim]
		x.settles = append(x.settles, s)
	}
	for _, l := range c.lines {
		slices.SortStableFunc(l.claims, compareClaims)
	}
	c.left = map[consumerKey][]gone{}
	for _, g := range c.gone {
		at := consumerKey{g.group, g.consumer}
		c.left[at] = append(c.left[at], g)
	}
}

// sight holds what was handed out to the push that it is of.
func (c *checker) sight(x *claim) {
	p, known := c.writer[x.Body]
	there := c.wrote[x.Message]
	switch {
	case x.Body == "":
		if there != nil {
			x.Key = there.Key
		}
	case !known:
		c.report(Phantom, x.Group, x.Message, "%s got %q, which nobody pushed", x.Consumer, x.Body)
	case p.Outcome == history.Refused || p.Outcome == history.Fatal:
		c.report(Stored, x.Group, x.Message, "%s got it, %s", x.Consumer, p)
	case there != nil && there != p:
		c.report(Altered, x.Group, x.Message, "%s got %q, and %s", x.Consumer, x.Body, there)
	case p.placed && p.Message != x.Message:
		c.report(Twice, x.Group, x.Message, "%s got it, and %s as message %s", x.Consumer, p, p.Message)
	case p.Key != x.Key:
		c.report(Altered, x.Group, x.Message, "%s got key %q, and %s with %q", x.Consumer, x.Key, p, p.Key)
	default:
		// Of a push that was not answered nobody knew where it is but whoever got it.
		c.wrote[x.Message], p.Message, p.placed = p, x.Message, true
	}
}

func compareClaims(x, y *claim) int {
	return cmp.Or(cmp.Compare(x.Resets, y.Resets), cmp.Compare(x.Generation, y.Generation), cmp.Compare(x.HandOut, y.HandOut))
}

func (c *checker) gatherCommands() {
	for i := range c.commands {
		x := &c.commands[i]
		for _, at := range c.order {
			if x.covers(at.group, at.Message) && (!x.denied() || c.groups[at.group].WritesFail) {
				c.lines[at].commands = append(c.lines[at].commands, x)
			}
		}
	}
}

// denied says that nothing of it was done, or that it was taken back.
func (x *command) denied() bool { return x.outcome == history.Refused || x.outcome == history.Fatal }

func (x *command) covers(group string, m Message) bool {
	return (x.Group == "" || x.Group == group) && (x.Messages == nil || slices.Contains(x.Messages, m))
}

// checkHandOuts demands that a hand-out number is given once, that they rise where they are recorded as they are given,
// and that a group that pauses gives none.
func (c *checker) checkHandOuts() {
	type token struct {
		group      string
		shard      uint32
		resets     uint32
		generation uint64
		handOut    uint64
	}
	type stream struct {
		group      string
		shard      uint32
		generation uint64
	}
	given := map[token]*claim{}
	highest := map[stream]*claim{}
	for i := range c.claims {
		x := &c.claims[i]
		at := token{x.Group, x.Shard, x.Resets, x.Generation, x.HandOut}
		if other, ok := given[at]; ok {
			c.report(Repeated, x.Group, x.Message, "%s, and for message %s %s", x, other.Message, other)
		}
		given[at] = x
		if !c.groups[x.Group].Exact {
			continue
		}
		in := stream{x.Group, x.Shard, x.Generation}
		if other := highest[in]; other != nil && compareClaims(other, x) > 0 {
			c.report(Repeated, x.Group, x.Message, "%s, behind message %s, of which %s", x, other.Message, other)
		}
		highest[in] = x
		if p := c.pausedAt(x); p {
			c.report(Paused, x.Group, x.Message, "%s", x)
		}
	}
}

// pausedAt says whether the newest order to pause or resume is an acknowledged pause, with nothing that may have undone it.
func (c *checker) pausedAt(x *claim) bool {
	var paused bool
	for i := range c.commands {
		o := &c.commands[i]
		switch {
		case o.began > x.moment || o.Group != x.Group:
		case o.Order == Pause && o.outcome == history.Acked && o.ended < x.moment:
			paused = true
		case o.Order == Resume && o.outcome != history.Refused && o.outcome != history.Fatal, o.Order == Restart:
			paused = false
		}
	}
	return paused
}

// checkCredit demands that nobody is handed more than it wants to have.
func (c *checker) checkCredit() {
	most := map[consumerKey][]credit{}
	for _, x := range c.credits {
		at := consumerKey{x.group, x.consumer}
		most[at] = append(most[at], x)
	}
	held := map[consumerKey][]*claim{}
	for i := range c.claims {
		x := &c.claims[i]
		at := consumerKey{x.Group, x.Consumer}
		if len(most[at]) == 0 || !c.groups[x.Group].Exact {
			continue
		}
		l := c.lines[lineKey{x.Group, x.Message}]
		held[at] = slices.DeleteFunc(held[at], func(y *claim) bool {
			return c.reasons(c.lines[lineKey{y.Group, y.Message}], y, x.moment, x.NotAfter) != 0
		})
		held[at] = append(held[at], x)
		want := 0
		for _, m := range most[at] {
			if m.moment < x.moment {
				want = m.most
			}
		}
		if len(held[at]) > want && !c.leaderEnded(x.Shard, 0, x.moment) {
			c.report(Overfull, l.group, x.Message, "%s, and has %d of the %d that it wants", x, len(held[at]), want)
		}
	}
}
