// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"margay.dev/broker/group"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// JoinGroup makes a consumer one of a group. The answer has what it joined.
type JoinGroup struct {
	Group    string
	Consumer *group.Consumer
	To       any
}

// LeaveGroup ends what a consumer has out. An orderly one gives back what it has not settled; of another one, hand-outs up to
// Delivered were written to its connection, and those up to Begun it said that it had begun.
type LeaveGroup struct {
	Consumer         *group.Consumer
	Orderly          bool
	Delivered, Begun uint64
	To               any
}

// Settle settles messages; each request is answered for itself, with the tokens that were refused. They come together so
// that one round costs one batch, however many consumers there are.
type Settle struct{ List []*group.Settlement }

// ExtendClaims lets claims last longer, and is answered at once, with the tokens that were refused.
type ExtendClaims struct {
	group.Extension
	To any
}

// CreditBack says that a consumer may be handed something again.
type CreditBack struct{ Consumer *group.Consumer }

// GroupCommand changes groups, once, however often it comes.
type GroupCommand struct{ group.Command }

// Inspect reads the groups in the core's goroutine. It is answered when what was seen is committed.
type Inspect struct {
	Look func(*group.View)
	To   any
}

// GroupsScanned brings what the groups have asked for of the log.
type GroupsScanned struct{ group.Scanned }

func (*JoinGroup) shardEvent()     {}
func (*LeaveGroup) shardEvent()    {}
func (*Settle) shardEvent()        {}
func (*ExtendClaims) shardEvent()  {}
func (CreditBack) shardEvent()     {}
func (*GroupCommand) shardEvent()  {}
func (*Inspect) shardEvent()       {}
func (*GroupsScanned) shardEvent() {}

// newGroups are the groups of a log of which nothing is known.
func (c *Core) newGroups() *group.Groups {
	if !c.cfg.KeepUnsettled {
		return group.New(c.cfg.Generation, nil)
	}
	return group.New(c.cfg.Generation, &c.places)
}

// groupEvent does what concerns groups.
func (c *Core) groupEvent(now int64, ev Event, eff *Effects) {
	switch ev := ev.(type) {
	case *JoinGroup:
		c.joinGroup(now, ev, eff)
	case *LeaveGroup:
		c.inGroups(now, eff, func() { c.groups.Leave(ev.Consumer, ev.Orderly, ev.Delivered, ev.Begun) })
		if ev.To != nil {
			c.answerGroups(Answer{To: ev.To}, eff)
		}
	case *Settle:
		c.settle(now, ev, eff)
	case *ExtendClaims:
		c.extend(now, ev, eff)
	case CreditBack:
		c.groups.CreditBack(ev.Consumer)
	case *GroupCommand:
		c.groupCommand(now, ev, eff)
	case *Inspect:
		c.aside(now, eff, func() { ev.Look(c.groups.View()) })
		c.answerGroups(Answer{To: ev.To, Err: c.lost}, eff)
	case *GroupsScanned:
		step := c.aside
		if len(ev.Lost) > 0 {
			step = c.inGroups
		}
		step(now, eff, func() { c.groups.Scanned(&ev.Scanned) })
	}
}

// inGroups takes a step of the groups that may lead to something to be remembered.
func (c *Core) inGroups(now int64, eff *Effects, step func()) {
	if c.lost != nil || c.groups.Len() == 0 {
		c.aside(now, eff, step)
		return
	}
	c.beginControl(now, entrySize, eff)
	c.aside(now, eff, step)
}

// aside takes a step of the groups for which room has been made, or that leads to nothing to be remembered.
func (c *Core) aside(now int64, eff *Effects, step func()) {
	c.groups.Begin(c.at(now), c.length)
	step()
	fx := c.groups.End()
	for _, entries := range fx.Entries {
		c.control(now, eff, entries...)
	}
	eff.Hands = append(eff.Hands, fx.Hands...)
	eff.Scans = append(eff.Scans, fx.Scans...)
	eff.Gone = append(eff.Gone, fx.Gone...)
}

// answerGroups answers once all that the answer may rest on is committed.
func (c *Core) answerGroups(a Answer, eff *Effects) {
	if c.length == 0 {
		eff.Answers = append(eff.Answers, a)
		return
	}
	c.answerBehind(c.length-1, a, eff)
}

// groupsOf says why a log has no groups.
func (c *Core) groupsOf() *code.Error {
	switch {
	case c.lost != nil:
		return c.lost
	case c.cfg.Memory:
		return code.New(code.BadRequest, "a log in memory has no groups: what they have settled would be gone with it; use storage disk")
	}
	return nil
}

func (c *Core) joinGroup(now int64, ev *JoinGroup, eff *Effects) {
	a := Answer{To: ev.To, Err: c.groupsOf()}
	if a.Err == nil {
		c.aside(now, eff, func() { a.Joined, a.Err = c.groups.Join(ev.Group, ev.Consumer) })
	}
	c.answerGroups(a, eff)
}

func (c *Core) settle(now int64, ev *Settle, eff *Effects) {
	if c.lost != nil {
		for _, x := range ev.List {
			eff.Answers = append(eff.Answers, Answer{To: x.To, Err: c.lost})
		}
		return
	}
	if c.groups.Len() > 0 {
		c.beginControl(now, entrySize*int64(len(ev.List)), eff)
	}
	answers := make([]Answer, len(ev.List))
	c.aside(now, eff, func() {
		for i, x := range ev.List {
			answers[i].To = x.To
			answers[i].Failed, answers[i].Err = c.groups.SettleTokens(x)
		}
	})
	for _, a := range answers {
		c.answerGroups(a, eff)
	}
}

func (c *Core) extend(now int64, ev *ExtendClaims, eff *Effects) {
	a := Answer{To: ev.To, Err: c.lost}
	if a.Err == nil {
		c.aside(now, eff, func() { a.Failed, a.Err = c.groups.Extend(&ev.Extension) })
	}
	eff.Answers = append(eff.Answers, a)
}

func (c *Core) groupCommand(now int64, ev *GroupCommand, eff *Effects) {
	a := Answer{To: ev.To, Err: c.groupsOf()}
	if a.Err == nil {
		c.beginControl(now, entrySize, eff)
		c.aside(now, eff, func() { a.Done, a.Err = c.groups.Command(&ev.Command) })
	}
	c.answerGroups(a, eff)
}

// groupsTurn does what time and what has come have brought about for groups.
func (c *Core) groupsTurn(now int64, mayAppend bool, eff *Effects) {
	if c.lost != nil {
		return
	}
	at := c.at(now)
	if !c.grouping {
		c.grouping = true
		c.groups.Open(at)
	}
	for range 4 { // what is left has its turn with the next step
		if !c.groups.Wants(at) {
			return
		}
		due := mayAppend && c.groups.Due(at)
		if due {
			c.beginControl(now, entrySize, eff)
		}
		c.aside(now, eff, func() { c.groups.Turn(due) })
		if !mayAppend {
			return
		}
	}
}

// settlementHolds says whether the messages that a publish settles are its publisher's to settle.
func (c *Core) settlementHolds(p *Publish) (*batch.Settlement, *code.Error) {
	x, ok, err := p.Batch.Settlement()
	switch {
	case err != nil:
		return nil, code.New(code.CorruptBatch, "%w", err)
	case !ok:
		return nil, nil
	}
	if err := c.groupsOf(); err != nil {
		return nil, err
	}
	if len(p.Derives) > 0 {
		return nil, code.New(code.BadRequest, "records that are made from what their keys hold settle no messages: publish them apart")
	}
	return &x, c.groups.Holds(&x)
}

// replayGroups takes an entry of the log that is a group's.
func (c *Core) replayGroups(e batch.Entry, checkpoint bool) { c.groups.Replay(e, checkpoint) }

// giveUp has the groups give up what the log gives up with a new start, and returns what is to be said of it in the batch
// that says so: nothing is passed without the log saying why.
func (c *Core) giveUp(now int64, to LogStart, cause Cause, eff *Effects) []batch.Entry {
	kept := func(uint64) bool { return false }
	if c.cfg.KeepUnsettled && cause != ByTrim {
		kept = func(offset uint64) bool { return c.places.Place(offset) >= max(to.Sequence, 1) }
	}
	c.groups.Begin(c.at(now), c.length)
	c.groups.Lose(to.Offset, kept)
	fx := c.groups.End()
	if len(fx.Entries) == 0 {
		return nil
	}
	last := len(fx.Entries) - 1
	for _, entries := range fx.Entries[:last] {
		c.control(now, eff, entries...)
	}
	return fx.Entries[last]
}
