// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"margay.dev/broker/group"
	"margay.dev/broker/host"
	"margay.dev/broker/shard"
	"margay.dev/wire"
)

// Progress tells the consumer, as Serve does now and then, that it is alive and how far its group has got in each shard: the
// shards are asked, and their answers written when they come.
func (l *Lane) Progress() {
	for _, m := range l.members {
		l.mu.Lock()
		asks := m.in && !m.over && !m.asked
		m.asked = m.asked || asks
		l.mu.Unlock()
		if asks {
			m.progress()
		}
	}
}

func (m *member) progress() {
	f := wire.Progress{Shard: m.id, Generation: m.generation}
	ev := &shard.Inspect{Look: func(v *group.View) { f.Next, _ = v.Outstanding(m.lane.group, 0) }}
	to := host.Func(func(a shard.Answer) {
		l := m.lane
		f.Mark = m.shard.View().Ceiling
		l.mu.Lock()
		m.asked = false
		if a.Err == nil && !m.over && !l.closed {
			l.notes = wire.AppendFrame(l.notes, 0, &f)
		}
		l.mu.Unlock()
		l.signal()
	})
	ev.To = to
	if m.shard.Post(ev, to) != nil {
		m.lane.mu.Lock()
		m.asked = false // the next note tells
		m.lane.mu.Unlock()
	}
}
