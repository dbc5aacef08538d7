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
	versionsParallel = 2       // such reads at a time, over all shards

	defaultVersionBytes = 256 << 20
)

// nobody waits for an answer.
type nobody struct{}

func (nobody) Answered(shard.Answer) {}

// buildVersions makes the table that the core asks for, beside the shard's goroutine: reading a log of gigabytes takes
// seconds, and publishes do not wait for it. The core goes on from the sequence at which the table ends.
func (s *Shard) buildVersions(b *shard.BuildVersions) {
	s.host.beside(&s.building, func() {
		select {
		case <-s.quit:
			return
		default:
		}
		var taken int64
		began := s.host.cfg.Clock()
		built := shard.VersionsBuilt{Build: b, Err: s.readVersions(b, &taken)}
		if built.Err != nil && built.Err.Code != code.Opening {
			s.host.log.Error("read the log to learn the versions of its keys", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", built.Err)
		} else if took := s.host.cfg.Clock().Sub(began); took > time.Second {
			s.host.log.Info("read the log to learn the versions of its keys", "log", s.Ref.Log, "shard", s.Ref.Shard, "took", took)
		}
		s.host.versionBytes.Add(-taken) // the core counts it from here on: twice would refuse what there is room for
		s.handOver(built)
	})
}

// readVersions fills the table from the log. What retention takes meanwhile is absent in any case.
func (s *Shard) readVersions(b *shard.BuildVersions, taken *int64) *code.Error {
	l := s.log.Load()
	for seq := b.From; seq < b.Until && !b.Table.Full(); {
		if s.host.versionBytes.Load() > s.host.cfg.VersionBytes {
			return s.host.tooManyVersions()
		}
		chunk, err := s.readInTurn(l, seq, b.Until)
		if gap, ok := errors.AsType[*storage.GapError](err); ok {
			seq = gap.ToSequence
			continue
		}
		if start := l.State().StartSequence; errors.Is(err, storage.ErrDropped) && start > seq {
			seq = start
			continue
		}
		if errors.Is(err, errQuit) {
			return code.New(code.Opening, "%w", err)
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
		s.host.versionBytes.Add(b.Table.Bytes() - *taken)
		*taken = b.Table.Bytes()
	}
	return nil
}

// readInTurn reads a chunk when it is this table's turn: a large log holds up no small one.
func (s *Shard) readInTurn(l storage.Log, seq, until uint64) ([]byte, error) {
	select {
	case s.host.building <- struct{}{}:
	case <-s.quit:
		return nil, errQuit
	}
	defer func() { <-s.host.building }()
	return l.Read(seq, until, versionsChunk)
}

var errQuit = errors.New("the shard is closing")

// countVersions keeps the tables of all shards within what the node has for them. The one that grows over it goes.
func (s *Shard) countVersions(now int64) {
	n := s.core.VersionBytes()
	grown := n - s.versionBytes
	if grown == 0 {
		return
	}
	if all := s.host.versionBytes.Add(grown); grown > 0 && all > s.host.cfg.VersionBytes {
		s.core.Step(now, shard.DropVersions{Err: s.host.tooManyVersions()}, &s.eff)
		s.host.versionBytes.Add(-n)
		n = 0
	}
	s.versionBytes = n
}

func (h *Host) tooManyVersions() *code.Error {
	return code.New(code.TooMany, "the node has no memory left to compare versions of keys: %d bytes are taken", h.cfg.VersionBytes).
		With(code.DetailLimit, uint64(h.cfg.VersionBytes)).Retry(time.Second)
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
