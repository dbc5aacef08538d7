// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"margay.dev/broker/shard"
)

// makeRoom lets a log that is to drop its oldest do so before n bytes of records are written for which the disk
// has no room. The reserve stays untouched: the log start that makes the room needs it.
func (s *Shard) makeRoom(now, n int64) {
	if !s.cfg.DropOldest || s.cfg.Memory || s.log.Load() == nil {
		return
	}
	for s.failure == nil && s.host.space.missing(n) > 0 {
		before := s.log.Load().State()
		s.core.Step(now, shard.Reclaim{Segments: s.segments(), Bytes: s.host.space.missing(n) + s.host.space.ahead()}, &s.eff)
		if len(s.eff.Append) == 0 {
			return // it has nothing more to give: the records are refused
		}
		s.perform(now)
		s.host.space.look()
		if after := s.log.Load().State(); after.Segments == before.Segments && after.Bytes >= before.Bytes {
			return
		}
	}
}

// moved reports the moves of the log's start that are committed.
func (s *Shard) moved() {
	for _, m := range s.eff.Moves {
		s.host.metrics.moved(m)
		args := []any{"log", s.Ref.Log, "shard", s.Ref.Shard, "from", m.From.Offset, "to", m.To.Offset}
		switch m.Cause {
		case shard.ByFullDisk:
			s.host.log.Warn("the disk is full: the oldest records are dropped, as the log's on_full says", args...)
		case shard.ByTrim:
			s.host.log.Info("the log was trimmed", args...)
		case shard.ByLiveness:
			s.nextTick = time.Time{} // the next head may be due
		case shard.ByRetention: // every few seconds on a busy log; the metrics tell
		}
	}
}
