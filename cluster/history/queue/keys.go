// SPDX-License-Identifier: Apache-2.0

package queue

import "slices"

// checkKeys demands, of groups that keep the order of keys, that one message of a key is out or waits for its next attempt
// at a time, and that messages of a key are first handed out in the order in which they lie.
func (c *checker) checkKeys() {
	type keyOf struct {
		group string
		shard uint32
		key   string
	}
	byKey := map[keyOf][]*claim{}
	var order []keyOf
	for i := range c.claims {
		x := &c.claims[i]
		if x.Key == "" || !c.groups[x.Group].ByKey {
			continue
		}
		at := keyOf{x.Group, x.Shard, x.Key}
		if byKey[at] == nil {
			order = append(order, at)
		}
		byKey[at] = append(byKey[at], x)
	}
	for _, at := range order {
		all := byKey[at]
		slices.SortStableFunc(all, compareClaims)
		newest := map[Message]*claim{}
		var seen []Message
		resets := all[0].Resets
		for _, b := range all {
			if b.Resets != resets {
				resets, seen = b.Resets, nil
				clear(newest)
			}
			for _, m := range seen {
				if m != b.Message {
					c.checkKeyPair(newest[m], b)
				}
			}
			if newest[b.Message] == nil {
				c.checkFirst(seen, b)
				seen = append(seen, b.Message)
			}
			newest[b.Message] = b
		}
	}
}

// checkKeyPair holds a claim to the newest one before it of another message of its key.
func (c *checker) checkKeyPair(a, b *claim) {
	l := c.lines[lineKey{a.Group, a.Message}]
	why := c.reasons(l, a, b.moment, b.NotAfter)
	if l.push != nil && l.push.TTL != 0 {
		why |= byCommand
	}
	if l.settledBy(a, b.moment) {
		why |= byAck
	}
	if a.Generation != b.Generation {
		why |= byLeader
	}
	ended := byAck | byReject | byCommand // and it holds its key no more
	back := byRelease | byLeaving | byDeath | byLeader
	if l.MaxAttempts > 0 && a.Attempt >= l.MaxAttempts {
		ended |= byNack | byTime
	}
	if s := a.accepted(Nack); s != nil && s.ended < b.moment {
		back = 0 // it waits, whatever becomes of the consumer and of the leader
	}
	if why&(ended|back) == 0 {
		c.report(KeyOrder, b.Group, b.Message, "%s of key %q, and of message %s %s", b, b.Key, a.Message, a)
	}
}

// checkFirst holds the first claim of a message to those of its key that lie behind it and were handed out before.
func (c *checker) checkFirst(seen []Message, b *claim) {
	l := c.lines[lineKey{b.Group, b.Message}]
	if p := l.push; p == nil || p.Delay != 0 || len(l.commands) > 0 {
		return
	}
	for _, m := range seen {
		other := c.lines[lineKey{b.Group, m}]
		if m.Offset > b.Offset && other.push != nil && other.push.Priority <= l.push.Priority {
			c.report(KeyOrder, b.Group, b.Message, "%s for the first time, behind message %s of key %q", b, m, b.Key)
			return
		}
	}
}
