// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"sync"

	"margay.dev/broker/fanout"
	"margay.dev/broker/host"
	"margay.dev/storage"
	"margay.dev/wire"
	"margay.dev/wire/batch"
)

// chunks are what history is read into: a new one for each read would be most of what a broker allocates.
var chunks = sync.Pool{New: func() any { return new([readChunk]byte) }}

// history delivers one chunk from the log, and joins the hub when it has reached it.
func (s *Subscription) history(p *part) (busy bool, err error) {
	if start := p.shard.View().Start; p.next < start.Offset || p.seq < start.Sequence { // a trim may begin the log inside a batch
		s.gap(p, p.next, start.Offset, wire.GapRetention)
		p.seq = max(p.seq, start.Sequence)
	}
	hub := p.shard.Hub()
	if p.seq >= hub.Sequence() {
		if pos, ok := hub.Join(s.queue, p.seq); ok {
			p.live, p.next = true, max(p.next, pos.Offset)
			return false, nil
		}
		if err := hub.Err(); err != nil {
			return false, err
		}
		return true, nil // the hub has moved on meanwhile
	}
	var gap *storage.GapError
	buf := chunks.Get().(*[readChunk]byte)
	defer chunks.Put(buf) // what is written to a lane has been copied
	chunk, err := p.shard.Read(buf[:], p.seq, readChunk)
	switch {
	case errors.Is(err, storage.ErrDropped):
		return true, nil // retention passed us: the new start is in the view
	case errors.As(err, &gap):
		s.gap(p, p.next, gap.ToOffset, wire.GapAcceptedLoss)
		p.seq = gap.ToSequence
		return true, nil
	case err != nil:
		if e := hub.Err(); e != nil {
			return false, e
		}
		return false, host.ReadError(err)
	}
	return true, s.deliverStored(p, chunk)
}

// deliverStored sends runs of batches as they are stored, and slices of those that the subscriber gets a part of;
// control and carried batches never go to clients.
func (s *Subscription) deliverStored(p *part, chunk []byte) error {
	r := run{s: s, p: p, chunk: chunk, mark: p.shard.View().Ceiling}
	now := p.shard.Now()
	for r.at < len(chunk) {
		b := batch.Batch(chunk[r.at:])
		b = b[:b.Size()]
		if !b.HasOffsets() || b.NextOffset() <= p.next || b.AppendTime() < p.after {
			if err := r.skip(b); err != nil {
				return err
			}
			continue
		}
		if b.BaseOffset() > p.next {
			if err := r.send(); err != nil {
				return err
			}
			s.gap(p, p.next, b.BaseOffset(), wire.GapAcceptedLoss)
		}
		keep, all := s.sel.Select(b, now, s.keep[:0])
		s.keep = keep
		if all {
			r.pass(b)
			continue
		}
		if err := r.skip(b); err != nil {
			return err
		}
		if len(keep) > 0 {
			if err := s.slice(p, r.mark, b, keep); err != nil {
				return err
			}
		}
	}
	return r.send()
}

// slice sends a part of a batch. One that its producer compressed beyond repair concerns nobody else.
func (s *Subscription) slice(p *part, mark uint64, b batch.Batch, keep []int) error {
	if frame, err := fanout.SliceFrame(p.id, mark, b, keep); err == nil {
		s.tally.delivery(len(keep), len(frame))
		return s.write(frame)
	}
	s.tally.gap(wire.GapUnreadable, b.BaseOffset(), b.NextOffset())
	s.out = wire.AppendFrame(s.out, 0, &wire.Gap{Shard: p.id, From: b.BaseOffset(), To: b.NextOffset(), Reason: wire.GapUnreadable})
	return nil
}

// run is a stretch of a chunk that goes out as it is stored: chunk[from:at].
type run struct {
	s        *Subscription
	p        *part
	chunk    []byte
	mark     uint64
	from, at int
	records  int
}

// pass adds a batch to the run.
func (r *run) pass(b batch.Batch) {
	r.at += len(b)
	r.records += b.Count()
	r.p.seq, r.p.next = b.Sequence()+1, max(r.p.next, b.NextOffset())
}

// skip ends the run before a batch and begins the next behind it.
func (r *run) skip(b batch.Batch) error {
	if err := r.send(); err != nil {
		return err
	}
	r.at += len(b)
	r.from = r.at
	r.p.seq = b.Sequence() + 1
	if b.HasOffsets() {
		r.p.next = max(r.p.next, b.NextOffset())
	}
	return nil
}

// send sends the run.
func (r *run) send() error {
	stored := r.chunk[r.from:r.at]
	r.from = r.at
	if len(stored) == 0 {
		return nil
	}
	d := wire.Deliver{Shard: r.p.id, Mark: r.mark, Batch: batch.Batch(stored)}
	r.s.out = d.AppendHead(r.s.out)
	r.s.tally.delivery(r.records, len(stored))
	r.records = 0
	return r.s.write(stored)
}
