// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"
	"time"
)

// keptGrace is how long after a shard was joined again a message that a handler works on may take to be handed out here anew.
const keptGrace = time.Second

// keep notes what handlers work on in a shard that has lost its lane. A broker that starts again has forgotten the claims, and
// hands out the messages at once: mostly here, to the consumer that works on them. That is no second message then, but the claim
// of the first. Without that every restart of a broker would have all work that is under way done twice, side by side. Called with
// mu held.
func (g *Consumer) keep(s *consumeShard) {
	s.kept = nil
	for h := range g.handlers {
		h.mu.Lock()
		for m := range h.active {
			if m.from.shard == s && m.op == 0 {
				if s.kept == nil {
					s.kept = map[uint64]*Message{}
				}
				s.kept[m.Offset] = m
			}
		}
		h.mu.Unlock()
	}
}

// adoptClaims gives the claims of a delivery to messages that handlers work on already. It reports whether nothing else is in it.
// Those of a group that began again are other ones: somebody wants all of it done anew. Called with mu held.
func (g *Consumer) adoptClaims(d *delivery) (all bool) {
	s := d.shard
	if len(s.kept) == 0 {
		return false
	}
	var fresh []uint64
	others := false
	err := d.each(func(handOut, offset uint64) {
		m := s.kept[offset]
		if m == nil || m.op != 0 || m.from.claims.Group != d.claims.Group || m.from.claims.Resets != d.claims.Resets {
			others = true
			return
		}
		delete(s.kept, offset)
		m.from, m.handOut, m.extended = d, handOut, time.Time{}
		fresh = append(fresh, handOut)
	})
	if d.adopted = fresh; err != nil || others || len(fresh) == 0 {
		return false
	}
	s.begun = fresh[len(fresh)-1]
	d.lane.begin()
	return true
}

// awaited reports whether the message is to be handed out here again, so that extending its claim would only be refused. It is so
// until the claim would have ended, and the shard was joined long enough ago. Called with mu held.
func (m *Message) awaited(now time.Time, left time.Duration) bool {
	s := m.from.shard
	return s.kept[m.Offset] == m && (left > 0 || s.lane == nil || now.Sub(s.joined) < keptGrace)
}

// holdExtensions drops what was to be extended of messages that are to be handed out here again: sent before that, it would be
// refused, and the work be ended. Handle asks again. Called with mu held.
func (s *consumeShard) holdExtensions() {
	s.extensions = slices.DeleteFunc(s.extensions, func(x *extension) bool {
		if !x.auto || s.kept[x.m.Offset] != x.m {
			return false
		}
		x.done(nil)
		return true
	})
}
