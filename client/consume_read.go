// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"
	"time"

	"margay.dev/client/internal/frames"
	"margay.dev/client/internal/settle"
	"margay.dev/wire"
	"margay.dev/wire/batch"
	"margay.dev/wire/code"
)

// read takes what comes over the lane until that fails; nil says that it was left in order. It never waits for the application:
// answers to settlements, which that may wait for, come behind messages.
func (l *consumeLane) read() error {
	for {
		h, err := l.lane.ReadSupported()
		if err != nil {
			return err
		}
		if h.Type == wire.TypeMessages {
			err = l.takeMessages(h)
		} else {
			if h.Size > frames.MaxSmall {
				return code.New(code.Protocol, "frame %s: body of %d bytes", h.Type, h.Size)
			}
			if l.small, err = l.lane.AppendBody(l.small[:0]); err != nil {
				return err
			}
			var over bool
			if over, err = l.take(h, l.small); over {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

func (l *consumeLane) takeMessages(h wire.Header) error {
	body := l.allocate(int(h.Size))
	if err := l.lane.ReadBody(body); err != nil {
		return err
	}
	var f wire.Messages
	if err := wire.ParseFrame(h, &f, body); err != nil {
		return err
	}
	d := &delivery{lane: l, at: time.Now(), first: f.HandOut, attempts: f.Attempts, size: int64(len(body)) + entryCost}
	var err error
	if f.Slice {
		d.slice, err = batch.CheckSlice(f.Batch)
	} else {
		d.batch, err = batch.CheckStored(f.Batch)
	}
	if err != nil {
		return code.New(code.CorruptBatch, "messages of shard %d from hand-out %d on: %w", f.Shard, f.HandOut, err)
	}
	g := l.g
	g.mu.Lock()
	i := slices.IndexFunc(l.shards, func(s *consumeShard) bool { return s.id == f.Shard })
	if i < 0 {
		g.mu.Unlock()
		return nil // it ended a moment ago
	}
	d.shard, d.wait = l.shards[i], g.ackWait
	d.claims = d.shard.claims
	d.claims.Resets, d.claims.Generation = f.Resets, f.Generation
	l.useful = true
	d.shard.wait.Reset()
	g.mu.Unlock()
	g.enqueue(d)
	return nil
}

// take takes a frame without messages. Over says that it is the last.
func (l *consumeLane) take(h wire.Header, body []byte) (over bool, _ error) {
	switch h.Type {
	case wire.TypeSettled:
		var f wire.Settled
		if err := wire.ParseFrame(h, &f, body); err != nil {
			return false, err
		}
		return false, l.answered(h.Corr, func(b *settle.Book) (bool, *Error) { return b.Settled(h.Corr, f.Failed) })
	case wire.TypeExtended:
		var f wire.Extended
		if err := wire.ParseFrame(h, &f, body); err != nil {
			return false, err
		}
		return false, orNil(l.extended(h.Corr, &f))
	case wire.TypeProgress:
		var f wire.Progress
		return false, f.Parse(body)
	case wire.TypeConsumeEnd:
		var f wire.ConsumeEnd
		if err := wire.ParseFrame(h, &f, body); err != nil {
			return false, err
		}
		return l.takeEnd(&f)
	case wire.TypeError:
		return false, l.takeError(h.Corr, code.From(frames.Error(body)))
	default:
		return false, frames.Unexpected(h, "consume")
	}
}

// answered passes an answer to the book.
func (l *consumeLane) answered(corr uint64, f func(b *settle.Book) (owed bool, _ *Error)) error {
	g := l.g
	g.mu.Lock()
	defer g.mu.Unlock()
	l.useful = true
	owed, err := f(g.book)
	if !owed {
		err = l.notOwed(corr)
	}
	g.finish()
	l.rouse()
	return orNil(err)
}

// notOwed is the error for an answer that nobody waits for; nil when it may be about a shard that ended. Called with mu held.
func (l *consumeLane) notOwed(corr uint64) *Error {
	if l.parted {
		return nil
	}
	return code.New(code.Protocol, "consume lane: an answer to nothing (%d)", corr)
}

func (l *consumeLane) takeError(corr uint64, err *Error) error {
	if err.Code == code.Unauthenticated && l.g.c.renews() {
		l.conn.Reauthenticate() // a fresh token is on its way
		err.Class = Refused
	}
	switch {
	case corr == 0 || corr == corrConsume || corr == corrLeave:
		return err
	case corr > corrExtend:
		return orNil(l.extensionsRefused(corr, err))
	default:
		if err.Code == code.Protocol || err.Code == code.CorruptBatch {
			return err // of the lane, not of what was settled
		}
		return l.answered(corr, func(b *settle.Book) (bool, *Error) { return b.Refused(corr, err, time.Now()), nil })
	}
}

func (l *consumeLane) takeEnd(f *wire.ConsumeEnd) (over bool, _ error) {
	if f.Shard == wire.AllShards && f.Code == 0 {
		return true, nil
	}
	err := code.New(code.Unavailable, "the broker ended the claims of shard %d", f.Shard)
	if f.Code != 0 {
		err = code.New(f.Code, "consume %s: %s", l.g.q.name, f.Message)
	}
	if f.Shard == wire.AllShards {
		return false, err
	}
	if !l.g.shardEnded(l, f.Shard, err) {
		return false, err
	}
	return false, nil
}

// allocate is as a subscription's: small frames are cut from one piece of memory.
func (l *consumeLane) allocate(n int) []byte {
	if n > arenaBelow {
		return make([]byte, n)
	}
	if n > len(l.arena) {
		l.arena = make([]byte, arenaChunk)
	}
	out := l.arena[:n:n]
	l.arena = l.arena[n:]
	return out
}
