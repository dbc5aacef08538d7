// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"margay.dev/broker/shard"
	"margay.dev/wire/code"
)

// flush makes what was written durable. The lease of a replicated shard is checked again here, after the
// flush and before anything is answered; one copy needs none.
func (s *Shard) flush(now int64) bool {
	l := s.log.Load()
	if l == nil {
		return true
	}
	began := s.host.cfg.Clock()
	length, err := s.host.committer.Flush(l.Log)
	if err != nil {
		s.lose(now, err)
		return false
	}
	s.host.metrics.flushed(s.unflushed, s.host.cfg.Clock().Sub(began))
	s.unflushed, s.dirty = 0, time.Time{}
	s.remember(length)
	s.core.Step(now, shard.Flushed{Length: length}, &s.eff)
	return true
}

// remember notes in the data directory, once in the life of a shard, that it has held records. Where that fails nothing
// is lost by it, so that it is tried again at the next flush and nobody is refused.
func (s *Shard) remember(flushed uint64) {
	if s.made || s.cfg.Memory || flushed == 0 { // nothing yet, since its first write failed: there is nothing to be missed
		return
	}
	if err := s.host.cfg.Dir.SetMade(s.Ref.Log, s.Ref.Shard); err != nil {
		s.host.log.Warn("the shard's files are not vouched for yet", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", err)
		return
	}
	s.made = true
}

// lose ends this opening of the shard: what was not flushed may or may not be on disk, and reading it
// back would show the page cache (ST-11). The host opens it again, cut to what is known flushed, at a
// higher generation.
func (s *Shard) lose(now int64, err error) {
	s.failure = err
	s.host.metrics.poisoned.Inc()
	s.host.log.Error("flush failed: the shard is closed and opened again at what is known flushed",
		"log", s.Ref.Log, "shard", s.Ref.Shard, "error", err)
	s.core.Step(now, shard.Lost{Err: code.New(code.OutcomeUnknown, "the disk failed to flush: %w", err)}, &s.eff)
}
