// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"margay.dev/broker/shard"
)

const (
	maxTick       = 10 * time.Second // between two looks at retention
	minTick       = 100 * time.Millisecond
	spaceInterval = 250 * time.Millisecond
	dropAgain     = time.Second // between two tries to remove segments
)

// tickEvery is how often retention looks at this log: ages are kept to a tenth.
func (s *Shard) tickEvery() time.Duration {
	if s.cfg.MaxAge > 0 {
		return min(max(s.cfg.MaxAge/10, minTick), maxTick)
	}
	return maxTick
}

// pause is how long the shard may sleep when nothing comes.
func (s *Shard) pause() time.Duration {
	now := s.host.cfg.Clock()
	d := time.Hour
	if s.retains() || s.owed {
		d = s.nextTick.Sub(now)
	}
	if !s.dirty.IsZero() && s.cfg.Fsync == shard.FsyncInterval {
		d = min(d, s.dirty.Add(s.interval).Sub(now))
	}
	if at := s.core.Next(); at != 0 {
		d = min(d, time.Duration(at-s.host.now())*time.Microsecond)
	}
	if s.full {
		d = min(d, s.spaceAt.Sub(now))
	}
	return max(d, time.Millisecond)
}

func (s *Shard) retains() bool {
	return s.log.Load() != nil && (s.cfg.MaxAge > 0 || s.cfg.MaxBytes > 0 || s.cfg.SegmentAge > 0 || s.cfg.KeepNewest || s.cfg.KeepUnsettled)
}

// tick lets the core look at what the log holds.
func (s *Shard) tick(t time.Time, now int64) {
	s.nextTick = t.Add(s.tickEvery())
	if s.log.Load() == nil {
		return
	}
	s.core.Step(now, shard.Tick{Segments: s.segments()}, &s.eff)
}

// segments is what the log holds, as the core looks at it.
func (s *Shard) segments() []shard.Segment {
	infos := s.log.Load().Segments()
	segs := make([]shard.Segment, 0, len(infos))
	for _, i := range infos {
		segs = append(segs, shard.Segment{BaseSequence: i.BaseSequence, BaseOffset: i.BaseOffset, LastAppendTime: i.LastAppendTime, Bytes: i.Bytes})
	}
	return segs
}

// flushDue flushes a log of fsync interval whose oldest unflushed write has reached it.
func (s *Shard) flushDue(now int64) {
	if s.failure != nil || s.dirty.IsZero() || s.cfg.Fsync != shard.FsyncInterval || s.cfg.Memory {
		return
	}
	if s.host.cfg.Clock().Sub(s.dirty) < s.interval {
		return
	}
	s.flush(now)
	s.deliver()
}

// memoryFull says whether a log in memory that keeps the newest of each key takes no records until its head is reclaimed:
// what is carried must find room. Another one drops its oldest.
func (s *Shard) memoryFull() bool {
	l := s.log.Load()
	return s.cfg.Memory && s.cfg.KeepNewest && l != nil && l.State().Bytes > memoryFull
}

// checkSpace tells the core whether records may be written. Writes resume by themselves.
func (s *Shard) checkSpace() {
	full := s.memoryFull()
	if !s.cfg.Memory {
		full = s.host.space.full()
	}
	if full == s.full {
		if full {
			s.spaceAt = s.host.cfg.Clock().Add(spaceInterval)
		}
		if full && s.cfg.Memory {
			s.nextTick = time.Time{} // what has ended since may make room
		}
		return
	}
	s.full, s.spaceAt = full, s.host.cfg.Clock().Add(spaceInterval)
	s.core.Step(s.host.now(), shard.Space{Full: full}, &s.eff)
}
