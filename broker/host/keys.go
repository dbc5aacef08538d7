// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"time"

	"margay.dev/broker/shard"
	"margay.dev/storage"
	"margay.dev/storage/keyindex"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

const (
	keysChunk    = 1 << 20 // of the log that is read at once
	keysParallel = 2       // such reads at a time, over all shards
	keysTouch    = time.Minute

	defaultKeyBytes = 1 << 30
)

// nobody waits for an answer.
type nobody struct{}

func (nobody) Answered(shard.Answer) {}

// buildKeys makes the index that the core asks for, beside the shard's goroutine: reading a log of gigabytes takes seconds,
// and publishes do not wait for it. The core goes on from the sequence at which the index ends.
func (s *Shard) buildKeys(b *shard.BuildKeys) {
	s.host.beside(&s.beside, func() {
		select {
		case <-s.quit:
			return
		default:
		}
		var taken int64
		began := s.host.cfg.Clock()
		built := shard.KeysBuilt{Build: b, Err: s.readKeys(b, &taken)}
		if built.Err != nil && built.Err.Code != code.Opening {
			s.host.log.Error("read the log to learn its keys", "log", s.Ref.Log, "shard", s.Ref.Shard, "error", built.Err)
		} else if took := s.host.cfg.Clock().Sub(began); took > time.Second {
			s.host.log.Info("read the log to learn its keys", "log", s.Ref.Log, "shard", s.Ref.Shard, "keys", b.Index.Len(), "took", took)
		}
		s.host.keyBytes.Add(-taken) // the core counts it from here on: twice would refuse what there is room for
		s.handOver(built)
	})
}

// readKeys fills the index from its snapshot and the log behind that. What retention takes meanwhile is absent in any case.
func (s *Shard) readKeys(b *shard.BuildKeys, taken *int64) *code.Error {
	l := s.log.Load()
	for seq := s.loadKeys(b); seq < b.Until && !b.Full(); {
		if all := s.host.keyBytes.Load(); all > s.host.cfg.KeyBytes && !s.cfg.KeepNewest {
			return s.host.tooManyKeys()
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
			if err := b.Add(x); err != nil {
				return code.New(code.Quarantined, "the log is damaged: %w", err).WithClass(code.ClassRefused)
			}
			seq = x.Sequence() + 1
		}
		s.host.keyBytes.Add(b.Index.Bytes() - *taken)
		*taken = b.Index.Bytes()
	}
	return nil
}

// readInTurn reads a chunk when it is this table's turn: a large log holds up no small one.
func (s *Shard) readInTurn(l storage.Log, seq, until uint64) ([]byte, error) {
	select {
	case s.host.building <- struct{}{}:
	case <-s.quit:
		return nil, errClosing
	}
	defer func() { <-s.host.building }()
	return l.Read(seq, until, keysChunk)
}

var errClosing = errors.New("the shard is closing")

// countKeys keeps the indexes of all shards within what the node has for them. The one that grows over it goes, or takes
// no new keys if its log cannot do without.
func (s *Shard) countKeys(now int64) {
	n := s.core.KeyBytes()
	grown := n - s.keyBytes
	if grown == 0 && !s.noRoom {
		return
	}
	s.keyBytes = n
	over := s.host.keyBytes.Add(grown) > s.host.cfg.KeyBytes
	switch {
	case s.cfg.KeepNewest && over != s.noRoom:
		s.noRoom = over
		room := shard.KeyRoom{}
		if over {
			room.Err = s.host.tooManyKeys()
		}
		s.core.Step(now, room, &s.eff)
	case !s.cfg.KeepNewest && over && grown > 0:
		s.core.Step(now, shard.KeyRoom{Err: s.host.tooManyKeys()}, &s.eff)
		s.host.keyBytes.Add(-n)
		s.keyBytes = 0
	}
}

func (h *Host) tooManyKeys() *code.Error {
	return code.New(code.TooMany, "the node has no memory left to know the keys of its logs: %d bytes are taken", h.cfg.KeyBytes).
		With(code.DetailLimit, uint64(h.cfg.KeyBytes)).Retry(time.Second)
}

// Keys is the newest record of each key that is committed, for reading: an index that follows the log while the shard is
// open. It is asked for again for each reading: one that nobody has asked for long is dropped. While it is being made
// the answer is Opening.
func (s *Shard) Keys(ctx context.Context) (*keyindex.Index, *code.Error) {
	now := s.host.now()
	if x := s.View().Keys; x != nil {
		if s.cfg.KeepNewest {
			return x, nil
		}
		if was := s.asked.Load(); now-was < keysTouch.Microseconds() || !s.asked.CompareAndSwap(was, now) {
			return x, nil
		}
	}
	if _, err := s.Do(ctx, func(to any) shard.Event { return shard.WantKeys{To: to} }); err != nil {
		return nil, code.From(err)
	}
	if x := s.View().Keys; x != nil {
		return x, nil
	}
	return nil, code.New(code.Opening, "the shard reads its log to learn its keys").Retry(20 * time.Millisecond)
}

// handOver gives the core what was done beside it, however many events wait there.
func (s *Shard) handOver(e shard.Event) { s.handOverTo(e, nobody{}) }

func (s *Shard) handOverTo(e shard.Event, to Waiter) {
	for {
		err := s.Post(e, to)
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
