// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	versionsChunk    = 1 << 20 // of the log that is read at once
	versionsParallel = 2       // tables that are made at a time, over all shards
)

// nobody waits for an answer.
type nobody struct{}

func (nobody) Answered(shard.Answer) {}

// buildVersions makes the table that the core asks for, beside the shard's goroutine: reading a log of gigabytes takes
// seconds, and publishes do not wait for it. The core goes on from the sequence at which the table ends.
func (s *Shard) buildVersions(b *shard.BuildVersions) {
	s.building.Go(func() {
		select {
		case s.host.building <- struct{}{}:
			defer func() { <-s.host.building }()
		case <-s.quit:
			return
		}
		began := time.Now()
		built := shard.VersionsBuilt{Build: b, Err: s.readVersions(b)}
		if built.Err != nil {
			s.host.log.Error("read the log to learn the versions of its keys", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", built.Err)
		} else if took := time.Since(began); took > time.Second {
			s.host.log.Info("read the log to learn the versions of its keys", "log", s.Ref.Log, "shard", s.Ref.Shard, "took", took)
		}
		s.handOver(built)
	})
}

// readVersions fills the table from the log. What retention takes meanwhile is absent in any case.
func (s *Shard) readVersions(b *shard.BuildVersions) *code.Error {
	l := s.log.Load()
	for seq := b.From; seq < b.Until && !b.Table.Full(); {
		select {
		case <-s.quit:
			return code.New(code.Opening, "the shard is closing")
		default:
		}
		chunk, err := l.Read(seq, b.Until, versionsChunk)
		if gap, ok := errors.AsType[*storage.GapError](err); ok {
			seq = gap.ToSequence
			continue
		}
		if start := l.State().StartSequence; errors.Is(err, storage.ErrDropped) && start > seq {
			seq = start
			continue
		}
		if err != nil {
			return ReadError(err).WithClass(code.ClassRefused)
		}
		for len(chunk) > 0 {
			x := batch.Batch(chunk)
			x = x[:x.Size()]
			chunk = chunk[len(x):]
			if err := b.Table.Add(x); err != nil {
				return code.New(code.Quarantined, "the log is damaged: %w", err).WithClass(code.ClassRefused)
			}
			seq = x.Sequence() + 1
		}
	}
	return nil
}

// handOver gives the table to the core, however many events wait there.
func (s *Shard) handOver(built shard.VersionsBuilt) {
	for {
		err := s.Post(built, nobody{})
		if err == nil || err.Code != code.Overloaded {
			return
		}
		t := time.NewTimer(err.RetryAfter)
		select {
		case <-t.C:
		case <-s.quit:
			t.Stop()
			return
		}
	}
}
