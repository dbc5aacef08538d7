// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"time"

	"margay.dev/broker/group"
	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// scanBytes is how much of a log is read at once for who hands it out.
const scanBytes = 1 << 20

// Taker is the Lane of a group's consumer. The shard's goroutine calls it, so it must not wait.
type Taker interface {
	// Take gets what the consumer is handed.
	Take(s *Shard, h *group.Hand)
	// Gone says that the consumer's group was deleted.
	Gone(s *Shard, c *group.Consumer)
}

// handOut gives consumers what they are handed, and reads on for those who may have more.
func (s *Shard) handOut() {
	if len(s.eff.Hands) > 0 {
		s.shareCommitted()
	}
	for i := range s.eff.Hands {
		h := &s.eff.Hands[i]
		h.To.Lane.(Taker).Take(s, h) // nobody else joins a group
	}
	for _, c := range s.eff.Gone {
		c.Lane.(Taker).Gone(s, c)
	}
	for _, x := range s.eff.Scans {
		s.scan(x)
	}
}

// scan reads a part of the log beside the shard's goroutine, and hands it over.
func (s *Shard) scan(x group.Scan) {
	mark := s.View().Mark
	s.host.beside(&s.beside, func() {
		select {
		case <-s.quit:
			return
		default:
		}
		done := &shard.GroupsScanned{}
		done.Scan = x
		if err := s.readBatches(done, mark); err != nil {
			done.Err = ReadError(err)
			if !errors.Is(err, storage.ErrDropped) { // else it is read from where the log begins by now
				s.host.log.Error("read the log for its groups", "log", s.Ref.Log, "shard", s.Ref.Shard, "offset", x.From, "error", err)
			}
		}
		s.handOver(done)
	})
}

// readBatches reads what is committed from an offset on.
func (s *Shard) readBatches(into *shard.GroupsScanned, mark uint64) error {
	into.Next = into.Scan.From
	seq, err := s.Find(into.Scan.From)
	if err != nil {
		return err
	}
	l := s.log.Load()
	if l == nil {
		return storage.ErrDropped
	}
	for {
		chunk, err := l.Read(seq, mark, scanBytes)
		if gap, ok := errors.AsType[*storage.GapError](err); ok {
			if gap.ToOffset > into.Next {
				into.Lost = append(into.Lost, group.Span{From: max(gap.FromOffset, into.Next), To: gap.ToOffset})
				into.Next = gap.ToOffset
			}
			seq = gap.ToSequence
			continue
		}
		if err != nil {
			return err
		}
		for len(chunk) > 0 {
			b := batch.Batch(chunk)
			b = b[:b.Size()]
			chunk = chunk[len(b):]
			seq = b.Sequence() + 1
			into.Next = max(into.Next, b.NextOffset())
			into.Batches = append(into.Batches, b)
		}
		if into.Next > into.Scan.From || seq >= mark {
			return nil
		}
	}
}

// buildPlaces reads where messages were carried to, beside the shard's goroutine.
func (s *Shard) buildPlaces(b *shard.BuildPlaces) {
	s.host.beside(&s.beside, func() {
		began := s.host.cfg.Clock()
		built := shard.PlacesBuilt{Build: b, Err: s.readPlaces(b)}
		if built.Err != nil && built.Err.Code != code.Opening {
			s.host.log.Error("read the log to learn what was carried", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", built.Err)
		} else if took := s.host.cfg.Clock().Sub(began); took > time.Second {
			s.host.log.Info("read the log to learn what was carried", "log", s.Ref.Log, "shard", s.Ref.Shard, "took", took)
		}
		s.handOver(built)
	})
}

func (s *Shard) readPlaces(b *shard.BuildPlaces) *code.Error {
	l := s.log.Load()
	for seq := b.From; seq < b.Until; {
		chunk, err := s.readInTurn(l, seq, b.Until)
		if gap, ok := errors.AsType[*storage.GapError](err); ok {
			seq = gap.ToSequence
			continue
		}
		if start := l.State().StartSequence; errors.Is(err, storage.ErrDropped) && start > seq {
			seq = start
			continue
		}
		if errors.Is(err, errClosing) {
			return code.New(code.Opening, "%w", err)
		}
		if err != nil {
			return ReadError(err).WithClass(code.ClassRefused)
		}
		for len(chunk) > 0 {
			x := batch.Batch(chunk)
			x = x[:x.Size()]
			chunk = chunk[len(x):]
			seq = x.Sequence() + 1
			if err := b.Add(x); err != nil {
				return code.New(code.Quarantined, "the log is damaged: %w", err).WithClass(code.ClassRefused)
			}
		}
	}
	return nil
}
